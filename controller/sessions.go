package controller

import (
	"sync"
	"time"

	"github.com/varve-io/varve/controller/metadata"
)

// sessions is what the active controller knows of the brokers' processes. It
// is not state of the cluster: it begins anew with every reign, in which each
// broker first gets a whole session to be heard of.
type sessions struct {
	timeout time.Duration

	mu   sync.Mutex
	byID map[int32]*session
}

// session is what is known of one registration of a broker.
type session struct {
	epoch  int64
	seen   time.Time // last heartbeat, or the beginning of the reign
	conn   uint64    // connection that its heartbeats come over; 0: none now
	closed bool      // it had one in this reign, and that ended

	// A broker that has not applied, within a session's length, what was
	// committed at its beginning is too far behind to serve.
	target uint64
	since  time.Time
}

func newSessions(timeout time.Duration) *sessions {
	return &sessions{timeout: timeout, byID: map[int32]*session{}}
}

// reset begins a reign.
func (s *sessions) reset(img *metadata.Image, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID = map[int32]*session{}
	for b := range img.Brokers() {
		s.byID[b.ID] = newSession(b.Epoch, now, img.Index())
	}
}

func newSession(epoch int64, now time.Time, index uint64) *session {
	return &session{epoch: epoch, seen: now, target: index, since: now}
}

// heard notes a heartbeat of a registered broker, and returns whether the
// connection is a new one and whether the broker is too far behind.
func (s *sessions) heard(b *metadata.Broker, conn uint64, now time.Time, applied, index uint64) (newConn, behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.of(b, now, index)
	newConn = x.conn != conn
	x.seen, x.conn, x.closed = now, conn, false
	if applied >= x.target {
		x.target, x.since = index, now
	}
	return newConn, now.Sub(x.since) > s.timeout
}

// of returns the session of a broker's present registration.
func (s *sessions) of(b *metadata.Broker, now time.Time, index uint64) *session {
	x := s.byID[b.ID]
	if x == nil || x.epoch != b.Epoch {
		x = newSession(b.Epoch, now, index)
		s.byID[b.ID] = x
	}
	return x
}

// left notes that a connection ended; it reports whether heartbeats of that
// registration came over it.
func (s *sessions) left(id int32, epoch int64, conn uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byID[id]
	if x == nil || x.epoch != epoch || x.conn != conn {
		return false
	}
	x.conn, x.closed = 0, true
	return true
}

// gone reports that the broker had a connection in this reign, and has none now.
func (s *sessions) gone(id int32, epoch int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byID[id]
	return x != nil && x.epoch == epoch && x.closed
}

// connected reports whether the broker has a connection.
func (s *sessions) connected(id int32, epoch int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byID[id]
	return x != nil && x.epoch == epoch && x.conn != 0
}

// expired returns the brokers in service that have not been heard of for too long.
func (s *sessions) expired(img *metadata.Image, now time.Time) []*metadata.Broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*metadata.Broker
	for b := range img.Brokers() {
		if x := s.of(b, now, img.Index()); !b.Fenced && now.Sub(x.seen) > s.timeout {
			out = append(out, b)
		}
	}
	return out
}
