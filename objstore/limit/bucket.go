package limit

import (
	"context"
	"sync"
	"time"
)

// burst is how much unused rate is kept: the bytes of so much time.
const burst = time.Second

// bucket is a token bucket that lends: a request larger than what is there passes at once and
// those after it wait until its bytes have been earned. So a large object needs no large bucket, and the
// order is first come, first served. A nil bucket has no limit.
type bucket struct {
	rate int64 // bytes per second
	mu   sync.Mutex
	free time.Time // when all that was lent will have been earned
}

func newBucket(rate int64) *bucket {
	if rate <= 0 {
		return nil
	}
	return &bucket{rate: rate}
}

func (b *bucket) wait(ctx context.Context, size int64) error {
	if b == nil {
		return nil
	}
	delay := time.Until(b.lend(size))
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		b.giveBack(size)
		return context.Cause(ctx)
	}
}

// lend books size bytes and returns when they may go.
func (b *bucket) lend(size int64) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if oldest := time.Now().Add(-burst); b.free.Before(oldest) {
		b.free = oldest
	}
	start := b.free
	b.free = start.Add(b.cost(size))
	return start
}

func (b *bucket) giveBack(size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = b.free.Add(-b.cost(size))
}

func (b *bucket) cost(size int64) time.Duration {
	return time.Duration(float64(size) / float64(b.rate) * float64(time.Second))
}
