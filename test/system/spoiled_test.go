package system

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/node"
	"github.com/varve-io/varve/test/proxy"
)

// read reads partition 0 from the beginning until it has n records or the limit is over, and
// compares every byte; what the broker refuses meanwhile is asked for again.
func read(t *testing.T, b *node.Broker, topic string, n, size int, limit time.Duration) (got int) {
	t.Helper()
	c := client(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for got < n && ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if r.Offset != int64(got) || string(r.Value) != string(payload(got, size)) {
				t.Fatalf("record %d at offset %d differs from what was produced", got, r.Offset)
			}
			got++
		})
	}
	return got
}

// TestSpoiledStore: whatever lies between node and bucket does to uploads and cold reads, no
// wrong byte is served, reads that can be served are, and everything drains when it ends.
func TestSpoiledStore(t *testing.T) {
	const (
		recordSize = 1000
		perFault   = 4000 // 4 MB, four segments
	)
	store := minio.Run(t, minio.Config{})
	if err := store.CreateBucket(t.Context(), "varve"); err != nil {
		t.Fatal(err)
	}
	p := proxy.RunStore(t, store.Endpoint, 1)
	b := start(t, node.VarveConfig{StoreURL: "s3://varve/a", Env: store.Env(), Settings: onMinIO(p.Endpoint(),
		"varve.tier.cache.bytes=16777216")}) // smaller than the data: reads keep going to the store
	c := client(t, b)
	createTopic(t, c, "t", map[string]string{"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"})
	drained := func(limit time.Duration) {
		t.Helper()
		eventually(t, limit, func() error {
			names, err := filepath.Glob(filepath.Join(b.LogDir, "t-0", "*.log"))
			if err != nil || len(names) > 2 {
				return fmt.Errorf("%d segments are still local (%v)", len(names), err)
			}
			return nil
		})
	}
	n := 5 * perFault
	produce(t, c, "t", 0, n, recordSize)
	drained(30 * time.Second)
	for _, fault := range []struct {
		name  string
		rules []proxy.Rule
	}{
		{"503 storm", []proxy.Rule{{Kind: proxy.SlowDown, Prob: 0.7}}},
		{"black hole", []proxy.Rule{{Kind: proxy.Silence}}},
		{"truncated bodies", []proxy.Rule{{Kind: proxy.Truncate, Method: "GET", Prob: 0.5}}},
		{"flipped bytes", []proxy.Rule{{Kind: proxy.FlipDown, Method: "GET", Prob: 0.5}, {Kind: proxy.FlipUp, Method: "PUT", Prob: 0.5}}},
		{"success reported as failure", []proxy.Rule{{Kind: proxy.FailAfter, Prob: 0.5}}},
		{"failure reported as success", []proxy.Rule{{Kind: proxy.FakeOK, Method: "PUT", Prob: 0.5}}},
	} {
		p.Set(fault.rules...)
		produce(t, c, "t", n, perFault, recordSize)
		n += perFault
		got := read(t, b, "t", n, recordSize, 6*time.Second)
		hits := p.Hits()
		for i, times := range hits {
			if times == 0 && i == 0 {
				t.Errorf("%s: the fault never struck", fault.name)
			}
		}
		p.Set()
		drained(90 * time.Second)
		if all := read(t, b, "t", n, recordSize, 60*time.Second); all != n {
			t.Fatalf("%s: %d of %d records came back after it had ended", fault.name, all, n)
		}
		t.Logf("%s: struck %v times, %d of %d records read meanwhile", fault.name, hits, got, n)
	}
	if _, metrics := get(t, b, "/metrics"); !regexp.MustCompile(`(?m)^varve_tier_corrupt_downloads_total [1-9]`).MatchString(metrics) {
		t.Error("flipped bytes were not counted")
	}
}
