package metrics_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/fault"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/objstore/metrics"
	"github.com/varve-io/varve/objstore/objstoretest"
)

func TestStore(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return metrics.New(mem.New(), prometheus.NewRegistry()) })
}

// TestCounts: operations, results and bytes are those that happened, and no label holds a name.
func TestCounts(t *testing.T) {
	reg := prometheus.NewRegistry()
	faulty := fault.New(mem.New(), 1)
	s := metrics.New(faulty, reg)
	objstoretest.Put(t, s, "some/object", make([]byte, 1000))
	objstoretest.Put(t, s, "other", make([]byte, 24))
	p := make([]byte, 10)
	for range 3 {
		if _, err := s.Get(t.Context(), "some/object", 0, p); err != nil {
			t.Fatal(err)
		}
	}
	s.Get(t.Context(), "some/object", 995, p)
	s.Get(t.Context(), "absent", 0, p)
	faulty.Set(fault.Rule{Kind: fault.Throttle})
	s.Head(t.Context(), "other")
	faulty.Set()
	if err := s.List(t.Context(), "", "", func(objstore.Info) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMany(t.Context(), []string{"some/object", "other"}); err != nil {
		t.Fatal(err)
	}
	got := gather(t, reg)
	for metric, want := range map[string]float64{
		`varve_objstore_operations_total{operation=put,result=ok}`:           2,
		`varve_objstore_operations_total{operation=get,result=ok}`:           3,
		`varve_objstore_operations_total{operation=get,result=not_exist}`:    1,
		`varve_objstore_operations_total{operation=get,result=out_of_range}`: 1,
		`varve_objstore_operations_total{operation=head,result=throttled}`:   1,
		`varve_objstore_operations_total{operation=list,result=ok}`:          1,
		`varve_objstore_operations_total{operation=delete_many,result=ok}`:   1,
		`varve_objstore_transferred_bytes_total{operation=put}`:              1024,
		`varve_objstore_transferred_bytes_total{operation=get}`:              30,
		`varve_objstore_operations_in_flight{operation=get}`:                 0,
		`varve_objstore_operation_duration_seconds{operation=get}`:           5,
	} {
		if got[metric] != want {
			t.Errorf("%s = %v, want %v", metric, got[metric], want)
		}
	}
	for metric := range got {
		if strings.Contains(metric, "object=") || strings.Contains(metric, "some/") {
			t.Errorf("a name in %s", metric)
		}
	}
}

// gather flattens a registry to name{label=value,...} -> value, of a histogram the count.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			values[fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))] = value
		}
	}
	return values
}
