package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// connIDs numbers the connections of the process.
var connIDs atomic.Uint64

// Server speaks the Kafka protocol on one listener.
//
// A connection costs one goroutine and no buffer while it is idle. Its reader
// takes a pooled buffer once bytes have arrived, parses all complete requests
// where they lie and hands them to the Handler as one group. Replies are
// written in request order by whoever finds the head of the queue answered and
// nobody writing: the reader itself after Handle, or a goroutine that lives
// until the queue's head is unanswered again.
type Server struct {
	cfg     ServerConfig
	apis    [maxAPIKey]*API // by key, of this role; own keys are looked up
	metrics *metrics
	cold    *coldPool

	mu    sync.Mutex
	conns map[*Conn]struct{}
	perIP map[string]int
	done  bool
}

// maxAPIKey bounds the table of Kafka's own keys.
const maxAPIKey = 128

// NewServer returns a server; Serve starts it.
func NewServer(cfg ServerConfig) *Server {
	cfg.defaults()
	s := &Server{
		cfg:     cfg,
		metrics: newMetrics(cfg.Registerer, cfg.Listener, cfg.Role),
		cold:    newColdPool(cfg.ColdReaders),
		conns:   map[*Conn]struct{}{},
		perIP:   map[string]int{},
	}
	for _, a := range APIs(cfg.Role) {
		if a.Key < maxAPIKey {
			s.apis[a.Key] = &a
		}
	}
	return s
}

func (c *ServerConfig) defaults() {
	def := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	defInt := func(p *int, n int) {
		if *p <= 0 {
			*p = n
		}
	}
	def(&c.IdleTimeout, 10*time.Minute)
	def(&c.HandshakeTimeout, 10*time.Second)
	def(&c.FrameTimeout, 30*time.Second)
	def(&c.WriteTimeout, 30*time.Second)
	def(&c.ShutdownGrace, 5*time.Second)
	defInt(&c.MaxRequestBytes, 100<<20)
	defInt(&c.MaxInFlight, 128)
	defInt(&c.ColdReaders, 4)
	if c.Budget == nil {
		c.Budget = NewBudget(512 << 20)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (s *Server) api(key int16) *API {
	if key >= 0 && key < maxAPIKey {
		return s.apis[key]
	}
	if a, ok := LookupAPI(s.cfg.Role, key); ok {
		return a
	}
	return nil
}

// Serve accepts connections until ctx ends, then stops reading, lets answers in
// flight leave for at most ShutdownGrace, and returns when every connection has
// ended. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	var wg sync.WaitGroup
	coldCtx, stopCold := context.WithCancel(context.WithoutCancel(ctx))
	s.cold.start(coldCtx, &wg)
	stopAccept := context.AfterFunc(ctx, func() { ln.Close() })
	defer stopAccept()

	var conns sync.WaitGroup
	err := s.accept(ctx, ln, &conns)
	s.shutdown()
	conns.Wait()
	stopCold()
	wg.Wait()
	return err
}

// accept takes connections until the listener is closed. A failed accept (no
// descriptors left) waits and tries again: the listener must outlive a flood.
func (s *Server) accept(ctx context.Context, ln net.Listener, conns *sync.WaitGroup) error {
	const firstPause, maxPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	for {
		nc, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				nc.Close()
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("listener %s: %w", s.cfg.Listener, err)
		}
		if err != nil {
			s.cfg.Logger.Error("accept failed", "listener", s.cfg.Listener, "err", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(pause*2, maxPause)
			continue
		}
		pause = firstPause
		c, err := s.admit(nc)
		if err != nil {
			s.metrics.refused.Inc()
			nc.Close()
			continue
		}
		conns.Go(c.serve)
	}
}

var (
	errTooMany = errors.New("too many connections")
	errStopped = errors.New("server is shutting down")
	errIdle    = errors.New("idle")
)

// admit registers a connection unless that would exceed a limit.
func (s *Server) admit(nc net.Conn) (*Conn, error) {
	ip := hostOf(nc.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
		return nil, errStopped
	case s.cfg.MaxConnections > 0 && len(s.conns) >= s.cfg.MaxConnections:
		return nil, errTooMany
	case s.cfg.MaxConnectionsIP > 0 && s.perIP[ip] >= s.cfg.MaxConnectionsIP:
		return nil, errTooMany
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.perIP[ip]++
	s.metrics.accepted.Inc()
	s.metrics.open.Inc()
	return c, nil
}

func (s *Server) forget(c *Conn) {
	ip := hostOf(c.RemoteAddr)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.perIP[ip]--; s.perIP[ip] <= 0 {
		delete(s.perIP, ip)
	}
	s.metrics.open.Dec()
}

// shutdown makes every reader stop.
func (s *Server) shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	for c := range s.conns {
		c.stop()
	}
}

func hostOf(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.IP.String()
	}
	return a.String()
}
