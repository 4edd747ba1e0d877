package retry_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/fault"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/objstore/objstoretest"
	"github.com/varve-io/varve/objstore/retry"
)

var quick = objstore.Backoff{Attempts: 4, Base: time.Second, Max: time.Second}

// over wraps an in-memory store with faults and retries.
func over(rules ...fault.Rule) (*mem.Store, *fault.Store, *retry.Store) {
	inner := mem.New()
	faulty := fault.New(inner, 1, rules...)
	return inner, faulty, retry.New(faulty, retry.Options{Backoff: quick})
}

func TestStore(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store {
		return retry.New(mem.New(), retry.Options{Backoff: objstore.Backoff{Attempts: 2}})
	})
}

// TestAttempts: what is worth trying again is tried Attempts times, what is not only once.
func TestAttempts(t *testing.T) {
	for kind, want := range map[fault.Kind]int{fault.Fail: 4, fault.Throttle: 4, fault.Timeout: 4, fault.Refuse: 1} {
		synctest.Test(t, func(t *testing.T) {
			_, faulty, s := over(fault.Rule{Kind: kind})
			if _, err := s.Head(t.Context(), "x"); err == nil || faulty.Hits()[0] != want {
				t.Errorf("%v: %d tries, want %d: %v", kind, faulty.Hits()[0], want, err)
			}
		})
	}
}

// TestOwnObject: a conditional write whose reply was lost meets its own object and is a success;
// another writer's object is not.
func TestOwnObject(t *testing.T) {
	for name, opts := range map[string]objstore.PutOptions{
		"checksum": {IfAbsent: true, CRC32C: ptr(objstore.CRC32C(0, []byte("mine")))},
		"bytes":    {IfAbsent: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, _, s := over(fault.Rule{Kind: fault.LostReply, Op: "put", Times: 1})
			if err := s.Put(t.Context(), "x", strings.NewReader("mine"), 4, opts); err != nil {
				t.Errorf("%s: own object: %v", name, err)
			}
			for _, other := range []string{"else", "longer"} {
				inner, _, s := over(fault.Rule{Kind: fault.Timeout, Op: "put", Times: 1})
				objstoretest.Put(t, inner, "x", []byte(other))
				if err := s.Put(t.Context(), "x", strings.NewReader("mine"), 4, opts); !errors.Is(err, objstore.ErrExist) {
					t.Errorf("%s: another's object: %v", name, err)
				}
			}
			inner, _, s := over() // without a lost reply an equal object is another's too
			objstoretest.Put(t, inner, "x", []byte("mine"))
			if err := s.Put(t.Context(), "x", strings.NewReader("mine"), 4, opts); !errors.Is(err, objstore.ErrExist) {
				t.Errorf("%s: existing before: %v", name, err)
			}
		})
	}
}

// TestChecksum: bytes changed on the way are sent again, a checksum that was wrong before is not.
func TestChecksum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty, s := over(fault.Rule{Kind: fault.Flip, Op: "put", Times: 2})
		opts := objstore.PutOptions{CRC32C: ptr(objstore.CRC32C(0, []byte("mine")))}
		if err := s.Put(t.Context(), "x", strings.NewReader("mine"), 4, opts); err != nil || faulty.Hits()[0] != 2 {
			t.Errorf("flipped %d times: %v", faulty.Hits()[0], err)
		}
		start := time.Now()
		if err := s.Put(t.Context(), "x", strings.NewReader("else"), 4, opts); !errors.Is(err, objstore.ErrChecksum) || time.Since(start) > 0 {
			t.Errorf("wrong checksum: %v after %v", err, time.Since(start))
		}
	})
}

// TestListResumes: a listing that breaks off shows every object once.
func TestListResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, _, s := over(fault.Rule{Kind: fault.Truncate, Op: "list", Times: 3})
		var want, got []string
		for i := range 10 {
			want = append(want, fmt.Sprint("o", i))
			objstoretest.Put(t, inner, want[i], nil)
		}
		err := s.List(t.Context(), "", "", func(i objstore.Info) error { got = append(got, i.Name); return nil })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("listed %q: %v", got, err)
		}
		calls := 0
		err = s.List(t.Context(), "", "", func(objstore.Info) error { calls++; return objstore.ErrUnavailable })
		if calls != 1 || err != objstore.ErrUnavailable {
			t.Errorf("the caller's error: %d calls, %v", calls, err)
		}
	})
}

// TestDeleteMany: only what failed is tried again, and only what may help.
func TestDeleteMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, faulty, s := over(fault.Rule{Kind: fault.Fail, Op: "delete", Name: "b", Times: 2}, fault.Rule{Kind: fault.Refuse, Op: "delete", Name: "c"})
		for _, name := range []string{"a", "b", "c"} {
			objstoretest.Put(t, inner, name, nil)
		}
		err := s.DeleteMany(t.Context(), []string{"a", "b", "c", "bad//name"})
		if !errors.Is(err, objstore.ErrDenied) || !errors.Is(err, objstore.ErrBadName) || errors.Is(err, objstore.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		if hits := faulty.Hits(); hits[0] != 2 || hits[1] != 1 {
			t.Errorf("tries %v, want 2 and 1", hits)
		}
		for name, want := range map[string]bool{"a": false, "b": false, "c": true} {
			if _, err := inner.Head(t.Context(), name); (err == nil) != want {
				t.Errorf("%s: %v, want there %v", name, err, want)
			}
		}
	})
}

// TestBudget: in an outage the retries dry up, and a store that recovers earns them back.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		faulty := fault.New(mem.New(), 1, fault.Rule{Kind: fault.Fail})
		s := retry.New(faulty, retry.Options{Backoff: objstore.Backoff{Attempts: 5}, Registerer: reg})
		const calls = 1000
		for range calls {
			s.Head(t.Context(), "x")
		}
		if tries := faulty.Hits()[0]; tries != calls+retry.DefaultBudget {
			t.Errorf("%d tries of %d calls, want %d retries", tries, calls, retry.DefaultBudget)
		}
		families, err := reg.Gather()
		if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != retry.DefaultBudget {
			t.Errorf("counted %v, %v", families, err)
		}
		faulty.Set()
		objstoretest.Put(t, s, "x", nil)
		for range 9 {
			s.Head(t.Context(), "x")
		}
		faulty.Set(fault.Rule{Kind: fault.Fail, Times: 1})
		if _, err := s.Head(t.Context(), "x"); err != nil {
			t.Errorf("after ten successes no retry: %v", err)
		}
	})
}

func ptr[T any](v T) *T { return &v }
