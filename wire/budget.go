package wire

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Budget admits the memory of requests in flight. Listeners may share one. What
// finds it empty waits; what weighs more than all of it is admitted alone.
//
// It has two halves, so that nobody who holds a part of one waits for more of
// the same: frames that are being received, and decoded requests until they are
// answered. A frame may wait for its request's share, and a request waits for
// nobody. A buffer that must grow gives its share back before it asks for the
// larger one.
type Budget struct {
	frames, requests *semaphore.Weighted
	half             int64
}

// NewBudget returns a budget of n bytes, at least 1 MiB.
func NewBudget(n int64) *Budget {
	half := max(n, 1<<20) / 2
	return &Budget{semaphore.NewWeighted(half), semaphore.NewWeighted(half), half}
}

// acquireFrame takes n bytes for a buffer, waiting until they are free or ctx ends.
func (b *Budget) acquireFrame(ctx context.Context, n int64) error {
	return b.frames.Acquire(ctx, min(n, b.half))
}

func (b *Budget) tryFrame(n int64) bool { return b.frames.TryAcquire(min(n, b.half)) }

func (b *Budget) releaseFrame(n int64) { release(b.frames, min(n, b.half)) }

// acquireRequest takes n bytes for a decoded request, waiting until they are free or ctx ends.
func (b *Budget) acquireRequest(ctx context.Context, n int64) error {
	return b.requests.Acquire(ctx, min(n, b.half))
}

func (b *Budget) tryRequest(n int64) bool { return b.requests.TryAcquire(min(n, b.half)) }

func (b *Budget) releaseRequest(n int64) { release(b.requests, min(n, b.half)) }

func release(s *semaphore.Weighted, n int64) {
	if n > 0 {
		s.Release(n)
	}
}
