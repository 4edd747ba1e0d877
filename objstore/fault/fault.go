// Package fault makes a Store fail on purpose, for tests: what a bucket, its network and its
// load balancers do on a bad day, chosen by rules and a seed, so that a run can be repeated.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"github.com/varve-io/varve/objstore"
)

// Kind is one way to fail.
type Kind int

// The ways to fail.
const (
	Fail      Kind = iota // 500 before anything happens
	Throttle              // 503 SlowDown before anything happens
	Timeout               // no answer: waits for Rule.Delay or the context, then fails; nothing happened
	Delay                 // Rule.Delay before the call
	LostReply             // the call takes effect, its answer is lost
	Truncate              // Get: half of the bytes, then an error. Put: half is sent, then an error; nothing is stored
	Flip                  // Get: one bit of what is returned differs. Put: one bit differs on arrival
	BadAnswer             // success is answered with an error inside a 200; the call takes effect
	Refuse                // AccessDenied before anything happens
)

// String is the kind's name in errors.
func (k Kind) String() string {
	return [...]string{"fail", "throttle", "timeout", "delay", "lost reply", "truncate", "flip", "bad answer", "refuse"}[k]
}

// Rule is one fault. It strikes a call that matches with a probability.
type Rule struct {
	Kind  Kind
	Op    string        // "put", "get", "head", "list", "delete"; "" = all. DeleteMany is a delete for each name
	Name  string        // pattern of path.Match on the object's name or the listing's prefix; "" = all
	Prob  float64       // 0 = always
	Times int           // strikes in all, 0 = without end
	Delay time.Duration // for Delay and Timeout
}

// Store is an objstore.Store with faults.
type Store struct {
	objstore.Store
	mu    sync.Mutex
	rng   *rand.Rand
	rules []Rule
	hits  []int
}

// New wraps store. Which calls are struck depends on seed and the order of the calls only.
func New(store objstore.Store, seed uint64, rules ...Rule) *Store {
	s := &Store{Store: store, rng: rand.New(rand.NewPCG(seed, 0))}
	s.Set(rules...)
	return s
}

// Set replaces the rules; none at all makes the store heal.
func (s *Store) Set(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.hits = rules, make([]int, len(rules))
}

// Hits tells how often each rule has struck since Set.
func (s *Store) Hits() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.hits...)
}

// strike is the first rule that strikes this call, and a random number for its use.
func (s *Store) strike(op, name string) (*Rule, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rules {
		r := &s.rules[i]
		if r.Op != "" && r.Op != op || r.Times > 0 && s.hits[i] >= r.Times {
			continue
		}
		if ok, err := path.Match(r.Name, name); r.Name != "" && (err != nil || !ok) {
			continue
		}
		if r.Prob > 0 && s.rng.Float64() >= r.Prob {
			continue
		}
		s.hits[i]++
		copied := *r
		return &copied, s.rng.Uint64()
	}
	return nil, 0
}

// errInjected is the cause of every failure made here.
var errInjected = errors.New("injected")

// call runs fn under a rule. Truncate and Flip are the callers' to do.
func call(ctx context.Context, op, name string, r *Rule, fn func() error) error {
	if r == nil || ctx.Err() != nil {
		return fn()
	}
	fail := func(kind error) error {
		return &objstore.Error{Op: op, Name: name, Kind: kind, Err: fmt.Errorf("%s: %w", r.Kind, errInjected)}
	}
	switch r.Kind {
	case Fail:
		return fail(objstore.ErrUnavailable)
	case Throttle:
		return fail(objstore.ErrThrottled)
	case Refuse:
		return fail(objstore.ErrDenied)
	case Timeout, Delay:
		if err := sleep(ctx, r.Delay); err != nil {
			return &objstore.Error{Op: op, Name: name, Err: err}
		}
		if r.Kind == Timeout {
			return fail(objstore.ErrTimeout)
		}
	case LostReply, BadAnswer:
		if err := fn(); err != nil {
			return err
		}
		if r.Kind == LostReply {
			return fail(objstore.ErrTimeout)
		}
		return fail(objstore.ErrUnavailable)
	}
	return fn()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	rule, random := s.strike("put", name)
	switch {
	case ctx.Err() != nil:
	case rule != nil && rule.Kind == Truncate:
		return &objstore.Error{Op: "put", Name: name, Kind: objstore.ErrUnavailable, Err: fmt.Errorf("truncate: %w", errInjected)}
	case rule != nil && rule.Kind == Flip && size > 0:
		if opts.CRC32C == nil { // as a provider does it: summed before the bytes leave
			crc, err := objstore.CRC32COf(r, 0, size)
			if err != nil {
				return &objstore.Error{Op: "put", Name: name, Err: err}
			}
			opts.CRC32C = &crc
		}
		r = flipped{r, int64(random>>3) & (1<<60 - 1) % size, byte(1 << (random & 7))}
	}
	return call(ctx, "put", name, rule, func() error { return s.Store.Put(ctx, name, r, size, opts) })
}

// flipped is a reader with one bit changed.
type flipped struct {
	io.ReaderAt
	at  int64
	bit byte
}

func (f flipped) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.ReaderAt.ReadAt(p, off)
	if i := f.at - off; i >= 0 && i < int64(n) {
		p[i] ^= f.bit
	}
	return n, err
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, name string, off int64, p []byte) (n int, err error) {
	rule, random := s.strike("get", name)
	err = call(ctx, "get", name, rule, func() error {
		n, err = s.Store.Get(ctx, name, off, p)
		return err
	})
	if err != nil || rule == nil || n == 0 {
		return n, err
	}
	switch rule.Kind {
	case Truncate:
		return n / 2, &objstore.Error{Op: "get", Name: name, Kind: objstore.ErrUnavailable, Err: fmt.Errorf("truncate: %w", errInjected)}
	case Flip:
		p[random>>3%uint64(n)] ^= 1 << (random & 7)
	}
	return n, nil
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, name string) (info objstore.Info, err error) {
	rule, _ := s.strike("head", name)
	err = call(ctx, "head", name, rule, func() error {
		info, err = s.Store.Head(ctx, name)
		return err
	})
	return info, err
}

// List implements objstore.Store. Truncate breaks it off after the first object.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	rule, _ := s.strike("list", prefix)
	if rule != nil && rule.Kind == Truncate {
		seen, inner := 0, fn
		fn = func(info objstore.Info) error {
			if seen++; seen > 1 {
				return &objstore.Error{Op: "list", Name: prefix, Kind: objstore.ErrUnavailable, Err: fmt.Errorf("truncate: %w", errInjected)}
			}
			return inner(info)
		}
	}
	return call(ctx, "list", prefix, rule, func() error { return s.Store.List(ctx, prefix, after, fn) })
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	rule, _ := s.strike("delete", name)
	return call(ctx, "delete", name, rule, func() error { return s.Store.Delete(ctx, name) })
}

// DeleteMany implements objstore.Store. Names that are struck fail by themselves.
func (s *Store) DeleteMany(ctx context.Context, names []string) error {
	var errs []error
	var rest []string
	for _, name := range names {
		rule, _ := s.strike("delete", name)
		if rule == nil {
			rest = append(rest, name)
			continue
		}
		errs = append(errs, call(ctx, "delete", name, rule, func() error { return s.Store.Delete(ctx, name) }))
	}
	return errors.Join(append(errs, s.Store.DeleteMany(ctx, rest))...)
}
