package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// How a file range leaves. A descriptor's bytes go by sendfile, but small ones
// are cheaper to copy together into one write (measured: 16 slices of 16 KiB
// take 75 us so, 94 us by sendfile each).
const (
	copyBelow      = 16 << 10 // a range on its own
	copyBelowMany  = 64 << 10 // one of several
	manyRanges     = 4
	gatherBuffer   = wideBuffer
	maxSend        = 1 << 20 // of one sendfile call
	minWrite       = 4 << 10 // bytes that must leave in WriteTimeout
	answersAtOnce  = 64 << 10
	coldReadBuffer = 256 << 10
)

// errCut says that a file ended before the range that was to be sent. The frame
// is broken then, and so is the connection.
var errCut = errors.New("file range is cut short")

// sliceWriter is the sending half of a connection: bytes encoded so far, and
// three ways for file ranges to follow them.
//
//	sendfile        plaintext sockets, ranges with a descriptor: an explicit
//	                offset, since readers share the descriptor; the header
//	                goes first with MSG_MORE
//	gather          small ranges: pread into the buffer behind the header, one write
//	read and write  TLS, other systems, ranges without a descriptor
type sliceWriter struct {
	buf      *buffer // pooled, held only while writing
	b        []byte  // bytes not yet written; buf's memory or, outgrown, its own
	cuts     []cut
	deadline time.Time
	left     int64 // bytes written since deadline was set
	sys      sysWriter
}

// begin starts a frame and returns where.
func (w *sliceWriter) begin(r *Request, tags bool) int {
	if w.buf == nil {
		w.buf = pool.get(1 << minBufferBits)
		w.b = w.buf.b[:0]
	}
	mark := len(w.b)
	w.b = appendResponseHeader(w.b, r.CorrelationID, tags)
	return mark
}

// end sets the length of the frame that began at mark; extra bytes follow it from files.
func (w *sliceWriter) end(mark int, extra int64) {
	binary.BigEndian.PutUint32(w.b[mark:], uint32(int64(len(w.b)-mark-lengthSize)+extra))
}

// done gives the buffer back.
func (w *sliceWriter) done() {
	if w.buf != nil {
		pool.put(w.buf)
		w.buf, w.b = nil, nil
	}
}

// limit writes what has gathered once it is much.
func (w *sliceWriter) limit(c *Conn) error {
	if len(w.b) < answersAtOnce {
		return nil
	}
	return w.flush(c, false)
}

// flush writes what has gathered. More says that something follows at once.
func (w *sliceWriter) flush(c *Conn, more bool) error {
	if len(w.b) == 0 {
		return nil
	}
	err := w.write(c, w.b, more)
	w.b = w.b[:0]
	return err
}

// fetch writes a fetch response behind what has gathered.
func (w *sliceWriter) fetch(c *Conn, r *Request, resp *FetchResponse) error {
	mark := w.begin(r, r.flexible)
	w.b, w.cuts = resp.appendTo(w.b, w.cuts[:0], r.Version)
	defer clear(w.cuts)
	var size int64
	ranges := 0
	for _, k := range w.cuts {
		size += RangesSize(k.ranges)
		ranges += len(k.ranges)
	}
	w.end(mark, size)
	if len(w.cuts) == 0 {
		return w.limit(c)
	}
	below := int64(copyBelow)
	if ranges >= manyRanges {
		below = copyBelowMany
	}
	// The body was encoded in one piece. Its head stays in place and ranges are
	// written behind it; what follows each of them is moved up piece by piece.
	body := pool.get(len(w.b))
	defer pool.put(body)
	text := body.b[:copy(body.b, w.b)]
	w.b = w.b[:0]
	at := 0
	for _, k := range w.cuts {
		if err := w.gather(c, text[at:k.pos]); err != nil {
			return err
		}
		at = k.pos
		for i := range k.ranges {
			if err := w.rangeOut(c, &k.ranges[i], below); err != nil {
				return err
			}
		}
	}
	if err := w.gather(c, text[at:]); err != nil {
		return err
	}
	return w.limit(c)
}

