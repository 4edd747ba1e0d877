package log

import "github.com/prometheus/client_golang/prometheus"

// Metrics are counted over all logs of a broker; they have no labels but those with a handful of values.
type Metrics struct {
	appendBytes    prometheus.Counter
	appendSeconds  prometheus.Histogram
	syncSeconds    prometheus.Histogram
	rolls          prometheus.Counter
	truncations    prometheus.Counter
	refused        *prometheus.CounterVec
	recoveries     *prometheus.CounterVec
	recoverySecs   prometheus.Histogram
	cutBytes       prometheus.Counter
	indexRebuilds  prometheus.Counter
	expired        prometheus.Counter
	offline        prometheus.Gauge
	segmentsGone   prometheus.Counter
	backgroundErrs prometheus.Counter
}

// NewMetrics registers the metrics; nil registers nothing.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "log", Name: name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "varve", Subsystem: "log", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10)})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "log", Name: name, Help: help}, []string{label})
	}
	m := &Metrics{
		appendBytes:    counter("append_bytes_total", "Bytes of record batches written to segments."),
		appendSeconds:  seconds("append_seconds", "Time of one write to a segment."),
		syncSeconds:    seconds("sync_seconds", "Time of one group commit."),
		rolls:          counter("rolls_total", "Segments sealed."),
		truncations:    counter("truncations_total", "Truncations asked for by replication."),
		refused:        vec("refused_batches_total", "Batches refused by validation, by Kafka error.", "error"),
		recoveries:     vec("recoveries_total", "Logs scanned at start after an unclean shutdown, by what was found.", "found"),
		recoverySecs:   seconds("recovery_seconds", "Time to scan one log at start."),
		cutBytes:       counter("recovery_cut_bytes_total", "Bytes cut off at recovery and kept aside."),
		indexRebuilds:  counter("index_rebuilds_total", "Indexes of sealed segments that were found wrong and built anew."),
		expired:        counter("expired_producers_total", "Idempotent producers forgotten after their expiry."),
		segmentsGone:   counter("deleted_segments_total", "Local segments deleted."),
		backgroundErrs: counter("background_errors_total", "Errors of work that is tried again later, such as removing a file."),
		offline: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "log", Name: "offline_directories",
			Help: "Log directories given up after a failed sync or truncation."}),
	}
	if r != nil {
		r.MustRegister(m.appendBytes, m.appendSeconds, m.syncSeconds, m.rolls, m.truncations, m.refused, m.recoveries,
			m.recoverySecs, m.cutBytes, m.indexRebuilds, m.expired, m.offline, m.segmentsGone, m.backgroundErrs)
	}
	return m
}
