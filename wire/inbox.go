package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// Sizes of a connection's buffer: what a readable connection starts with, and
// what it gets once a read filled that.
const (
	firstBuffer = 64 << 10
	wideBuffer  = 256 << 10
)

// inbox is the receiving half of a connection. It holds a buffer only between
// the arrival of bytes and the end of the last complete request among them.
type inbox struct {
	buf      *buffer
	pos, n   int       // unparsed bytes are buf.b[pos:n]
	wide     bool      // the last read filled its buffer
	deadline time.Time // as set on the connection
	partial  bool      // deadline is that of an incomplete frame,
	mark     int       // of which so many bytes were here when it was set

	group   []*Request
	clients names
	topics  names

	readFn func(fd uintptr) bool // made once: RawConn.Read with no allocation
	got    int
	err    error
}

// pool holds the buffers of all connections of the process.
var pool buffers

// fill waits for more bytes and appends them to the buffer.
func (in *inbox) fill(c *Conn) error {
	in.await(c)
	if in.n > 0 {
		if err := in.grow(c); err != nil {
			return err
		}
	}
	for {
		n, err := in.read(c)
		if n > 0 {
			in.n += n
			in.wide = in.n == len(in.buf.b) || in.wide && n > firstBuffer/4
			c.srv.metrics.received.Add(float64(n))
			return nil
		}
		if errors.Is(err, errNoMemory) {
			if err := in.replace(c, firstBuffer); err != nil {
				return err
			}
			continue
		}
		return err
	}
}

// minProgress is how many bytes of a frame must arrive in FrameTimeout, lest a
// peer that drips holds a buffer for ever.
const minProgress = 64 << 10

// await sets the deadline of the next read.
func (in *inbox) await(c *Conn) {
	switch {
	case in.n == 0:
		in.partial = false
		in.setDeadline(c, c.idleTimeout())
	case !in.partial || in.n-in.mark >= minProgress:
		in.partial, in.mark = true, in.n
		in.setDeadline(c, c.srv.cfg.FrameTimeout)
	}
}

// read does one read that returned bytes or failed for good.
func (in *inbox) read(c *Conn) (int, error) {
	if c.raw == nil {
		return in.readPlain(c)
	}
	if in.readFn == nil {
		in.readFn = func(fd uintptr) bool { return in.readRaw(c, int(fd)) }
	}
	in.got, in.err = 0, nil
	if err := c.raw.Read(in.readFn); err != nil {
		return 0, err
	}
	return in.got, in.err
}

var errNoMemory = errors.New("request memory is used up")

