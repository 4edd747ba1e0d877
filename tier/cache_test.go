package tier

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
)

func put(t *testing.T, c *cache, n byte, size int64, ahead bool) error {
	t.Helper()
	r, err := c.reserve(context.Background(), size, false)
	if err != nil {
		return err
	}
	hold(r, n, size, ahead).unpin()
	return settleAll(c)
}

// hold lets a chunk in that stays in memory, pinned.
func hold(r *room, n byte, size int64, ahead bool) *chunk {
	l := newLoan(size)
	defer l.release()
	copy(l.p, bytes.Repeat([]byte{n}, int(size)))
	return r.fill(chunkKey{object: wire.UUID{n}}, 0, l, ahead)
}

// settleAll writes every chunk in memory to its file.
func settleAll(c *cache) (err error) {
	for ch := c.due(true); ch != nil; ch = c.due(true) {
		err = errors.Join(err, c.settle(ch))
	}
	return err
}

func testCache(t *testing.T, limit int64) *cache {
	t.Helper()
	c, err := openCache(vfs.NewMem(), "cache", limit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCacheEvictsTheOldest(t *testing.T) {
	c := testCache(t, 30)
	for n := byte(1); n <= 3; n++ {
		if err := put(t, c, n, 10, false); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := c.pin(chunkKey{object: wire.UUID{1}}) // the oldest is in use
	if err := put(t, c, 4, 10, false); err != nil {
		t.Fatal(err)
	}
	if !c.has(chunkKey{object: wire.UUID{1}}) || c.has(chunkKey{object: wire.UUID{2}}) {
		t.Error("chunk 2 was the oldest not in use")
	}
	if err := put(t, c, 5, 25, false); !errors.Is(err, ErrCacheFull) {
		t.Errorf("25 bytes beside a pinned 10 in 30: %v", err)
	}
	p := make([]byte, 10)
	if n, _ := first.ReadAt(p, 0); n != 10 || p[9] != 1 {
		t.Error("a pinned chunk changed")
	}
	first.unpin()
	if err := put(t, c, 5, 25, false); err != nil {
		t.Error(err)
	}
	if bytes, files := c.usage(); bytes != 25 || files != 1 {
		t.Error(bytes, files)
	}
}

func TestCacheSparesWhatIsReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCache(t, 30)
		_ = put(t, c, 1, 10, true)
		time.Sleep(time.Second)
		_ = put(t, c, 2, 10, false)
		_ = put(t, c, 3, 10, false)
		_ = put(t, c, 4, 10, false)
		if !c.has(chunkKey{object: wire.UUID{1}}) || c.has(chunkKey{object: wire.UUID{2}}) {
			t.Error("what was read ahead a moment ago goes last")
		}
		time.Sleep(aheadAge)
		_ = put(t, c, 5, 10, false)
		if c.has(chunkKey{object: wire.UUID{1}}) {
			t.Error("what was read ahead in vain stays for ever")
		}
	})
}

func TestCacheWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCache(t, 10)
		_ = put(t, c, 1, 10, false)
		ch, _ := c.pin(chunkKey{object: wire.UUID{1}})
		go func() { time.Sleep(time.Second); ch.unpin() }()
		begun := time.Now()
		r, err := c.reserve(context.Background(), 10, true)
		if err != nil || time.Since(begun) != time.Second {
			t.Errorf("reserved after %s: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := c.reserve(ctx, 1, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		r.cancel()
		r.cancel()
		if bytes, files := c.usage(); bytes != 0 || files != 0 {
			t.Error(bytes, files)
		}
	})
}

func TestCacheDroppedWhilePinned(t *testing.T) {
	c := testCache(t, 30)
	_ = put(t, c, 1, 10, false)
	key := chunkKey{object: wire.UUID{1}}
	a, _ := c.pin(key)
	b, _ := c.pin(key)
	c.drop(a)
	a.unpin()
	if c.has(key) {
		t.Error("dropped chunk can be found")
	}
	if err := put(t, c, 1, 10, false); err != nil {
		t.Fatal(err)
	}
	b.unpin()
	if bytes, files := c.usage(); bytes != 10 || files != 1 || !c.has(key) {
		t.Error(bytes, files)
	}
	if onDisk, _ := c.fs.List("cache"); len(onDisk) != 1 {
		t.Error(onDisk)
	}
}

func TestCacheStartsEmpty(t *testing.T) {
	fs := vfs.NewMem()
	_ = fs.MkdirAll("cache")
	_, _ = fs.Create("cache/leftover.chunk")
	c, err := openCache(fs, "cache", 100)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := fs.List("cache"); len(left) != 0 {
		t.Error(left)
	}
	_ = put(t, c, 1, 10, false)
	if err := c.close(); err != nil {
		t.Error(err)
	}
	if bytes, files := c.usage(); bytes != 0 || files != 0 {
		t.Error(bytes, files)
	}
}

func TestCacheDiskFull(t *testing.T) {
	fs := vfs.NewMem()
	c, err := openCache(fs, "cache", 1000)
	if err != nil {
		t.Fatal(err)
	}
	_ = put(t, c, 1, 600, false)
	fs.SetCapacity(1000)
	if err := put(t, c, 2, 300, false); err != nil {
		t.Fatal(err)
	}
	fs.SetCapacity(700)
	if err := put(t, c, 3, 100, false); err != nil { // gives back what it holds
		t.Errorf("disk full with chunks to give back: %v", err)
	}
	fs.SetCapacity(50)
	if err := put(t, c, 4, 100, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("disk full: %v", err)
	}
	if bytes, files := c.usage(); bytes != 0 || files != 0 {
		t.Error(bytes, files)
	}
	fs.SetCapacity(0)
	if err := put(t, c, 4, 100, false); err != nil {
		t.Error(err)
	}
}

// TestCacheLeavesOthersAlone: a cache that is given a directory of somebody else's removes its own files only.
func TestCacheLeavesOthersAlone(t *testing.T) {
	fs := vfs.NewMem()
	others := []string{"data/orders-0/00000000000000000000.log", "data/meta.properties"}
	if err := fs.MkdirAll("data/orders-0"); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(others, "data/left"+chunkSuffix) {
		if err := vfs.WriteFileAtomic(fs, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	c, err := openCache(fs, "data", 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(put(t, c, 1, 10, false), c.close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		if _, err := fs.Stat(name); err != nil {
			t.Error(err)
		}
	}
	if names, err := fs.List("data"); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}
