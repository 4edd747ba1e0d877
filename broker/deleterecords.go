package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// deleteRecords answers DeleteRecords. Each partition's log start is committed
// by the controller, so that is done beside the reader, all partitions at once.
func (h *handler) deleteRecords(ctx context.Context, r *wire.Request, req *kmsg.DeleteRecordsRequest) {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	timeout := h.follower.cfg.RequestTimeout
	if t := time.Duration(req.TimeoutMillis) * time.Millisecond; t > 0 {
		timeout = min(t, timeout)
	}
	started := h.background(func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		limit := make(chan struct{}, maxBackground)
		var wg sync.WaitGroup
		for i := range req.Topics {
			t, tr := &req.Topics[i], &resp.Topics[i]
			tr.Topic = t.Topic
			tr.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
			for j := range t.Partitions {
				limit <- struct{}{}
				wg.Go(func() {
					defer func() { <-limit }()
					tr.Partitions[j] = h.deleteRecordsOf(ctx, t.Topic, t.Partitions[j])
				})
			}
		}
		wg.Wait()
		r.Reply(resp)
	})
	if !started {
		r.Fail(errStopping)
	}
}

func (h *handler) deleteRecordsOf(ctx context.Context, topic string, q kmsg.DeleteRecordsRequestTopicPartition) kmsg.DeleteRecordsResponseTopicPartition {
	a := kmsg.NewDeleteRecordsResponseTopicPartition()
	a.Partition, a.LowWatermark = q.Partition, -1
	p, err := h.replicas.PartitionByName(topic, q.Partition)
	if err == nil {
		var low int64
		if low, err = h.replicas.DeleteRecords(ctx, p, q.Offset); err == nil {
			a.LowWatermark = low
		}
	}
	a.ErrorCode = code(err)
	return a
}
