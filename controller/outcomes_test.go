package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOutcomesAreTrue proposes through elections, partitions and lost answers,
// and holds every outcome that was told against what the quorum ends up with:
// done is there, not done is not, and unknown may be either.
func TestOutcomesAreTrue(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { outcomesAreTrue(t, rand.New(rand.NewPCG(seed, 8)), counts) })
	}
	for _, outcome := range []string{"done", "not done", "unknown"} {
		if counts[outcome] < 5 {
			t.Errorf("%q only %d times: the faults do not bite", outcome, counts[outcome])
		}
	}
	t.Log(counts)
}

func outcomesAreTrue(t *testing.T, rng *rand.Rand, counts map[string]int) {
	const virtual = 60 * time.Second
	q := startTrio(t)
	q.leader()
	ctx, cancel := context.WithTimeout(t.Context(), virtual)
	defer cancel()

	var mu sync.Mutex
	told := map[string]error{}
	var wg sync.WaitGroup
	for i, n := range q.nodes {
		pause := time.Duration(20+rng.IntN(60)) * time.Millisecond
		wg.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				name := fmt.Sprintf("%d-%d", i, k)
				pctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, err := n.c.propose(pctx, featureCommand(name))
				cancel()
				mu.Lock()
				told[name] = err
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	for ctx.Err() == nil {
		victim := q.nodes[rng.IntN(3)]
		switch rng.IntN(4) {
		case 0, 1:
			q.isolate(victim)
		case 2:
			victim.trans.mute.Store(true)
		}
		time.Sleep(time.Duration(200+rng.IntN(1500)) * time.Millisecond)
		q.heal()
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
	}
	wg.Wait()
	q.heal()
	last, err := q.leader().propose(t, featureCommand("last"))
	for ; err != nil; last, err = q.leader().propose(t, featureCommand("last")) {
		time.Sleep(100 * time.Millisecond)
	}
	q.agree(last.index)
	img := q.nodes[0].c.Image()
	for name, err := range told {
		there := img.Feature(name) == 1
		switch {
		case err == nil:
			counts["done"]++
			if !there {
				t.Errorf("%s was told as done, and is not", name)
			}
		case errors.Is(err, ErrNotLeader):
			counts["not done"]++
			if there {
				t.Errorf("%s was told as not done, and is", name)
			}
		default:
			counts["unknown"]++
		}
	}
}
