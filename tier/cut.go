package tier

import (
	"context"
	"errors"

	"github.com/varve-io/varve/wire/record"
)

// cut is a run of whole batches in an object's data: bytes [from, to), after which offset next follows.
type cut struct {
	from, to int64
	next     int64
}

// cutCached finds the batches for a request without touching disk or store: they begin and end at entries of the
// index and lie in chunks that are cached. False if that is not possible.
func (l *lease) cutCached(req ReadRequest) (cut, bool) {
	offset, from := l.x.at(l.x.floor(req.Offset))
	if offset != req.Offset || !l.cached(l.m.chunkAt(l.x, from)) {
		return cut{}, false
	}
	c := l.fit(from, req)
	return c, c.to > c.from
}

// cut finds the batches for a request, fetching what it needs: the chunk in which the first batch begins,
// and those in which that batch goes on. Later ones are taken only if they are there: the reader shall
// have what there is now.
func (l *lease) cut(ctx context.Context, req ReadRequest) (cut, error) {
	from, err := l.start(ctx, req.Offset)
	if err != nil {
		return cut{}, err
	}
	if _, err := l.chunk(ctx, l.m.chunkAt(l.x, from)); err != nil {
		return cut{}, err
	}
	if c := l.fit(from, req); c.to > c.from {
		return c, nil
	}
	return l.count(ctx, from, req)
}

// fit ends the cut at the last entry of the index that bytes, offset and cached chunks allow; it is empty if
// that is the one it begins at, or none.
func (l *lease) fit(from int64, req ReadRequest) cut {
	limit := min(from+int64(max(req.MaxBytes, 0)), l.x.DataSize)
	for {
		i := l.x.floorPos(limit)
		if limit == l.x.DataSize {
			i = len(l.x.entries)
		}
		for i > 0 && l.offsetAt(i) > req.EndOffset {
			i = l.x.floor(req.EndOffset)
		}
		next, to := l.x.at(i)
		if to <= from {
			return cut{from: from, to: from}
		}
		missing, ok := l.firstMissing(from, to)
		if !ok {
			return cut{from: from, to: to, next: next}
		}
		limit = missing * l.m.cfg.ChunkBytes
	}
}

func (l *lease) offsetAt(i int) int64 { offset, _ := l.x.at(i); return offset }

// firstMissing pins the chunks of [from, to) and returns the first that is not cached.
func (l *lease) firstMissing(from, to int64) (number int64, missing bool) {
	for number = l.m.chunkAt(l.x, from); to > from && number <= l.m.chunkAt(l.x, to-1); number++ {
		if !l.cached(number) {
			return number, true
		}
	}
	return 0, false
}

// start returns where the batch that holds offset begins; if the offset lies in a gap, the batch after it.
func (l *lease) start(ctx context.Context, offset int64) (int64, error) {
	base, from := l.x.at(l.x.floor(offset))
	if base == offset {
		return from, nil
	}
	err := l.walk(ctx, from, func(pos int64, h record.Batch, _ int64) bool {
		from = pos
		return h.LastOffset() < offset
	})
	return from, err
}

// count cuts batch by batch, where the index is too coarse: less is asked for than lies between two
// entries, or one batch is larger than what was asked for.
func (l *lease) count(ctx context.Context, from int64, req ReadRequest) (cut, error) {
	c := cut{from: from, to: from, next: req.Offset}
	err := l.walk(ctx, from, func(pos int64, h record.Batch, size int64) bool {
		first := pos == from
		if h.NextOffset() > req.EndOffset || pos+size-from > int64(req.MaxBytes) && !(first && req.MinOneBatch) {
			return false
		}
		c.to, c.next = pos+size, h.NextOffset()
		// Go on only where the next header is at hand.
		return c.to-c.from < int64(req.MaxBytes) && c.next < req.EndOffset && l.cached(l.m.chunkAt(l.x, c.to+record.HeaderSize-1))
	})
	if err != nil {
		return cut{}, err
	}
	return c, l.need(ctx, c.from, c.to)
}

// walkBuffer is how much walk reads at a time: small batches come many at once, large ones cost no
// more than this.
const walkBuffer = windowSize

// errHeader: what should be the header of a batch is none.
var errHeader = errors.New("no batch header where one should be")

// walk calls fn with the header (only the header) and size of each batch from pos on until it returns
// false or the data ends. The bytes were verified before they entered the cache: a header that cannot be one means
// that the local file has changed since.
func (l *lease) walk(ctx context.Context, pos int64, fn func(pos int64, header record.Batch, size int64) bool) error {
	buf := buffers.get(walkBuffer)
	defer buffers.put(buf)
	var have []byte // bytes of the data at pos
	previous := int64(-1)
	for pos < l.x.DataSize {
		if len(have) < record.HeaderSize {
			n, err := l.fill(ctx, buf, pos)
			if err != nil {
				return err
			}
			have = buf[:n]
		}
		size, err := record.SizeOf(have)
		h := record.Batch(have[:min(record.HeaderSize, len(have))])
		if err != nil || len(h) < record.HeaderSize || h.Magic() != record.Magic || size > l.x.DataSize-pos ||
			h.BaseOffset() <= previous || h.BaseOffset() < l.x.Base || h.NextOffset() > l.x.End || h.NextOffset() <= h.BaseOffset() {
			return l.notBatch(pos)
		}
		if !fn(pos, h, size) {
			return nil
		}
		previous, pos = h.BaseOffset(), pos+size
		have = have[min(size, int64(len(have))):]
	}
	return nil
}

// fill reads what the chunk at pos has, up to len(buf); across the chunk's border only if a header lies there.
func (l *lease) fill(ctx context.Context, buf []byte, pos int64) (int, error) {
	at, size := l.m.chunkBounds(l.x, l.m.chunkAt(l.x, pos))
	n := min(int64(len(buf)), max(at+size-pos, record.HeaderSize), l.x.DataSize-pos)
	return int(n), l.readAt(ctx, buf[:n], pos)
}

// notBatch drops the chunk with the header that is none.
func (l *lease) notBatch(pos int64) error {
	if number := l.m.chunkAt(l.x, pos); l.cached(number) {
		return l.spoiled(l.chunks[number], errHeader)
	}
	return corrupt("%w at %d", errHeader, pos)
}
