package tier

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/objstore"
)

// metrics of the tier. Labels have few values: never a topic, never an object.
type metrics struct {
	hits, misses, corrupted atomic.Int64

	gets          *prometheus.CounterVec // by outcome
	getBytes      prometheus.Counter
	getSeconds    prometheus.Histogram
	uploads       *prometheus.CounterVec // by outcome
	uploadBytes   prometheus.Counter
	uploadSeconds prometheus.Histogram
	deletes       prometheus.Counter
	orphans       prometheus.Counter
	corrupt       prometheus.Counter
	spoiled       prometheus.Counter

	all []prometheus.Collector
}

func newMetrics(m *Manager) *metrics {
	s := &metrics{}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "tier", Name: name, Help: help})
		s.all = append(s.all, c)
		return c
	}
	counters := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "tier", Name: name, Help: help}, []string{"outcome"})
		s.all = append(s.all, c)
		return c
	}
	seconds := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "varve", Subsystem: "tier", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.002, 2.5, 12)})
		s.all = append(s.all, h)
		return h
	}
	gauge := func(name, help string, value func() float64) {
		s.all = append(s.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "tier", Name: name, Help: help}, value))
	}
	counterFunc := func(name, help string, value *atomic.Int64) {
		s.all = append(s.all, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "varve", Subsystem: "tier", Name: name, Help: help},
			func() float64 { return float64(value.Load()) }))
	}
	s.gets = counters("gets_total", "Ranged GETs of objects, by outcome.")
	s.getBytes = counter("get_bytes_total", "Bytes downloaded from the object store.")
	s.getSeconds = seconds("get_seconds", "Duration of one ranged GET.")
	s.uploads = counters("uploads_total", "Uploads of sealed segments, by outcome.")
	s.uploadBytes = counter("upload_bytes_total", "Bytes of objects that were committed.")
	s.uploadSeconds = seconds("upload_seconds", "Duration of one upload, reservation to commit.")
	s.deletes = counter("deleted_objects_total", "Objects deleted by retention and by the purge of topics.")
	s.orphans = counter("deleted_orphans_total", "Objects deleted that no segment and no reservation named.")
	s.corrupt = counter("corrupt_downloads_total", "Downloads whose bytes were not those that were written.")
	s.spoiled = counter("spoiled_cache_files_total", "Files of the chunk cache that had changed on the local disk.")
	counterFunc("read_hits_total", "Cold reads answered from the chunk cache at once.", &s.hits)
	counterFunc("read_misses_total", "Cold reads that waited for the object store.", &s.misses)
	counterFunc("cache_bypassed_chunks_total", "Chunks that long sequential reads took from memory, with no file written for them.", &m.cache.bypassed)
	gauge("cache_bytes", "Bytes held by the chunk cache, reservations included.", func() float64 { n, _ := m.cache.usage(); return float64(n) })
	gauge("cache_files", "Files held by the chunk cache.", func() float64 { _, n := m.cache.usage(); return float64(n) })
	gauge("download_memory_bytes", "Memory of downloads in flight and of chunks that have no file yet.", func() float64 { n, _ := m.gate.used(); return float64(n) })
	gauge("downloads_in_flight", "Downloads under way or waiting for admission.", func() float64 { return float64(m.fetches.count()) })
	gauge("uploads_in_flight", "Uploads under way.", func() float64 { return float64(len(m.slots)) })
	gauge("store_healthy", "1 while the object store answers, 0 in an outage.", func() float64 {
		if m.health.err() != nil {
			return 0
		}
		return 1
	})
	return s
}

// register registers all or nothing.
func (s *metrics) register(r prometheus.Registerer) error {
	for i, c := range s.all {
		if err := r.Register(c); err != nil {
			for _, done := range s.all[:i] {
				r.Unregister(done)
			}
			return err
		}
	}
	return nil
}

func (s *metrics) unregister(r prometheus.Registerer) {
	for _, c := range s.all {
		r.Unregister(c)
	}
}

func (s *metrics) get(took time.Duration, bytes int, err error) {
	s.gets.WithLabelValues(objstore.Label(err)).Inc()
	if err == nil {
		s.getBytes.Add(float64(bytes))
		s.getSeconds.Observe(took.Seconds())
	}
}

// corruption counts one download whose bytes were wrong.
func (s *metrics) corruption() {
	s.corrupted.Add(1)
	s.corrupt.Inc()
}

func (s *metrics) upload(took time.Duration, bytes int64, err error) {
	s.uploads.WithLabelValues(uploadOutcome(err)).Inc()
	if err == nil {
		s.uploadBytes.Add(float64(bytes))
		s.uploadSeconds.Observe(took.Seconds())
	}
}

func uploadOutcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrUnknownOutcome):
		return "unknown"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrStoreUnavailable):
		return "store"
	case errors.Is(err, ErrBadRun):
		return "bad_run"
	case errors.Is(err, ErrCorrupt):
		return "corrupt"
	default:
		return "other"
	}
}
