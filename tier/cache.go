package tier

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
)

// chunkKey names an aligned stretch of an object's data. Object ids are never used twice,
// so neither are keys: a topic made anew under an old name shares nothing with the old one.
type chunkKey struct {
	object wire.UUID
	number int64
}

// chunk is an entry of the cache. It begins in the memory of its download and is served from there; it is written
// to a file when it has stayed for a while or the memory is wanted, see settle.go. Its bytes were verified before
// it entered and never change: a response may still be on its way to a socket when the chunk is evicted,
// and the open file then keeps them.
type chunk struct {
	cache *cache
	key   chunkKey
	pos   int64 // in the object's data
	size  int64

	// Guarded by cache.mu.
	memory   *loan         // nil once they are in the file
	file     vfs.File      // nil until then
	resting  *list.Element // in cache.memory; nil once settled
	since    time.Time     // when it entered
	settling bool          // its file is being written
	spent    bool          // a scan has read it to its end, and nobody comes behind
	shared   bool          // somebody else than a scan has read it
	pins     int
	place    *list.Element // in cache.read or cache.ahead; nil once evicted
	isAhead  bool          // nobody has read it yet
	used     time.Time
	checked  time.Time // when its bytes were last compared with their checksums
}

// cache keeps chunks in files of one directory within a budget of bytes and files. Room is reserved before
// a download begins, so the budget holds at every moment; it is made by unlinking the least
// recently used chunk that nobody is being served from. Chunks read ahead are spared until they were
// read or aheadAge has passed: without that a small cache drops what is needed next.
type cache struct {
	fs       vfs.FS
	dir      string
	limit    int64 // bytes
	maxFiles int

	mu     sync.Mutex
	bytes  int64 // of files and reservations
	files  int   // likewise
	chunks map[chunkKey]*chunk
	read   *list.List // of *chunk, most recently used first
	ahead  *list.List
	memory *list.List    // of *chunk: those in memory, in the order they came
	freed  chan struct{} // closed and replaced whenever room may have come
	serial int64         // makes file names unique

	bypassed atomic.Int64 // chunks that came and went without a file
}

const (
	aheadAge     = time.Minute
	roomWait     = 10 * time.Second // readers that hold one chunk and wait for another must not wait for each other for ever
	maxCacheFile = 16384            // open files that the cache may hold
)

// ErrCacheFull: every chunk in the cache is being served, and stayed so for roomWait.
var ErrCacheFull = errors.New("the chunk cache is full of chunks being served")

// chunkSuffix ends the names of the cache's files.
const chunkSuffix = ".chunk"

// openCache returns an empty cache in dir. What a former process left is worth nothing: it cannot be told whether it
// is whole.
func openCache(fsys vfs.FS, dir string, limit int64) (*cache, error) {
	c := &cache{
		fs: fsys, dir: dir, limit: limit, maxFiles: maxCacheFile,
		chunks: make(map[chunkKey]*chunk), read: list.New(), ahead: list.New(), memory: list.New(), freed: make(chan struct{}),
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make the chunk cache: %w", err)
	}
	if err := c.clear(); err != nil {
		return nil, fmt.Errorf("empty the chunk cache: %w", err)
	}
	return c, nil
}

// clear removes the chunks of the directory and nothing else: whoever gave it may keep other things there, even data.
func (c *cache) clear() error {
	names, err := c.fs.List(c.dir)
	for _, name := range names {
		if err == nil && strings.HasSuffix(name, chunkSuffix) {
			err = c.fs.Remove(path.Join(c.dir, name))
		}
	}
	return err
}

// close evicts everything. Chunks still being served lose their names and go when they are released.
func (c *cache) close() error {
	c.evictAll()
	return c.clear()
}

// has reports whether the chunk is in the cache.
func (c *cache) has(key chunkKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.chunks[key]
	return ok
}

// pin returns a chunk that stays until unpin.
func (c *cache) pin(key chunkKey) (*chunk, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch, ok := c.chunks[key]
	if ok {
		c.touch(ch)
	}
	return ch, ok
}

// pin pins a chunk that is pinned already.
func (ch *chunk) pin() {
	ch.cache.mu.Lock()
	defer ch.cache.mu.Unlock()
	ch.cache.touch(ch)
}

