package replica

import (
	"sync"
	"time"

	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
)

// coldReads are the reads from the store that fetches have asked for and not taken yet. A read outlives the fetch that asked:
// what it brings is kept for the reader's next fetch, which asks for the same offset, so that a reader comes forward however slow
// the store is, and however often it is answered with what other partitions had. Each offset is read once at a time.
type coldReads struct {
	m  *Manager
	mu sync.Mutex
	of map[coldKey]*coldRead
	// kept counts the results nobody has taken; each pins a chunk of the cache.
	kept int
}

type coldKey struct {
	p         *Partition
	offset    int64
	committed bool
}

// coldRead is one read: under way, or done and kept until taken or stale.
type coldRead struct {
	done    bool
	result  tier.ReadResult
	waiting []*fetchWait
	stale   deadline
}

const (
	// maxKept bounds the results that are kept; beyond it they are dropped, and the chunk cache must serve the next fetch.
	maxKept = 64
	// keepFor is how long a result waits for its reader to come again.
	keepFor = 5 * time.Second
)

// take hands out what a read brought. What exceeds the limit stays, for a fetch in which it may come first.
func (c *coldReads) take(key coldKey, limit int, first bool) (r tier.ReadResult, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read := c.of[key]
	if read == nil || !read.done || !first && sizeOf(read.result.Ranges) > limit {
		return r, false
	}
	c.drop(key, read)
	return read.result, true
}

// drop forgets a read that is done. The caller holds c.mu and has the result.
func (c *coldReads) drop(key coldKey, read *coldRead) {
	c.m.timers.remove(&read.stale)
	delete(c.of, key)
	c.kept--
}

// start has the offset read unless that is under way, and w, if not nil, woken when it is done.
func (c *coldReads) start(key coldKey, request tier.ReadRequest, w *fetchWait) {
	c.mu.Lock()
	read := c.of[key]
	fresh := read == nil
	if fresh {
		read = &coldRead{}
		c.of[key] = read
	}
	arrived := read.done
	if w != nil && !arrived {
		read.waiting = append(read.waiting, w)
	}
	c.mu.Unlock()
	if fresh {
		c.m.tier.Read(c.m.life, request, func(r tier.ReadResult) { c.arrive(key, read, r) })
	}
	if arrived && w != nil {
		w.wake()
	}
}

func (c *coldReads) arrive(key coldKey, read *coldRead, r tier.ReadResult) {
	c.mu.Lock()
	waiting := read.waiting
	read.waiting = nil
	keep := c.kept < maxKept && (r.Err == nil || len(waiting) > 0)
	if keep {
		read.done, read.result = true, r
		c.kept++
		c.m.timers.add(&read.stale, time.Now().Add(keepFor), func() { c.expire(key, read) })
	} else {
		delete(c.of, key)
	}
	c.mu.Unlock()
	if !keep {
		wire.ReleaseRanges(r.Ranges)
	}
	for _, w := range waiting {
		w.wake()
	}
}

func (c *coldReads) expire(key coldKey, read *coldRead) {
	c.mu.Lock()
	mine := c.of[key] == read && read.done
	if mine {
		c.drop(key, read)
	}
	c.mu.Unlock()
	if mine {
		wire.ReleaseRanges(read.result.Ranges)
	}
}

// abandon answers the fetches that wait for the store.
func (c *coldReads) abandon() {
	c.mu.Lock()
	var waiting []*fetchWait
	for _, read := range c.of {
		waiting = append(waiting, read.waiting...)
	}
	c.mu.Unlock()
	for _, w := range waiting {
		w.end()
	}
}

// close releases what is kept.
func (c *coldReads) close() {
	c.mu.Lock()
	var kept []*coldRead
	for key, read := range c.of {
		if read.done {
			c.drop(key, read)
			kept = append(kept, read)
		}
	}
	c.mu.Unlock()
	for _, read := range kept {
		wire.ReleaseRanges(read.result.Ranges)
	}
}
