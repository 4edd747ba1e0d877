package tier

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varve-io/varve/objstore"
)

// health is what the last calls to the store tell about it.
type health struct {
	mu       sync.Mutex
	failures int // since the last success
	since    time.Time
	lastAt   time.Time
	last     error // the last failure, kept after it was over
}

// unhealthyAfter is how many failures in a row suspend background work.
const unhealthyAfter = 3

// probeInterval is how often an idle store is asked whether it is there, so that status and readiness
// notice an outage before somebody needs the store.
const probeInterval = 30 * time.Second

func (h *health) good() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = 0
}

func (h *health) bad(err error) {
	if errors.Is(err, context.Canceled) {
		return // ours
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == 0 {
		h.since = time.Now()
	}
	h.failures++
	h.last, h.lastAt = err, time.Now()
}

// note takes the outcome of a call that may find that an object is not there.
func (h *health) note(err error) {
	if err == nil || errors.Is(err, objstore.ErrNotExist) || errors.Is(err, objstore.ErrExist) {
		h.good()
	} else {
		h.bad(err)
	}
}

// err returns a typed error while the store fails, else nil. Work that can wait asks before it begins.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures < unhealthyAfter {
		return nil
	}
	return storeError(h.last)
}

// watchStore probes the store, more often while it fails.
func (m *Manager) watchStore(ctx context.Context) {
	for {
		wait := probeInterval
		if m.health.err() != nil {
			wait = backoff(5)
		}
		if sleep(ctx, wait) != nil {
			return
		}
		m.probe(ctx)
	}
}

// answers returns a typed error if the store fails, asking it once more if that is what is known.
func (m *Manager) answers(ctx context.Context) error {
	if m.health.err() == nil {
		return nil
	}
	m.probe(ctx)
	return m.health.err()
}

// probe asks for the cluster's marker.
func (m *Manager) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	_, err := m.cfg.Store.Head(ctx, markerName)
	m.health.note(err)
}

// Status is what `tier status` and readiness show of one broker's tier.
type Status struct {
	Healthy       bool
	FailingSince  time.Time // zero while healthy
	LastError     error     // of the store, nil if there never was one; also after it was over
	LastErrorAt   time.Time
	Cause, Remedy string // of LastError, for an operator

	Uploads       int   // under way
	Downloads     int   // under way or waiting for admission
	Memory        int64 // bytes of downloads admitted
	MemoryLimit   int64
	CacheBytes    int64
	CacheLimit    int64
	CacheFiles    int
	Hits, Misses  int64 // reads answered at once; reads that had to wait for the store
	Streams       int   // sequential readers known
	CorruptChunks int64 // downloads whose bytes were not those that were written
}

// Status describes the tier now.
func (m *Manager) Status() Status {
	var s Status
	m.health.mu.Lock()
	s.Healthy = m.health.failures < unhealthyAfter
	if !s.Healthy {
		s.FailingSince = m.health.since
	}
	s.LastError, s.LastErrorAt = m.health.last, m.health.lastAt
	m.health.mu.Unlock()
	s.Cause, s.Remedy = objstore.Diagnose(s.LastError)
	s.Uploads = len(m.slots)
	s.Downloads = m.fetches.count()
	s.Memory, _ = m.gate.used()
	s.MemoryLimit = m.gate.capacity
	s.CacheBytes, s.CacheFiles = m.cache.usage()
	s.CacheLimit = m.cache.limit
	s.Hits, s.Misses = m.metrics.hits.Load(), m.metrics.misses.Load()
	s.Streams = m.streams.count()
	s.CorruptChunks = m.metrics.corrupted.Load()
	return s
}