// touch pins a chunk and makes it the one most recently used.
func (c *cache) touch(ch *chunk) {
	ch.pins++
	ch.used = time.Now()
	switch {
	case ch.place == nil: // dropped meanwhile
	case ch.isAhead:
		c.ahead.Remove(ch.place)
		ch.isAhead, ch.place = false, c.read.PushFront(ch)
	default:
		c.read.MoveToFront(ch.place)
	}
}

// unpin gives the chunk back.
func (ch *chunk) unpin() {
	c := ch.cache
	c.mu.Lock()
	ch.pins--
	if ch.pins == 0 {
		c.idle(ch)
		c.wake()
	}
	gone := ch.pins == 0 && ch.place == nil
	c.mu.Unlock()
	if gone {
		c.unlink([]*chunk{ch})
	}
}

// ReadAt reads from memory or the chunk's file; off counts from the chunk's beginning. It holds the memory only while
// it copies, so that a slow peer's response never keeps it. A chunk that cannot be read is not
// served again before it was verified anew.
func (ch *chunk) ReadAt(p []byte, off int64) (int, error) {
	ch.cache.mu.Lock()
	memory, file := ch.memory, ch.file
	if memory != nil {
		memory.keep()
	}
	ch.cache.mu.Unlock()
	if memory != nil {
		defer memory.release()
		return bytes.NewReader(memory.p).ReadAt(p, off)
	}
	n, err := file.ReadAt(p, off)
	if n < len(p) && off+int64(len(p)) <= ch.size {
		ch.cache.mu.Lock()
		ch.checked = time.Time{}
		ch.cache.mu.Unlock()
	}
	return n, err
}

// wake tells those who wait for room to look again.
func (c *cache) wake() {
	close(c.freed)
	c.freed = make(chan struct{})
}

// room is a reservation of bytes and one file.
type room struct {
	cache *cache
	bytes int64
}