// readRaw reads from a socket that may or may not be readable. While it is not,
// an idle connection keeps no buffer and one that waits for the rest of a small
// piece only a small one.
func (in *inbox) readRaw(c *Conn, fd int) bool {
	if in.buf == nil {
		size := firstBuffer
		if in.wide {
			size = wideBuffer
		}
		if !in.swap(c, size) {
			in.err = errNoMemory
			return true
		}
	}
	for {
		n, err := syscall.Read(fd, in.buf.b[in.n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			in.wait(c)
			return false
		case err != nil:
			in.err = err
		case n == 0:
			in.err = in.eof()
		}
		in.got = max(n, 0)
		return true
	}
}

// wait gives back what the wait for more bytes does not need.
func (in *inbox) wait(c *Conn) {
	switch {
	case in.n == 0:
		in.drop(c)
	case in.n < 1<<minBufferBits && len(in.buf.b) > bufferSize(0) && in.need() <= bufferSize(0):
		in.swap(c, bufferSize(0))
	}
}

// readPlain reads through net.Conn. One byte tells that there is something to
// take a buffer for.
func (in *inbox) readPlain(c *Conn) (int, error) {
	if in.buf != nil {
		n, err := c.nc.Read(in.buf.b[in.n:])
		if err == io.EOF {
			err = in.eof()
		}
		return n, err
	}
	var first [1]byte
	n, err := c.nc.Read(first[:])
	if n == 0 {
		return 0, err
	}
	if err := in.replace(c, firstBuffer); err != nil {
		return 0, err
	}
	in.buf.b[0] = first[0]
	return 1, nil
}

func (in *inbox) eof() error {
	if in.n > 0 {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// need returns the size of the first frame with its length, as far as known.
func (in *inbox) need() int {
	if in.n < lengthSize {
		return lengthSize
	}
	return lengthSize + int(binary.BigEndian.Uint32(in.buf.b))
}

// grow makes room for more of an incomplete frame: at most four times what has
// arrived, whatever the frame claims to be.
func (in *inbox) grow(c *Conn) error {
	need := in.need()
	if in.n < len(in.buf.b) && (need <= len(in.buf.b) || in.n < len(in.buf.b)/2) {
		return nil
	}
	size := min(need, 4*in.n)
	if need <= firstBuffer {
		size = firstBuffer
	} else {
		size = max(size, min(need, wideBuffer))
	}
	if size <= len(in.buf.b) {
		return nil
	}
	return in.replace(c, size)
}

// replace moves to a buffer of at least size bytes, waiting for memory.
func (in *inbox) replace(c *Conn, size int) error {
	b := pool.get(size)
	in.uncharge(c)
	ctx, cancel := context.WithTimeout(c.reading, c.srv.cfg.FrameTimeout)
	defer cancel()
	if err := c.srv.cfg.Budget.acquireFrame(ctx, int64(len(b.b))); err != nil {
		pool.put(b)
		pool.put(in.buf)
		in.buf = nil
		return fmt.Errorf("%w: %w", errNoMemory, err)
	}
	if in.buf != nil {
		copy(b.b, in.buf.b[:in.n])
		pool.put(in.buf)
	}
	in.buf = b
	return nil
}

// swap moves the unparsed bytes to a buffer of size bytes if memory allows that at once.
func (in *inbox) swap(c *Conn, size int) bool {
	b := pool.get(size)
	if !c.srv.cfg.Budget.tryFrame(int64(len(b.b))) {
		pool.put(b)
		return false
	}
	if in.buf != nil {
		copy(b.b, in.buf.b[in.pos:in.n])
	}
	in.drop(c)
	in.buf = b
	return true
}

// drop gives the buffer back.
func (in *inbox) drop(c *Conn) {
	in.uncharge(c)
	pool.put(in.buf)
	in.buf = nil
}

func (in *inbox) uncharge(c *Conn) {
	if in.buf != nil {
		c.srv.cfg.Budget.releaseFrame(int64(len(in.buf.b)))
	}
}

// take puts bytes that were read otherwise into the buffer.
func (in *inbox) take(c *Conn, b []byte) {
	if in.replace(c, firstBuffer) == nil {
		in.n = copy(in.buf.b, b)
	}
}

// next returns the next complete frame, without its length. What is too long
// for its API is refused as soon as that can be seen, not when it has arrived.
func (in *inbox) next(limit func(key int16) int) (frame []byte, ok bool, err error) {
	rest := in.buf.b[in.pos:in.n]
	if len(rest) < lengthSize {
		return nil, false, nil
	}
	size := int(int32(binary.BigEndian.Uint32(rest)))
	key := int16(0) // has the highest limit
	if len(rest) >= lengthSize+2 {
		key = int16(binary.BigEndian.Uint16(rest[lengthSize:]))
	}
	if most := limit(key); size < minRequestSize || size > most {
		return nil, false, fmt.Errorf("%w: frame of %d bytes with key %d, at most %d", ErrMalformed, size, key, most)
	}
	if len(rest) < lengthSize+size {
		return nil, false, nil
	}
	in.pos += lengthSize + size
	return rest[lengthSize : lengthSize+size : lengthSize+size], true, nil
}

// compact moves the beginning of an incomplete frame to the front, and out of a
// buffer that was grown for a large one. All frames handed out are invalid now.
func (in *inbox) compact(c *Conn) {
	rest := in.n - in.pos
	if in.pos > 0 {
		in.partial = false
	}
	switch {
	case rest == 0:
		in.pos, in.n = 0, 0
		in.drop(c)
		return
	case in.pos == 0:
		return
	case len(in.buf.b) > 2*wideBuffer && rest < firstBuffer && in.swap(c, wideBuffer):
	case in.wide && len(in.buf.b) < wideBuffer && in.swap(c, wideBuffer):
	default:
		copy(in.buf.b, in.buf.b[in.pos:in.n])
	}
	in.pos, in.n = 0, rest
}

// setDeadline lets the next read take about d from now. The timer is only
// touched when it is off by an eighth, so that a busy connection does not pay for it.
func (in *inbox) setDeadline(c *Conn, d time.Duration) {
	want := time.Now().Add(d)
	if in.deadline.After(want) || in.deadline.Before(want.Add(-d/8)) {
		in.deadline = want
		c.nc.SetReadDeadline(want)
		if c.stopped() { // stop may have come in between
			c.nc.SetReadDeadline(time.Unix(1, 0))
		}
	}
}
