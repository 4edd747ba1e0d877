package controller

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrStoreFailed is wrapped by the error of a store that failed or hung.
var ErrStoreFailed = errors.New("the controller's store failed")

// failClosed makes the two stores of hashicorp/raft fail for good. The library
// by itself keeps a leader in office whose disk hangs, since heartbeats go on
// (hashicorp/raft#503), and after a failed write it goes on to write to the
// same file, which then may falsely succeed. So a write that fails or is not
// done by the deadline latches: no write succeeds after it, not even that one.
// The member is stopped at once, since the library panics when it cannot store
// a term, and failed is called, whose duty is to end the process.
//
// Reads are passed on: the library takes an error of theirs for corruption.
type failClosed struct {
	log      raft.LogStore
	stable   raft.StableStore
	deadline time.Duration
	halt     func()      // stops the library's member, called before the first failure is returned to it
	failed   func(error) // called once, from its own goroutine
	seconds  prometheus.Observer

	mu      sync.Mutex
	latched error
}

var _ raft.LogStore = (*failClosed)(nil)
var _ raft.StableStore = (*failClosed)(nil)

// write runs op against the deadline. An op that hangs keeps its goroutine:
// the process is about to end.
func (s *failClosed) write(what string, op func() error) error {
	if err := s.err(); err != nil {
		return err
	}
	begun := time.Now()
	done := make(chan error, 1)
	go func() { done <- op() }()
	timer := time.NewTimer(s.deadline)
	defer timer.Stop()
	select {
	case err := <-done:
		s.seconds.Observe(time.Since(begun).Seconds())
		if err != nil {
			return s.latch(fmt.Errorf("%w: %s: %w", ErrStoreFailed, what, err))
		}
		return s.err()
	case <-timer.C:
		return s.latch(fmt.Errorf("%w: %s is not done after %v: the disk hangs", ErrStoreFailed, what, s.deadline))
	}
}

func (s *failClosed) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latched
}

func (s *failClosed) latch(err error) error {
	s.mu.Lock()
	first := s.latched == nil
	if first {
		s.latched = err
	}
	err = s.latched
	s.mu.Unlock()
	if first {
		s.halt()
		go s.failed(err)
	}
	return err
}

func (s *failClosed) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *failClosed) StoreLogs(ls []*raft.Log) error {
	return s.write("store log entries", func() error { return s.log.StoreLogs(ls) })
}

func (s *failClosed) DeleteRange(min, max uint64) error {
	return s.write("delete log entries", func() error { return s.log.DeleteRange(min, max) })
}

func (s *failClosed) Set(key, val []byte) error {
	return s.write("store the vote", func() error { return s.stable.Set(key, val) })
}

func (s *failClosed) SetUint64(key []byte, val uint64) error {
	return s.write("store the term", func() error { return s.stable.SetUint64(key, val) })
}

func (s *failClosed) FirstIndex() (uint64, error)              { return s.log.FirstIndex() }
func (s *failClosed) LastIndex() (uint64, error)               { return s.log.LastIndex() }
func (s *failClosed) GetLog(index uint64, out *raft.Log) error { return s.log.GetLog(index, out) }
func (s *failClosed) Get(key []byte) ([]byte, error)           { return s.stable.Get(key) }
func (s *failClosed) GetUint64(key []byte) (uint64, error)     { return s.stable.GetUint64(key) }
