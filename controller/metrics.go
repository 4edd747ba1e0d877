package controller

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/controller/metadata"
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
	unclean      prometheus.Counter
	census       census
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
		unclean: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_controller_unclean_elections_total", Help: "Elections of replicas that may lack acknowledged records, while this node was active."}),
	}
	m.collectors = []prometheus.Collector{m.storeSeconds, m.proposals, m.outcomes, m.fenced, m.unclean,
		gauge("active", "1 while this node is the active controller.", func() float64 {
			if c.reign.Load() != nil {
				return 1
			}
			return 0
		}),
		gauge("term", "Term of the quorum as this node knows it.", func() float64 { _, term := c.quorum.Leading(); return float64(term) }),
		gauge("leader_id", "Node that leads the quorum; -1 if none is known.", func() float64 { return float64(c.quorum.Leader()) }),
		gauge("voters", "Members of the quorum as this node knows them; 0 while it knows of none.", func() float64 { return float64(len(c.quorum.Members())) }),
		gauge("leader_contact_seconds", "Since this node heard from the leader of the quorum; -1: never.", func() float64 {
			if heard := c.quorum.Heard(); heard >= 0 {
				return heard.Seconds()
			}
			return -1
		}),
		gauge("applied_index", "Index of the last entry applied to the image.", func() float64 { return float64(c.Image().Index()) }),
		gauge("topics", "Topics in the image.", func() float64 { return float64(c.Image().NumTopics()) }),
		gauge("partitions", "Partitions in the image.", func() float64 { return float64(c.Image().NumPartitions()) }),
		gauge("remote_segments", "Rows of remote segments in the image.", func() float64 { return float64(c.Image().NumSegments()) }),
		gauge("offline_partitions", "Partitions without a leader.", func() float64 { return float64(m.census.of(c.Image()).offline) }),
		gauge("under_min_isr_partitions", "Partitions with fewer in sync than min.insync.replicas.", func() float64 { return float64(m.census.of(c.Image()).underMin) }),
		gauge("under_replicated_partitions", "Partitions with replicas that are not in sync, those that are being added aside.", func() float64 { return float64(m.census.of(c.Image()).under) }),
		gauge("undecided_partitions", "Partitions that nobody is eligible to lead: they wait for reports of their replicas, or for the operator.", func() float64 { return float64(m.census.of(c.Image()).undecided) }),
		gauge("reassigning_partitions", "Partitions that are being reassigned.", func() float64 { return float64(m.census.of(c.Image()).reassigning) }),
		gauge("preferred_replica_imbalance", "Partitions that another replica leads than the preferred one.", func() float64 { return float64(m.census.of(c.Image()).imbalance) }),
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

// census counts the partitions of an image once, for all the metrics that are
// asked for together.
type census struct {
	mu     sync.Mutex
	image  *metadata.Image
	counts counts
}

type counts struct{ offline, underMin, under, undecided, reassigning, imbalance int }

func (s *census) of(img *metadata.Image) counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.image == img {
		return s.counts
	}
	var n counts
	add := func(count *int, is bool) {
		if is {
			*count++
		}
	}
	for p := range img.AllPartitions() {
		add(&n.offline, p.Leader == metadata.NoLeader)
		add(&n.underMin, len(p.ISR) < img.MinInSync(p))
		add(&n.under, len(p.ISR) < len(p.Original()))
		add(&n.undecided, p.Undecided())
		add(&n.reassigning, p.Reassigning())
		add(&n.imbalance, p.Leader != p.Replicas[0])
	}
	s.image, s.counts = img, n
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
