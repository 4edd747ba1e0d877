package replica_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// slowStore delays every read, and fails it on demand.
type slowStore struct {
	objstore.Store
	delay atomic.Int64
	down  atomic.Bool
	gets  atomic.Int64
	puts  atomic.Int64
}

func (s *slowStore) Get(ctx context.Context, name string, off int64, p []byte) (int, error) {
	s.gets.Add(1)
	select {
	case <-time.After(time.Duration(s.delay.Load())):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if s.down.Load() {
		return 0, objstore.ErrUnreachable
	}
	return s.Store.Get(ctx, name, off, p)
}

func (s *slowStore) Put(ctx context.Context, name string, r io.ReaderAt, size int64, o objstore.PutOptions) error {
	s.puts.Add(1)
	if s.down.Load() {
		return objstore.ErrUnreachable
	}
	return s.Store.Put(ctx, name, r, size, o)
}

// slow puts a slowStore under the node before it starts.
func slow(n *node) *slowStore {
	s := &slowStore{Store: n.store}
	n.store = s
	return s
}

func part(p *replica.Partition, offset int64) replica.FetchPartition {
	return replica.FetchPartition{Partition: p, Offset: offset}
}

func TestLongPoll(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		a, b := n.topic("a", nil), n.topic("b", nil)
		start := time.Now()
		done := n.fetchAsync(context.Background(), newFetch(10*time.Second, part(a, 0), part(b, 0)))
		time.Sleep(3 * time.Second)
		n.produce(b, batch(0, 1, 100))
		r := <-done
		if waited := r.at.Sub(start); waited < 3*time.Second || waited > 3100*time.Millisecond {
			t.Errorf("answered after %v", waited)
		}
		if len(r.data[0]) != 0 || len(r.data[1]) == 0 || r.Partitions[1].HighWatermark != 1 {
			t.Error(len(r.data[0]), len(r.data[1]), r.Partitions[1].HighWatermark)
		}
		// Nothing comes: the time runs out, to the millisecond.
		start = time.Now()
		r = n.fetch(newFetch(700*time.Millisecond, part(a, 0), part(b, 1)))
		if waited := r.at.Sub(start); waited != 700*time.Millisecond {
			t.Errorf("answered after %v", waited)
		}
		if err := errors.Join(r.Partitions[0].Err, r.Partitions[1].Err); err != nil {
			t.Error(err)
		}
		// A client that goes is not waited for.
		ctx, cancel := context.WithCancel(context.Background())
		done = n.fetchAsync(ctx, newFetch(time.Hour, part(a, 0)))
		time.Sleep(time.Second)
		cancel()
		start = time.Now()
		if r = <-done; r.at.Sub(start) > 10*time.Millisecond {
			t.Errorf("answered %v after the client went", r.at.Sub(start))
		}
	})
}

func TestMinBytes(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		a, b := n.topic("a", nil), n.topic("b", nil)
		f := newFetch(time.Minute, part(a, 0), part(b, 0))
		f.MinBytes = 5000
		done := n.fetchAsync(context.Background(), f)
		start := time.Now()
		for i := range 10 {
			time.Sleep(time.Second)
			p := a
			if i%2 == 1 {
				p = b
			}
			n.produce(p, batch(i/2, 1, 1000))
		}
		r := <-done
		if total := len(r.data[0]) + len(r.data[1]); total < 5000 || total > 6500 {
			t.Errorf("%d bytes", total)
		}
		if waited := r.at.Sub(start); waited < 5*time.Second || waited > 5100*time.Millisecond {
			t.Errorf("answered after %v", waited)
		}
	})
}

// Limits below min.bytes, or the end of a segment, are no reason to wait.
func TestMinBytesAboveTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", map[string]string{"internal.segment.bytes": "65536"})
		n.fill(p, 0, 300)
		f := newFetch(time.Minute, part(p, 0))
		f.MinBytes, f.Partitions[0].MaxBytes = 1<<20, 20_000
		start := time.Now()
		if r := n.fetch(f); len(r.data[0]) == 0 || time.Since(start) != 0 {
			t.Errorf("%d bytes after %v", len(r.data[0]), time.Since(start))
		}
	})
}

// Ten thousand parked fetches are objects: no goroutine each, and an append to one partition wakes none of the others.
func TestParkedFetchesAreObjects(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		a, b := n.topic("a", nil), n.topic("b", nil)
		var answered atomic.Int32
		for range 10_000 {
			f := newFetch(time.Hour, part(a, 0))
			f.Done = func(f *replica.Fetch) { wire.ReleaseRanges(f.Partitions[0].Records); answered.Add(1) }
			n.m.Fetch(context.Background(), f)
		}
		before := runtime.NumGoroutine()
		n.produce(b, batch(0, 1, 10))
		time.Sleep(time.Second)
		if before > 200 || answered.Load() != 0 {
			t.Errorf("%d goroutines, %d answered", before, answered.Load())
		}
		n.produce(a, batch(0, 1, 10))
		n.eventually("all are answered", time.Second, func() bool { return answered.Load() == 10_000 })
	})
}

