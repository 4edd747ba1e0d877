package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

type fixture struct {
	reasons []string
	faults  []string
	broken  error
	image   *metadata.Image
}

func (f *fixture) server() *Server {
	reg := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_test_total", Help: "For the test."})
	reg.MustRegister(counter)
	if f.image == nil {
		f.image = metadata.New()
	}
	return New(Config{
		NodeID: 1, ClusterID: func() string { return "cluster" }, Ready: func() []string { return f.reasons }, Degraded: func() []string { return f.faults }, Healthy: func() error { return f.broken },
		Gatherer: reg, Image: func() *metadata.Image { return f.image },
		Partitions: func() iter.Seq[*replica.Partition] { return func(func(*replica.Partition) bool) {} },
		Store:      func() *StoreStatus { return &StoreStatus{URL: "file:///s", Cause: "no route", Remedy: "find one"} },
		Logger:     slog.New(slog.DiscardHandler),
	})
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestHealth(t *testing.T) {
	f := &fixture{}
	s := f.server()
	for _, test := range []struct {
		reasons []string
		broken  error
		path    string
		code    int
		body    string
	}{
		{nil, nil, "/healthz", 200, "ok\n"},
		{nil, errors.New("disk gone"), "/healthz", 503, "disk gone\n"},
		{nil, nil, "/readyz", 200, "ready\n"},
		{[]string{"not registered", "object store: no route"}, nil, "/readyz", 503, "not registered\nobject store: no route\n"},
		{nil, nil, "/nothing", 404, "404 page not found\n"},
	} {
		f.reasons, f.broken = test.reasons, test.broken
		if code, body := get(t, s, test.path); code != test.code || body != test.body {
			t.Errorf("%s: %d %q, want %d %q", test.path, code, body, test.code, test.body)
		}
	}
	f.reasons, f.faults = nil, []string{"object store: no route"}
	if code, body := get(t, s, "/readyz"); code != 200 || body != "ready\nobject store: no route\n" {
		t.Errorf("degraded: %d %q", code, body)
	}
	if code, body := get(t, s, "/metrics"); code != 200 || !strings.Contains(body, "varve_test_total 0") {
		t.Errorf("/metrics: %d %q", code, body)
	}
}

// imageWith has one topic of two partitions with n remote segments each.
func imageWith(n int64) *metadata.Image {
	id := wire.UUID{1}
	recs := []metadata.Record{&metadata.Topic{ID: id, Name: "orders"}}
	for p := range int32(2) {
		recs = append(recs, &metadata.Partition{TopicID: id, Index: p, Leader: 1})
		for i := range n {
			recs = append(recs, &metadata.Segment{TopicID: id, Partition: p, Base: i * 10, End: i*10 + 10, Size: 100, Object: wire.UUID{byte(p), byte(i), 9}, MinTimestamp: -1, MaxTimestamp: -1})
		}
	}
	return metadata.New().Replay(recs, 1, 1)
}

func TestSegmentPages(t *testing.T) {
	s := (&fixture{image: imageWith(5)}).server()
	for _, limit := range []int{1, 2, 3, 4, 5, 10, 11} {
		var got []string
		next, pages := "", 0
		for {
			code, body := get(t, s, fmt.Sprintf("/v1/tier/segments?topic=orders&limit=%d&after=%s", limit, next))
			var page Segments
			if err := json.Unmarshal([]byte(body), &page); err != nil || code != 200 {
				t.Fatalf("%d %s: %v", code, body, err)
			}
			for _, seg := range page.Remote {
				got = append(got, fmt.Sprintf("%d/%d", seg.Partition, seg.Base))
			}
			if pages++; len(page.Remote) > limit || pages > 20 {
				t.Fatalf("page %d has %d segments, limit %d", pages, len(page.Remote), limit)
			}
			if next = page.Next; next == "" {
				break
			}
		}
		if fmt.Sprint(got) != "[0/0 0/10 0/20 0/30 0/40 1/0 1/10 1/20 1/30 1/40]" {
			t.Errorf("limit %d: %s", limit, got)
		}
	}
	_, body := get(t, s, "/v1/tier/segments?topic=orders&partition=1&limit=1")
	if !strings.Contains(body, `"partition":1`) || !strings.Contains(body, `"object":"cluster/`) {
		t.Errorf("one partition: %s", body)
	}
}

func TestBadQueries(t *testing.T) {
	s := (&fixture{image: imageWith(1)}).server()
	for path, want := range map[string]string{
		"/v1/tier/status?topic=nope":                          `404 topic nope does not exist`,
		"/v1/tier/segments":                                   `404 topic "" does not exist`,
		"/v1/tier/segments?topic=orders&partition=-1":         `400 partition="-1" is not a partition`,
		"/v1/tier/segments?topic=orders&partition=9999999999": `400 partition="9999999999" is not a partition`,
		"/v1/tier/segments?topic=orders&limit=0":              `400 limit="0" is not a number from 1 to 10000`,
		"/v1/tier/segments?topic=orders&after=x":              `400 after="x" is not the next of another page`,
	} {
		code, body := get(t, s, path)
		var e Error
		if err := json.Unmarshal([]byte(body), &e); err != nil || fmt.Sprintf("%d %s", code, e.Message) != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestStatusWithoutPartitions(t *testing.T) {
	code, body := get(t, (&fixture{}).server(), "/v1/tier/status")
	var status TierStatus
	if err := json.Unmarshal([]byte(body), &status); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if status.Store.Cause != "no route" || status.Store.Healthy || status.Partitions == nil || status.ClusterID != "cluster" {
		t.Errorf("%s", body)
	}
}

func TestServeEndsWithContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- (&fixture{}).server().Serve(ctx, ln) }()
	resp, err := http.Get("http://" + ln.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "ok\n" {
		t.Errorf("answered %q", body)
	}
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Serve did not end")
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}
