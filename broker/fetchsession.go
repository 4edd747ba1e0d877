package broker

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// Epochs of fetch sessions with a meaning of their own (KIP-227).
const (
	sessionInitial = 0  // make a session
	sessionFinal   = -1 // end it, or have none
)

// minEviction is how long a session is safe from being evicted for a new one.
const minEviction = 2 * time.Minute

// maxSessionPartitions bounds one session; a larger fetch goes without.
const maxSessionPartitions = 100_000

// partitionKey names a partition as the client of a session does.
type partitionKey struct {
	topic string
	id    wire.UUID
	index int32
}

// sessionPartition is what a session remembers of a partition: what was asked,
// and what was told last.
type sessionPartition struct {
	partitionKey
	offset             int64
	maxBytes           int32
	currentLeaderEpoch int32
	lastFetchedEpoch   int32
	knownHighWatermark int64 // of a replica (KIP-1166)

	told                            bool
	highWatermark, stable, logStart int64
	failed                          bool
}

// session is one fetch session: the partitions that a client fetches, so that a
// request names only what changed and a response only what is new. Partitions
// stand in the order in which they are served; those that returned data go to
// the end, so that none starves (KIP-74).
type session struct {
	id      int32
	byID    bool // topics are named by id
	replica bool // of a follower
	created time.Time

	mu    sync.Mutex
	next  int32 // epoch that the next request must have
	order *list.List
	parts map[partitionKey]*list.Element

	ongoing context.CancelFunc // ends the wait of the last request; nil: there was none

	used time.Time     // guarded by the cache
	lru  *list.Element // in the cache
}

// sessionCache holds the sessions of all connections, at most slots of them. A
// new one takes the place of the one that was longest not used, if that is
// longer than minEviction; else it is refused and the client does without. Followers
// take the place of any consumer: without a session all they follow is in every request.
type sessionCache struct {
	slots int

	mu    sync.Mutex
	byID  map[int32]*session
	order *list.List // of *session, the one longest not used first

	evicted prometheus.Counter
}

func newSessionCache(slots int, reg prometheus.Registerer) *sessionCache {
	c := &sessionCache{slots: slots, byID: map[int32]*session{}, order: list.New(),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_broker_fetch_sessions_evicted_total", Help: "Fetch sessions that made room for others."})}
	if reg != nil {
		reg.MustRegister(c.evicted, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_broker_fetch_sessions", Help: "Fetch sessions."},
			func() float64 { c.mu.Lock(); defer c.mu.Unlock(); return float64(len(c.byID)) }))
	}
	return c
}

// get returns a session and notes its use.
func (c *sessionCache) get(id int32) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s != nil {
		s.used = time.Now()
		c.order.MoveToBack(s.lru)
	}
	return s
}

func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.byID[id])
}

func (c *sessionCache) drop(s *session) {
	if s != nil {
		delete(c.byID, s.id)
		c.order.Remove(s.lru)
		s.supersede(nil)
	}
}

// supersede ends the wait of the last request of the session, which holds up the answers to those behind it: one that asks anew
// wants something else, or is in a hurry.
func (s *session) supersede(cancel context.CancelFunc) {
	s.mu.Lock()
	last := s.ongoing
	s.ongoing = cancel
	s.mu.Unlock()
	if last != nil {
		last()
	}
}

// add makes a session; nil if there is no room for it.
func (c *sessionCache) add(byID, replica bool) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.byID) >= c.slots {
		victim := c.victim(now, replica)
		if victim == nil {
			return nil
		}
		c.drop(victim)
		c.evicted.Inc()
	}
	s := &session{byID: byID, replica: replica, created: now, used: now, next: 1, order: list.New(), parts: map[partitionKey]*list.Element{}}
	for s.id == 0 || c.byID[s.id] != nil {
		s.id = rand.Int32N(math.MaxInt32) + 1
	}
	c.byID[s.id] = s
	s.lru = c.order.PushBack(s)
	return s
}

// victim is the session that makes room, nil if none must.
func (c *sessionCache) victim(now time.Time, replica bool) *session {
	for e := c.order.Front(); e != nil; e = e.Next() {
		s := e.Value.(*session)
		if now.Sub(s.used) >= minEviction || replica && !s.replica {
			return s
		}
		if !replica { // the others were used later
			return nil
		}
	}
	return nil
}

