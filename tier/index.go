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
		c.Wait() // so that whoever asks next finds it, if it was admitted
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
	w := want{m.indexGate, tailGuess(s.Size), lane{s.TopicID, s.Partition}, urgent}
	if m.small(s) {
		w.gate, w.bytes = m.gate, s.Size
	}
	return m.fetch(fetchKey{s.Object, indexPart}, w, func(ctx context.Context, f *fetch) error {
		x := m.indexes.get(s.Object) // whoever asked may have looked before another fetch ended
		if x == nil {
			var err error
			if x, err = m.getIndex(ctx, f, s, w.bytes); err != nil {
				return err
			}
			m.indexes.put(x)
		}
		f.index = x
		return nil
	})
}

// getIndex downloads the index, all of a small object if there is room for its data.
func (m *Manager) getIndex(ctx context.Context, f *fetch, s *metadata.Segment, size int64) (x *Index, err error) {
	if err := f.admitted(ctx); err != nil {
		return nil, err
	}
	var r *room
	if size == s.Size {
		if r, err = m.cache.reserve(ctx, size, false); err != nil {
			size = tailGuess(size)
		} else {
			defer r.cancel()
		}
	}
	err = m.downloadTail(ctx, f, s, size, func(t tail, l *loan) error {
		if x, err = decodeIndex(t); err != nil {
			return err
		}
		if err := x.belongs(s, m.cfg.ClusterID); err != nil || r == nil || t.pos > 0 {
			return err
		}
		if err := x.verify(0, t.p[:x.DataSize]); err != nil {
			return err
		}
		l.p = t.p[:x.DataSize]
		m.keep(f, r, chunkKey{s.Object, 0}, 0, l).unpin()
		return nil
	})
	return x, err
}

// downloadTail brings the last size bytes of an object, or more if use needs more. The fetch has been admitted for size.
func (m *Manager) downloadTail(ctx context.Context, f *fetch, s *metadata.Segment, size int64, use func(tail, *loan) error) error {
	for {
		pos := s.Size - size
		err := m.download(ctx, f, s, pos, size, func(l *loan) error { return use(tail{p: l.p, pos: pos}, l) })
		var more *needMore
		if !errors.As(err, &more) {
			return err
		}
		if more.pos < 0 || more.pos >= pos || s.Size-more.pos > maxTailSize {
			return corrupt("%s: its tail is said to begin at %d of %d", m.name(s), more.pos, s.Size)
		}
		size = s.Size - more.pos
		f.enter(want{m.indexGate, size, lane{s.TopicID, s.Partition}, true})
		if err := f.admitted(ctx); err != nil {
			return err
		}
	}
}

// belongs compares an object with the row that led to it.
func (x *Index) belongs(s *metadata.Segment, clusterID string) error {
	if x.Object != s.Object || x.TopicID != s.TopicID || x.Partition != s.Partition || x.Base != s.Base || x.End != s.End || x.ClusterID != clusterID {
		return corrupt("it holds [%d, %d) of partition %s-%d as object %s, cluster %s", x.Base, x.End, x.TopicID, x.Partition, x.Object, x.ClusterID)
	}
	return nil
}
