package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is the server's side of one client connection.
type Conn struct {
	ID                    uint64 // unique in the process
	Listener              string
	RemoteAddr, LocalAddr net.Addr
	Principal             Principal
	// What the client said in ApiVersions; set before any request that follows it.
	ClientSoftwareName, ClientSoftwareVersion string

	srv    *Server
	nc     net.Conn
	raw    syscall.RawConn // nil: TLS, or not a socket
	ctx    context.Context
	cancel context.CancelFunc

	in  inbox       // the reader's alone
	out sliceWriter // whoever has set writing

	opened        time.Time
	authenticated bool            // the reader's alone
	reading       context.Context // ends when nothing more shall be read
	stopReading   context.CancelFunc
	muteUntil     atomic.Int64 // unix nanoseconds; KIP-219

	mu         sync.Mutex
	head, tail *Request // unanswered requests and unwritten answers, oldest first
	inFlight   int      // requests parsed and not yet written
	groups     uint64   // Handle calls so far
	handling   uint64   // the one going on, 0: none
	writing    bool
	closed     bool
	cause      error
	room       chan struct{} // capacity 1: inFlight fell
	writers    sync.WaitGroup
}

func newConn(s *Server, nc net.Conn) *Conn {
	c := &Conn{
		ID:         connIDs.Add(1),
		Listener:   s.cfg.Listener,
		RemoteAddr: nc.RemoteAddr(),
		LocalAddr:  nc.LocalAddr(),
		Principal:  Anonymous,
		srv:        s,
		nc:         nc,
		room:       make(chan struct{}, 1),
		opened:     time.Now(),

		authenticated: s.cfg.Authenticate == nil,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.reading, c.stopReading = context.WithCancel(c.ctx)
	return c
}

// serve runs the connection: its goroutine is the reader.
func (c *Conn) serve() {
	defer c.srv.forget(c)
	taken, err := c.open()
	if taken {
		c.cancel()
		return
	}
	if err == nil {
		err = c.read()
	}
	if errors.Is(err, errStopped) {
		c.awaitReplies()
	}
	c.close(err)
	c.writers.Wait()
	c.in.drop(c)
}

// open does what precedes the first request: socket options, TLS, the preface
// of Raft connections. Taken means the connection is no longer ours.
func (c *Conn) open() (taken bool, err error) {
	defer c.rescue(&err)
	cfg := &c.srv.cfg
	if t, ok := c.nc.(*net.TCPConn); ok {
		if cfg.SendBuffer > 0 {
			t.SetWriteBuffer(cfg.SendBuffer)
		}
		if cfg.RecvBuffer > 0 {
			t.SetReadBuffer(cfg.RecvBuffer)
		}
	}
	if cfg.TLS != nil {
		ctx, cancel := context.WithTimeout(c.ctx, cfg.HandshakeTimeout)
		defer cancel()
		t := tls.Server(c.nc, cfg.TLS)
		if err := t.HandshakeContext(ctx); err != nil {
			return false, fmt.Errorf("tls handshake: %w", err)
		}
		c.nc = t
	} else if sc, ok := c.nc.(syscall.Conn); ok {
		if c.raw, err = sc.SyscallConn(); err != nil {
			return false, err
		}
	}
	if cfg.Preface != nil {
		if taken, err := c.preface(); taken || err != nil {
			return taken, err
		}
	}
	return false, nil
}

// preface reads the first eight bytes, which every request has, and gives the
// connection away if they are not the beginning of a request. A peer that
// connects and says nothing is idle, not late.
func (c *Conn) preface() (taken bool, err error) {
	c.in.setDeadline(c, c.srv.cfg.IdleTimeout)
	var first [len(PrefaceMagic)]byte
	n, err := io.ReadFull(c.nc, first[:])
	if err != nil {
		return false, err
	}
	if first == PrefaceMagic {
		c.nc.SetReadDeadline(time.Time{})
		if c.srv.cfg.Preface(c.nc) {
			return true, nil
		}
		return false, fmt.Errorf("%w: preface refused", ErrMalformed)
	}
	c.in.take(c, first[:n])
	return false, nil
}

// read is the reader: fill the buffer, hand out what is complete, again.
func (c *Conn) read() error {
	for {
		if err := c.in.fill(c); err != nil {
			if c.waiting(err) {
				continue
			}
			return c.readError(err)
		}
		if err := c.consume(); err != nil {
			return err
		}
		if err := c.unmute(); err != nil {
			return err
		}
	}
}

// waiting reports whether err only says that nothing came while the peer waits
// for an answer: such a connection is not idle.
func (c *Conn) waiting(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) || c.in.n > 0 || c.stopped() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight > 0 && !c.closed
}