// reserve makes room, waiting for chunks that are being served if wait is set.
func (c *cache) reserve(ctx context.Context, bytes int64, wait bool) (*room, error) {
	if bytes > c.limit {
		return nil, fmt.Errorf("chunk of %d bytes in a cache of %d: %w", bytes, c.limit, ErrCacheFull)
	}
	var timeout <-chan time.Time
	if wait {
		timer := time.NewTimer(roomWait)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		victims, freed, ok := c.makeRoom(bytes)
		c.unlink(victims)
		switch {
		case ok:
			return &room{c, bytes}, nil
		case len(victims) > 0:
			continue // unlinking counted them out
		case !wait:
			return nil, ErrCacheFull
		}
		select {
		case <-freed:
		case <-timeout:
			return nil, ErrCacheFull
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// makeRoom takes the room if it is there, else chooses what must go first.
func (c *cache) makeRoom(bytes int64) (victims []*chunk, freed chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes+bytes <= c.limit && c.files < c.maxFiles {
		c.bytes, c.files = c.bytes+bytes, c.files+1
		return nil, nil, true
	}
	left, files := c.bytes, c.files
	for left+bytes > c.limit || files >= c.maxFiles {
		victim := c.victim()
		if victim == nil {
			break
		}
		c.detach(victim)
		victims = append(victims, victim)
		left, files = left-victim.size, files-1
	}
	return victims, c.freed, false
}

// victim chooses the chunk to go next, or nil.
func (c *cache) victim() *chunk {
	oldAhead := oldestUnpinned(c.ahead)
	if oldAhead != nil && time.Since(oldAhead.used) > aheadAge {
		return oldAhead
	}
	if old := oldestUnpinned(c.read); old != nil {
		return old
	}
	return oldAhead
}

func oldestUnpinned(l *list.List) *chunk {
	for e := l.Back(); e != nil; e = e.Prev() {
		if ch := e.Value.(*chunk); ch.pins == 0 {
			return ch
		}
	}
	return nil
}

// detach makes a chunk unfindable; its file goes with its last pin.
func (c *cache) detach(ch *chunk) {
	if ch.isAhead {
		c.ahead.Remove(ch.place)
	} else {
		c.read.Remove(ch.place)
	}
	ch.place = nil
	delete(c.chunks, ch.key)
}

// unlink removes what detached chunks held and counts them out.
func (c *cache) unlink(chunks []*chunk) {
	for _, ch := range chunks {
		c.mu.Lock()
		c.rise(ch)
		c.mu.Unlock()
		if ch.file != nil {
			_ = ch.file.Close() // read only since it was written: nothing can be lost
			_ = c.fs.Remove(ch.file.Name())
		}
		if ch.memory != nil {
			ch.memory.release()
		}
		c.release(ch.size)
	}
}

func (c *cache) release(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes, c.files = c.bytes-bytes, c.files-1
	c.wake()
}

// cancel gives unused room back.
func (r *room) cancel() {
	if r.bytes > 0 {
		r.cache.release(r.bytes)
		r.bytes = 0
	}
}

// fill lets verified bytes in, pinned once for the caller; the cache keeps their memory. The room is used up. If the
// chunk is there already, that one is returned, and the room given back.
func (r *room) fill(key chunkKey, pos int64, memory *loan, ahead bool) *chunk {
	defer r.cancel()
	now := time.Now()
	ch := &chunk{
		cache: r.cache, key: key, pos: pos, size: int64(len(memory.p)), memory: memory, since: now,
		pins: 1, isAhead: ahead, used: now, checked: now,
	}
	if there := r.cache.insert(ch, r.bytes-ch.size); there != nil {
		return there
	}
	r.bytes = 0
	return ch
}

// insert makes the chunk findable and gives back what it needs less than was reserved; or it pins and returns the
// one that is there.
func (c *cache) insert(ch *chunk, less int64) (there *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if there, ok := c.chunks[ch.key]; ok {
		c.touch(there)
		return there
	}
	c.bytes -= less
	ch.memory.keep()
	ch.resting = c.memory.PushBack(ch)
	if ch.isAhead {
		ch.place = c.ahead.PushFront(ch)
	} else {
		ch.place = c.read.PushFront(ch)
	}
	c.chunks[ch.key] = ch
	return nil
}

func (c *cache) write(key chunkKey, p []byte) (vfs.File, error) {
	c.mu.Lock()
	c.serial++
	name := path.Join(c.dir, fmt.Sprintf("%s-%d.%d%s", key.object, key.number, c.serial, chunkSuffix))
	c.mu.Unlock()
	file, err := c.fs.Create(name)
	if err != nil {
		return nil, err
	}
	if n, err := file.WriteAt(p, 0); err != nil || n < len(p) {
		if err == nil {
			err = io.ErrShortWrite
		}
		_ = file.Close()
		return nil, errors.Join(err, c.fs.Remove(name))
	}
	return file, nil
}

// drop removes a chunk whose file turned out not to hold what was written.
func (c *cache) drop(ch *chunk) {
	c.mu.Lock()
	if ch.place != nil {
		c.detach(ch)
	}
	c.mu.Unlock()
}

// evictAll unlinks every chunk that is not being served.
func (c *cache) evictAll() {
	c.mu.Lock()
	var victims []*chunk
	for _, ch := range c.chunks {
		if ch.pins == 0 {
			c.detach(ch)
			victims = append(victims, ch)
		}
	}
	c.mu.Unlock()
	c.unlink(victims)
}

// stale reports whether the chunk's bytes should be compared with their checksums again.
func (ch *chunk) stale() bool {
	ch.cache.mu.Lock()
	defer ch.cache.mu.Unlock()
	return time.Since(ch.checked) > recheckAfter
}

// recheckAfter is how long a chunk rests on the local disk before it is verified anew when read.
const recheckAfter = 10 * time.Minute

// recheck compares the chunk's file with the index.
func (ch *chunk) recheck(x *Index) error {
	buf := buffers.get(blockSize)
	defer buffers.put(buf)
	for off := int64(0); off < ch.size; off += blockSize {
		p := buf[:min(blockSize, ch.size-off)]
		if n, err := ch.ReadAt(p, off); n < len(p) {
			return fmt.Errorf("read cached chunk: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		if err := x.verify(ch.pos+off, p); err != nil {
			return err
		}
	}
	ch.cache.mu.Lock()
	defer ch.cache.mu.Unlock()
	ch.checked = time.Now()
	return nil
}

// usage returns the bytes and files that the cache holds, reservations included.
func (c *cache) usage() (bytes int64, files int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes, c.files
}
