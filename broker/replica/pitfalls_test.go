package replica_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/tier"
)

// K19: a topic that was compacted and is not any more goes to the store from then on; the store is never asked for what is local.
func TestFormerlyCompactedTopic(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		p := n.topic("t", tiered("cleanup.policy", "compact"))
		keyed := func(first int) {
			for i := first; i < first+200; i += 10 {
				n.produce(p, keyedBatch(i, 10))
			}
		}
		keyed(0)
		time.Sleep(10 * time.Minute)
		if n.remoteEnd(p) != -1 {
			t.Errorf("a compacted topic was uploaded to %d", n.remoteEnd(p))
		}
		n.consume(p, 0, 200)
		if s.gets.Load() != 0 {
			t.Errorf("%d GETs for a local topic", s.gets.Load())
		}
		n.configure("t", tiered("cleanup.policy", "delete", "local.retention.bytes", "1"))
		n.eventually("uploaded", time.Minute, func() bool { return n.remoteEnd(p) > 50 && p.LocalStart() == n.remoteEnd(p) })
		n.consume(p, 0, 200)
	})
}

// stuckUploads never ends an upload.
type stuckUploads struct {
	replica.Tier
	stuck chan struct{} // closed: uploads hang
}

func (s *stuckUploads) Upload(ctx context.Context, run tier.Run) (*metadata.Segment, uint64, error) {
	select {
	case <-s.stuck:
		<-ctx.Done()
		return nil, 0, ctx.Err()
	default:
		return s.Tier.Upload(ctx, run)
	}
}

// K59: uploads that hang, as many as there may be, hold up neither retention nor deletion nor appends.
func TestHangingUploadsHoldUpNothing(t *testing.T) {
	synctestNode(t, func(n *node) chan struct{} {
		stuck := make(chan struct{})
		n.wrap = func(t replica.Tier) replica.Tier { return &stuckUploads{t, stuck} }
		return stuck
	}, func(t *testing.T, n *node, stuck chan struct{}) {
		p := n.topic("t", tiered("local.retention.bytes", "1", "retention.ms", "600000"))
		n.fill(p, 0, 300)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 150 })
		close(stuck)
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			n.fill(n.topic(name, tiered()), 0, 200)
		}
		n.fill(p, 300, 100)
		time.Sleep(11 * time.Minute)
		if p.LogStart() != 400 {
			t.Errorf("log start %d", p.LogStart())
		}
		time.Sleep(10 * time.Minute)
		if left := n.objects(); left != 0 {
			t.Errorf("%d objects are still there", left)
		}
	})
}

// K98: what was deleted logically is out of range at once, though its bytes are still in the store and on the disk.
func TestDeletedRecordsAreNotServed(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 500)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 300 })
		n.consume(p, 0, 500)
		for _, low := range []int64{150, p.LocalStart() + 15} {
			if got, err := n.m.DeleteRecords(context.Background(), p, low); err != nil || got != low {
				t.Fatal(got, err)
			}
			if r := n.offset(p, replica.EarliestTimestamp); r.Offset != low { // K97
				t.Errorf("earliest is %d, low watermark %d", r.Offset, low)
			}
			for _, offset := range []int64{0, 100, low - 1} {
				r := n.fetch(newFetch(time.Second, part(p, offset)))
				if !errors.Is(r.Partitions[0].Err, kerr.OffsetOutOfRange) || len(r.data[0]) > 0 || r.Partitions[0].LogStart != low {
					t.Errorf("offset %d below %d: %v, %d bytes", offset, low, r.Partitions[0].Err, len(r.data[0]))
				}
			}
			if r := n.offset(p, 1); r.Offset != low {
				t.Errorf("by time: %+v", r)
			}
			n.consume(p, low, 500)
		}
	})
}

// K35: at shutdown a fetch that waits for the store is answered, and does not hold the broker up.
func TestShutdownAnswersParkedFetches(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 300)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 150 })
		n.restart(true)
		p = n.partition("t")
		s.delay.Store(int64(time.Hour))
		cold := n.fetchAsync(context.Background(), newFetch(time.Hour, part(p, 0)))
		hot := n.fetchAsync(context.Background(), newFetch(time.Hour, part(p, 300)))
		time.Sleep(time.Second)
		start := time.Now()
		n.restart(true)
		<-cold
		<-hot
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
	})
}

// K62, C50: time lookups beyond the bound are refused rather than queued without end.
func TestTimeLookupsAreBounded(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 300)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 150 })
		n.restart(true)
		p = n.partition("t")
		s.delay.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		results := make(chan error, 2000)
		for range 2000 {
			n.m.ListOffsets(ctx, p, replica.OffsetQuery{Timestamp: 1, CurrentLeaderEpoch: -1}, func(r replica.OffsetResult) { results <- r.Err })
		}
		if len(results) < 900 {
			t.Errorf("%d of 2000 were refused at once", len(results))
		}
		for range 2000 {
			if err := <-results; !errors.Is(err, kerr.RequestTimedOut) {
				t.Error(err)
			}
		}
	})
}
