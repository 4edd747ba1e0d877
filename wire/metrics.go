package wire

import "github.com/prometheus/client_golang/prometheus"

// metrics of one listener, resolved once so that the hot path adds numbers only.
type metrics struct {
	accepted, refused prometheus.Counter
	open              prometheus.Gauge
	closed            *prometheus.CounterVec
	panics            prometheus.Counter
	received, sent    prometheus.Counter
	cold              prometheus.Counter
	requests          []prometheus.Counter // by API.slot
	seconds           []prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, listener string, role Role) *metrics {
	labels := prometheus.Labels{"listener": listener}
	counter := func(name, help string) prometheus.Counter {
		return register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_wire_" + name, Help: help, ConstLabels: labels}))
	}
	m := &metrics{
		accepted: counter("connections_accepted_total", "Connections taken."),
		refused:  counter("connections_refused_total", "Connections over a limit, closed at once."),
		panics:   counter("panics_total", "Panics that closed a connection."),
		received: counter("received_bytes_total", "Bytes read from connections."),
		sent:     counter("sent_bytes_total", "Bytes written to connections."),
		cold:     counter("cold_slices_total", "File slices that were not in the page cache when they were to be sent."),
		open:     register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_wire_connections", Help: "Open connections.", ConstLabels: labels})),
		closed: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_wire_connections_closed_total", Help: "Connections ended, by reason.", ConstLabels: labels}, []string{"reason"})),
	}
	requests := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "varve_wire_requests_total", Help: "Requests received, by API.", ConstLabels: labels}, []string{"api"}))
	seconds := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "varve_wire_request_seconds", Help: "Time from the arrival of a request to its answer on the socket, by API.",
		ConstLabels: labels, Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9)}, []string{"api"}))
	m.requests = make([]prometheus.Counter, len(apis))
	m.seconds = make([]prometheus.Observer, len(apis))
	for i := range apis {
		if apis[i].Roles&role != 0 {
			m.requests[i] = requests.WithLabelValues(apis[i].Name)
			m.seconds[i] = seconds.WithLabelValues(apis[i].Name)
		}
	}
	return m
}

// register registers c, if there is a registry. What an earlier server of the
// same listener registered is used again.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	if are, ok := err.(prometheus.AlreadyRegisteredError); ok {
		if old, ok := are.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}

func (m *metrics) ended(reason string) { m.closed.WithLabelValues(reason).Inc() }
