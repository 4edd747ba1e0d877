package controller

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varve-io/varve/wire"
)

// streams carries the quorum's own connections over the CONTROLLER listener:
// outgoing ones begin with wire.PrefaceMagic, by which the peer's wire.Server
// knows them and hands them to its streams.
type streams struct {
	addr   raftAddr
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	offers chan net.Conn
	done   chan struct{}

	mu   sync.Mutex
	open map[net.Conn]struct{} // accepted; raft does not close these by itself
	shut bool
}

var _ raft.StreamLayer = (*streams)(nil)

func newStreams(addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *streams {
	return &streams{addr: raftAddr(addr), dial: dial, offers: make(chan net.Conn), done: make(chan struct{}), open: map[net.Conn]struct{}{}}
}

// offer hands over an accepted connection whose preface is read.
func (s *streams) offer(nc net.Conn) bool {
	select {
	case s.offers <- nc:
		return true
	case <-s.done:
		return false
	}
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case nc := <-s.offers:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.shut {
			nc.Close()
			return nil, net.ErrClosed
		}
		s.open[nc] = struct{}{}
		return &stream{Conn: nc, owner: s}, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	nc, err := s.dial(ctx, "tcp", string(address))
	if err != nil {
		return nil, err
	}
	nc.SetDeadline(time.Now().Add(timeout))
	if _, err := nc.Write(wire.PrefaceMagic[:]); err != nil {
		nc.Close()
		return nil, fmt.Errorf("write preface: %w", err)
	}
	nc.SetDeadline(time.Time{})
	return nc, nil
}

// Close implements net.Listener; it ends accepted connections too.
func (s *streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shut {
		s.shut = true
		close(s.done)
		for nc := range s.open {
			nc.Close()
		}
	}
	return nil
}

// Addr implements net.Listener: the address that the other members know.
func (s *streams) Addr() net.Addr { return s.addr }

type stream struct {
	net.Conn
	owner *streams
}

func (c *stream) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c.Conn)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

type raftAddr string

func (raftAddr) Network() string  { return "tcp" }
func (a raftAddr) String() string { return string(a) }
