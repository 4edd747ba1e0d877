package tier

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
)

// files are the chunk files on the local disk.
func (r *rig) files() int {
	r.t.Helper()
	names, err := r.fs.List(r.cache.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(names)
}

// TestScanBypassesTheCache: a replay of much more than the cache holds costs its GETs, and leaves alone what another
// reader comes back to.
func TestScanBypassesTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.CacheBytes, c.ReadAheadBytes, c.MaxReadMemory = 12<<20, 4<<20, 16<<20 })
		hot, long := r.fill("hot", 20, 1000, 2<<20), r.fill("long", 20, 1000, 8<<20, 8<<20, 8<<20, 8<<20)
		r.cold()
		again := func() {
			t.Helper()
			res := r.get(context.Background(), first(hot))
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			wire.ReleaseRanges(res.Ranges)
		}
		again()
		r.quiet()
		before := r.store.count()
		same(t, r.readAll(long, 0, 300_000), long.data)
		gets := r.store.count() - before
		if want := len(long.runs) * (1 + 8 + 1); gets > want { // index and chunks
			t.Errorf("%d GETs for %d MiB, want at most %d", gets, len(long.data)>>20, want)
		}
		r.quiet()
		if n := r.cache.bypassed.Load(); n < 20 {
			t.Errorf("%d chunks bypassed the cache", n)
		}
		if n := r.files(); n > 8 {
			t.Errorf("%d files after a scan", n)
		}
		before = r.store.count()
		again()
		if r.store.count() != before {
			t.Error("the scan evicted what another reader came back to")
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestReadersBehindAScan find in the cache what the first of them has read, however far he is ahead.
func TestReadersBehindAScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.ReadAheadBytes = 2 << 20 })
		w := r.fill("orders", 20, 1000, 8<<20, 8<<20)
		r.cold()
		before := r.store.count()
		begin := ReadRequest{TopicID: w.id, MaxBytes: 100_000, EndOffset: w.end(), MinOneBatch: true}
		late := r.get(context.Background(), begin) // has begun, and goes on once the other is through
		wire.ReleaseRanges(late.Ranges)
		same(t, r.readAll(w, 0, 300_000), w.data)
		r.quiet()
		gets := r.store.count() - before
		for offset := late.NextOffset; offset < w.end(); {
			res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: offset, MaxBytes: 300_000, EndOffset: w.end(), MinOneBatch: true})
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			checkWhole(t, bytesOfRanges(t, res.Ranges), offset, res.NextOffset)
			offset = res.NextOffset
		}
		if again := r.store.count() - before - gets; again != 0 {
			t.Errorf("%d GETs for the second reader, %d for the first", again, gets)
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestStalledReader: a response that the peer does not take holds no memory, and its bytes stay what they were.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 3<<20)
		r.cold()
		res := r.get(context.Background(), first(w))
		if res.Err != nil || len(res.Ranges) == 0 || res.Ranges[0].FD >= 0 {
			t.Fatalf("%+v: not served from memory", res)
		}
		if used, _ := r.gate.used(); used == 0 {
			t.Error("a chunk in memory is not admitted")
		}
		time.Sleep(2 * memoryAge)
		if used, _ := r.gate.used(); used != 0 {
			t.Errorf("%d bytes of memory held for a reader that stalls", used)
		}
		if r.files() == 0 {
			t.Error("its chunk has no file")
		}
		got := bytesOfRanges(t, res.Ranges)
		same(t, got, w.data[:len(got)])
		r.balanced()
		_ = r.stop()
	})
}

// TestMemoryIsWanted: chunks leave memory at once for a reader that waits, in whatever hands they are.
func TestMemoryIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxReadMemory = 2 << 20 })
		w := r.fill("orders", 3, 1000, 8<<20)
		r.cold()
		begun := time.Now()
		var held []ReadResult
		for pos := range 8 {
			at := w.batches[len(w.batches)*pos/8].BaseOffset()
			res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: at, MaxBytes: 10_000, EndOffset: w.end(), MinOneBatch: true})
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			held = append(held, res)
		}
		if took := time.Since(begun); took >= memoryAge {
			t.Errorf("readers waited %s for memory of others", took)
		}
		for _, res := range held {
			bytesOfRanges(t, res.Ranges)
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestDueInOrder: for memory that is wanted goes what was read, then what came last; by age goes what came first.
func TestDueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCache(t, 100)
		for n := byte(1); n <= 4; n++ {
			room, err := c.reserve(context.Background(), 10, false)
			if err != nil {
				t.Fatal(err)
			}
			hold(room, n, 10, n != 2).unpin() // the second was read
		}
		if ch := c.due(false); ch != nil {
			t.Errorf("chunk %d is due, and nobody wants memory", ch.key.object[0])
		}
		next := func(wanted bool, want byte) {
			t.Helper()
			ch := c.due(wanted)
			if ch == nil || ch.key.object[0] != want {
				t.Fatalf("%v, want chunk %d", ch, want)
			}
			if err := c.settle(ch); err != nil {
				t.Fatal(err)
			}
		}
		next(true, 2)
		next(true, 4)
		time.Sleep(memoryAge)
		next(false, 1)
		next(false, 3)
		if ch := c.due(true); ch != nil {
			t.Error("more than there were")
		}
	})
}

// TestSettleFails: a full disk takes nothing from whoever is being served, and memory is back when he is done.
func TestSettleFails(t *testing.T) {
	fs := vfs.NewMem()
	c, err := openCache(fs, "cache", 1000)
	if err != nil {
		t.Fatal(err)
	}
	room, err := c.reserve(context.Background(), 100, false)
	if err != nil {
		t.Fatal(err)
	}
	ch := hold(room, 7, 100, false)
	fs.SetCapacity(50)
	if err := settleAll(c); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	p := make([]byte, 100)
	if n, err := ch.ReadAt(p, 0); n != 100 || p[99] != 7 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if c.has(ch.key) {
		t.Error("what cannot be kept can be found")
	}
	memory := ch.memory
	ch.unpin()
	if bytes, files := c.usage(); bytes != 0 || files != 0 || memory.holds.Load() != 0 {
		t.Errorf("%d bytes, %d files, %d holds", bytes, files, memory.holds.Load())
	}
}
