package controller

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/varve-io/varve/wire"
)

// maxPeers bounds the other controllers that a node keeps connections to.
const maxPeers = 64

// peers are this node's Kafka connections to other controllers, by address.
// The quorum's own are streams.
type peers struct {
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	clientID string
	logger   *slog.Logger

	mu      sync.Mutex
	clients map[string]*wire.Client
	closed  bool
}

// to returns the client of an address, connected or not.
func (p *peers) to(address string) *wire.Client {
	p.mu.Lock()
	c, victim := p.clients[address], (*wire.Client)(nil)
	if c == nil {
		c = wire.NewClient(wire.ClientConfig{Addrs: func() []string { return []string{address} }, Dial: p.dial,
			ClientID: p.clientID, RequestTimeout: meetTimeout, DialTimeout: meetTimeout, Logger: p.logger})
		if p.closed {
			victim = c
		} else {
			victim = p.evict()
			p.clients[address] = c
		}
	}
	p.mu.Unlock()
	if victim != nil {
		victim.Close()
	}
	return c
}

// evict makes room for one more.
func (p *peers) evict() *wire.Client {
	for address, c := range p.clients {
		if len(p.clients) >= maxPeers {
			delete(p.clients, address)
			return c
		}
	}
	return nil
}

func (p *peers) close() error {
	p.mu.Lock()
	p.closed = true
	clients := p.clients
	p.clients = nil
	p.mu.Unlock()
	var err error
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}
