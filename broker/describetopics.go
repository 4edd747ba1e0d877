package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// defaultPageSize is max.request.partition.size.limit when that is not set.
const defaultPageSize = 2000

// describeTopicPartitions answers DescribeTopicPartitions (KIP-966): topics by
// name, a page of partitions at a time; the cursor says where the next begins.
func (h *handler) describeTopicPartitions(r *wire.Request, req *kmsg.DescribeTopicPartitionsRequest) {
	view := h.view(maxMetadataVersion)
	limit := h.cfg.Settings.Fetch.MaxRequestPartitions
	if limit <= 0 {
		limit = defaultPageSize
	}
	if n := int(req.ResponsePartitionLimit); n > 0 {
		limit = min(limit, n)
	}
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	for _, name := range view.pageTopics(req) {
		first := int32(0)
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = max(req.Cursor.Partition, 0)
		}
		if limit == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: first}
			break
		}
		t, next := view.describe(name, first, limit)
		limit -= len(t.Partitions)
		resp.Topics = append(resp.Topics, t)
		if next >= 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: next}
			break
		}
	}
	r.Reply(resp)
}

// maxMetadataVersion has every way to say what is wrong with a leader.
const maxMetadataVersion = 13

// pageTopics lists the topics from the cursor on, sorted by name.
func (v *view) pageTopics(req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if len(names) == 0 {
		for t := range v.img.Topics() {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil {
		i, _ := slices.BinarySearch(names, req.Cursor.Topic)
		names = names[i:]
	}
	return names
}

// describe describes at most limit partitions of a topic from first on, and
// returns the one after them, -1 if that was all.
func (v *view) describe(name string, first int32, limit int) (kmsg.DescribeTopicPartitionsResponseTopic, int32) {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic = &name
	out.AuthorizedOperations = -2147483648
	t := v.img.Topic(name)
	if t == nil {
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
		if err := metadata.CheckTopicName(name); err != nil {
			out.ErrorCode = kerr.InvalidTopicException.Code
		}
		return out, -1
	}
	out.TopicID, out.IsInternal, out.AuthorizedOperations = t.ID, isInternal(name), topicOperations
	for i := first; i < t.NumPartitions; i++ {
		if len(out.Partitions) == limit {
			return out, i
		}
		p := v.img.Partition(t.ID, i)
		if p == nil {
			continue
		}
		dp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		dp.Partition, dp.LeaderEpoch, dp.Replicas, dp.ISR = p.Index, p.LeaderEpoch, p.Replicas, p.ISR
		dp.LeaderID, dp.ErrorCode = v.leader(p)
		// Java's tools take a null here for an old broker and stumble: empty, not null.
		dp.EligibleLeaderReplicas, dp.LastKnownELR = append([]int32{}, p.ELR...), append([]int32{}, p.LastKnownELR...)
		dp.OfflineReplicas = v.offline(p)
		out.Partitions = append(out.Partitions, dp)
	}
	return out, -1
}
