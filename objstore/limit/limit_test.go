package limit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/fault"
	"github.com/varve-io/varve/objstore/limit"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/objstore/objstoretest"
)

func TestStore(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store {
		return limit.New(mem.New(), limit.Options{Reads: 2, Writes: 1, ReadRate: 1 << 40, WriteRate: 1 << 40})
	})
}

// TestConcurrency: ten Gets of a second through two slots take five; a Put does not wait for them.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New()
		objstoretest.Put(t, inner, "x", []byte("x"))
		s := limit.New(fault.New(inner, 1, fault.Rule{Kind: fault.Delay, Op: "get", Delay: time.Second}), limit.Options{Reads: 2, Writes: 1})
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := s.Get(t.Context(), "x", 0, make([]byte, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		objstoretest.Put(t, s, "y", []byte("y"))
		if waited := time.Since(start); waited != 0 {
			t.Errorf("put waited %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Get(ctx, "x", 0, make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting past its deadline: %v", err)
		}
		wg.Wait()
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v, want 5s", took)
		}
	})
}

// TestRate: bytes pass at the rate after the burst, in the order in which they were asked for, and a
// request that gave up costs nothing.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limit.New(mem.New(), limit.Options{WriteRate: 1000})
		data := make([]byte, 1000)
		start := time.Now()
		for i, want := range []time.Duration{0, 0, time.Second, 2 * time.Second} { // the first two are burst
			objstoretest.Put(t, s, "x", data)
			if took := time.Since(start); took != want {
				t.Errorf("put %d after %v, want %v", i, took, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := s.Put(ctx, "x", nil, 1000, objstore.PutOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting past its deadline: %v", err)
		}
		objstoretest.Put(t, s, "x", data)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("after one that gave up: %v, want 3s", took)
		}
		objstoretest.Want(t, s, "x", data) // reads are not limited
	})
}
