package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ClientConfig says whom a Client talks to and how. Zero values mean the default.
type ClientConfig struct {
	Addrs          func() []string                                                   // host:port to try in order; asked at every attempt
	Prefer         func() string                                                     // address to try before those, if it returns one; nil: none
	Dial           func(ctx context.Context, network, addr string) (net.Conn, error) // nil: net.Dialer
	ClientID       string                                                            // "varve"
	RequestTimeout time.Duration                                                     // of a request whose ctx has no deadline; 30 s
	DialTimeout    time.Duration                                                     // of connecting and negotiating with one address; 5 s
	MaxInFlight    int                                                               // 64
	TLS            *tls.Config                                                       // nil: plaintext
	Logger         *slog.Logger
}

// Pauses between failed attempts to connect double from the first to the last, each 20 % off either way.
const (
	firstReconnect = 50 * time.Millisecond
	lastReconnect  = time.Second
)

// Client sends requests to one node at a time, pipelined over one connection
// that is made when it is first needed and again after it failed. A request
// that was sent is never repeated: whether it took effect is for the caller to find out.
type Client struct {
	cfg ClientConfig

	mu       sync.Mutex
	conn     *clientConn   // nil: none
	dialing  chan struct{} // closed when the attempt going on has ended; nil: none
	failures int           // in a row
	retryAt  time.Time     // not before that
	turn     int           // address to begin with
	lastErr  error
	closed   bool
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// NewClient returns a client. It connects at the first request.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if cfg.ClientID == "" {
		cfg.ClientID = "varve"
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 30 * time.Second
	}
	if cfg.DialTimeout <= 0 {
		cfg.DialTimeout = 5 * time.Second
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = 64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Request sends req at the highest version both sides speak and returns the
// answer. ErrDisconnected means that the connection ended before the answer
// came; a request whose ctx runs out closes the connection, since what is behind it waits too.
func (c *Client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
	}
	conn, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	return conn.request(ctx, req)
}

// Disconnect ends the current connection, so that the next request goes to the
// next address.
func (c *Client) Disconnect() {
	c.mu.Lock()
	conn := c.conn
	c.conn = nil
	c.turn++
	c.mu.Unlock()
	if conn != nil {
		conn.fail(ErrClosed)
	}
}

// Move ends a connection to another address than this one.
func (c *Client) Move(addr string) {
	c.mu.Lock()
	conn := c.conn
	if conn == nil || conn.addr == addr {
		c.mu.Unlock()
		return
	}
	c.conn = nil
	c.mu.Unlock()
	conn.fail(ErrClosed)
}

// Close ends the connection; requests in flight fail.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	c.conn = nil
	c.mu.Unlock()
	c.cancel()
	if conn != nil {
		conn.fail(ErrClosed)
	}
	c.running.Wait()
	return nil
}

// connected returns a live connection, making one if there is none. Attempts are
// shared by all callers and not closer together than the backoff.
func (c *Client) connected(ctx context.Context) (*clientConn, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		if c.conn != nil && c.conn.alive() {
			conn := c.conn
			c.mu.Unlock()
			return conn, nil
		}
		if c.conn != nil {
			c.turn++ // it failed: begin with another
		}
		c.conn = nil
		mine := c.dialing == nil
		if mine {
			c.dialing = make(chan struct{})
			c.running.Go(c.connect)
		}
		wait, failures := c.dialing, c.failures
		c.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("connect: %w", c.reason(ctx))
		}
		c.mu.Lock()
		failed, err := c.conn == nil && c.failures > failures, c.lastErr
		c.mu.Unlock()
		if failed {
			return nil, err
		}
	}
}

// reason prefers why connecting failed over that the caller ran out of time.
func (c *Client) reason(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastErr != nil && c.failures > 0 {
		return fmt.Errorf("%w (last attempt: %w)", ctx.Err(), c.lastErr)
	}
	return ctx.Err()
}

// connect waits out the backoff and tries each address once.
func (c *Client) connect() {
	c.mu.Lock()
	pause := time.Until(c.retryAt)
	c.mu.Unlock()
	sleep(c.ctx, pause)
	conn, err := c.dialAny()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.closed {
		err = ErrClosed
		conn.fail(err)
	}
	if err != nil {
		c.lastErr = err
		c.failures++
		c.retryAt = time.Now().Add(backoff(c.failures))
	} else {
		c.conn, c.failures, c.lastErr = conn, 0, nil
		// A peer that accepts and hangs up at once must not be dialled in a loop.
		c.retryAt = time.Now().Add(firstReconnect)
	}
	close(c.dialing)
	c.dialing = nil
}

func backoff(failures int) time.Duration {
	d := min(firstReconnect<<min(failures-1, 10), lastReconnect)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (c *Client) dialAny() (*clientConn, error) {
	addrs := c.cfg.Addrs()
	if len(addrs) == 0 {
		return nil, errors.New("no address to connect to")
	}
	c.mu.Lock()
	turn := c.turn
	c.mu.Unlock()
	order := make([]string, 0, len(addrs)+1)
	if c.cfg.Prefer != nil {
		if addr := c.cfg.Prefer(); addr != "" {
			order = append(order, addr)
		}
	}
	for i := range addrs {
		if addr := addrs[(turn+i)%len(addrs)]; len(order) == 0 || addr != order[0] {
			order = append(order, addr)
		}
	}
	var errs []error
	for _, addr := range order {
		conn, err := c.dial(addr)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	return nil, errors.Join(errs...)
}

// dial connects to one address and learns what it speaks.
func (c *Client) dial(addr string) (*clientConn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.DialTimeout)
	defer cancel()
	nc, err := c.cfg.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if c.cfg.TLS != nil {
		cfg := c.cfg.TLS
		if cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		t := tls.Client(nc, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("tls handshake: %w", err)
		}
		nc = t
	}
	conn := newClientConn(nc, addr, c.cfg.ClientID, c.cfg.MaxInFlight)
	c.running.Go(conn.write)
	c.running.Go(conn.read)
	if err := conn.negotiate(ctx); err != nil {
		conn.fail(err)
		return nil, err
	}
	return conn, nil
}
