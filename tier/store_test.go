package tier

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/fault"
	"github.com/varve-io/varve/objstore/file"
	"github.com/varve-io/varve/objstore/limit"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/objstore/retry"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/proxy"
)

// over starts a rig over a store, with files on the real disk.
func over(t *testing.T, store objstore.Store, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, ctl: newController(t), store: &hookStore{Store: store}, fs: vfs.OS(), rng: newRand()}
	dir := t.TempDir() + "/cache"
	r.start(append([]func(*Config){func(c *Config) { c.CacheDir = dir }}, change...)...)
	return r
}

// insist uploads until it succeeds.
func (r *rig) insist(run Run) {
	r.t.Helper()
	var last error
	for range 200 {
		if _, _, last = r.Upload(context.Background(), run); last == nil {
			return
		}
		if _, ok := r.ctl.image().SegmentAt(run.TopicID, run.Partition, run.Base); ok {
			return // an earlier attempt got through after all
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Fatalf("upload does not succeed: %v", last)
}

// readStubbornly reads everything, again and again where the store fails, and compares every byte that comes.
func (r *rig) readStubbornly(w *wrote) (failed int) {
	r.t.Helper()
	pos := 0
	for offset := int64(0); offset < w.end(); {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		res := r.get(ctx, ReadRequest{TopicID: w.id, Offset: offset, MaxBytes: 300_000, EndOffset: w.end(), MinOneBatch: true})
		cancel()
		if res.Err != nil {
			if failed++; failed > 500 {
				r.t.Fatalf("no way through: %v", res.Err)
			}
			continue
		}
		got := bytesOfRanges(r.t, res.Ranges)
		same(r.t, got, w.data[pos:pos+len(got)])
		pos, offset = pos+len(got), res.NextOffset
	}
	return failed
}

// TestBadDays runs uploads and reads over a store that fails in every way, many times with other dice, in virtual time. Nothing
// wrong is ever served, no row lacks its object, and everything drains.
func TestBadDays(t *testing.T) {
	rules := []fault.Rule{
		{Op: "put", Kind: fault.LostReply, Prob: 0.15}, {Op: "put", Kind: fault.Flip, Prob: 0.1}, {Op: "put", Kind: fault.Truncate, Prob: 0.05},
		{Op: "put", Kind: fault.Fail, Prob: 0.1}, {Op: "put", Kind: fault.BadAnswer, Prob: 0.1}, {Op: "put", Kind: fault.Timeout, Prob: 0.05, Delay: time.Second},
		{Op: "get", Kind: fault.Flip, Prob: 0.1}, {Op: "get", Kind: fault.Truncate, Prob: 0.1}, {Op: "get", Kind: fault.Throttle, Prob: 0.1},
		{Op: "get", Kind: fault.Timeout, Prob: 0.05, Delay: time.Second}, {Op: "get", Kind: fault.Delay, Prob: 0.3, Delay: 100 * time.Millisecond},
		{Op: "head", Kind: fault.Fail, Prob: 0.2}, {Op: "delete", Kind: fault.LostReply, Prob: 0.3},
	}
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.New()
				bad := fault.New(inner, seed, rules...)
				r := newRig(t, func(c *Config) { c.Store = bad })
				w := &wrote{id: r.ctl.topic(t, "orders", 1)}
				for n, base := 0, int64(0); n < 5; n++ {
					run := r.run(w, base, 100<<10+n*300<<10, 3, 1000)
					r.insist(run)
					r.store.Store = inner
					r.sound(w.id, run, true)
					w.add(t, run)
					base = run.End
				}
				r.cold()
				r.readStubbornly(w)
				bad.Set()
				time.Sleep(time.Minute)
				r.cold()
				same(t, r.readAll(w, 0, 1<<20), w.data)
				r.balanced()
				_ = r.stop()
			})
		})
	}
}

func TestFileStore(t *testing.T) {
	store, err := file.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	wholeWay(t, over(t, store))
}

