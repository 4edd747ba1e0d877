package tier

import (
	"context"
	"fmt"
	"time"
)

// A chunk is served from the memory it was downloaded into, and leaves it in one of two ways. It is written to its file,
// or it is dropped without one: a long sequential read needs each byte once, and neither its cost on the disk nor
// the chunks it would evict are to anybody's use.

// memoryAge is how long a chunk stays in memory that nobody else wants.
const memoryAge = 2 * time.Second

// settle gives the memory of chunks back until ctx ends.
func (m *Manager) settle(ctx context.Context) {
	timer := time.NewTimer(memoryAge)
	defer timer.Stop()
	failing := false // said once, not for every chunk
	for {
		for ch := m.cache.due(m.gate.crowded()); ch != nil && ctx.Err() == nil; ch = m.cache.due(m.gate.crowded()) {
			err := m.cache.settle(ch)
			if err != nil && !failing {
				m.log.Warn("cannot write to the chunk cache, what it holds will be fetched anew", "directory", m.cache.dir, "error", err)
			}
			failing = err != nil
		}
		timer.Reset(m.cache.nextDue())
		select {
		case <-m.gate.pressed:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// due returns the chunk, pinned, that must leave memory next, or nil: one that has been there for memoryAge; if the memory is
// wanted, one that was read already, or else the last that came, which is needed last.
func (c *cache) due(wanted bool) *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	var next *chunk
	for e := c.memory.Front(); e != nil; e = e.Next() {
		ch := e.Value.(*chunk)
		if ch.settling || ch.pins == 0 && ch.place == nil { // being written, or being unlinked
			continue
		}
		old := time.Since(ch.since) >= memoryAge
		if !old && !wanted {
			break
		}
		next = ch
		if old || !ch.isAhead {
			break
		}
	}
	if next != nil {
		next.pins++
		next.settling = true
	}
	return next
}

// nextDue is when a chunk will have been in memory for memoryAge.
func (c *cache) nextDue() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if oldest := c.memory.Front(); oldest != nil {
		return max(time.Until(oldest.Value.(*chunk).since.Add(memoryAge)), time.Millisecond)
	}
	return memoryAge
}

// settle writes a chunk that is due to its file and unpins it. If it cannot be written, it goes when the last reader
// has left it.
func (c *cache) settle(ch *chunk) error {
	defer ch.unpin()
	file, err := c.write(ch.key, ch.memory.p)
	if err != nil {
		c.evictAll() // the disk may be full: give back what we hold, and try once more
		if file, err = c.write(ch.key, ch.memory.p); err != nil {
			err = fmt.Errorf("write to the chunk cache: %w", err)
		}
	}
	c.mu.Lock()
	c.rise(ch)
	memory := ch.memory
	if err == nil {
		ch.file, ch.memory = file, nil
	} else if ch.place != nil {
		c.detach(ch)
	}
	c.mu.Unlock()
	if err == nil {
		memory.release()
	}
	return err
}

// rise takes a chunk off the list of those in memory. The caller holds c.mu.
func (c *cache) rise(ch *chunk) {
	if ch.resting != nil {
		c.memory.Remove(ch.resting)
		ch.resting = nil
	}
}

// readTo notes that a reader took the chunk's bytes up to end. A scan is one that has read so much in sequence that
// it will not come again.
func (ch *chunk) readTo(end int64, scan bool) {
	ch.cache.mu.Lock()
	defer ch.cache.mu.Unlock()
	if !scan {
		ch.shared = true
	} else if end == ch.size {
		ch.spent = true
	}
}

// idle deals with a chunk that nobody holds any more: one that only a scan has read is dropped if it is in memory still,
// and else the first to be evicted. The caller holds c.mu, and unlinks the chunk if it has no place then.
func (c *cache) idle(ch *chunk) {
	switch {
	case ch.place == nil || !ch.spent || ch.shared:
	case ch.memory != nil:
		c.detach(ch)
		c.bypassed.Add(1)
	case !ch.isAhead:
		c.read.MoveToBack(ch.place)
	}
}

// fd is the descriptor of the chunk's file, -1 while there is none.
func (ch *chunk) fd() int {
	ch.cache.mu.Lock()
	defer ch.cache.mu.Unlock()
	if ch.file == nil {
		return -1
	}
	return ch.file.Fd()
}
