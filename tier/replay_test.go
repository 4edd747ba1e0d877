package tier

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/wire"
)

// BenchmarkReplay is one consumer that reads a partition from the store in fetches of 1 MiB, across segment
// borders, with a latency added to every GET. Each pass begins with an empty cache.
func BenchmarkReplay(b *testing.B) {
	for _, c := range []struct {
		latency time.Duration
		segment int
	}{{0, 64 << 20}, {30 * time.Millisecond, 64 << 20}, {30 * time.Millisecond, 8 << 20}, {30 * time.Millisecond, 1 << 20}} {
		b.Run(fmt.Sprintf("latency=%s/segment=%dMiB", c.latency, c.segment>>20), func(b *testing.B) { replay(b, c.latency, c.segment) })
	}
}

const replayBytes = 512 << 20

func replay(b *testing.B, latency time.Duration, segment int) {
	dir := b.TempDir()
	r := &rig{t: b, ctl: newController(b), store: &hookStore{Store: mem.New()}, fs: vfs.OS()}
	defaults := func(cfg *Config) {
		cfg.CacheDir = dir + "/cache"
		cfg.CacheBytes, cfg.ChunkBytes, cfg.ReadAheadBytes, cfg.MaxReadMemory = 0, 0, 0, 0
	}
	r.start(defaults)
	w := r.sameRuns(b, replayBytes/segment, segment)
	r.store.onGet = func(ctx context.Context, name string, off int64, p []byte) (int, error) {
		if err := sleep(ctx, latency); err != nil {
			return 0, err
		}
		return r.store.Store.Get(ctx, name, off, p)
	}
	b.SetBytes(w.size)
	b.ResetTimer()
	gets := 0
	for range b.N {
		b.StopTimer()
		r.quiet()
		r.cache.evictAll()
		r.indexes.stop()
		if err := r.indexes.start(DefaultIndexBytes); err != nil {
			b.Fatal(err)
		}
		r.streams = streams{}
		before := r.store.count()
		b.StartTimer()
		r.consume(b, w)
		gets += r.store.count() - before
	}
	b.ReportMetric(float64(gets)/float64(b.N)/(float64(w.size)/(1<<30)), "GETs/GiB")
}

// bulk is a partition of equal runs; only the offsets differ.
type bulk struct {
	id   wire.UUID
	end  int64
	size int64
}

func (r *rig) sameRuns(b testing.TB, n, size int) bulk {
	b.Helper()
	r.rng = newRand()
	w := &wrote{id: r.ctl.topic(b, "bulk", 1)}
	out := bulk{id: w.id}
	for range n {
		run := r.run(w, out.end, size, 16, 2000)
		if _, _, err := r.Upload(context.Background(), run); err != nil {
			b.Fatal(err)
		}
		out.end, out.size = run.End, out.size+run.Size
	}
	return out
}

func (r *rig) consume(b testing.TB, w bulk) {
	buf := make([]byte, 1<<20)
	for offset := int64(0); offset < w.end; {
		res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: offset, MaxBytes: 1 << 20, EndOffset: w.end, MinOneBatch: true})
		if res.Err != nil {
			b.Fatal(res.Err)
		}
		for _, rg := range res.Ranges { // what sendfile would do
			if _, err := rg.ReaderAt.ReadAt(buf[:rg.Size], rg.Off); err != nil {
				b.Fatal(err)
			}
		}
		wire.ReleaseRanges(res.Ranges)
		offset = res.NextOffset
	}
}
