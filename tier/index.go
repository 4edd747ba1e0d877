package tier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// indexCache keeps decoded indexes in memory, by their cost in bytes. It may forget any of them at any
// time, even one that was just put (it admits what is wanted often): whoever reads an object in
// sequence holds its index himself, see stream.
type indexCache struct {
	c atomic.Pointer[ristretto.Cache[string, *Index]]
}

// counters of the cache's admission policy; about three bytes each.
const indexCounters = 100_000

func (ic *indexCache) start(bytes int64) error {
	c, err := ristretto.NewCache(&ristretto.Config[string, *Index]{NumCounters: indexCounters, MaxCost: bytes, BufferItems: 64})
	if err != nil {
		return fmt.Errorf("make the index cache: %w", err)
	}
	ic.c.Store(c)
	return nil
}

func (ic *indexCache) stop() {
	if c := ic.c.Swap(nil); c != nil {
		c.Close()
	}
}

func (ic *indexCache) get(object wire.UUID) *Index {
	if c := ic.c.Load(); c != nil {
		if x, ok := c.Get(string(object[:])); ok && x.Object == object {
			return x
		}
	}
	return nil
}

func (ic *indexCache) put(x *Index) {
	if c := ic.c.Load(); c != nil {
		c.Set(string(x.Object[:]), x, x.cost())
	}
}

// index returns the index of a segment's object, from memory or the store.
func (m *Manager) index(ctx context.Context, s *metadata.Segment) (*Index, error) {
	if x := m.indexes.get(s.Object); x != nil {
		return x, nil
	}
	f := m.fetchIndex(s, true)
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return f.index, nil
}

// fetchIndex starts or joins the download of an index. A small object is brought as a whole: its only chunk
// enters the cache too.
func (m *Manager) fetchIndex(s *metadata.Segment, urgent bool) *fetch {
	return m.fetch(fetchKey{s.Object, indexPart}, urgent, func(ctx context.Context, f *fetch) error {
		size := min(tailGuess(s.Size), s.Size)
		var room *room
		if s.Size <= m.cfg.ChunkBytes {
			if r, err := m.cache.reserve(ctx, s.Size, false); err == nil {
				room, size = r, s.Size
				defer r.cancel()
			}
		}
		for {
			x, err := m.getIndex(ctx, f, s, size, room)
			if more := (*needMore)(nil); errors.As(err, &more) && s.Size-more.pos > size && s.Size-more.pos <= maxTailSize {
				size = s.Size - more.pos
				continue
			}
			if err == nil {
				f.index = x
				m.indexes.put(x)
			}
			return err
		}
	})
}

// getIndex downloads the last size bytes of the object and decodes them.
func (m *Manager) getIndex(ctx context.Context, f *fetch, s *metadata.Segment, size int64, room *room) (x *Index, err error) {
	err = m.download(ctx, f, s, s.Size-size, size, func(p []byte) error {
		if x, err = decodeIndex(tail{p: p, pos: s.Size - size}); err != nil {
			return err
		}
		if err = x.belongs(s, m.cfg.ClusterID); err != nil || room == nil {
			return err
		}
		data := p[:x.DataSize]
		if err = x.verify(0, data); err != nil {
			return err
		}
		return room.fill(chunkKey{s.Object, 0}, 0, data, !f.isUrgent())
	})
	return x, err
}

// belongs compares an object with the row that led to it.
func (x *Index) belongs(s *metadata.Segment, clusterID string) error {
	if x.Object != s.Object || x.TopicID != s.TopicID || x.Partition != s.Partition || x.Base != s.Base || x.End != s.End || x.ClusterID != clusterID {
		return corrupt("it holds [%d, %d) of partition %s-%d as object %s, cluster %s", x.Base, x.End, x.TopicID, x.Partition, x.Object, x.ClusterID)
	}
	return nil
}