func (c *Conn) readError(err error) error {
	switch {
	case c.stopped():
		return errStopped
	case errors.Is(err, os.ErrDeadlineExceeded) && c.in.n == 0:
		return errIdle
	}
	return err
}

// consume hands out every complete request in the buffer, in groups that keep
// to the limit of requests in flight.
func (c *Conn) consume() error {
	for {
		room, err := c.awaitRoom()
		if err != nil {
			return err
		}
		group, more, bad := c.parse(room)
		if len(group) > 0 {
			if err := c.handle(group); err != nil {
				return err
			}
		}
		if bad != nil {
			return bad
		}
		if !more {
			c.in.compact(c)
			return nil
		}
	}
}

// maxBulky bounds the requests of a group that are neither Produce nor Fetch:
// their answers may be large, and should be on their way before the next are made.
const maxBulky = 4

// parse decodes up to room complete requests. More says that there may be
// others in the buffer; an error that what follows group is not a request.
func (c *Conn) parse(room int) (group []*Request, more bool, err error) {
	defer c.rescue(&err)
	group = c.in.group[:0]
	defer func() { c.in.group = group }()
	now := time.Now()
	for bulky := 0; len(group) < room && bulky < maxBulky; {
		frame, ok, err := c.in.next(c.frameLimit)
		if err != nil || !ok {
			return group, false, err
		}
		r, err := c.decode(frame)
		if err != nil {
			return group, false, err
		}
		r.Received = now
		group = append(group, r)
		if r.Key > 1 {
			bulky++
		}
	}
	return group, true, nil
}

// frameLimit is how long a request with that key may be.
func (c *Conn) frameLimit(key int16) int {
	limit := c.srv.cfg.MaxRequestBytes
	if !c.authenticated {
		limit = min(limit, maxPreAuthFrame)
	}
	if api := c.srv.api(key); api != nil && api.MaxFrame > 0 {
		limit = min(limit, api.MaxFrame)
	}
	return limit
}

// idleTimeout is how long the next request may be away.
func (c *Conn) idleTimeout() time.Duration {
	if !c.authenticated {
		return max(time.Until(c.opened.Add(c.srv.cfg.HandshakeTimeout)), 1)
	}
	return c.srv.cfg.IdleTimeout
}

// decode makes a request of a frame.
func (c *Conn) decode(frame []byte) (*Request, error) {
	h, err := parseKey(frame)
	if err != nil {
		return nil, err
	}
	api := c.srv.api(h.key)
	if api == nil {
		return nil, fmt.Errorf("%w: unknown api key %d", ErrMalformed, h.key)
	}
	r := &Request{Key: h.key, Version: h.version, CorrelationID: h.correlationID, Conn: c, api: api}
	if h.version < api.Min || h.version > api.Max {
		if h.key == keyApiVersions {
			return r, nil // answered without a look at the body
		}
		return nil, fmt.Errorf("%w: %s version %d", ErrUnsupportedVersion, api.Name, h.version)
	}
	if api.NewRequest == nil {
		return r, c.decodeProduce(r, &h)
	}
	r.Body = api.NewRequest()
	r.Body.SetVersion(h.version)
	r.flexible = r.Body.IsFlexible()
	if err := h.parseClientID(r.flexible); err != nil {
		return nil, err
	}
	r.ClientID = c.in.clients.string(h.clientID)
	r.cost = int64(len(frame)) * weight
	if err := c.charge(r.cost); err != nil {
		r.cost = 0
		return nil, err
	}
	if err := r.Body.ReadFrom(h.body); err != nil {
		c.srv.cfg.Budget.releaseRequest(r.cost)
		return nil, fmt.Errorf("%w: %s version %d: %w", ErrMalformed, api.Name, h.version, err)
	}
	return r, nil
}

// weight is how many bytes a decoded message takes for each byte of its frame,
// at worst: a map of unknown tags.
const weight = 40

