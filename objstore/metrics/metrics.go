// Package metrics counts and times what a Store is asked to do. Labels are an operation and
// a result of a fixed set; object names never become labels.
package metrics

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/objstore"
)

// Store is an objstore.Store that is measured.
type Store struct {
	objstore.Store
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
}

// New wraps store and registers its metrics.
func New(store objstore.Store, reg prometheus.Registerer) *Store {
	s := &Store{
		Store: store,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_objstore_operations_total",
			Help: "Operations on the object store by result: ok, or the kind of failure.",
		}, []string{"operation", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "varve_objstore_operation_duration_seconds",
			Help:    "Time of an operation on the object store, tries again and waiting included.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2.5, 12), // 2 ms to 48 s
		}, []string{"operation"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_objstore_transferred_bytes_total",
			Help: "Bytes of objects written to (put) and read from (get) the object store by operations that succeeded.",
		}, []string{"operation"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "varve_objstore_operations_in_flight",
			Help: "Operations on the object store under way.",
		}, []string{"operation"}),
	}
	reg.MustRegister(s.requests, s.seconds, s.bytes, s.inFlight)
	return s
}

// measure notes the start of an operation and returns what notes its end.
func (s *Store) measure(op string) func(err error, bytes int64) {
	gauge, start := s.inFlight.WithLabelValues(op), time.Now()
	gauge.Inc()
	return func(err error, bytes int64) {
		gauge.Dec()
		s.seconds.WithLabelValues(op).Observe(time.Since(start).Seconds())
		s.requests.WithLabelValues(op, label(err)).Inc()
		if err == nil && bytes > 0 {
			s.bytes.WithLabelValues(op).Add(float64(bytes))
		}
	}
}

func label(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "out_of_range"
	}
	return objstore.Label(err)
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	done := s.measure("put")
	err := s.Store.Put(ctx, name, r, size, opts)
	done(err, size)
	return err
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, name string, off int64, p []byte) (int, error) {
	done := s.measure("get")
	n, err := s.Store.Get(ctx, name, off, p)
	done(err, int64(n))
	return n, err
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, name string) (objstore.Info, error) {
	done := s.measure("head")
	info, err := s.Store.Head(ctx, name)
	done(err, 0)
	return info, err
}

// List implements objstore.Store. Its time includes fn's.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	done := s.measure("list")
	err := s.Store.List(ctx, prefix, after, fn)
	done(err, 0)
	return err
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	done := s.measure("delete")
	err := s.Store.Delete(ctx, name)
	done(err, 0)
	return err
}

// DeleteMany implements objstore.Store. It counts as one operation.
func (s *Store) DeleteMany(ctx context.Context, names []string) error {
	done := s.measure("delete_many")
	err := s.Store.DeleteMany(ctx, names)
	done(err, 0)
	return err
}
