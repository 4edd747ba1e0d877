package replica_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/wire/record"
)

func (n *node) offset(p *replica.Partition, ts int64) replica.OffsetResult {
	n.t.Helper()
	r := n.list(p, replica.OffsetQuery{Timestamp: ts, CurrentLeaderEpoch: -1})
	if r.Err != nil {
		n.t.Error(r.Err)
	}
	return r
}

func (n *node) list(p *replica.Partition, q replica.OffsetQuery) replica.OffsetResult {
	done := make(chan replica.OffsetResult, 1)
	n.m.ListOffsets(context.Background(), p, q, func(r replica.OffsetResult) { done <- r })
	return <-done
}

// The special timestamps over both tiers, and without tiering.
func TestSpecialOffsets(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		plain, p := n.topic("plain", nil), n.topic("t", tiered("local.retention.bytes", "1"))
		epoch := p.LeaderEpoch()
		is := func(p *replica.Partition, ts, offset int64, epoch int32) {
			t.Helper()
			if r := n.offset(p, ts); r.Offset != offset || r.LeaderEpoch != epoch || r.Timestamp != -1 {
				t.Errorf("%s at %d: %+v, want offset %d epoch %d", p.Topic(), ts, r, offset, epoch)
			}
		}
		is(p, replica.LatestTieredTimestamp, -1, -1)
		is(p, replica.EarliestPendingUploadTimestamp, 0, epoch)
		is(p, replica.LatestTimestamp, 0, epoch)
		n.fill(p, 0, 500)
		n.fill(plain, 0, 30)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 300 && p.LocalStart() == n.remoteEnd(p) })
		end := n.remoteEnd(p)
		is(p, replica.LatestTimestamp, 500, epoch)
		is(p, replica.EarliestTimestamp, 0, epoch)
		is(p, replica.EarliestLocalTimestamp, end, epoch)
		is(p, replica.LatestTieredTimestamp, end-1, epoch)
		is(p, replica.EarliestPendingUploadTimestamp, end, epoch)
		is(plain, replica.LatestTimestamp, 30, epoch)
		is(plain, replica.EarliestTimestamp, 0, epoch)
		is(plain, replica.EarliestLocalTimestamp, 0, epoch)
		is(plain, replica.LatestTieredTimestamp, -1, -1)
		is(plain, replica.EarliestPendingUploadTimestamp, -1, -1)
		if _, err := n.m.DeleteRecords(context.Background(), p, 42); err != nil {
			t.Fatal(err)
		}
		is(p, replica.EarliestTimestamp, 42, epoch)
		n.restart(true)
		p = n.partition("t")
		for epoch, want := range map[int32]error{p.LeaderEpoch() - 1: kerr.FencedLeaderEpoch, p.LeaderEpoch() + 1: kerr.UnknownLeaderEpoch} {
			if r := n.list(p, replica.OffsetQuery{Timestamp: -1, CurrentLeaderEpoch: epoch}); !errors.Is(r.Err, want) || r.Offset != -1 {
				t.Errorf("epoch %d: %+v", epoch, r)
			}
		}
	})
}

