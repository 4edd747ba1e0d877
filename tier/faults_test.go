package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
)

// cold forgets everything that was read.
func (r *rig) cold() {
	r.quiet()
	r.cache.evictAll()
	r.indexes.stop()
	if err := r.indexes.start(DefaultIndexBytes); err != nil {
		r.t.Fatal(err)
	}
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	r.streams.m = nil
	r.streams.recent.Init()
}

func (r *rig) slow(latency time.Duration) {
	r.store.set(func(s *hookStore) {
		s.onGet = func(ctx context.Context, name string, off int64, p []byte) (int, error) {
			if err := sleep(ctx, latency); err != nil {
				return 0, err
			}
			return s.Store.Get(ctx, name, off, p)
		}
	})
}

func first(w *wrote) ReadRequest {
	return ReadRequest{TopicID: w.id, MaxBytes: 1 << 20, EndOffset: w.end(), MinOneBatch: true}
}

// TestImpatientReader: the store takes longer than a client waits. The download goes on, and a retry finds it.
func TestImpatientReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 3<<20)
		r.cold()
		r.slow(700 * time.Millisecond)
		before := r.store.count()
		tries := 0
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			res := r.get(ctx, first(w))
			cancel()
			if tries++; tries > 5 {
				t.Fatal("no progress")
			}
			if res.Err == nil {
				bytesOfRanges(t, res.Ranges)
				break
			}
			if !errors.Is(res.Err, context.DeadlineExceeded) {
				t.Fatal(res.Err)
			}
		}
		if gets := r.store.count() - before; gets != 2 {
			t.Errorf("%d GETs for one index and one chunk", gets)
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestSingleFlight: many readers of one place cost what one costs.
func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 3<<20)
		r.cold()
		r.slow(50 * time.Millisecond)
		before := r.store.count()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				res := r.get(context.Background(), first(w))
				if res.Err != nil {
					t.Error(res.Err)
				}
				wire.ReleaseRanges(res.Ranges)
			})
		}
		wg.Wait()
		r.quiet()
		if gets := r.store.count() - before; gets > 3 { // a third chunk may have been read ahead
			t.Errorf("%d GETs", gets)
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestRandomReader: 10,000 seeks all over a partition, some abandoned. Each costs at most one chunk, and afterwards
// all memory and every pin is back.
func TestRandomReader(t *testing.T) {
	r := newRig(t, func(c *Config) { c.CacheBytes = 7 << 20 })
	w := r.fill("orders", 3, 1000, 2<<20, 2<<20, 3<<20, 1<<20)
	r.cold()
	before := r.store.count()
	var wg sync.WaitGroup
	var served atomic.Int64
	const readers = 8
	seeks := 1250
	if testing.Short() {
		seeks = 200
	}
	for n := range readers {
		wg.Go(func() {
			for i := range seeks {
				ctx, cancel := context.WithCancel(context.Background())
				if i%10 == 0 {
					cancel()
				}
				at := (int64(i)*7919 + int64(n)*104729) % w.end()
				res := r.get(ctx, ReadRequest{TopicID: w.id, Offset: at, MaxBytes: 20_000, EndOffset: w.end(), MinOneBatch: true})
				if res.Err == nil {
					served.Add(1)
				} else if !errors.Is(res.Err, context.Canceled) {
					t.Error(res.Err)
				}
				wire.ReleaseRanges(res.Ranges)
				cancel()
			}
		})
	}
	wg.Wait()
	r.balanced()
	if gets := r.store.count() - before; gets > readers*seeks*12/10 || served.Load() < int64(readers*seeks*8/10) {
		t.Errorf("%d GETs for %d seeks, %d served", gets, readers*seeks, served.Load())
	}
}

func TestMissingObject(t *testing.T) {
	r := newRig(t)
	w := r.fill("orders", 3, 1000, 200<<10, 200<<10)
	other := r.fill("payments", 3, 1000, 200<<10)
	r.cold()
	s, _ := r.ctl.image().SegmentAt(w.id, 0, 0)
	if err := r.store.Delete(context.Background(), r.name(s)); err != nil {
		t.Fatal(err)
	}
	if res := r.get(context.Background(), first(w)); !errors.Is(res.Err, ErrObjectMissing) {
		t.Errorf("object missing: %v", res.Err)
	}
	same(t, r.readAll(other, 0, 1<<20), other.data)
	same(t, r.readAll(w, w.runs[1].Base, 1<<20), dataOf(t, w.runs[1]))

	// Retention overtakes a reader: his image was old, the log start is above him now.
	r.cold()
	stale := r.ctl.image()
	r.ctl.advance(t, w.id, w.runs[1].Base)
	shown := false
	r.Manager.cfg.Image = func() *metadata.Image {
		if !shown {
			shown = true
			return stale
		}
		return r.ctl.image()
	}
	if res := r.read(context.Background(), first(w)); !errors.Is(res.Err, kerr.OffsetOutOfRange) {
		t.Errorf("below the log start of the newer image: %v", res.Err)
	}
	r.balanced()
}

// TestOutage: readers get a typed error with what to do, others that need no store are served, and all is well when it is over.
func TestOutage(t *testing.T) {
	for _, kind := range []error{objstore.ErrUnavailable, objstore.ErrDenied, objstore.ErrTimeout, objstore.ErrThrottled} {
		t.Run(objstore.Label(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				hot, cold := r.fill("hot", 3, 1000, 500<<10), r.fill("cold", 3, 1000, 500<<10)
				r.cold()
				same(t, r.readAll(hot, 0, 1<<20), hot.data)
				r.store.set(func(s *hookStore) {
					s.onGet = func(context.Context, string, int64, []byte) (int, error) {
						return 0, &objstore.Error{Op: "get", Kind: kind}
					}
					s.onHead = func(string) (objstore.Info, error) { return objstore.Info{}, &objstore.Error{Op: "head", Kind: kind} }
				})
				before, begun, tries := r.store.count(), time.Now(), 0
				for time.Since(begun) < time.Minute {
					ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
					if res := r.get(ctx, first(cold)); !errors.Is(res.Err, ErrStoreUnavailable) || !errors.Is(res.Err, kind) {
						t.Fatalf("outage: %v", res.Err)
					}
					cancel()
					tries++
					same(t, r.readAll(hot, 0, 1<<20), hot.data)
				}
				if gets := r.store.count() - before; gets > 600 || tries > 600 {
					t.Errorf("%d GETs, %d answers in a minute of outage", gets, tries)
				}
				if st := r.Status(); st.Healthy || st.Cause == "" || st.Remedy == "" || st.FailingSince.IsZero() {
					t.Errorf("status in the outage: %+v", st)
				}
				if _, err := r.Retain(context.Background(), cold.id, 0); err != nil {
					t.Errorf("nothing is due: %v", err)
				}
				r.store.set(func(s *hookStore) { s.onGet, s.onHead = nil, nil })
				time.Sleep(10 * time.Second)
				same(t, r.readAll(cold, 0, 1<<20), cold.data)
				if st := r.Status(); !st.Healthy {
					t.Errorf("status after the outage: %+v", st)
				}
				r.balanced()
				_ = r.stop()
			})
		})
	}
}

