package retry

import "sync/atomic"

// DefaultBudget is how many retries a store gets that it has not earned by successes.
const DefaultBudget = 200

// retryCost is how many successes earn one retry.
const retryCost = 10

// budget bounds the retries of all calls together: a store that fails a few calls has them all tried
// again; one that fails all of them gets the budget, and then only first tries.
type budget struct {
	tokens atomic.Int64
	max    int64
}

func (b *budget) take() bool {
	for {
		have := b.tokens.Load()
		if have < retryCost {
			return false
		}
		if b.tokens.CompareAndSwap(have, have-retryCost) {
			return true
		}
	}
}

func (b *budget) give() {
	for {
		have := b.tokens.Load()
		if have >= b.max || b.tokens.CompareAndSwap(have, have+1) {
			return
		}
	}
}
