package tier

import (
	"context"
	"sync"
	"time"
)

// pacer spaces work out so that it moves at most rate bytes a second. The zero value has no limit.
type pacer struct {
	rate int64 // bytes a second, 0 = no limit

	mu   sync.Mutex
	next time.Time // when the next byte may move
}

// wait returns when n more bytes may move, or ctx has ended.
func (p *pacer) wait(ctx context.Context, n int64) error { return sleep(ctx, p.book(n)) }

// book takes the next n bytes' time and returns how long it is until that begins.
func (p *pacer) book(n int64) time.Duration {
	if p.rate <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	begin := p.next
	if begin.Before(now) {
		begin = now
	}
	p.next = begin.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	return begin.Sub(now)
}

// sleep waits for d, or returns why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
