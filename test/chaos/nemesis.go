package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// leaderShare: so many of 4 faults are aimed at the node that leads most.
	leaderShare = 2
	// hastyShare: one of so many faults follows the one before it at once.
	hastyShare = 4
	// calm is the longest time between two faults when all is whole.
	calm = 3 * time.Second
	// extra: a machine on which healing is slow gets so many times the duration to reach the floors.
	extra = 2
)

// storm breaks one thing at a time until the time is over: a fault, its healing, and, but for some faults, a wait until
// all replicas are in sync. So never more than one node is down, though one may be behind while another is struck: acknowledged
// records have to survive that too. Kinds come in rounds, each in random order, so that every kind comes about equally often.
func (r *rig) storm(ctx context.Context, kinds []kind) error {
	began := time.Now()
	var round []int
	for n := 1; time.Since(began) < r.cfg.Duration || r.belowFloor(kinds) && time.Since(began) < extra*r.cfg.Duration; n++ {
		if len(round) == 0 {
			round = r.rng.Perm(len(kinds))
		}
		k := kinds[round[0]]
		round = round[1:]
		if err := r.fault(ctx, n, k); err != nil {
			return fmt.Errorf("fault %d, %s: %w", n, k.name, err)
		}
		if k.lossy || r.rng.IntN(hastyShare) > 0 {
			if err := r.watch.awaitWhole(ctx, r.cfg.Patience); err != nil {
				return fmt.Errorf("after fault %d, %s: %w", n, k.name, err)
			}
			if err := r.rest(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// rest is the time between two faults. In half of the cases the leaders go back to where they were placed, without a fault:
// otherwise they gather on the node that was struck least.
func (r *rig) rest(ctx context.Context) error {
	if r.rng.IntN(2) == 0 {
		if err := r.watch.elect(ctx, r.cfg.Patience); err != nil {
			return err
		}
	}
	return sleep(ctx, r.upTo(0, calm))
}

// belowFloor: some kind struck too rarely yet.
func (r *rig) belowFloor(kinds []kind) bool {
	for _, k := range kinds {
		if r.result.Faults[k.name].Struck < r.cfg.Floor {
			return true
		}
	}
	return false
}

// fault is one, with its healing.
func (r *rig) fault(ctx context.Context, n int, k kind) error {
	if k.lossy {
		if err := r.watch.awaitWhole(ctx, r.cfg.Patience); err != nil {
			return err
		}
	}
	i, err := r.victim(ctx, k)
	if err != nil {
		return err
	}
	leads, hold := r.watch.leads()[i], r.upTo(k.least, k.most)
	began, held := time.Now(), time.Duration(0)
	heal, err := k.strike(r, i)
	if err == nil {
		r.result.Faults[k.name].add(leads)
		err = sleep(ctx, hold)
	}
	if heal != nil {
		// A run that was cancelled leaves nothing broken either.
		held = time.Since(began)
		err = errors.Join(err, heal(context.WithoutCancel(ctx)))
	}
	if err == nil {
		err = r.comeBack(ctx, k, i)
	}
	if err != nil {
		return fmt.Errorf("node %d: %w", i+1, err)
	}
	fmt.Fprintf(r.cfg.Out, "%4d %-10s node %d, leader of %d, for %4.1f s, back after %4.1f s\n", n, k.name, i+1, leads, held.Seconds(), (time.Since(began) - held).Seconds())
	return nil
}

// comeBack waits until a healed node serves. One that ended by itself is an error unless the fault allows it; then it is
// started again, as its supervisor would.
func (r *rig) comeBack(ctx context.Context, k kind, i int) error {
	select {
	case <-r.cluster.Node(i).Exited():
		if k.fatal {
			r.result.Faults[k.name].Ended++
			return r.restart(ctx, i)
		}
	default:
	}
	if err := r.cluster.Await(ctx, i); err != nil {
		return fmt.Errorf("it does not come back: %w", err)
	}
	return nil
}

// victim is the index of the node that is struck.
func (r *rig) victim(ctx context.Context, k kind) (int, error) {
	if k.aim == aimController {
		return r.watch.controller(ctx, r.cfg.Patience)
	}
	i, leads := r.rng.IntN(nodes), r.watch.leads()
	if r.rng.IntN(4) < leaderShare || r.result.Faults[k.name].Leaders == 0 {
		for j, n := range leads {
			if n > leads[i] {
				i = j
			}
		}
	}
	return i, nil
}

// upTo is a random duration in [least, most].
func (r *rig) upTo(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)+1))
}