// KIP-74, K22: limits hold for the request and for each partition; only the first batch of the first partition that has one may
// exceed them, in either tier.
func TestFetchLimits(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		var parts []replica.FetchPartition
		for i := range 5 {
			p := n.topic(fmt.Sprint("t", i), tiered("local.retention.bytes", "1"))
			n.fill(p, 0, 300)
			n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 150 })
			offset := int64(0) // cold
			if i%2 == 1 {
				offset = p.LocalStart() // hot
			}
			parts = append(parts, part(p, offset))
		}
		batchSize := len(batch(0, 10, recordSize))
		total := func(max, partMax int) int {
			sum := 0
			f := newFetch(time.Second, append([]replica.FetchPartition(nil), parts...)...)
			f.MaxBytes = max
			for i := range f.Partitions {
				f.Partitions[i].MaxBytes = partMax
			}
			r := n.fetch(f)
			for i, data := range r.data {
				if r.Partitions[i].Err != nil {
					t.Error(r.Partitions[i].Err)
				}
				sum += len(data)
			}
			return sum
		}
		for range 3 {
			time.Sleep(time.Second) // whatever was downloaded is cached now
			if got := total(1, 1); got != batchSize {
				t.Errorf("limit of one byte: %d, want one batch of %d", got, batchSize)
			}
			if got := total(3*batchSize, 1<<20); got > 3*batchSize || got == 0 {
				t.Errorf("limit of three batches: %d", got)
			}
			if got := total(1<<20, batchSize); got > 5*batchSize || got == 0 {
				t.Errorf("limit of a batch a partition: %d", got)
			}
		}
		n.eventually("five partitions of one or two batches", time.Minute, func() bool { // once what is in the store was read
			got := total(1<<20, 2*batchSize)
			if got > 10*batchSize {
				t.Errorf("limit of two batches a partition: %d", got)
			}
			return got >= 7*batchSize
		})
	})
}

// The batch that holds the offset is returned whole, even if it begins before (P83); above the end and below the start the
// offset is out of range, at the end it is not.
func TestFetchOffsets(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", nil)
		n.fill(p, 0, 30)
		if r := n.fetch(newFetch(0, part(p, 17))); record.Batch(r.data[0]).BaseOffset() != 10 {
			t.Errorf("begins at %d", record.Batch(r.data[0]).BaseOffset())
		}
		if _, err := n.m.DeleteRecords(context.Background(), p, 5); err != nil {
			t.Fatal(err)
		}
		for offset, want := range map[int64]error{4: kerr.OffsetOutOfRange, 5: nil, 30: nil, 31: kerr.OffsetOutOfRange, -1: kerr.OffsetOutOfRange} {
			r := n.fetch(newFetch(0, part(p, offset)))
			if !errors.Is(r.Partitions[0].Err, want) {
				t.Errorf("offset %d: %v", offset, r.Partitions[0].Err)
			}
			if r.Partitions[0].LogStart != 5 {
				t.Errorf("log start %d", r.Partitions[0].LogStart)
			}
		}
	})
}

// KIP-320: a reader's leader epoch is checked, and one that read what was rolled back is told where to go.
func TestFetchEpochs(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", nil)
		n.fill(p, 0, 20)
		n.restart(true) // another epoch
		p = n.partition("t")
		n.fill(p, 20, 20)
		epoch := p.LeaderEpoch()
		fetch := func(current, last int32, offset int64) replica.FetchPartition {
			f := newFetch(0, part(p, offset))
			f.Partitions[0].CurrentLeaderEpoch, f.Partitions[0].LastFetchedEpoch = current, last
			return n.fetch(f).Partitions[0]
		}
		if x := fetch(epoch-1, -1, 0); !errors.Is(x.Err, kerr.FencedLeaderEpoch) {
			t.Error(x.Err)
		}
		if x := fetch(epoch+1, -1, 0); !errors.Is(x.Err, kerr.UnknownLeaderEpoch) {
			t.Error(x.Err)
		}
		if x := fetch(epoch, epoch, 30); x.Err != nil || x.Diverging != nil {
			t.Error(x.Err, x.Diverging)
		}
		if x := fetch(epoch, epoch-1, 30); x.Err != nil || x.Diverging == nil || x.Diverging.EndOffset != 20 {
			t.Error(x.Err, x.Diverging)
		}
		if e, end, err := p.EpochEndOffset(-1, epoch-1); err != nil || end != 20 || e > epoch-1 {
			t.Error(e, end, err)
		}
		if e, end, err := p.EpochEndOffset(epoch, epoch); err != nil || end != 40 || e != epoch {
			t.Error(e, end, err)
		}
	})
}

