// Package retry makes a Store try again what may succeed a little later: with full jitter,
// a bound on the tries of a call, and a budget over all calls, so that an outage is not met with a
// multiple of the usual load.
//
// A Put whose reply was lost has taken effect. Tried again with IfAbsent it would fail on its own
// object; so an object that turns up after a lost reply is compared with what was sent.
package retry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/objstore"
)

// Options of the wrapper; the zero value is ready.
type Options struct {
	Backoff    objstore.Backoff      // zero = objstore.DefaultBackoff
	Budget     int                   // retries that successes need not have earned; 0 = DefaultBudget
	Registerer prometheus.Registerer // nil = the retries are not counted
}

// Store is an objstore.Store that tries again.
type Store struct {
	objstore.Store
	backoff objstore.Backoff
	budget  budget
	retries *prometheus.CounterVec
}

// New wraps store.
func New(store objstore.Store, opts Options) *Store {
	if opts.Backoff.Attempts <= 0 {
		opts.Backoff = objstore.DefaultBackoff
	}
	s := &Store{Store: store, backoff: opts.Backoff, retries: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "varve_objstore_retries_total",
		Help: "Calls to the object store that were tried again, by operation and the kind of failure.",
	}, []string{"operation", "cause"})}
	if opts.Budget <= 0 {
		opts.Budget = DefaultBudget
	}
	s.budget.max = int64(opts.Budget) * retryCost
	s.budget.tokens.Store(s.budget.max)
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(s.retries)
	}
	return s
}

// do runs fn as often as backoff and budget allow.
func (s *Store) do(ctx context.Context, op string, fn func(attempt int) error) error {
	var last error
	return s.backoff.Do(ctx, func(attempt int) error {
		if attempt > 0 {
			if !s.budget.take() {
				return final{last}
			}
			s.retries.WithLabelValues(op, objstore.Label(last)).Inc()
		}
		last = fn(attempt)
		if last == nil {
			s.budget.give()
		}
		return last
	})
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	mayExist := false
	return strip(s.do(ctx, "put", func(int) error {
		err := s.Store.Put(ctx, name, r, size, opts)
		if mayExist && errors.Is(err, objstore.ErrExist) {
			return s.compare(ctx, name, r, size, opts, err)
		}
		mayExist = mayExist || objstore.Ambiguous(err)
		if errors.Is(err, objstore.ErrChecksum) && !sumIs(r, size, opts.CRC32C) {
			return final{err} // it differed before it left
		}
		return err
	}))
}

// sumIs reports whether want, if given, is the checksum of the bytes to send.
func sumIs(r io.ReaderAt, size int64, want *uint32) bool {
	if want == nil {
		return true
	}
	got, err := objstore.CRC32COf(r, 0, size)
	return err == nil && got == *want
}

// compare returns nil if the object name is what Put was to write, exists if it is another.
func (s *Store) compare(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions, exists error) error {
	info, err := s.Store.Head(ctx, name)
	if err != nil {
		return err
	}
	if info.Size != size {
		return exists
	}
	if opts.CRC32C != nil && info.CRC32C != nil {
		if *opts.CRC32C != *info.CRC32C {
			return exists
		}
		return nil
	}
	var stored, sent [64 << 10]byte
	for off := int64(0); off < size; off += int64(len(sent)) {
		n := min(size-off, int64(len(sent)))
		if _, err := s.Store.Get(ctx, name, off, stored[:n]); err != nil {
			return err
		}
		if k, err := r.ReadAt(sent[:n], off); int64(k) < n {
			return final{err}
		}
		if !bytes.Equal(stored[:n], sent[:n]) {
			return exists
		}
	}
	return nil
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, name string, off int64, p []byte) (n int, err error) {
	err = s.do(ctx, "get", func(int) error {
		n, err = s.Store.Get(ctx, name, off, p)
		return err
	})
	return n, strip(err)
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, name string) (info objstore.Info, err error) {
	err = s.do(ctx, "head", func(int) error {
		info, err = s.Store.Head(ctx, name)
		return err
	})
	return info, strip(err)
}

// List implements objstore.Store. A listing that breaks off goes on after the last name seen.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	err := s.do(ctx, "list", func(int) error {
		return s.Store.List(ctx, prefix, after, func(info objstore.Info) error {
			if err := fn(info); errors.Is(err, fs.SkipAll) {
				return err
			} else if err != nil {
				return final{err}
			}
			after = info.Name
			return nil
		})
	})
	return strip(err)
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	return strip(s.do(ctx, "delete", func(int) error { return s.Store.Delete(ctx, name) }))
}

// DeleteMany implements objstore.Store. Only the names that failed are tried again.
func (s *Store) DeleteMany(ctx context.Context, names []string) error {
	var refused []error
	err := strip(s.do(ctx, "delete", func(int) error {
		err := s.Store.DeleteMany(ctx, names)
		names = names[:0:0]
		var again []error
		for _, e := range flatten(err) {
			var named *objstore.Error
			if objstore.Retryable(e) && errors.As(e, &named) && named.Name != "" {
				again, names = append(again, e), append(names, named.Name)
			} else {
				refused = append(refused, e)
			}
		}
		return errors.Join(again...)
	}))
	return errors.Join(append(refused, err)...)
}

// flatten lists the errors that errors.Join put together.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if _, single := err.(*objstore.Error); single {
		return []error{err}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}

// final hides the kind of an error from Backoff.Do, so that it is not tried again.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }

// strip takes the hiding off.
func strip(err error) error {
	if f, ok := err.(final); ok {
		return f.err
	}
	return err
}