// open finds or makes what a request fetches: the session, nil for none, and its
// partitions in serving order. Full says that the response must name them all.
func (c *sessionCache) open(req *kmsg.FetchRequest, version int16) (s *session, parts []sessionPartition, full bool, err error) {
	byID := version >= 13
	switch {
	case req.SessionEpoch == sessionFinal:
		if req.SessionID != 0 {
			c.remove(req.SessionID)
		}
		return nil, requested(req), true, nil
	case req.SessionEpoch == sessionInitial:
		if req.SessionID != 0 {
			c.remove(req.SessionID)
		}
		parts := requested(req)
		if len(parts) == 0 || len(parts) > maxSessionPartitions {
			return nil, parts, true, nil
		}
		if s = c.add(byID, req.ReplicaState.ID >= 0); s == nil {
			return nil, parts, true, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.update(parts, nil)
		return s, s.snapshot(), true, nil
	}
	if s = c.get(req.SessionID); s == nil {
		return nil, nil, false, fmt.Errorf("fetch session %d: %w", req.SessionID, kerr.FetchSessionIDNotFound)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byID != byID:
		return nil, nil, false, fmt.Errorf("fetch session %d: %w", s.id, kerr.FetchSessionTopicIDError)
	case req.SessionEpoch != s.next:
		return nil, nil, false, fmt.Errorf("fetch session %d: epoch %d, expected %d: %w", s.id, req.SessionEpoch, s.next, kerr.InvalidFetchSessionEpoch)
	}
	if s.next++; s.next < 0 {
		s.next = 1
	}
	s.update(requested(req), forgotten(req))
	if len(s.parts) > maxSessionPartitions {
		c.remove(s.id)
		return nil, nil, false, fmt.Errorf("fetch session of %d partitions: %w", len(s.parts), kerr.FetchSessionIDNotFound)
	}
	return s, s.snapshot(), false, nil
}

// requested lists the partitions that a request names.
func requested(req *kmsg.FetchRequest) []sessionPartition {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	out := make([]sessionPartition, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out = append(out, sessionPartition{partitionKey: partitionKey{t.Topic, t.TopicID, p.Partition}, offset: p.FetchOffset,
				maxBytes: p.PartitionMaxBytes, currentLeaderEpoch: p.CurrentLeaderEpoch, lastFetchedEpoch: p.LastFetchedEpoch,
				knownHighWatermark: p.HighWatermark})
		}
	}
	return out
}

func forgotten(req *kmsg.FetchRequest) []partitionKey {
	var out []partitionKey
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, p := range t.Partitions {
			out = append(out, partitionKey{t.Topic, t.TopicID, p})
		}
	}
	return out
}

// update takes in what a request changes.
func (s *session) update(parts []sessionPartition, forget []partitionKey) {
	for _, k := range forget {
		if e := s.parts[k]; e != nil {
			s.order.Remove(e)
			delete(s.parts, k)
		}
	}
	for i := range parts {
		p := &parts[i]
		if e := s.parts[p.partitionKey]; e != nil {
			old := e.Value.(*sessionPartition)
			old.offset, old.maxBytes, old.currentLeaderEpoch, old.lastFetchedEpoch = p.offset, p.maxBytes, p.currentLeaderEpoch, p.lastFetchedEpoch
			old.knownHighWatermark = p.knownHighWatermark
			continue
		}
		s.parts[p.partitionKey] = s.order.PushBack(p)
	}
}

// snapshot copies the partitions in serving order.
func (s *session) snapshot() []sessionPartition {
	out := make([]sessionPartition, 0, len(s.parts))
	for e := s.order.Front(); e != nil; e = e.Next() {
		out = append(out, *e.Value.(*sessionPartition))
	}
	return out
}

// tell decides whether the response must name a partition, and remembers what it
// is told. One that gives data goes to the end of the order.
func (s *session) tell(k partitionKey, full bool, p *wire.FetchPartition, size int) bool {
	e := s.parts[k]
	if e == nil { // forgotten by a later request that was pipelined
		return true
	}
	c := e.Value.(*sessionPartition)
	failed := p.ErrorCode != 0
	news := full || !c.told || size > 0 || failed || c.failed || p.DivergingEpoch != nil ||
		p.HighWatermark != c.highWatermark || p.LastStableOffset != c.stable || p.LogStartOffset != c.logStart
	c.told, c.failed = true, failed
	c.highWatermark, c.stable, c.logStart = p.HighWatermark, p.LastStableOffset, p.LogStartOffset
	if size > 0 {
		s.order.MoveToBack(e)
	}
	return news
}
