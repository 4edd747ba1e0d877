package objstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff says how often and how patiently a call is tried again: attempt n waits a random
// time below min(Max, Base * 2^n), so that clients that failed together do not come back together
// (full jitter).
type Backoff struct {
	Attempts int           // tries in all, 1 = no retry
	Base     time.Duration // bound of the first wait
	Max      time.Duration // bound of every wait
}

// DefaultBackoff waits at most 0.1 + 0.2 + 0.4 + 0.8 s in all.
var DefaultBackoff = Backoff{Attempts: 5, Base: 100 * time.Millisecond, Max: 5 * time.Second}

// Do calls fn until it succeeds, fails with an error that is not Retryable, or has been tried
// Attempts times, or ctx ends. It returns the last error, with ctx's where that cut the waiting
// short. attempt counts from 0.
func (b Backoff) Do(ctx context.Context, fn func(attempt int) error) error {
	for attempt := 0; ; attempt++ {
		err := fn(attempt)
		if err == nil || !Retryable(err) || attempt+1 >= b.Attempts {
			return err
		}
		if !sleep(ctx, b.wait(attempt)) {
			return fmt.Errorf("%w; not tried again: %w", err, context.Cause(ctx))
		}
	}
}

func (b Backoff) wait(attempt int) time.Duration {
	bound := b.Max
	if shift := min(attempt, 30); b.Base < b.Max>>shift {
		bound = b.Base << shift
	}
	if bound <= 0 {
		return 0
	}
	return rand.N(bound)
}

// sleep waits for d or until ctx ends, and reports whether it waited for d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
