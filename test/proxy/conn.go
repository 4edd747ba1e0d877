package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pieceSize = 64 << 10 // bytes read at a time on the slow path
	fastSize  = 1 << 20  // bytes spliced between two looks at the faults
	backlog   = 2048     // pieces that may be delayed in one direction: 128 MiB
	dripEvery = 10 * time.Millisecond
)

// conn is one connection and its twin to the target.
type conn struct {
	p      *Proxy
	client *net.TCPConn

	mu      sync.Mutex
	target  *net.TCPConn  // nil until dialled
	changed chan struct{} // closed and replaced whenever the faults change

	gone context.Context // ended by reset
	end  context.CancelFunc
}

func newConn(p *Proxy, client *net.TCPConn) *conn {
	c := &conn{p: p, client: client, changed: make(chan struct{})}
	c.gone, c.end = context.WithCancel(context.Background())
	return c
}

func (c *conn) run() {
	defer c.close(false)
	if !c.sleep(c.p.faults.Load().ConnectDelay) {
		return
	}
	target, err := c.dial()
	if err != nil {
		return
	}
	c.poke(*c.p.faults.Load()) // they may have changed meanwhile
	var wg sync.WaitGroup
	up := way{c: c, src: c.client, dst: target, bytes: &c.p.up, faults: func(f *Faults) Way { return f.Up }}
	down := way{c: c, src: target, dst: c.client, bytes: &c.p.down, faults: func(f *Faults) Way { return f.Down }}
	wg.Go(up.run)
	wg.Go(down.run)
	wg.Wait()
	for c.gone.Err() == nil && c.p.faults.Load().HalfOpen { // the client talks to nobody
		c.client.SetReadDeadline(time.Time{})
		if _, err := io.Copy(io.Discard, c.client); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

func (c *conn) dial() (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(c.gone, dialTimeout)
	defer cancel()
	target, err := new(net.Dialer).DialContext(ctx, "tcp", c.p.target)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone.Err() != nil {
		target.Close()
		return nil, net.ErrClosed
	}
	c.target = target.(*net.TCPConn)
	return c.target, nil
}

// poke makes both directions look at the faults again.
func (c *conn) poke(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
	c.client.SetReadDeadline(time.Now())
	if c.target == nil {
		return
	}
	c.target.SetReadDeadline(time.Now())
	if f.HalfOpen {
		c.target.SetLinger(0)
		c.target.Close()
	}
}

// reset ends both ends at once; bytes not sent yet are lost.
func (c *conn) reset() { c.close(true) }

func (c *conn) close(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone.Err() != nil {
		return
	}
	c.end()
	for _, end := range []*net.TCPConn{c.client, c.target} {
		if end == nil {
			continue
		}
		if reset {
			end.SetLinger(0)
		}
		end.Close()
	}
}

// current is what changes next time poke is called.
func (c *conn) current() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// sleep waits for d; false if the connection was reset meanwhile.
func (c *conn) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone.Done():
		return false
	}
}

// way is one direction of a connection.
type way struct {
	c        *conn
	src, dst *net.TCPConn
	bytes    *atomic.Int64
	faults   func(*Faults) Way
}

func (w way) now() Way { return w.faults(w.c.p.faults.Load()) }

// piece is some bytes and when they may go on. No bytes are the end of the stream.
type piece struct {
	data []byte
	due  time.Time
}

// run passes bytes on until the stream ends. Without faults the kernel moves them; with
// faults they go through a queue in which they grow old.
func (w way) run() {
	queue := make(chan piece, backlog)
	var pending sync.WaitGroup // pieces in the queue: the fast path must not overtake them
	var sender sync.WaitGroup
	sender.Go(func() { w.send(queue, &pending) })
	defer sender.Wait()
	defer close(queue)
	for {
		changed := w.c.current()
		w.src.SetReadDeadline(time.Time{})
		f := w.now()
		var err error
		switch {
		case changed != w.c.current(): // poked in between
		case f.Stall:
			select {
			case <-changed:
			case <-w.c.gone.Done():
				return
			}
		case f == Way{}:
			pending.Wait()
			var n int64
			n, err = io.CopyN(w.dst, w.src, fastSize)
			w.bytes.Add(n)
		default:
			buf := make([]byte, pieceSize)
			var n int
			if n, err = w.src.Read(buf); n > 0 {
				pending.Add(1)
				queue <- piece{data: buf[:n], due: time.Now().Add(w.now().Delay)}
			}
		}
		switch {
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, io.EOF):
			pending.Add(1)
			queue <- piece{due: time.Now().Add(f.Delay)}
			return
		default:
			w.broken()
			return
		}
	}
}

// send writes pieces when they are due. It keeps emptying the queue after a failure.
func (w way) send(queue <-chan piece, pending *sync.WaitGroup) {
	failed := false
	for p := range queue {
		if !failed {
			failed = !w.c.sleep(time.Until(p.due)) || w.write(p.data) != nil
		}
		if !failed && p.data == nil {
			failed = w.dst.CloseWrite() != nil
		}
		pending.Done()
	}
	if failed {
		w.broken()
	}
}

// write sends data as the faults of this moment allow.
func (w way) write(data []byte) error {
	for len(data) > 0 {
		changed, f := w.c.current(), w.now()
		n := len(data)
		switch {
		case f.Stall:
			select {
			case <-changed:
				continue
			case <-w.c.gone.Done():
				return net.ErrClosed
			}
		case f.Rate > 0:
			n = min(n, max(1, int(f.Rate*int64(dripEvery)/int64(time.Second))))
			if !w.c.sleep(time.Duration(n) * time.Second / time.Duration(f.Rate)) {
				return net.ErrClosed
			}
		}
		k, err := w.dst.Write(data[:n])
		w.bytes.Add(int64(k))
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// broken ends the connection, unless only the target's end is meant to be gone.
func (w way) broken() {
	if !w.c.p.faults.Load().HalfOpen {
		w.c.reset()
	}
}
