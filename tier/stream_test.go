package tier

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/wire"
)

// TestReplaySpeed reads a partition in sequence with 30 ms added to every GET, in virtual time: what is left is the waiting.
// With segments of any size it comes to more than 300 MB/s, the start included, and nothing is fetched twice.
func TestReplaySpeed(t *testing.T) {
	const latency = 30 * time.Millisecond
	for _, c := range []struct{ segment, count int }{{1 << 20, 64}, {9 << 20, 7}, {32 << 20, 2}} {
		t.Run(fmt.Sprint(c.segment>>20, " MiB"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(c *Config) {
					c.CacheBytes, c.ChunkBytes, c.ReadAheadBytes, c.MaxReadMemory = 256<<20, 4<<20, 0, 0
				})
				w := r.sameRuns(t, c.count, c.segment)
				r.cold()
				r.slow(latency)
				before, begun := r.store.count(), time.Now()
				r.consume(t, w)
				took, gets := time.Since(begun), r.store.count()-before
				if speed := float64(w.size) / took.Seconds() / 1e6; speed < 300 {
					t.Errorf("%d MiB in %s: %.0f MB/s", w.size>>20, took, speed)
				}
				perSegment := 1 + int(r.chunks(w.size/int64(c.count))) // index and chunks; a small object comes in one
				if c.segment < 5<<20 {
					perSegment = 1
				}
				if gets != perSegment*c.count {
					t.Errorf("%d GETs, want %d for each of %d segments", gets, perSegment, c.count)
				}
				r.balanced()
				_ = r.stop()
			})
		})
	}
}

// TestWindow: nothing is read ahead for a reader of one place, and never more than twice what was read.
func TestWindow(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		bytes  int64
		active int
		want   int64
	}{
		{0, 1, 0}, {1, 1, 1 << 20}, {1 << 20, 1, 2 << 20}, {3 << 20, 1, 6 << 20}, {1 << 30, 1, 8 << 20}, {1 << 30, 2, 6 << 20}, {1 << 30, 20, 1 << 20}, {1 << 30, 0, 8 << 20},
	} {
		if got := r.window(c.bytes, c.active); got != c.want {
			t.Errorf("window(%d, %d) = %d, want %d", c.bytes, c.active, got, c.want)
		}
	}
}

// TestFairness: a reader of one partition is not kept waiting by forty of another.
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxReadMemory = 4 << 20 })
		busy, calm := r.fill("busy", 20, 1000, 8<<20, 8<<20, 8<<20, 8<<20, 8<<20), r.fill("calm", 20, 1000, 4<<20)
		r.cold()
		r.slow(50 * time.Millisecond)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for n := range 40 {
			wg.Go(func() {
				for at := int64(n); ctx.Err() == nil; at += 997 {
					res := r.get(ctx, ReadRequest{TopicID: busy.id, Offset: at * 131 % busy.end(), MaxBytes: 1000, EndOffset: busy.end(), MinOneBatch: true})
					wire.ReleaseRanges(res.Ranges)
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		begun := time.Now()
		same(t, r.readAll(calm, 0, 1<<20), calm.data)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("4 MiB beside a busy partition took %s", took)
		}
		cancel()
		wg.Wait()
		r.balanced()
		_ = r.stop()
	})
}

func TestStreamsAreBounded(t *testing.T) {
	var ss streams
	for i := range int64(3 * maxStreams) {
		ss.advance(laneOf(byte(i)), i*10, i*10+5, 5, nil)
	}
	if ss.count() != maxStreams || len(ss.m) != maxStreams {
		t.Errorf("%d streams, %d places", ss.count(), len(ss.m))
	}
	// Two readers who meet are one stream.
	var two streams
	two.advance(laneOf(1), 0, 10, 100, nil)
	two.advance(laneOf(1), 5, 10, 5, nil)
	if before, _ := two.advance(laneOf(1), 10, 20, 1, nil); before != 100 || two.count() != 1 {
		t.Errorf("%d bytes before, %d streams", before, two.count())
	}
}
