package replica_test

import (
	"context"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/replica"
)

// The whole way: produce, seal, upload, release locally, read back from the store by offset, and after a restart.
func TestOffloadAndReadBack(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 1000) // about ten segments
		n.eventually("all sealed segments are only in the store", time.Minute, func() bool {
			return n.remoteEnd(p) > 800 && p.LocalStart() == n.remoteEnd(p)
		})
		if p.LogStart() != 0 {
			t.Errorf("log start %d", p.LogStart())
		}
		n.consume(p, 0, 1000)
		n.restart(true)
		p = n.partition("t")
		if p.LogStart() != 0 || p.LocalStart() < 800 {
			t.Errorf("after a restart: log start %d, local start %d", p.LogStart(), p.LocalStart())
		}
		n.consume(p, 0, 1000)
		n.fill(p, 1000, 200)
		n.consume(p, 900, 1200)
	})
}

// K10, K100: a topic that nobody writes to any more drains, by varve.tier.max.lag.ms into the store.
func TestIdleTopicReachesTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered())
		n.fill(p, 0, 10)
		time.Sleep(replica.DefaultTierMaxLag - time.Minute)
		if n.remoteEnd(p) != -1 {
			t.Errorf("sealed early: %d", n.remoteEnd(p))
		}
		n.eventually("the segment is in the store", 2*time.Minute, func() bool { return n.remoteEnd(p) == 10 })
		n.consume(p, 0, 10)
	})
}

// A tiered offset is never refused while segments leave the disk (K16), whatever the timing.
func TestNoOutOfRangeAtTheSeam(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ; i += 10 {
				select {
				case <-stop:
					return
				default:
					n.produce(p, batch(i, 10, recordSize))
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		// Readers that stay at the seam, wherever it is.
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			for _, offset := range []int64{p.LocalStart() - 1, p.LocalStart(), p.LocalStart() + 1} {
				if offset < 0 || offset > p.HighWatermark() {
					continue
				}
				r := n.fetch(newFetch(0, replica.FetchPartition{Partition: p, Offset: offset}))
				if err := r.Partitions[0].Err; err != nil {
					t.Fatalf("offset %d of [%d, %d, %d): %v", offset, p.LogStart(), p.LocalStart(), p.EndOffset(), err)
				}
			}
			time.Sleep(7 * time.Millisecond)
		}
		close(stop)
		<-ended
		if p.LocalStart() < 1000 {
			t.Errorf("the seam hardly moved: %d", p.LocalStart())
		}
		n.consume(p, 0, p.EndOffset())
	})
}

// K7, K95, K97: the log start comes from the image, over both tiers, and a restart does not take the local one for it.
func TestLogStartIsTheImages(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 500)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 300 })
		low, err := n.m.DeleteRecords(context.Background(), p, 123)
		if err != nil || low != 123 || n.row(p).LogStart != 123 {
			t.Fatal(low, err, n.row(p).LogStart)
		}
		for range 3 {
			n.restart(true)
			p = n.partition("t")
			if p.LogStart() != 123 {
				t.Errorf("log start %d", p.LogStart())
			}
		}
		n.consume(p, 123, 500)
	})
}
