package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve-io/varve/controller/metadata"
)

// The data of an object is downloaded and cached in chunks of ChunkBytes. A rest of up to a quarter of that is
// part of the last chunk: a segment that is a little larger than a multiple does not cost one GET more.

// chunks is the number of chunks that dataSize bytes make.
func (m *Manager) chunks(dataSize int64) int64 {
	return max(1, (dataSize-m.cfg.ChunkBytes/4+m.cfg.ChunkBytes-1)/m.cfg.ChunkBytes)
}

// chunkAt is the chunk that position pos of the data lies in.
func (m *Manager) chunkAt(x *Index, pos int64) int64 {
	return min(pos/m.cfg.ChunkBytes, m.chunks(x.DataSize)-1)
}

// chunkBounds returns where a chunk lies in the data; no bytes if there is no such chunk.
func (m *Manager) chunkBounds(x *Index, number int64) (pos, size int64) {
	last := m.chunks(x.DataSize) - 1
	pos = number * m.cfg.ChunkBytes
	switch {
	case number < last:
		return pos, m.cfg.ChunkBytes
	case number == last:
		return pos, x.DataSize - pos
	default:
		return pos, 0
	}
}

// small reports whether an object is fetched as a whole: index and its only chunk in one GET.
func (m *Manager) small(s *metadata.Segment) bool {
	return s.Size <= m.cfg.ChunkBytes+m.cfg.ChunkBytes/4
}

// sureChunks is the number of chunks that an object has, of full size, going by its row alone. A tail larger than usual
// makes it wrong; the index will tell.
func (m *Manager) sureChunks(s *metadata.Segment) int64 {
	if m.small(s) {
		return 0
	}
	return m.chunks(s.Size-tailGuess(s.Size)) - 1
}

// chunk returns a pinned chunk, from the cache or the store.
func (m *Manager) chunk(ctx context.Context, s *metadata.Segment, x *Index, number int64) (*chunk, error) {
	key := chunkKey{s.Object, number}
	for range 3 {
		if ch, ok := m.cache.pin(key); ok {
			return m.sound(ch, x)
		}
		ch, err := m.fetchChunk(s, number, x, true).waitChunk(ctx)
		if ch != nil {
			return ch, nil
		}
		// A fetch that began as reading ahead gives up where there is no room; ours will wait.
		if err != nil && !errors.Is(err, ErrCacheFull) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("chunk %d of %s: %w", number, m.name(s), ErrCacheFull)
}

// sound returns a pinned chunk if its file still holds what was written, or drops it.
func (m *Manager) sound(ch *chunk, x *Index) (*chunk, error) {
	if !ch.stale() {
		return ch, nil
	}
	if err := ch.recheck(x); err != nil {
		m.spoiled(ch, err)
		return nil, errSpoiled
	}
	return ch, nil
}

// errSpoiled: a cache file changed on the local disk; it was dropped, and a second try will fetch it anew.
var errSpoiled = fmt.Errorf("%w: its chunk in the local cache has changed", ErrCorrupt)

// spoiled drops and unpins a chunk whose file is not what was written.
func (m *Manager) spoiled(ch *chunk, err error) {
	m.metrics.spoiled.Inc()
	m.log.Warn("a file of the chunk cache has changed on the local disk, fetching it anew", "object", ch.key.object, "chunk", ch.key.number, "error", err)
	m.cache.drop(ch)
	ch.unpin()
}

// fetchChunk starts or joins the download of a chunk. x may be nil if it is not at hand: then the index is fetched
// too, at the same time if the row alone tells where the chunk lies. Of small objects x must be given.
func (m *Manager) fetchChunk(s *metadata.Segment, number int64, x *Index, urgent bool) *fetch {
	bytes := m.cfg.ChunkBytes
	if x != nil {
		_, bytes = m.chunkBounds(x, number)
	}
	w := want{m.gate, bytes, lane{s.TopicID, s.Partition}, urgent}
	return m.fetch(fetchKey{s.Object, number}, w, func(ctx context.Context, f *fetch) error {
		get := chunkGet{m: m, s: s, number: number, x: x}
		if x == nil {
			get.index = m.fetchIndex(s, f.isUrgent())
			if number >= m.sureChunks(s) {
				if err := get.needIndex(ctx); err != nil {
					return err
				}
			}
		}
		if err := f.admitted(ctx); err != nil {
			return err
		}
		return get.run(ctx, f)
	})
}

// chunkGet is the download of one chunk.
type chunkGet struct {
	m      *Manager
	s      *metadata.Segment
	number int64
	x      *Index // nil until index has brought it
	index  *fetch
}

func (g *chunkGet) needIndex(ctx context.Context) error {
	if g.x != nil {
		return nil
	}
	if err := g.index.wait(ctx); err != nil {
		return err
	}
	g.x = g.index.index
	return nil
}

func (g *chunkGet) run(ctx context.Context, f *fetch) error {
	key := chunkKey{g.s.Object, g.number}
	pos, size := g.number*g.m.cfg.ChunkBytes, g.m.cfg.ChunkBytes
	if g.x != nil {
		pos, size = g.m.chunkBounds(g.x, g.number)
	}
	if size == 0 {
		return nil // read ahead beyond the data
	}
	if ch, ok := g.m.cache.pin(key); ok { // brought with the index
		f.chunk = ch
		return nil
	}
	room, err := g.m.cache.reserve(ctx, size, f.isUrgent())
	if err != nil {
		return err
	}
	defer room.cancel()
	var indexErr error
	err = g.m.download(ctx, f, g.s, pos, size, func(l *loan) error {
		if indexErr = g.needIndex(ctx); indexErr != nil {
			return nil
		}
		if _, want := g.m.chunkBounds(g.x, g.number); want != size {
			return nil // the row alone misled us
		}
		if err := g.x.verify(pos, l.p); err != nil {
			return err
		}
		f.chunk = g.m.keep(f, room, key, pos, l)
		return nil
	})
	return errors.Join(err, indexErr)
}

// keep lets a verified download into the cache, pinned; its memory stays admitted for as long as the chunk is in memory.
func (m *Manager) keep(f *fetch, r *room, key chunkKey, pos int64, l *loan) *chunk {
	l.ticket = f.cede()
	ch := r.fill(key, pos, l, !f.isUrgent())
	m.gate.press()
	return ch
}
