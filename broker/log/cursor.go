package log

import (
	"fmt"
	"io"

	"github.com/varve-io/varve/wire/record"
)

// cursor walks the batch headers of a run of a segment. It reads ahead by the window while batches are small
// and header by header where they are large, so that a walk costs what it looks at.
type cursor struct {
	file   io.ReaderAt
	pos    int64 // of the next header
	end    int64 // of the run
	buf    []byte
	at     int64 // position of buf[0]
	n      int   // bytes in buf
	sparse bool
}

func newCursor(file io.ReaderAt, pos, end int64, window []byte) cursor {
	return cursor{file: file, pos: pos, end: end, buf: window}
}

// next returns the next header, of which only the accessors of header fields may be used and which is valid
// until the next call, where its batch begins and how many bytes it has. At the end of the run the error is
// io.EOF; it wraps record.ErrShort if the run ends inside a batch, record.ErrCorrupt if there is none.
func (c *cursor) next() (h record.Batch, pos, size int64, err error) {
	if c.pos >= c.end {
		return nil, c.pos, 0, io.EOF
	}
	p, err := c.header()
	if err != nil {
		return nil, c.pos, 0, err
	}
	size, err = record.SizeOf(p)
	h = record.Batch(p)
	switch {
	case err != nil:
		return nil, c.pos, 0, err
	case h.Magic() != record.Magic:
		return nil, c.pos, 0, record.ErrMagic
	case h.BaseOffset() < 0 || h.LastOffsetDelta() < 0 || h.LastOffset() < 0:
		return nil, c.pos, 0, fmt.Errorf("%w: offsets %d to %d", record.ErrCorrupt, h.BaseOffset(), h.LastOffset())
	case c.pos+size > c.end:
		return nil, c.pos, 0, fmt.Errorf("%w: %d bytes declared, %d left", record.ErrShort, size, c.end-c.pos)
	}
	pos = c.pos
	c.pos += size
	c.sparse = size > int64(len(c.buf))/8
	return h, pos, size, nil
}

func (c *cursor) header() ([]byte, error) {
	if c.end-c.pos < record.HeaderSize {
		return nil, fmt.Errorf("%w: %d bytes left", record.ErrShort, c.end-c.pos)
	}
	if c.pos < c.at || c.pos+record.HeaderSize > c.at+int64(c.n) {
		want := min(int64(len(c.buf)), c.end-c.pos)
		if c.sparse {
			want = min(want, record.HeaderSize)
		}
		n, err := c.file.ReadAt(c.buf[:want], c.pos)
		if int64(n) < want {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		c.at, c.n = c.pos, n
	}
	i := c.pos - c.at
	return c.buf[i : i+record.HeaderSize], nil
}

// readBatch reads one whole batch into *buf, which grows if need be.
func readBatch(file io.ReaderAt, pos, size int64, buf *[]byte) (record.Batch, error) {
	if int64(cap(*buf)) < size {
		*buf = make([]byte, size)
	}
	p := (*buf)[:size]
	if n, err := file.ReadAt(p, pos); int64(n) < size {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return record.Batch(p), nil
}

// giveBatch returns a buffer of readBatch to the pool.
func giveBatch(buf *[]byte) {
	if cap(*buf) <= maxPooledBatch {
		batches.Put(buf)
	}
}

// whole returns the batch whose header next returned last: from the window if it lies in it, else read into
// *buf.
func (c *cursor) whole(pos, size int64, buf *[]byte) (record.Batch, error) {
	if i := pos - c.at; i >= 0 && i+size <= int64(c.n) {
		return record.Batch(c.buf[i : i+size]), nil
	}
	return readBatch(c.file, pos, size, buf)
}
