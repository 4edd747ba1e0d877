// Package proxy stands between a client and a server and behaves like a bad network or a bad
// store: Proxy for any TCP connection, Store for requests to an object store. Tests change its
// faults while it runs, and take them away to see whether everything heals.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Faults of a TCP proxy. The zero value passes everything on as it comes.
type Faults struct {
	ConnectDelay time.Duration // between accepting a connection and dialling the target
	Up, Down     Way           // client to target, target to client

	// Refuse resets new connections at once.
	Refuse bool

	// HalfOpen closes the target's end of every connection and leaves the client's open and
	// silent, as if the target's host had lost its power.
	HalfOpen bool
}

// Way is one direction of every connection.
type Way struct {
	Delay time.Duration // every byte arrives so much later; throughput stays
	Rate  int64         // bytes per second, a few at a time; 0 = no limit
	Stall bool          // nothing passes, and nothing is lost: what lost packets look like until it heals
}

// BlackHole lets connections open and nothing pass.
var BlackHole = Faults{Up: Way{Stall: true}, Down: Way{Stall: true}}

const dialTimeout = 5 * time.Second

// Proxy passes TCP connections on to a target.
type Proxy struct {
	target   string
	ln       net.Listener
	faults   atomic.Pointer[Faults]
	mu       sync.Mutex
	conns    map[*conn]struct{}
	closed   bool
	wg       sync.WaitGroup
	accepted atomic.Int64
	up, down atomic.Int64
}

// Start listens on a free loopback port and passes connections on to target, host:port.
func Start(target string, f Faults) (*Proxy, error) { return StartAt("127.0.0.1", target, f) }

// StartAt is Start on a free port of an IP address of this host's.
func StartAt(host, target string, f Faults) (*Proxy, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{target: target, ln: ln, conns: map[*conn]struct{}{}}
	p.faults.Store(&f)
	p.wg.Go(p.serve)
	return p, nil
}

// Run starts a proxy that ends with the test.
func Run(t testing.TB, target string, f Faults) *Proxy {
	t.Helper()
	p, err := Start(target, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Set changes the faults, of open connections too.
func (p *Proxy) Set(f Faults) {
	p.faults.Store(&f)
	p.each(func(c *conn) { c.poke(f) })
}

// Heal takes all faults away.
func (p *Proxy) Heal() { p.Set(Faults{}) }

// Cut resets every open connection and, until the faults are set again, every new one.
func (p *Proxy) Cut() {
	p.Set(Faults{Refuse: true})
	p.Reset()
}

// Reset resets every open connection.
func (p *Proxy) Reset() { p.each((*conn).reset) }

// Stats tells how many connections were accepted and how many bytes passed either way.
func (p *Proxy) Stats() (accepted, up, down int64) {
	return p.accepted.Load(), p.up.Load(), p.down.Load()
}

// Close ends the proxy and its connections and waits for them.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ln.Close()
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) each(fn func(*conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		fn(c)
	}
}

func (p *Proxy) serve() {
	for {
		client, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: later
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.accepted.Add(1)
		c := newConn(p, client.(*net.TCPConn))
		if !p.add(c) {
			c.reset()
			continue
		}
		p.wg.Go(func() {
			c.run()
			p.remove(c)
		})
	}
}

func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.faults.Load().Refuse {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
