package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
)

// fetchKey names one download: a chunk of an object's data, or its index.
type fetchKey struct {
	object wire.UUID
	part   int64
}

// indexPart is the part that stands for the index.
const indexPart = -1

// fetch is one download under way. It belongs to the manager, not to the request that began it: whoever asks
// for the same part meanwhile waits for the same fetch, and if all have left, what it brings is
// there for their retry (KIP-1018 tells why: a client's max wait may be shorter than the store's latency).
type fetch struct {
	done  chan struct{}
	err   error  // set before done is closed
	index *Index // likewise, of an index

	mu       sync.Mutex
	urgent   bool
	ticket   *ticket // taken when the fetch is made, so that fetches of a lane are admitted in that order; nil once ceded
	trouble  error   // of the last attempt, while there is another to come
	finished bool

	// A chunk stays pinned for the fetch until it is finished, and then once for each waiter: else a small cache
	// with many readers would evict it before any of them is served.
	chunk   *chunk
	waiters int
}

// fetches holds the downloads under way, one for each part.
type fetches struct {
	mu sync.Mutex
	m  map[fetchKey]*fetch
}

// want is what a fetch needs to be admitted.
type want struct {
	gate   *gate
	bytes  int64
	lane   lane
	urgent bool
}

// fetch starts a download, or joins the one under way.
func (m *Manager) fetch(key fetchKey, w want, get func(ctx context.Context, f *fetch) error) *fetch {
	m.fetches.mu.Lock()
	f, ok := m.fetches.m[key]
	if !ok {
		f = &fetch{done: make(chan struct{}), urgent: w.urgent, ticket: w.gate.enter(w.bytes, w.lane, w.urgent)}
		if m.fetches.m == nil {
			m.fetches.m = make(map[fetchKey]*fetch)
		}
		m.fetches.m[key] = f
	}
	m.fetches.mu.Unlock()
	if ok {
		if w.urgent {
			f.hurry()
		}
		return f
	}
	finish := func(err error) {
		f.leave()
		m.fetches.mu.Lock()
		delete(m.fetches.m, key)
		m.fetches.mu.Unlock()
		f.finish(err)
	}
	if !m.spawn(func(ctx context.Context) { finish(get(ctx, f)) }) {
		finish(ErrClosed)
	}
	return f
}

// count returns how many downloads are under way or wait for admission.
func (fs *fetches) count() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.m)
}

// wait returns the outcome, or why the caller gave up first: with the store in trouble, that is it.
func (f *fetch) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.trouble != nil {
			return f.trouble
		}
		return context.Cause(ctx)
	}
}

// finish hands the chunk, if any, over to the waiters.
func (f *fetch) finish(err error) {
	f.mu.Lock()
	ch := f.chunk
	for range f.waiters {
		if ch != nil {
			ch.pin()
		}
	}
	f.err, f.finished = err, true
	f.mu.Unlock()
	close(f.done)
	if ch != nil {
		ch.unpin()
	}
}

// waitChunk is wait for a chunk: it is pinned for the caller. It may be nil without an error: ask the cache again.
func (f *fetch) waitChunk(ctx context.Context) (*chunk, error) {
	f.mu.Lock()
	if f.finished {
		f.mu.Unlock()
		return nil, f.err
	}
	f.waiters++
	f.mu.Unlock()
	err := f.wait(ctx)
	select {
	case <-f.done:
		return f.chunk, f.err
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished {
		return f.chunk, f.err
	}
	f.waiters--
	return nil, err
}

// hurry tells that a reader waits.
func (f *fetch) hurry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.urgent = true
	if f.ticket != nil {
		f.ticket.hurry()
	}
}

func (f *fetch) isUrgent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.urgent
}

// enter queues again, for other memory than was asked for when the fetch was made.
func (f *fetch) enter(w want) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ticket.leave()
	f.ticket = w.gate.enter(w.bytes, w.lane, f.urgent)
}

func (f *fetch) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ticket != nil {
		f.ticket.leave()
	}
}

// cede gives the admitted memory to the chunk that came.
func (f *fetch) cede() *ticket {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.ticket
	f.ticket = nil
	return t
}

// admitted waits for the memory.
func (f *fetch) admitted(ctx context.Context) error {
	f.mu.Lock()
	t := f.ticket
	f.mu.Unlock()
	return t.wait(ctx)
}

func (f *fetch) note(trouble error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble = trouble
}

// Limits of one download.
const (
	getAttempts   = 4                      // tries of one part, each with the store's own retries inside
	getTimeout    = 60 * time.Second       // of one try
	getBackoff    = 200 * time.Millisecond // bound of the first wait between tries; doubles, with full jitter
	maxGetBackoff = 5 * time.Second
)

// download brings bytes [pos, pos+size) of an object and hands them to use, which verifies them and
// keeps the loan or what it needs. The fetch has been admitted. Errors are those of this package, or ctx's.
func (m *Manager) download(ctx context.Context, f *fetch, s *metadata.Segment, pos, size int64, use func(l *loan) error) error {
	l := newLoan(size)
	defer l.release()
	for attempt := 0; ; attempt++ {
		err := m.getOnce(ctx, s, pos, l, use)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrObjectMissing) || errors.Is(err, ErrVersion) || isNeedMore(err) {
			return err
		}
		f.note(err)
		// The last answer waits too: nobody gains from one that is asked for again at once.
		if wait := sleep(ctx, backoff(attempt)); wait != nil {
			return wait
		}
		if attempt+1 >= getAttempts || errors.Is(err, ErrCorrupt) && attempt > 0 || !errors.Is(err, ErrCorrupt) && !objstore.Retryable(err) {
			return err
		}
	}
}

func isNeedMore(err error) bool {
	var more *needMore
	return errors.As(err, &more)
}

func backoff(attempt int) time.Duration {
	bound := min(getBackoff<<min(attempt, 10), maxGetBackoff)
	return bound/2 + rand.N(bound/2+1)
}

// getOnce is one try.
func (m *Manager) getOnce(ctx context.Context, s *metadata.Segment, pos int64, l *loan, use func(l *loan) error) error {
	buf := l.buf
	if err := m.reads.wait(ctx, int64(len(buf))); err != nil {
		return err
	}
	name := m.name(s)
	try, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	begun := time.Now()
	_, err := m.cfg.Store.Get(try, name, pos, buf)
	m.metrics.get(time.Since(begun), len(buf), err)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case err == nil:
		m.health.good()
	case errors.Is(err, objstore.ErrNotExist):
		m.health.good()
		return fmt.Errorf("%w: %s", ErrObjectMissing, name)
	case errors.Is(err, io.ErrUnexpectedEOF) && !objstore.Retryable(err):
		m.health.good()
		return fmt.Errorf("%s ends before byte %d: %w", name, pos+int64(len(buf)), ErrCorrupt)
	default:
		m.health.bad(err)
		return storeError(err)
	}
	err = use(l)
	if errors.Is(err, errBlock) {
		err = fmt.Errorf("%w: bytes from %d on: %w", ErrCorrupt, pos, err)
	}
	if errors.Is(err, ErrCorrupt) {
		m.metrics.corruption()
		m.log.Warn("bytes from the object store are not those that were written", "object", name, "position", pos, "error", err)
		return fmt.Errorf("%s: %w", name, err)
	}
	return err
}
