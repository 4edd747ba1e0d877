package main

import "github.com/spf13/cobra"

func newTopic(a *app) *cobra.Command {
	return group("topic", "Create, list, describe and delete topics; find offsets; move replicas and leaders",
		newTopicCreate(a), newTopicList(a), newTopicDescribe(a), newTopicDelete(a), newTopicOffsets(a), newTopicReassign(a), newTopicElect(a))
}