// wholeWay uploads, reads, looks up, retains and purges.
func wholeWay(t *testing.T, r *rig, sizes ...int) {
	t.Helper()
	ctx := context.Background()
	if err := r.CheckPrefix(ctx); err != nil {
		t.Fatal(err)
	}
	w := r.fill("orders", 10, 1000, append(sizes, 3<<20, 100<<10, 2<<20)...)
	r.cold()
	same(t, r.readAll(w, 0, 1<<20), w.data)
	middle := w.runs[1]
	if _, ts, _, found, err := r.OffsetForTime(ctx, w.id, 0, middle.MinTimestamp+1, 0); err != nil || !found || ts <= middle.MinTimestamp {
		t.Errorf("by time: %d, %v, %v", ts, found, err)
	}
	r.Manager.cfg.DeleteGrace = 0
	r.ctl.advance(t, w.id, middle.Base)
	r.ctl.deleteUpTo(t, w.id, middle.Base)
	time.Sleep(2 * time.Millisecond)
	if n, err := r.Retain(ctx, w.id, 0); n != 1 || err != nil {
		t.Errorf("retained: %d, %v", n, err)
	}
	r.ctl.must(t, &metadata.DeleteTopic{ID: w.id})
	r.purgeAll(nil)
	if left := names(t, r.store); len(left) != 1 || left[0] != markerName {
		t.Errorf("left in the store: %v", left)
	}
	r.balanced()
}

// TestMinIO goes the whole way over a real S3 store, a multipart object among the rest, then again through a proxy that
// spoils what passes.
func TestMinIO(t *testing.T) {
	srv := minio.Run(t, minio.Config{})
	if err := srv.CreateBucket(t.Context(), "tier"); err != nil {
		t.Fatal(err)
	}
	direct := srv.Options("tier")
	direct.PartSize = 5 << 20 // an object of more than four is sent in parts
	store, err := s3.New(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	wholeWay(t, over(t, limit.New(retry.New(store, retry.Options{}), limit.Options{})), 22<<20)

	spoiler := proxy.RunStore(t, srv.Endpoint, 3)
	opts := srv.Options("tier")
	opts.Endpoint = spoiler.Endpoint()
	through, err := s3.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	r := over(t, retry.New(through, retry.Options{Backoff: objstore.Backoff{Attempts: 3, Base: time.Millisecond, Max: 10 * time.Millisecond}}))
	spoiler.Set(
		proxy.Rule{Kind: proxy.SlowDown, Prob: 0.1}, proxy.Rule{Kind: proxy.Truncate, Method: "GET", Prob: 0.1},
		proxy.Rule{Kind: proxy.FlipDown, Method: "GET", Prob: 0.1}, proxy.Rule{Kind: proxy.FlipUp, Method: "PUT", Prob: 0.2},
		proxy.Rule{Kind: proxy.FakeOK, Method: "PUT", Prob: 0.1}, proxy.Rule{Kind: proxy.FailAfter, Method: "PUT", Prob: 0.2},
		proxy.Rule{Kind: proxy.Reset, Prob: 0.05},
	)
	w := &wrote{id: r.ctl.topic(t, "orders", 1)}
	for base := int64(0); len(w.runs) < 6; base = w.end() {
		run := r.run(w, base, 1<<20, 10, 1000)
		r.insist(run)
		w.add(t, run)
	}
	r.cold()
	r.readStubbornly(w)
	spoiler.Set()
	r.cold()
	same(t, r.readAll(w, 0, 1<<20), w.data)
	r.balanced()
}

// TestMinIODies: readers get typed errors while it is gone, and data when it is back.
func TestMinIODies(t *testing.T) {
	srv := minio.Run(t, minio.Config{})
	front := proxy.Run(t, srv.Addr, proxy.Faults{})
	opts := srv.Options("tier")
	if err := srv.CreateBucket(t.Context(), "tier"); err != nil {
		t.Fatal(err)
	}
	opts.Endpoint = "http://" + front.Addr()
	store, err := s3.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := over(t, store)
	w := r.fill("orders", 10, 1000, 2<<20)
	r.cold()
	front.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if res := r.get(ctx, first(w)); !errors.Is(res.Err, ErrStoreUnavailable) || !errors.Is(res.Err, objstore.ErrUnreachable) {
		t.Errorf("store gone: %v", res.Err)
	}
	front.Heal()
	r.readStubbornly(w)
	r.balanced()
}
