package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxResponse bounds a response; a snapshot of the metadata is the largest.
const maxResponse = 1 << 30

// clientConn is one connection of a Client: a goroutine that writes and one that reads.
type clientConn struct {
	nc       net.Conn
	addr     string // that was dialled
	clientID string
	versions map[int16][2]int16 // by key: lowest, highest; set before the first ordinary request
	send     chan *call
	slots    chan struct{} // one for each request in flight
	dead     chan struct{} // closed by fail

	mu      sync.Mutex
	err     error // why dead
	nextID  int32
	waiting map[int32]*call
}

// call is one request in flight.
type call struct {
	id    int32
	key   int16
	tags  bool   // the response header has a tag section
	frame []byte // encoded by the caller, but for the correlation id
	resp  kmsg.Response
	done  chan error // capacity 1
}

func newClientConn(nc net.Conn, addr, clientID string, inFlight int) *clientConn {
	return &clientConn{
		nc:       nc,
		addr:     addr,
		clientID: clientID,
		send:     make(chan *call),
		slots:    make(chan struct{}, inFlight),
		dead:     make(chan struct{}),
		waiting:  map[int32]*call{},
	}
}

func (c *clientConn) alive() bool {
	select {
	case <-c.dead:
		return false
	default:
		return true
	}
}

// fail ends the connection and all requests in flight.
func (c *clientConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.dead)
	c.nc.Close()
	for _, k := range c.waiting {
		k.done <- c.deadError()
	}
	c.waiting = nil
}

func (c *clientConn) deadError() error { return fmt.Errorf("%w: %w", ErrDisconnected, c.err) }

// negotiate asks the peer which versions it serves.
func (c *clientConn) negotiate(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "varve", "1"
	req.Version = 4
	r, err := c.do(ctx, req)
	if err != nil {
		return fmt.Errorf("negotiate: %w", err)
	}
	resp := r.(*kmsg.ApiVersionsResponse)
	if resp.ErrorCode == kerr.UnsupportedVersion.Code {
		req.Version = 0
		if r, err = c.do(ctx, req); err != nil {
			return fmt.Errorf("negotiate: %w", err)
		}
		resp = r.(*kmsg.ApiVersionsResponse)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("negotiate: %w", err)
	}
	c.versions = make(map[int16][2]int16, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		c.versions[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return nil
}

// request sends req at the highest common version.
func (c *clientConn) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	peer, ok := c.versions[req.Key()]
	v := min(peer[1], req.MaxVersion())
	if !ok || v < peer[0] {
		return nil, fmt.Errorf("%w: key %d", ErrUnsupportedVersion, req.Key())
	}
	req.SetVersion(v)
	return c.do(ctx, req)
}

func (c *clientConn) do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.dead:
		return nil, c.deadError()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k := &call{
		key:   req.Key(),
		tags:  req.IsFlexible() && req.Key() != keyApiVersions,
		frame: appendRequest(nil, req, 0, c.clientID),
		resp:  req.ResponseKind(),
		done:  make(chan error, 1),
	}
	k.resp.SetVersion(req.GetVersion())
	select {
	case c.send <- k:
	case <-c.dead:
		return nil, c.deadError()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case err := <-k.done:
		if err != nil {
			return nil, err
		}
		return k.resp, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.fail(fmt.Errorf("no answer to key %d in time", req.Key()))
		}
		return nil, fmt.Errorf("%w: %w", ErrDisconnected, ctx.Err())
	}
}

// write is the goroutine that writes requests.
func (c *clientConn) write() {
	for {
		select {
		case <-c.dead:
			return
		case k := <-c.send:
			if !c.expect(k) {
				k.done <- c.deadError()
				return
			}
			binary.BigEndian.PutUint32(k.frame[lengthSize+4:], uint32(k.id))
			_, err := c.nc.Write(k.frame)
			k.frame = nil
			if err != nil {
				c.fail(err)
				return
			}
		}
	}
}

// expect registers a request before it is written, lest its answer come first.
func (c *clientConn) expect(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.nextID++
	k.id = c.nextID
	c.waiting[k.id] = k
	return true
}

// read is the goroutine that reads answers.
func (c *clientConn) read() {
	r := bufio.NewReaderSize(c.nc, 16<<10)
	for {
		frame, err := readFrame(r, maxResponse)
		if err == nil {
			err = c.answer(frame)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// answer gives a response to whoever waits for it.
func (c *clientConn) answer(frame []byte) error {
	if len(frame) < 4 {
		return fmt.Errorf("%w: response of %d bytes", ErrMalformed, len(frame))
	}
	id := int32(binary.BigEndian.Uint32(frame))
	c.mu.Lock()
	k := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if k == nil {
		return fmt.Errorf("%w: response to unknown request %d", ErrMalformed, id)
	}
	d := decoder{b: frame[4:], flex: k.tags}
	if k.key == keyApiVersions && len(d.b) >= 2 && int16(binary.BigEndian.Uint16(d.b)) == kerr.UnsupportedVersion.Code {
		k.resp.SetVersion(0) // always in version 0 form
	}
	d.tags()
	err := k.resp.ReadFrom(d.b)
	if d.bad {
		err = ErrMalformed
	}
	if err != nil {
		err = fmt.Errorf("%w: response of key %d: %w", ErrMalformed, k.key, err)
	}
	k.done <- err
	return err
}

// readFrame reads a length and that many bytes, in memory that grows with what arrived.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(length[:])))
	if n < 0 || n > limit {
		return nil, fmt.Errorf("%w: frame of %d bytes", ErrMalformed, n)
	}
	b := make([]byte, min(n, firstBuffer))
	for have := 0; ; {
		k, err := io.ReadFull(r, b[have:])
		have += k
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if have == n {
			return b, nil
		}
		b = append(b, make([]byte, min(n-have, 3*have))...)
	}
}
