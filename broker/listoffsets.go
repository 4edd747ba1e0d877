package broker

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/wire"
)

// specialSince is the first version of ListOffsets that knows a special
// timestamp. Older clients that send one mean something else (KAFKA-17331).
var specialSince = map[int64]int16{
	replica.LatestTimestamp:                1,
	replica.EarliestTimestamp:              1,
	replica.MaxTimestamp:                   7,
	replica.EarliestLocalTimestamp:         8,
	replica.LatestTieredTimestamp:          9,
	replica.EarliestPendingUploadTimestamp: 11,
}

// defaultOffsetsTimeout bounds lookups of clients that name no timeout.
const defaultOffsetsTimeout = 30 * time.Second

// listOffsets answers ListOffsets. Lookups that need a disk or the store are
// done beside the reader; the request is answered when all are.
func (h *handler) listOffsets(ctx context.Context, r *wire.Request, req *kmsg.ListOffsetsRequest) {
	timeout := h.cfg.Settings.Fetch.ListOffsetsTimeout
	if timeout <= 0 {
		timeout = defaultOffsetsTimeout
	}
	if r.Version >= 10 && req.TimeoutMillis > 0 {
		timeout = min(timeout, time.Duration(req.TimeoutMillis)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	resp := kmsg.NewPtrListOffsetsResponse()
	var left atomic.Int64
	left.Store(1)
	done := func() {
		if left.Add(-1) == 0 {
			cancel()
			r.Reply(resp)
		}
	}
	isolation := replica.ReadUncommitted
	if req.IsolationLevel == 1 {
		isolation = replica.ReadCommitted
	}
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	seen := map[partitionKey]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			seen[partitionKey{topic: t.Topic, index: p.Partition}]++
		}
	}
	for i := range req.Topics {
		t, tr := &req.Topics[i], &resp.Topics[i]
		tr.Topic = t.Topic
		tr.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			q, a := &t.Partitions[j], &tr.Partitions[j]
			a.Default()
			a.Partition = q.Partition
			if seen[partitionKey{topic: t.Topic, index: q.Partition}] > 1 {
				a.ErrorCode = kerr.InvalidRequest.Code
				continue
			}
			left.Add(1)
			h.listOffset(ctx, r.Version, t.Topic, q, isolation, func(res replica.OffsetResult) {
				setOffset(a, res, r.Version)
				done()
			})
		}
	}
	done()
}

// listOffset looks one partition up.
func (h *handler) listOffset(ctx context.Context, version int16, topic string, q *kmsg.ListOffsetsRequestTopicPartition, isolation replica.Isolation, done func(replica.OffsetResult)) {
	if q.Timestamp < 0 {
		if since, ok := specialSince[q.Timestamp]; !ok || version < since {
			done(replica.OffsetResult{Err: fmt.Errorf("timestamp %d in version %d: %w", q.Timestamp, version, kerr.UnsupportedVersion)})
			return
		}
	}
	p, err := h.replicas.PartitionByName(topic, q.Partition)
	if err != nil {
		done(replica.OffsetResult{Err: err})
		return
	}
	h.replicas.ListOffsets(ctx, p, replica.OffsetQuery{Timestamp: q.Timestamp, Isolation: isolation, CurrentLeaderEpoch: q.CurrentLeaderEpoch}, done)
}

// setOffset fills in what was found. Nothing found is no error: offset and timestamp are -1.
func setOffset(a *kmsg.ListOffsetsResponseTopicPartition, res replica.OffsetResult, version int16) {
	if res.Err != nil {
		a.ErrorCode = code(res.Err)
		a.Offset, a.Timestamp, a.LeaderEpoch = -1, -1, -1
		return
	}
	a.Offset, a.Timestamp, a.LeaderEpoch = res.Offset, res.Timestamp, res.LeaderEpoch
}