// By time over both tiers (G16, P32): the first record in the order of offsets whose own timestamp is at or after the target, with
// that timestamp and the epoch of that offset, checked against every record. Timestamps are not in order.
func TestOffsetsByTime(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "20000", "internal.segment.bytes", "16384"))
		origin := time.Now().UnixMilli()
		stamp := func(i int) int64 { return origin + int64(i)*10 - int64(i*i%17)*50 }
		const count = 700
		epochs := make([]int32, count)
		for i := 0; i < count; i += 10 {
			if i == count/2 {
				n.restart(true)
				p = n.partition("t")
			}
			b := record.NewBuilder(record.Options{Codec: record.Codec(i / 10 % 5)})
			for j := i; j < i+10; j++ {
				b.Append(stamp(j), nil, value(j, recordSize))
				epochs[j] = p.LeaderEpoch()
			}
			out, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			n.produce(p, out)
		}
		n.eventually("some of it is only in the store", time.Minute, func() bool { return p.LocalStart() > 100 && p.LocalStart() < 690 })
		check := func(start int64) {
			t.Helper()
			for target := stamp(0) - 100; target < stamp(count-1)+1000; target += 33 {
				want := replica.OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
				for i := int(start); i < count; i++ {
					if stamp(i) >= target {
						want = replica.OffsetResult{Offset: int64(i), Timestamp: stamp(i), LeaderEpoch: epochs[i]}
						break
					}
				}
				if got := n.offset(p, target); got != want {
					t.Fatalf("log start %d, local start %d, time %d: %+v, want %+v", start, p.LocalStart(), target-origin, got, want)
				}
			}
		}
		check(0)
		best := 0
		for i := range count {
			if stamp(i) > stamp(best) {
				best = i
			}
		}
		if got := n.offset(p, replica.MaxTimestamp); got.Offset != int64(best) || got.Timestamp != stamp(best) {
			t.Errorf("max timestamp %+v, want offset %d", got, best)
		}
		// K44: with records deleted inside a remote segment the later ones are still searched.
		low, err := n.m.DeleteRecords(context.Background(), p, 55)
		if err != nil {
			t.Fatal(err)
		}
		check(low)
	})
}

// KAFKA-17552: the largest timestamp is found wherever it lies.
func TestMaxTimestampInTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		newest := time.Now().Add(30 * time.Minute)
		n.fill(p, 0, 50)
		n.produce(p, batchAt(newest, 50, 10, recordSize))
		n.fill(p, 60, 300)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 200 })
		if got := n.offset(p, replica.MaxTimestamp); got.Offset != 50 || got.Timestamp != newest.UnixMilli() {
			t.Errorf("%+v", got)
		}
	})
}

// K41: what is here is not looked for in the store. K40: while the store is slow, lookups wait by themselves and end with their
// time; nothing else is held up.
func TestTimeLookupsAndTheStore(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 300)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 150 && p.LocalStart() == n.remoteEnd(p) })
		n.restart(true)
		p = n.partition("t")
		time.Sleep(time.Minute)
		n.fill(p, 300, 20)
		s.gets.Store(0)
		if r := n.offset(p, time.Now().Add(-time.Second).UnixMilli()); r.Offset != 300 {
			t.Errorf("%+v", r)
		}
		if s.gets.Load() != 0 {
			t.Errorf("%d GETs for a local answer", s.gets.Load())
		}
		s.delay.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start := time.Now()
		done := make(chan replica.OffsetResult, 1)
		n.m.ListOffsets(ctx, p, replica.OffsetQuery{Timestamp: 1, CurrentLeaderEpoch: -1}, func(r replica.OffsetResult) { done <- r })
		n.fill(p, 320, 10)
		if time.Since(start) != 0 {
			t.Error("produce was held up")
		}
		if r := <-done; !errors.Is(r.Err, kerr.RequestTimedOut) || time.Since(start) != 3*time.Second {
			t.Errorf("%+v after %v", r, time.Since(start))
		}
	})
}

// G27, P62.
func TestDeleteRecords(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", nil)
		n.fill(p, 0, 50)
		do := func(offset, low int64, want error) {
			t.Helper()
			got, err := n.m.DeleteRecords(context.Background(), p, offset)
			if got != low || !errors.Is(err, want) {
				t.Errorf("%d: %d, %v", offset, got, err)
			}
		}
		do(51, -1, kerr.OffsetOutOfRange)
		do(-2, -1, kerr.OffsetOutOfRange)
		do(20, 20, nil)
		do(10, 20, nil)
		do(-1, 50, nil)
		do(50, 50, nil)
		n.fill(p, 50, 10)
		n.consume(p, 50, 60)
		n.restart(true)
		if p = n.partition("t"); p.LogStart() != 50 || n.row(p).LogStart != 50 {
			t.Errorf("log start %d, image %d", p.LogStart(), n.row(p).LogStart)
		}
	})
}