// TestFlippedByte: what the store sends is not what was written. Once: another try is good. Always: an error, never
// the bytes.
func TestFlippedByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 3<<20, 100<<10)
		for _, times := range []int{1, 1 << 30} {
			r.cold()
			seen := map[string]int{}
			r.store.set(func(s *hookStore) {
				s.onGet = func(ctx context.Context, name string, off int64, p []byte) (int, error) {
					n, err := s.Store.Get(ctx, name, off, p)
					s.mu.Lock()
					defer s.mu.Unlock()
					if key := fmt.Sprint(name, off); seen[key] < times {
						seen[key]++
						p[(len(p)*3)/4] ^= 0x40
					}
					return n, err
				}
			})
			before := r.Status().CorruptChunks
			if times == 1 {
				same(t, r.readAll(w, 0, 1<<20), w.data)
			} else if res := r.get(context.Background(), first(w)); !errors.Is(res.Err, ErrCorrupt) || len(res.Ranges) > 0 {
				t.Errorf("always flipped: %+v", res)
			}
			if r.Status().CorruptChunks == before {
				t.Error("not counted")
			}
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestTruncatedObject: the end of an object is an error, never a gap.
func TestTruncatedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 3<<20)
		s, _ := r.ctl.image().SegmentAt(w.id, 0, 0)
		r.cold()
		all := make([]byte, s.Size)
		_, _ = r.store.Store.Get(context.Background(), r.name(s), 0, all)
		_ = r.store.Store.Put(context.Background(), r.name(s), bytes.NewReader(all[:s.Size-100]), s.Size-100, objstore.PutOptions{})
		if res := r.get(context.Background(), first(w)); !errors.Is(res.Err, ErrCorrupt) {
			t.Errorf("%+v", res)
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestSpoiledCacheFile: a file of the cache changes on the local disk, or shrinks. It is fetched anew.
func TestSpoiledCacheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 1, 500, 3<<20)
		same(t, r.readAll(w, 0, 1<<20), w.data)
		for name, spoil := range map[string]func(f interface {
			WriteAt([]byte, int64) (int, error)
			Truncate(int64) error
		}) error{
			"garbage": func(f interface {
				WriteAt([]byte, int64) (int, error)
				Truncate(int64) error
			}) error {
				_, err := f.WriteAt(make([]byte, 1<<20), 0)
				return err
			},
			"truncated": func(f interface {
				WriteAt([]byte, int64) (int, error)
				Truncate(int64) error
			}) error {
				return f.Truncate(5)
			},
		} {
			for _, rest := range []time.Duration{0, 2 * recheckAfter} {
				r.quiet()
				files, _ := r.fs.List(r.cache.dir)
				for _, file := range files {
					f, err := r.fs.OpenReadWrite(r.cache.dir + "/" + file)
					if err != nil {
						t.Fatal(err)
					}
					if err := spoil(f); err != nil {
						t.Fatal(err)
					}
					_ = f.Close()
				}
				time.Sleep(rest)
				from, maxBytes := int64(0), 1<<20
				if rest == 0 { // noticed because headers are looked at
					from, maxBytes = 1, 100
				}
				for offset := from; offset < 20; {
					res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: offset, MaxBytes: maxBytes, EndOffset: w.end(), MinOneBatch: true})
					if res.Err != nil {
						t.Fatalf("%s after %s: %v", name, rest, res.Err)
					}
					checkWhole(t, bytesOfRanges(t, res.Ranges), offset, res.NextOffset)
					offset = res.NextOffset
				}
			}
		}
		r.balanced()
		_ = r.stop()
	})
}

