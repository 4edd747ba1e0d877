package tier

import (
	"container/list"
	"sync"
	"time"

	"github.com/varve-io/varve/controller/metadata"
)

// stream is a reader of a partition who goes on where his last read ended. He is known by that offset
// alone, so that he survives reconnects and needs nothing of the protocol. Two readers at one offset
// are one stream; they share what is read ahead.
type stream struct {
	at     place
	bytes  int64  // read in sequence so far
	index  *Index // of the object last read: the index cache may forget it
	used   time.Time
	recent *list.Element
}

// place is where the next read of a stream begins.
type place struct {
	lane
	offset int64
}

// streams remembers the latest readers.
type streams struct {
	mu     sync.Mutex
	m      map[place]*stream
	recent list.List // of *stream, most recently used first

	active  int // streams used within activeFor, as counted at
	counted time.Time
}

const (
	maxStreams = 4096
	activeFor  = 10 * time.Second
)

// index returns the index that the reader at offset used last.
func (ss *streams) index(l lane, offset int64) *Index {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if st := ss.m[place{l, offset}]; st != nil {
		return st.index
	}
	return nil
}

// advance notes a read of bytes at [offset, next) and returns how many bytes its reader has read in sequence before
// it, and how many readers are active.
func (ss *streams) advance(l lane, offset, next, bytes int64, x *Index) (before int64, active int) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	st := ss.m[place{l, offset}]
	if st == nil {
		st = &stream{}
		st.recent = ss.recent.PushFront(st)
	} else {
		delete(ss.m, st.at)
		ss.recent.MoveToFront(st.recent)
	}
	before = st.bytes
	st.at, st.bytes, st.index, st.used = place{l, next}, st.bytes+bytes, x, time.Now()
	if met := ss.m[st.at]; met != nil {
		st.bytes = max(st.bytes, met.bytes)
		ss.recent.Remove(met.recent)
	}
	if ss.m == nil {
		ss.m = make(map[place]*stream)
	}
	ss.m[st.at] = st
	if ss.recent.Len() > maxStreams {
		oldest := ss.recent.Remove(ss.recent.Back()).(*stream)
		delete(ss.m, oldest.at)
	}
	return before, ss.countActive(st.used)
}

// behind reports whether another reader of the partition comes behind one who is at offset.
func (ss *streams) behind(l lane, offset int64) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	now := time.Now()
	for e := ss.recent.Front(); e != nil; e = e.Next() {
		st := e.Value.(*stream)
		if now.Sub(st.used) >= activeFor {
			return false
		}
		if st.at.lane == l && st.at.offset < offset {
			return true
		}
	}
	return false
}

// countActive counts at most once a second.
func (ss *streams) countActive(now time.Time) int {
	if now.Sub(ss.counted) < time.Second && ss.active > 0 {
		return ss.active
	}
	ss.active, ss.counted = 0, now
	for e := ss.recent.Front(); e != nil && now.Sub(e.Value.(*stream).used) < activeFor; e = e.Next() {
		ss.active++
	}
	return ss.active
}

func (ss *streams) count() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.recent.Len()
}

// maxQueued is how many downloads may wait for admission before reading ahead pauses.
const maxQueued = 64

// window is how far to read ahead of a reader who has read bytes in sequence: nothing at first, so that a random
// reader costs one chunk; then twice of what he has read, within the configured bound and
// his share of half the cache and of the memory for reading ahead: a chunk that waits for its reader there need not
// be written to its file. What is read ahead in vain is so at most twice what was of use.
func (m *Manager) window(bytes int64, active int) int64 {
	if bytes == 0 {
		return 0
	}
	want := max(2*bytes, m.cfg.ChunkBytes)
	readers := int64(max(active, 1))
	memory := max((m.cfg.MaxReadMemory-m.gate.reserve())/readers, m.cfg.ChunkBytes)
	return min(want, m.cfg.ReadAheadBytes, m.cfg.CacheBytes/2/readers, memory)
}

// readAhead begins to fetch the window bytes behind position pos of a segment's data, across the borders
// of segments.
func (m *Manager) readAhead(img *metadata.Image, s *metadata.Segment, x *Index, pos, window int64) {
	if window < m.cfg.ChunkBytes || m.health.err() != nil {
		return
	}
	window = m.aheadIn(s, x, pos, window)
	if window <= 0 {
		return
	}
	for next := range img.Segments(s.TopicID, s.Partition, s.End) {
		if window = m.aheadIn(next, m.indexes.get(next.Object), 0, window); window <= 0 {
			return
		}
	}
}

// aheadIn fetches chunks of one segment and returns what is left of the window.
func (m *Manager) aheadIn(s *metadata.Segment, x *Index, pos, window int64) int64 {
	count := m.sureChunks(s)
	if x != nil {
		count = m.chunks(x.DataSize)
	} else if m.busy() {
		return 0
	} else if m.fetchIndex(s, false); m.small(s) {
		return window - s.Size // its data comes with the index
	}
	for number := pos / m.cfg.ChunkBytes; number < count; number++ {
		if window <= 0 || m.busy() {
			return 0
		}
		if !m.cache.has(chunkKey{s.Object, number}) {
			m.fetchChunk(s, number, x, false)
		}
		window -= m.cfg.ChunkBytes
	}
	return window
}

func (m *Manager) busy() bool {
	_, waiting := m.gate.used()
	return waiting >= maxQueued
}
