package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one controller. The quorum library keeps two global registries of
// its own, which cannot be had per instance; what an operator needs of them is
// here.
type metrics struct {
	registerer   prometheus.Registerer
	collectors   []prometheus.Collector
	storeSeconds prometheus.Histogram
	proposals    prometheus.Counter
	outcomes     *prometheus.CounterVec
	fenced       prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, c *Controller) *metrics {
	m := &metrics{
		registerer: reg,
		storeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "varve_controller_store_write_seconds", Help: "Time of a write to the quorum's log, fsync included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8)}),
		proposals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_controller_proposals_total", Help: "Entries proposed to the quorum."}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_controller_proposals_failed_total", Help: "Proposals that were not done, or of unknown outcome."}, []string{"outcome"}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_controller_brokers_fenced_total", Help: "Brokers fenced because their session ended or their process was gone."}),
	}
	m.collectors = []prometheus.Collector{m.storeSeconds, m.proposals, m.outcomes, m.fenced,
		gauge("active", "1 while this node is the active controller.", func() float64 {
			if c.reign.Load() != nil {
				return 1
			}
			return 0
		}),
		gauge("term", "Term of the quorum as this node knows it.", func() float64 { _, term := c.quorum.Leading(); return float64(term) }),
		gauge("leader_id", "Node that leads the quorum; -1 if none is known.", func() float64 { return float64(c.quorum.Leader()) }),
		gauge("applied_index", "Index of the last entry applied to the image.", func() float64 { return float64(c.Image().Index()) }),
		gauge("topics", "Topics in the image.", func() float64 { return float64(c.Image().NumTopics()) }),
		gauge("partitions", "Partitions in the image.", func() float64 { return float64(c.Image().NumPartitions()) }),
		gauge("remote_segments", "Rows of remote segments in the image.", func() float64 { return float64(c.Image().NumSegments()) }),
		gauge("offline_partitions", "Partitions without a leader.", func() float64 { return float64(c.offline()) }),
		gauge("fenced_brokers", "Registered brokers that are out of service.", func() float64 { return float64(c.fencedBrokers()) }),
	}
	if reg != nil {
		for _, col := range m.collectors {
			if err := reg.Register(col); err != nil {
				c.logger.Warn("metric not registered", "err", err)
			}
		}
	}
	return m
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_controller_" + name, Help: help}, value)
}

func (m *metrics) unregister() {
	if m.registerer != nil {
		for _, col := range m.collectors {
			m.registerer.Unregister(col)
		}
	}
}

func (m *metrics) refused(err error) {
	outcome := "unknown"
	if errors.Is(err, ErrNotLeader) {
		outcome = "not_done"
	}
	m.outcomes.WithLabelValues(outcome).Inc()
}

func (c *Controller) offline() (n int) {
	for p := range c.Image().AllPartitions() {
		if p.Leader < 0 {
			n++
		}
	}
	return n
}

func (c *Controller) fencedBrokers() (n int) {
	for b := range c.Image().Brokers() {
		if b.Fenced {
			n++
		}
	}
	return n
}