// K23, C59: with a store slower than the client's patience the download goes on, and the client comes forward.
func TestProgressWithSlowStore(t *testing.T) {
	synctestNode(t, func(n *node) *slowStore { return slow(n) }, func(t *testing.T, n *node, s *slowStore) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 500)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 300 })
		n.restart(true) // with an empty chunk cache
		p = n.partition("t")
		s.delay.Store(int64(700 * time.Millisecond))
		s.gets.Store(0)
		empty, offset := 0, int64(0)
		for offset < p.LocalStart() {
			r := n.fetch(newFetch(500*time.Millisecond, part(p, offset)))
			if err := r.Partitions[0].Err; err != nil {
				t.Fatal(err)
			}
			if len(r.data[0]) == 0 {
				if empty++; empty > 40 {
					t.Fatalf("no progress at %d", offset)
				}
			}
			for b := range record.All(r.data[0]) {
				offset = b.NextOffset()
			}
		}
		if s.gets.Load() > 40 {
			t.Errorf("%d GETs for half a MB", s.gets.Load())
		}
	})
}

// K37, K20: a slow cold partition does not delay the hot ones, and cold ones are read side by side.
func TestSlowPartitionDoesNotDelayOthers(t *testing.T) {
	synctestNode(t, func(n *node) *slowStore { return slow(n) }, func(t *testing.T, n *node, s *slowStore) {
		n.topic("hot", nil)
		var cold []replica.FetchPartition
		for i := range 8 {
			p := n.topic(fmt.Sprint("cold", i), tiered("local.retention.bytes", "1"))
			n.fill(p, 0, 200)
			n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 50 })
			cold = append(cold, part(p, 0))
		}
		n.restart(true)
		hot := n.partition("hot")
		for i := range cold {
			cold[i].Partition = n.partition(fmt.Sprint("cold", i))
		}
		n.produce(hot, batch(0, 1, 100))
		s.delay.Store(int64(2 * time.Second))
		start := time.Now()
		r := n.fetch(newFetch(10*time.Second, append([]replica.FetchPartition{part(hot, 0)}, cold...)...))
		if waited := r.at.Sub(start); waited > 10*time.Millisecond || len(r.data[0]) == 0 {
			t.Errorf("the hot partition was answered after %v", waited)
		}
		// What lies in the store was asked for meanwhile, all at once: index and chunk are two round trips.
		time.Sleep(5 * time.Second)
		start = time.Now()
		r = n.fetch(newFetch(10*time.Second, cold...))
		for i, data := range r.data {
			if len(data) == 0 {
				t.Errorf("partition %d has nothing after %v", i, r.at.Sub(start))
			}
		}
		if waited := r.at.Sub(start); waited > 10*time.Millisecond {
			t.Errorf("cached partitions were answered after %v", waited)
		}
		// Hot data that arrives while a fetch waits for the store completes it.
		n.restart(true)
		hot, cold[0].Partition = n.partition("hot"), n.partition("cold0")
		s.delay.Store(int64(time.Minute))
		done := n.fetchAsync(context.Background(), newFetch(30*time.Second, cold[0], part(hot, 1)))
		time.Sleep(time.Second)
		n.produce(hot, batch(1, 1, 100))
		if r = <-done; len(r.data[1]) == 0 || len(r.data[0]) != 0 {
			t.Error(len(r.data[0]), len(r.data[1]))
		}
	})
}

// K29: while the store is down a fetch is parked for its time, and then told; it does not come back at once.
func TestStoreDownParksFetches(t *testing.T) {
	synctestNode(t, func(n *node) *slowStore { return slow(n) }, func(t *testing.T, n *node, s *slowStore) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 300)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 150 })
		n.restart(true)
		p = n.partition("t")
		s.down.Store(true)
		start := time.Now()
		for range 10 {
			r := n.fetch(newFetch(500*time.Millisecond, part(p, 0)))
			if err := r.Partitions[0].Err; err != nil && !errors.Is(err, kerr.KafkaStorageError) {
				t.Error(err)
			}
			if len(r.data[0]) > 0 {
				t.Error("data from nowhere")
			}
		}
		if took := time.Since(start); took < 5*time.Second {
			t.Errorf("ten fetches within %v", took)
		}
		// Produce and hot reads go on.
		n.fill(p, 300, 10)
		n.consume(p, p.LocalStart(), 310)
		s.down.Store(false)
		time.Sleep(time.Minute)
		n.consume(p, 0, 310)
	})
}