// gather appends bytes, writing when the buffer is full.
func (w *sliceWriter) gather(c *Conn, b []byte) error {
	if len(b) > 0 && len(w.b)+len(b) > gatherBuffer {
		if err := w.flush(c, true); err != nil {
			return err
		}
	}
	w.reserve(len(b))
	w.b = append(w.b, b...)
	return nil
}

// reserve makes room for n more bytes in a pooled buffer.
func (w *sliceWriter) reserve(n int) {
	if len(w.b)+n <= cap(w.b) {
		return
	}
	size := len(w.b) + n
	if size > 1<<minBufferBits {
		size = max(size, gatherBuffer)
	}
	b := pool.get(size)
	k := copy(b.b, w.b)
	pool.put(w.buf)
	w.buf, w.b = b, b.b[:k]
}

// rangeOut sends one file range.
func (w *sliceWriter) rangeOut(c *Conn, r *FileRange, below int64) error {
	if r.Size == 0 {
		return nil
	}
	if !canSendfile || c.raw == nil || r.FD < 0 || r.Size < below {
		return w.copyRange(c, r)
	}
	if !r.Recent && !resident(r) {
		if err := c.pageIn(r); err != nil {
			return err
		}
	}
	if err := w.flush(c, true); err != nil {
		return err
	}
	return w.sendfile(c, r)
}

// pageIn has a cold range read by those who may wait for the disk.
func (c *Conn) pageIn(r *FileRange) error {
	c.srv.metrics.cold.Inc()
	return c.srv.cold.pageIn(c.ctx, r)
}

// copyRange reads a range into the buffer, which is written whenever it is full.
func (w *sliceWriter) copyRange(c *Conn, r *FileRange) error {
	for off, left := r.Off, r.Size; left > 0; {
		if len(w.b) >= gatherBuffer {
			if err := w.flush(c, true); err != nil {
				return err
			}
		}
		n := int(min(left, int64(gatherBuffer-len(w.b))))
		w.reserve(n)
		k, err := c.readRange(r, w.b[len(w.b):len(w.b)+n], off)
		if k < n {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("%w: %w", errCut, err)
		}
		w.b = w.b[:len(w.b)+n]
		off += int64(n)
		left -= int64(n)
	}
	return nil
}

// readRange reads bytes of a range, in one call if they are in the page cache:
// asking first would cost as much as reading.
func (c *Conn) readRange(r *FileRange, b []byte, off int64) (int, error) {
	if r.FD >= 0 && !r.Recent {
		switch done, cold := readNow(r.FD, b, off); {
		case done:
			return len(b), nil
		case cold:
			if err := c.pageIn(r); err != nil {
				return 0, err
			}
		}
	}
	return r.ReaderAt.ReadAt(b, off)
}

// write writes b, more of it as the peer takes it, at minWrite bytes a WriteTimeout at least.
func (w *sliceWriter) write(c *Conn, b []byte, more bool) error {
	for len(b) > 0 {
		w.setDeadline(c)
		var n int
		var err error
		if c.raw != nil && more && canSendfile {
			n, err = w.sys.send(c.raw, b)
		} else {
			n, err = c.nc.Write(b)
		}
		b = b[n:]
		if err := w.progress(c, int64(n), err); err != nil {
			return err
		}
	}
	return nil
}

// setDeadline gives a write WriteTimeout, give or take an eighth.
func (w *sliceWriter) setDeadline(c *Conn) {
	d := c.srv.cfg.WriteTimeout
	if want := time.Now().Add(d); w.deadline.Before(want.Add(-d / 8)) {
		w.deadline, w.left = want, 0
		c.nc.SetWriteDeadline(want)
	}
}

// progress counts n written bytes. A deadline that ran out is forgiven to a peer
// that took enough meanwhile; setDeadline then sets the next.
func (w *sliceWriter) progress(c *Conn, n int64, err error) error {
	w.left += n
	c.srv.metrics.sent.Add(float64(n))
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && w.left >= minWrite && c.raw != nil {
		return nil
	}
	return err
}
