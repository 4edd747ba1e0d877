package controller

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/varve-io/varve/controller/metadata"
)

// keptResults is for how many entries a machine remembers what came of them.
const keptResults = 1024

var errBroken = errors.New("the state machine has stopped at an entry that it cannot read")

// machine applies committed entries to the image and feeds those who follow it.
type machine struct {
	image atomic.Pointer[metadata.Image]
	feed  feed
	// applied, if set, is told what each entry came to.
	applied func(old, next *metadata.Image, recs []metadata.Record)
	failed  func(error) // an entry or snapshot that this binary cannot read: it must stop

	mu      sync.Mutex
	results [keptResults]applied // by index
	broken  error

	snapshotMu sync.Mutex // one encoding at a time: all who are lost get the same
	snapshotOf *metadata.Image
	snapshot   []byte
}

// applied is what an entry came to; it is what the quorum hands the proposer.
type applied struct {
	index   uint64
	results []metadata.Result
}

func newMachine(failed func(error)) *machine {
	m := &machine{failed: failed}
	m.image.Store(metadata.New())
	return m
}

// Apply implements StateMachine. Its result is an applied. An entry that
// cannot be read stops the machine: to skip it would make this image another
// than that of the other members.
func (m *machine) Apply(index, term uint64, entry []byte) any {
	img := m.image.Load()
	if m.stopped() || index <= img.Index() {
		return applied{index: index}
	}
	e, err := metadata.DecodeEntry(entry)
	if err != nil {
		m.stop(fmt.Errorf("apply entry %d: %w", index, err))
		return applied{index: index}
	}
	next, recs, results := metadata.ApplyEntry(img, e, index, term)
	m.image.Store(next)
	out := applied{index: index, results: results}
	m.mu.Lock()
	m.results[index%keptResults] = out
	m.mu.Unlock()
	m.feed.append(index, term, metadata.EncodeRecords(recs))
	if m.applied != nil {
		m.applied(img, next, recs)
	}
	return out
}

// Result implements StateMachine.
func (m *machine) Result(index uint64) (any, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.results[index%keptResults]
	return r, r.index == index && index > 0
}

// Snapshot implements StateMachine.
func (m *machine) Snapshot() func(io.Writer) error {
	img, broken := m.image.Load(), m.stopped()
	return func(w io.Writer) error {
		if broken {
			return errBroken // the quorum believes it to be further than it is
		}
		return metadata.EncodeSnapshot(w, img)
	}
}

// Restore implements StateMachine.
func (m *machine) Restore(r io.Reader) error {
	img, err := metadata.DecodeSnapshot(r)
	if err != nil {
		return err
	}
	m.image.Store(img)
	m.feed.reset(img.Index(), img.Term())
	return nil
}

func (m *machine) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken != nil
}

func (m *machine) stop(err error) {
	m.mu.Lock()
	m.broken = err
	m.mu.Unlock()
	go m.failed(err)
}

// encoded returns the present image as a snapshot for brokers, shared by all
// who ask for the same one.
func (m *machine) encoded() ([]byte, *metadata.Image, error) {
	m.snapshotMu.Lock()
	defer m.snapshotMu.Unlock()
	img := m.image.Load()
	if m.snapshotOf != img {
		var b bytes.Buffer
		if err := metadata.EncodeSnapshot(&b, img); err != nil {
			return nil, nil, err
		}
		m.snapshotOf, m.snapshot = img, b.Bytes()
	}
	return m.snapshot, img, nil
}
