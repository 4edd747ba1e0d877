package replica

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are few and have no label but the topic, and that only where an operator must know which.
type metrics struct {
	m            *Manager
	choreErrors  prometheus.Counter
	uploadErrors prometheus.Counter

	isrShrinks, isrExpands, isrFailed prometheus.Counter
	bytesIn, bytesOut                 prometheus.Counter

	partitions, leaders, offline *prometheus.Desc
	unuploaded, unuploadedBytes  *prometheus.Desc
	future                       *prometheus.Desc
	underReplicated, underMin    *prometheus.Desc
	maxLag                       *prometheus.Desc
}

const namespace = "varve"

func newMetrics(m *Manager) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: "replica", Name: name, Help: help})
	}
	return &metrics{
		m:               m,
		isrShrinks:      count("isr_shrinks_total", "ISRs of partitions led here that lost a member."),
		isrExpands:      count("isr_expands_total", "ISRs of partitions led here that won a member."),
		isrFailed:       count("failed_isr_updates_total", "Proposals of ISRs that were refused, or got no answer."),
		bytesIn:         count("replication_bytes_in_total", "Bytes of records fetched from leaders."),
		bytesOut:        count("replication_bytes_out_total", "Bytes of records given to followers."),
		underReplicated: desc("replica_under_replicated_partitions", "Partitions led here with replicas that are not in sync."),
		underMin:        desc("replica_under_min_isr_partitions", "Partitions led here with fewer in sync than min.insync.replicas."),
		maxLag:          desc("replica_fetcher_max_lag", "Most offsets that a replica here is behind its leader's high watermark."),
		choreErrors: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: "replica", Name: "maintenance_errors_total",
			Help: "Rounds of rolling, retention or deletion of a partition that failed and are tried again."}),
		uploadErrors: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: "replica", Name: "upload_errors_total",
			Help: "Uploads of segments that failed and are tried again."}),
		partitions: desc("replica_partitions", "Replicas on this broker."),
		leaders:    desc("replica_leaders", "Partitions that this broker leads."),
		offline:    desc("replica_offline_partitions", "Replicas whose log is not usable."),
		unuploaded: desc("tier_oldest_unuploaded_seconds",
			"Age of the oldest record that belongs into the store and is not there: the recovery point from the store alone.", "topic"),
		unuploadedBytes: desc("tier_unuploaded_bytes", "Bytes in sealed segments that belong into the store and are not there.", "topic"),
		future: desc("replica_future_segments",
			"Local segments whose newest record is dated in the future: retention by time keeps them, and everything after them, until then."),
	}
}

func (x *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{x.choreErrors, x.uploadErrors, x.isrShrinks, x.isrExpands, x.isrFailed, x.bytesIn, x.bytesOut, x} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (x *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{x.partitions, x.leaders, x.offline, x.unuploaded, x.unuploadedBytes, x.future,
		x.underReplicated, x.underMin, x.maxLag} {
		ch <- d
	}
}

// futureSlack is how far clocks may disagree.
const futureSlack = time.Hour

// Collect implements prometheus.Collector. What it tells is computed now, so that it holds also while the store is
// down (KAFKA-19530).
func (x *metrics) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	var leaders, offline, future, under, underMin float64
	var lag int64
	oldest, bytes := map[string]float64{}, map[string]float64{}
	list := x.m.list()
	for _, p := range list {
		l := p.log.Load()
		if l == nil || p.offline() {
			offline++
			continue
		}
		segments := l.Segments()
		for _, s := range segments {
			if s.MaxTimestamp > now.Add(futureSlack).UnixMilli() {
				future++
			}
		}
		lead := p.lead.Load()
		if lead == nil || !lead.here {
			lag = max(lag, p.leaderHW.Load()-l.EndOffset())
			continue
		}
		leaders++
		if lead.inSync < lead.replicas {
			under++
		}
		if lead.inSync < p.minInSync(lead) {
			underMin++
		}
		row := p.row()
		since, waits := p.unuploaded(row)
		if row == nil || !p.tiered(row) {
			continue
		}
		oldest[p.topic] = max(oldest[p.topic], 0)
		if waits {
			oldest[p.topic] = max(oldest[p.topic], now.Sub(since).Seconds())
		}
		next, _ := row.Next()
		for _, s := range segments {
			if s.Sealed && s.End > next {
				bytes[p.topic] += float64(s.Size)
			}
		}
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(x.partitions, float64(len(list)))
	gauge(x.leaders, leaders)
	gauge(x.offline, offline)
	gauge(x.future, future)
	gauge(x.underReplicated, under)
	gauge(x.underMin, underMin)
	gauge(x.maxLag, float64(lag))
	for topic, v := range oldest {
		gauge(x.unuploaded, v, topic)
		gauge(x.unuploadedBytes, bytes[topic], topic)
	}
}

// isrChanged counts members that went and that came, as Kafka's IsrShrinks and IsrExpands.
func (x *metrics) isrChanged(old, now []int32) {
	lost := slices.ContainsFunc(old, func(id int32) bool { return !slices.Contains(now, id) })
	won := slices.ContainsFunc(now, func(id int32) bool { return !slices.Contains(old, id) })
	if lost {
		x.isrShrinks.Inc()
	}
	if won {
		x.isrExpands.Inc()
	}
}
