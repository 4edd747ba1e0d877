package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

type topicDescription struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Configs    map[string]string `json:"configs"` // set on the topic
	Partitions []partitionRow    `json:"partitions"`
}

// partitionRow says who has a partition and which offsets are where. Ends are
// exclusive.
type partitionRow struct {
	Topic      string            `json:"-" col:"TOPIC"`
	Partition  int32             `json:"partition" col:"PARTITION"`
	Leader     int32             `json:"leader" col:"LEADER"`
	Epoch      int32             `json:"leaderEpoch" col:"EPOCH,wide"`
	Replicas   []int32           `json:"replicas" col:"REPLICAS"`
	ISR        []int32           `json:"isr" col:"ISR"`
	Start      *int64            `json:"start" col:"START"`
	LocalStart *int64            `json:"localStart" col:"LOCAL-START"`
	RemoteEnd  *int64            `json:"remoteEnd" col:"REMOTE-END"`
	End        *int64            `json:"end" col:"END"`
	Offline    []int32           `json:"offlineReplicas" col:"OFFLINE,wide"`
	ID         string            `json:"-" col:"ID,wide"`
	Configs    map[string]string `json:"-" col:"CONFIGS,wide"`
}

func newTopicDescribe(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe NAME...",
		Short: "Show partitions, offsets in both tiers, and what is configured",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				var all []topicDescription
				for _, name := range names {
					d, err := a.describeTopic(ctx, adm, name)
					if err != nil {
						return err
					}
					all = append(all, d)
				}
				return a.showTopics(all)
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) showTopics(all []topicDescription) error {
	if a.output == formatJSON || a.output == formatYAML {
		return show(a, all)
	}
	var rows []partitionRow
	for _, d := range all {
		rows = append(rows, d.Partitions...)
	}
	return show(a, rows)
}

func (a *app) describeTopic(ctx context.Context, adm *kadm.Client, name string) (topicDescription, error) {
	detail, err := a.topicDetail(ctx, adm, name)
	if err != nil {
		return topicDescription{}, err
	}
	d := topicDescription{Name: name, ID: wire.UUID(detail.ID).String()}
	if d.Configs, err = a.topicConfigs(ctx, adm, name); err != nil {
		return d, err
	}
	starts, ends := orNone(adm.ListStartOffsets(ctx, name)), orNone(adm.ListEndOffsets(ctx, name))
	locals, remotes := orNone(adm.ListLocalLogStartOffsets(ctx, name)), orNone(adm.ListLatestRemoteOffsets(ctx, name))
	for _, p := range detail.Partitions.Sorted() {
		row := partitionRow{
			Topic: name, Partition: p.Partition, Leader: p.Leader, Epoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR, Offline: p.OfflineReplicas,
			Start: offsetIn(starts, p.Partition), LocalStart: offsetIn(locals, p.Partition), End: offsetIn(ends, p.Partition),
			ID: d.ID, Configs: d.Configs,
		}
		if last := offsetIn(remotes, p.Partition); last != nil {
			*last++ // Kafka's LATEST_TIERED is the last offset itself
			row.RemoteEnd = last
		}
		d.Partitions = append(d.Partitions, row)
	}
	return d, nil
}

func offsetIn(listed map[int32]kadm.ListedOffset, partition int32) *int64 {
	if o, ok := listed[partition]; ok {
		return &o.Offset
	}
	return nil
}

// topicConfigs returns what was set on the topic itself.
func (a *app) topicConfigs(ctx context.Context, adm *kadm.Client, name string) (map[string]string, error) {
	described, err := adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return nil, a.explain("topic "+name, err)
	}
	set := map[string]string{}
	for _, resource := range described {
		if resource.Err != nil {
			return nil, a.explain("topic "+name, resource.Err)
		}
		for _, c := range resource.Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				set[c.Key] = c.MaybeValue()
			}
		}
	}
	return set, nil
}
