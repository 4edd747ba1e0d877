package main

import (
	"context"
	"fmt"
	"time"
)

// round is what one fault showed.
type round struct {
	node       int
	controller bool          // it was the active one
	partitions int           // that the node led
	first      time.Duration // from the fault to a write that began after it, of the first of them
	last       time.Duration // the same of the last of them
	whole      time.Duration // from the node's return until all was as before
}

func (r round) role() string {
	if r.controller {
		return "leader and active controller"
	}
	return "leader"
}

// haltLimit is how long SIGSTOP may take.
const haltLimit = 5 * time.Second

// round fails the node that is, or is not, the active controller, and heals it.
func (r *rig) round(ctx context.Context, controller bool) (round, error) {
	if err := pause(ctx, r.settle); err != nil {
		return round{}, err
	}
	active, err := r.controller(ctx)
	if err != nil {
		return round{}, err
	}
	rows, err := r.rows(ctx)
	if err != nil {
		return round{}, err
	}
	victim := active
	if !controller {
		victim = active%nodes + 1
	}
	var led []int
	for _, p := range rows {
		if p.Leader == victim {
			led = append(led, int(p.Partition))
		}
	}
	if len(led) == 0 {
		return round{}, fmt.Errorf("node %d leads nothing", victim)
	}
	out := round{node: int(victim) - 1, controller: controller, partitions: len(led)}
	at := time.Now()
	if err := r.fail(out.node); err != nil {
		return round{}, err
	}
	r.watch.after(time.Now())
	if out.first, out.last, err = r.await(ctx, led, at); err != nil {
		return round{}, fmt.Errorf("node %d (%s): %w", victim, out.role(), err)
	}
	back := time.Now()
	if err := r.heal(ctx, out.node); err != nil {
		return round{}, err
	}
	if err := r.awaitWhole(ctx); err != nil {
		return round{}, err
	}
	out.whole = time.Since(back)
	return out, nil
}

// fail does to a node what the flags say. When it returns, the node serves nobody.
func (r *rig) fail(i int) error {
	b := r.cluster.Node(i)
	switch r.fault {
	case faultKill:
		b.Kill()
		return nil
	case faultPause:
		return b.Halt(haltLimit)
	case faultStop:
		return b.Stop(grace)
	}
	return fmt.Errorf("no fault %q", r.fault)
}

// heal undoes what fail did.
func (r *rig) heal(ctx context.Context, i int) error {
	if r.fault == faultPause {
		r.cluster.Node(i).Thaw()
		return nil
	}
	return r.cluster.Start(ctx, i)
}

// await waits until every partition has had a write that began after the fault.
func (r *rig) await(ctx context.Context, led []int, at time.Time) (first, last time.Duration, err error) {
	for _, p := range led {
		var acked time.Time
		select {
		case acked = <-r.watch.acked[p]:
		case <-time.After(r.patience):
			return 0, 0, fmt.Errorf("partition %d takes no writes %v after the fault", p, time.Since(at))
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
		gap := acked.Sub(at)
		if first == 0 || gap < first {
			first = gap
		}
		last = max(last, gap)
	}
	return first, last, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
