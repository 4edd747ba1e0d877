package tier

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/wire"
)

func isIn(t *ticket) bool {
	select {
	case <-t.in:
		return true
	default:
		return false
	}
}

func laneOf(n byte) lane { return lane{topic: wire.UUID{n}} }

func TestGateOrder(t *testing.T) {
	g := newGate(8)
	a := g.enter(6, laneOf(1), false)
	b := g.enter(1, laneOf(1), false) // would eat into the reserve of 2
	if !isIn(a) || isIn(b) {
		t.Fatal("reading ahead must leave a quarter free")
	}
	c := g.enter(2, laneOf(2), true)
	if !isIn(c) {
		t.Fatal("the reserve is for what is urgent")
	}
	d, e := g.enter(4, laneOf(2), true), g.enter(1, laneOf(3), true)
	c.leave()
	if isIn(d) || isIn(e) {
		t.Fatal("a small one must not overtake a large one for ever")
	}
	a.leave()
	if !isIn(d) || !isIn(e) || !isIn(b) {
		t.Fatal("all fit now")
	}
	for _, k := range []*ticket{a, b, c, d, e} {
		k.leave()
		k.leave()
	}
	if used, waiting := g.used(); used != 0 || waiting != 0 {
		t.Fatal(used, waiting)
	}
}

func TestGateLanesTakeTurns(t *testing.T) {
	g := newGate(1)
	first := g.enter(1, laneOf(9), true)
	var greedy []*ticket
	for range 5 {
		greedy = append(greedy, g.enter(1, laneOf(1), true))
	}
	modest := g.enter(1, laneOf(2), true)
	first.leave()
	greedy[0].leave()
	if !isIn(modest) {
		t.Fatal("the second lane has to wait for all of the first")
	}
}

func TestGateHurry(t *testing.T) {
	g := newGate(4)
	hold := g.enter(4, laneOf(1), true)
	ahead, behind := g.enter(3, laneOf(1), false), g.enter(3, laneOf(1), false)
	behind.hurry()
	hold.leave()
	if isIn(ahead) || !isIn(behind) {
		t.Fatal("the one that a reader waits for goes first")
	}
}

// TestGateLeaks enters and leaves in every order, from many goroutines: in the end all is free.
func TestGateLeaks(t *testing.T) {
	g := newGate(100)
	var wg sync.WaitGroup
	for seed := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			for range 2000 {
				ctx, cancel := context.WithCancel(context.Background())
				k := g.enter(rng.Int64N(200), laneOf(byte(rng.IntN(4))), rng.IntN(2) == 0)
				if rng.IntN(3) == 0 {
					k.hurry()
				}
				if rng.IntN(3) == 0 {
					cancel()
				}
				_ = k.wait(ctx)
				k.leave()
				cancel()
			}
		})
	}
	wg.Wait()
	if used, waiting := g.used(); used != 0 || waiting != 0 || len(g.urgent.lanes)+len(g.ahead.lanes)+len(g.urgent.turns)+len(g.ahead.turns) != 0 {
		t.Fatalf("%d used, %d wait, %+v", used, waiting, g)
	}
}

func TestGateWaitEnds(t *testing.T) {
	g := newGate(1)
	hold := g.enter(1, laneOf(1), true)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errLost)
	if err := g.enter(1, laneOf(1), true).wait(ctx); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	hold.leave()
	if used, waiting := g.used(); used != 0 || waiting != 0 {
		t.Fatal(used, waiting)
	}
}

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{rate: 1000}
		begun := time.Now()
		for range 10 {
			if err := p.wait(context.Background(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("5000 bytes at 1000 a second took %s", took)
		}
		time.Sleep(time.Hour) // an idle hour is no credit
		begun = time.Now()
		for range 3 {
			_ = p.wait(context.Background(), 1000)
		}
		if took := time.Since(begun); took < 2*time.Second {
			t.Errorf("3000 bytes after a pause took %s", took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := p.wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
