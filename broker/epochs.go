package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// offsetForLeaderEpoch answers OffsetForLeaderEpoch (KIP-320): where an epoch
// ends, over both tiers.
func (h *handler) offsetForLeaderEpoch(r *wire.Request, req *kmsg.OffsetForLeaderEpochRequest) {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, q := range t.Partitions {
			a := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			a.Partition, a.LeaderEpoch, a.EndOffset = q.Partition, -1, -1
			p, err := h.replicas.PartitionByName(t.Topic, q.Partition)
			if err == nil {
				var epoch int32
				var end int64
				if epoch, end, err = p.EpochEndOffset(q.CurrentLeaderEpoch, q.LeaderEpoch); err == nil {
					a.LeaderEpoch, a.EndOffset = epoch, end
				}
			}
			a.ErrorCode = code(err)
			rt.Partitions = append(rt.Partitions, a)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	r.Reply(resp)
}