// TestCutCacheFile: a reader that meets the end of a cache file too early is the last one to do so.
func TestCutCacheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 1, 500, 3<<20)
		req := ReadRequest{TopicID: w.id, MaxBytes: 1 << 20, EndOffset: w.end(), MinOneBatch: true}
		wire.ReleaseRanges(r.get(context.Background(), req).Ranges)
		r.quiet()
		files, _ := r.fs.List(r.cache.dir)
		for _, file := range files {
			f, err := r.fs.OpenReadWrite(r.cache.dir + "/" + file)
			if err == nil {
				err = f.Truncate(5)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		}
		failed := false
		res := r.get(context.Background(), req)
		for _, rg := range res.Ranges {
			n, _ := rg.ReaderAt.ReadAt(make([]byte, rg.Size), rg.Off)
			failed = failed || int64(n) < rg.Size
		}
		wire.ReleaseRanges(res.Ranges)
		if !failed {
			t.Fatal("all could be read")
		}
		if res = r.get(context.Background(), req); res.Err != nil {
			t.Fatal(res.Err)
		}
		checkWhole(t, bytesOfRanges(t, res.Ranges), 0, res.NextOffset)
		r.balanced()
		_ = r.stop()
	})
}

// TestShutdown: whatever hangs, Run returns soon, and readers are answered.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 3<<20)
		r.cold()
		r.slow(time.Hour)
		answers := make(chan ReadResult, 1)
		r.Read(context.Background(), first(w), func(res ReadResult) { answers <- res })
		time.Sleep(time.Second)
		begun := time.Now()
		if err := r.stop(); err != nil || time.Since(begun) > shutdownGrace {
			t.Errorf("stopped after %s: %v", time.Since(begun), err)
		}
		if res := <-answers; !errors.Is(res.Err, ErrClosed) {
			t.Errorf("reader: %v", res.Err)
		}
		r.Read(context.Background(), first(w), func(res ReadResult) { answers <- res })
		if res := <-answers; !errors.Is(res.Err, ErrClosed) {
			t.Errorf("reader after the end: %v", res.Err)
		}
		if _, _, err := r.Upload(context.Background(), w.runs[0]); !errors.Is(err, ErrClosed) {
			t.Errorf("upload after the end: %v", err)
		}
	})
}

// TestSmallCache: many readers share a cache much smaller than what they read. All come through, and it never holds
// more than it may.
func TestSmallCache(t *testing.T) {
	r := newRig(t, func(c *Config) { c.CacheBytes, c.MaxReadMemory = 3<<20, 2<<20 })
	w := r.fill("orders", 20, 1000, 3<<20, 3<<20)
	r.cold()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() { same(t, r.readAll(w, 0, 200_000), w.data) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
			if bytes, _ := r.cache.usage(); bytes > r.cache.limit {
				t.Fatalf("cache of %d bytes holds %d", r.cache.limit, bytes)
			}
			time.Sleep(time.Millisecond)
		}
	}
	r.balanced()
}
