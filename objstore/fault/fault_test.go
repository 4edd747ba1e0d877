package fault_test

import (
	"bytes"
	"context"
	"errors"
	"math/bits"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/fault"
	"github.com/varve-io/varve/objstore/limit"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/objstore/metrics"
	"github.com/varve-io/varve/objstore/objstoretest"
	"github.com/varve-io/varve/objstore/retry"

	"github.com/prometheus/client_golang/prometheus"
)

// TestNoRules: without rules the wrapper is invisible.
func TestNoRules(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return fault.New(mem.New(), 1) })
}

// TestRetriesHideFaults: the whole composition over a store on a bad day keeps the contract,
// conditional writes with lost replies included.
func TestRetriesHideFaults(t *testing.T) {
	rules := []fault.Rule{
		{Kind: fault.Fail, Prob: .05}, {Kind: fault.Throttle, Prob: .05}, {Kind: fault.LostReply, Prob: .1}, {Kind: fault.BadAnswer, Prob: .05},
		{Kind: fault.Truncate, Prob: .1}, {Kind: fault.Flip, Op: "put", Prob: .1}, {Kind: fault.Timeout, Prob: .05},
	}
	seed := uint64(0)
	objstoretest.Run(t, func(*testing.T) objstore.Store {
		seed++
		var s objstore.Store = fault.New(mem.New(), seed, rules...)
		s = retry.New(s, retry.Options{Backoff: objstore.Backoff{Attempts: 20}, Budget: 1 << 20})
		s = limit.New(s, limit.Options{Reads: 4, Writes: 4})
		return metrics.New(s, prometheus.NewRegistry())
	})
}

// TestKinds: what each kind does to a Put and a Get, and what is in the store afterwards.
func TestKinds(t *testing.T) {
	data := objstoretest.Bytes(1, 1000)
	for _, c := range []struct {
		kind     fault.Kind
		err      error // of Put and Get; nil = none
		stored   bool  // after Put
		getFlips int   // bits that Get returns wrong
	}{
		{fault.Fail, objstore.ErrUnavailable, false, 0},
		{fault.Throttle, objstore.ErrThrottled, false, 0},
		{fault.Refuse, objstore.ErrDenied, false, 0},
		{fault.Timeout, objstore.ErrTimeout, false, 0},
		{fault.LostReply, objstore.ErrTimeout, true, 0},
		{fault.BadAnswer, objstore.ErrUnavailable, true, 0},
		{fault.Truncate, objstore.ErrUnavailable, false, 0},
		{fault.Delay, nil, true, 0},
		{fault.Flip, nil, true, 1},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			inner := mem.New()
			s := fault.New(inner, 7, fault.Rule{Kind: c.kind})
			err := s.Put(t.Context(), "x", bytes.NewReader(data), 1000, objstore.PutOptions{})
			if c.kind == fault.Flip {
				if !errors.Is(err, objstore.ErrChecksum) {
					t.Fatalf("put of flipped bytes: %v", err)
				}
				c.stored = false
			} else if !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Fatalf("put: %v, want %v", err, c.err)
			}
			if _, err := inner.Head(t.Context(), "x"); (err == nil) != c.stored {
				t.Errorf("head after put: %v, want stored %v", err, c.stored)
			}
			objstoretest.Put(t, inner, "x", data)
			p := make([]byte, 1000)
			if _, err = s.Get(t.Context(), "x", 0, p); !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Fatalf("get: %v, want %v", err, c.err)
			}
			if err == nil {
				flips := 0
				for i := range p {
					flips += bits.OnesCount8(p[i] ^ data[i])
				}
				if flips != c.getFlips {
					t.Errorf("%d bits differ, want %d", flips, c.getFlips)
				}
			}
		})
	}
}

// TestRules: a rule strikes only what matches, as often as it may, and the same for the same seed.
func TestRules(t *testing.T) {
	run := func(seed uint64) (failed []int) {
		s := fault.New(mem.New(), seed, fault.Rule{Kind: fault.Fail, Op: "put", Name: "a/*", Prob: .3, Times: 10})
		for i := range 100 {
			name := "a/x"
			if i%2 == 1 {
				name = "b/x"
			}
			if s.Put(t.Context(), name, strings.NewReader("x"), 1, objstore.PutOptions{}) != nil {
				failed = append(failed, i)
				if name != "a/x" {
					t.Errorf("struck %s", name)
				}
			}
		}
		if s.Hits()[0] != len(failed) {
			t.Errorf("hits %v, failures %d", s.Hits(), len(failed))
		}
		s.Set()
		objstoretest.Put(t, s, "a/healed", []byte("x"))
		return failed
	}
	a, b, c := run(1), run(1), run(2)
	if len(a) != 10 || !equal(a, b) || equal(a, c) {
		t.Errorf("seed 1: %v and %v, seed 2: %v", a, b, c)
	}
}

func equal(a, b []int) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// TestBlackHole: a call that gets no answer ends with its context.
func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fault.New(mem.New(), 1, fault.Rule{Kind: fault.Timeout, Delay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := s.Head(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
