package controller

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varve-io/varve/wire"
)

// streams carries the quorum's own connections over the CONTROLLER listener:
// outgoing ones begin with wire.PrefaceMagic, by which the peer's wire.Server
// knows them and hands them to its streams. Then comes whom they are for:
//
//	length uint8 | cluster id | length uint8 | member (node id "@" UUID)
//
// Only that one takes them: a node with an empty disk must not vote in the name
// of the one that it was, nor a cluster reach into another.
type streams struct {
	addr    raftAddr
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	address func(raft.ServerID) string // host:port of a member, "" if it is unknown
	offers  chan net.Conn
	done    chan struct{}

	mu   sync.Mutex
	name []byte                // whom connections must be for; nil: nobody listens yet
	open map[net.Conn]struct{} // accepted; raft does not close these by itself
	shut bool
}

var _ raft.StreamLayer = (*streams)(nil)
var _ raft.ServerAddressProvider = (*streams)(nil)

func newStreams(addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error), address func(raft.ServerID) string) *streams {
	return &streams{addr: raftAddr(addr), dial: dial, address: address, offers: make(chan net.Conn), done: make(chan struct{}), open: map[net.Conn]struct{}{}}
}

// listen begins to take connections that are for this member of a cluster.
func (s *streams) listen(cluster string, id raft.ServerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = streamName(cluster, id)
}

func streamName(cluster string, id raft.ServerID) []byte {
	b := append([]byte{byte(len(cluster))}, cluster...)
	return append(append(b, byte(len(id))), id...)
}

// readName reads what streamName made.
func readName(r io.Reader) ([]byte, error) {
	var name []byte
	for range 2 {
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return nil, err
		}
		part := make([]byte, n[0])
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		name = append(append(name, n[0]), part...)
	}
	return name, nil
}

// offer hands over an accepted connection whose preface is read; false if it
// is for somebody else, or nobody wants it.
func (s *streams) offer(nc net.Conn) bool {
	nc.SetDeadline(time.Now().Add(raftRPCTimeout))
	name, err := readName(nc)
	nc.SetDeadline(time.Time{})
	s.mu.Lock()
	mine := s.name != nil && bytes.Equal(name, s.name)
	s.mu.Unlock()
	if err != nil || !mine {
		return false
	}
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

// ServerAddr implements raft.ServerAddressProvider: what Dial gets is a member
// and where it is.
func (s *streams) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	address := s.address(id)
	if address == "" {
		return "", fmt.Errorf("no address of controller %s", id)
	}
	return raft.ServerAddress(string(id) + " " + address), nil
}

// Dial implements raft.StreamLayer.
func (s *streams) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, address, ok := strings.Cut(string(target), " ")
	if !ok {
		return nil, fmt.Errorf("no member is known at %s", target)
	}
	s.mu.Lock()
	cluster := s.name[:1+int(s.name[0])]
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	nc, err := s.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	nc.SetDeadline(time.Now().Add(timeout))
	if _, err := nc.Write(slices.Concat(wire.PrefaceMagic[:], streamName(string(cluster[1:]), raft.ServerID(id)))); err != nil {
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