func (c *Conn) decodeProduce(r *Request, h *header) (err error) {
	r.flexible = h.version >= produceFlexible
	if err := h.parseClientID(r.flexible); err != nil {
		return err
	}
	r.ClientID = c.in.clients.string(h.clientID)
	if r.Produce, err = decodeProduce(h.body, h.version, &c.in.topics); err != nil {
		return fmt.Errorf("produce version %d: %w", h.version, err)
	}
	return nil
}

// charge admits n bytes of memory for a decoded request, waiting at most FrameTimeout.
func (c *Conn) charge(n int64) error {
	if c.srv.cfg.Budget.tryRequest(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.reading, c.srv.cfg.FrameTimeout)
	defer cancel()
	if err := c.srv.cfg.Budget.acquireRequest(ctx, n); err != nil {
		return fmt.Errorf("%w: %w", errNoMemory, err)
	}
	return nil
}

// handle queues a group, answers what the server answers itself, gives the rest
// to the handler, and writes the answers that are there already.
func (c *Conn) handle(group []*Request) (err error) {
	defer c.rescue(&err)
	if !c.enqueue(group) {
		return ErrClosed
	}
	rest := group[:0]
	for _, r := range group {
		c.srv.metrics.requests[r.api.slot].Inc()
		switch {
		case r.Key == keyApiVersions:
			c.apiVersions(r)
			continue
		case !c.authenticated:
			if err := c.authenticate(r); err != nil {
				return err
			}
			continue
		case c.srv.cfg.Authorize != nil:
			if err := c.srv.cfg.Authorize(r); err != nil {
				return fmt.Errorf("authorize %s: %w", r.api.Name, err)
			}
		}
		rest = append(rest, r)
	}
	if len(rest) > 0 {
		c.srv.cfg.Handler.Handle(c.ctx, rest)
	}
	clear(group)
	c.handled()
	return nil
}

// authenticate gives a request to the authenticator, which answers it.
func (c *Conn) authenticate(r *Request) error {
	p, done, err := c.srv.cfg.Authenticate(c.ctx, r)
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if done {
		c.Principal, c.authenticated = p, true
	}
	return nil
}

// rescue turns a panic into the end of this connection alone.
func (c *Conn) rescue(err *error) {
	if v := recover(); v != nil {
		c.srv.metrics.panics.Inc()
		c.srv.cfg.Logger.Error("panic in a connection", "listener", c.Listener, "remote", c.RemoteAddr, "panic", v, "stack", string(debug.Stack()))
		*err = fmt.Errorf("panic: %v", v)
	}
}

func (c *Conn) stopped() bool { return c.reading.Err() != nil }

// stop makes the reader end without losing answers in flight.
func (c *Conn) stop() {
	c.stopReading()
	c.nc.SetReadDeadline(time.Unix(1, 0))
}

// close ends the connection for the given reason. What is queued and answered
// is dropped here; what is not yet answered is dropped when it is.
func (c *Conn) close(cause error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed, c.cause = true, cause
	queue := c.head
	c.head, c.tail = nil, nil
	var answered []*Request
	for r := queue; r != nil; r = r.next {
		if r.done {
			answered = append(answered, r)
		}
	}
	c.mu.Unlock()
	c.cancel()
	c.nc.Close()
	for _, r := range answered {
		r.drop()
	}
	c.report(cause)
}

func (c *Conn) report(cause error) {
	kind, level := classify(cause)
	c.srv.metrics.ended(kind)
	c.srv.cfg.Logger.Log(context.Background(), level, "connection closed",
		"listener", c.Listener, "remote", c.RemoteAddr, "software", c.ClientSoftwareName, "reason", kind, "err", cause)
}

// classify names why a connection ended, as a metric label, and how loud to say it.
func classify(err error) (string, slog.Level) {
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return "peer", slog.LevelDebug
	case errors.Is(err, errIdle):
		return "idle", slog.LevelDebug
	case errors.Is(err, errStopped), errors.Is(err, ErrClosed), errors.Is(err, net.ErrClosed):
		return "shutdown", slog.LevelDebug
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timeout", slog.LevelInfo
	case errors.Is(err, ErrMalformed), errors.Is(err, ErrUnsupportedVersion), errors.Is(err, errTrailing):
		return "malformed", slog.LevelInfo
	}
	return "error", slog.LevelWarn
}
