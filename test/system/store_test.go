package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/node"
	"github.com/varve-io/varve/test/proxy"
)

// onMinIO are settings for a node whose bucket is behind endpoint.
func onMinIO(endpoint string, more ...string) []string {
	return append([]string{
		"varve.store.s3.endpoint=" + endpoint,
		"varve.store.s3.region=us-east-1",
		"varve.store.s3.path.style=true",
		"log.retention.check.interval.ms=300",
		"log.segment.delete.delay.ms=100",
	}, more...)
}

// TestStoreOutage: while the bucket is gone, producing and hot reads go on, nothing local is
// deleted, the node stays ready and says what is wrong; when it is back all is offloaded and readable.
func TestStoreOutage(t *testing.T) {
	const recordSize = 1000
	store := minio.Run(t, minio.Config{})
	if err := store.CreateBucket(t.Context(), "varve"); err != nil {
		t.Fatal(err)
	}
	p := proxy.Run(t, strings.TrimPrefix(store.Endpoint, "http://"), proxy.Faults{})
	b := start(t, node.VarveConfig{StoreURL: "s3://varve/a", Env: store.Env(), Settings: onMinIO("http://" + p.Addr())})
	c := client(t, b)
	createTopic(t, c, "t", map[string]string{"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"})

	p.Cut()
	produce(t, c, "t", 0, 10000, recordSize)
	consume(t, b, "t", 10000, recordSize)
	segments := func() int {
		names, err := filepath.Glob(filepath.Join(b.LogDir, "t-0", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	eventually(t, 30*time.Second, func() error { // ready all the same: clients are served
		if status, body := get(t, b, "/readyz"); status != 200 || !strings.Contains(body, "object store") {
			return fmt.Errorf("/readyz says %d %s", status, body)
		}
		return nil
	})
	time.Sleep(2 * time.Second) // several rounds of retention
	if n := segments(); n < 9 {
		t.Fatalf("%d segments are left of 10 MB: local data was deleted without a copy", n)
	}

	p.Heal()
	eventually(t, 60*time.Second, func() error {
		if n := segments(); n > 2 {
			return fmt.Errorf("%d segments are still local", n)
		}
		return nil
	})
	consume(t, b, "t", 10000, recordSize)
}

// TestKill: what was acknowledged is there after SIGKILL, and the node starts by itself.
func TestKill(t *testing.T) {
	const recordSize = 500
	cfg := node.VarveConfig{Dir: t.TempDir()}
	b := start(t, cfg)
	c := client(t, b)
	createTopic(t, c, "t", map[string]string{"segment.bytes": "1048576"})
	n := 0
	for range 3 {
		produce(t, c, "t", n, 4000, recordSize)
		n += 4000
		b.Kill()
		b = start(t, cfg)
		consume(t, b, "t", n, recordSize)
	}
}

// TestKillWhileProducing: an acknowledged record survives a SIGKILL in mid-flight, at its offset.
func TestKillWhileProducing(t *testing.T) {
	cfg := node.VarveConfig{Dir: t.TempDir()}
	b := start(t, cfg)
	c := client(t, b, kgo.RecordDeliveryTimeout(30*time.Second))
	createTopic(t, c, "t", map[string]string{"segment.bytes": "1048576"})
	type ack struct {
		offset int64
		value  string
	}
	var mu sync.Mutex
	var acks []ack
	ctx, cancel := context.WithCancel(t.Context())
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		for i := 0; ctx.Err() == nil; i++ {
			c.Produce(ctx, &kgo.Record{Topic: "t", Value: payload(i, 300)}, func(r *kgo.Record, err error) {
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					acks = append(acks, ack{r.Offset, string(r.Value)})
				}
			})
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		b.Kill()
		b = start(t, cfg)
	}
	time.Sleep(500 * time.Millisecond)
	cancel()
	<-produced
	c.Close()
	want := map[int64]string{}
	var last int64
	mu.Lock()
	acked := slices.Clone(acks) // what is told later is not asked for
	mu.Unlock()
	for _, a := range acked {
		if v, twice := want[a.offset]; twice && v != a.value {
			t.Fatalf("offset %d was acknowledged for two records", a.offset)
		}
		want[a.offset] = a.value
		last = max(last, a.offset)
	}
	if len(want) < 1000 {
		t.Fatalf("only %d records were acknowledged", len(want))
	}
	r := client(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := int64(-1)
	values := map[string]int64{}
	for seen < last {
		fetches := r.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume at %d of %d: %v", seen, last, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != seen+1 {
				t.Fatalf("offset %d follows %d", r.Offset, seen)
			}
			seen = r.Offset
			if v, ok := want[r.Offset]; ok && v != string(r.Value) {
				t.Fatalf("offset %d holds another record than the one acknowledged there", r.Offset)
			}
			if at, twice := values[string(r.Value)]; twice {
				t.Fatalf("a record of the idempotent producer is at offsets %d and %d", at, r.Offset)
			}
			values[string(r.Value)] = r.Offset
			delete(want, r.Offset)
		})
	}
	if len(want) > 0 {
		t.Fatalf("%d acknowledged records are lost", len(want))
	}
}

// TestForeignDirectories: what is not this node's is refused with the way out, and left as it was.
func TestForeignDirectories(t *testing.T) {
	dir := t.TempDir()
	b := start(t, node.VarveConfig{Dir: dir})
	refused := func(name string, cfg node.VarveConfig, words ...string) {
		t.Helper()
		cfg.Binary = varve
		other, err := node.StartVarve(t.Context(), cfg)
		if err == nil {
			other.Stop(10 * time.Second)
			t.Fatalf("%s: the node started", name)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the message lacks %q:\n%v", name, w, err)
			}
		}
	}
	second := t.TempDir()
	refused("second process on one directory", node.VarveConfig{Dir: second, Settings: []string{"log.dirs=" + b.LogDir}}, b.LogDir)

	if err := b.Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	refused("another node's directory", node.VarveConfig{Dir: t.TempDir(), Settings: []string{"node.id=7", "log.dirs=" + b.LogDir}}, b.LogDir, "node.id")
	refused("another cluster's prefix", node.VarveConfig{Dir: t.TempDir(), StoreURL: "file://" + filepath.Join(dir, "store")}, "store")

	kafka := t.TempDir()
	if err := os.MkdirAll(filepath.Join(kafka, "data", "t-0"), 0o755); err != nil {
		t.Fatal(err)
	}
	meta := "version=1\nnode.id=1\ndirectory.id=Zm9vYmFyYmF6cXV4MTIzNA\ncluster.id=dmFydmUtdGVzdC1rYWZrYQ\n"
	if err := os.WriteFile(filepath.Join(kafka, "data", "meta.properties"), []byte(meta), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(kafka, "data", "__cluster_metadata-0"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused("a whole Kafka directory", node.VarveConfig{Dir: kafka}, "Kafka")
}
