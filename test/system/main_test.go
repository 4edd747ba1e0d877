package system

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
)

// varve is the binary, built by TestMain from the sources that are tested.
var varve string

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "system:", err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "varve-system-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	varve = filepath.Join(dir, "varve")
	build := exec.Command("go", "build", "-o", varve, "../../cmd/varve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build varve: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// start starts a node that ends with the test; its output is shown if the test fails.
func start(t *testing.T, cfg node.VarveConfig) *node.Broker {
	t.Helper()
	cfg.Binary = varve
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	b, err := node.StartVarve(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Stop(20 * time.Second)
		if t.Failed() {
			out, _ := os.ReadFile(b.LogPath())
			t.Logf("the end of the node's output:\n%s", out[max(0, len(out)-6<<10):])
		}
	})
	return b
}

// client is a franz-go client of b that gives up on nothing by itself.
func client(t *testing.T, b *node.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// createTopic creates a topic of one partition.
func createTopic(t *testing.T, c *kgo.Client, name string, configs map[string]string) {
	t.Helper()
	all := map[string]*string{}
	for k, v := range configs {
		all[k] = kadm.StringPtr(v)
	}
	if _, err := kadm.NewClient(c).CreateTopic(t.Context(), 1, 1, all, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

// produce sends n records of size bytes to partition 0 and waits for all acknowledgements.
func produce(t *testing.T, c *kgo.Client, topic string, first, n, size int) {
	t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Value: payload(first+i, size)}
	}
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
}

// payload is the i-th record's value: its number, then bytes that depend on it.
func payload(i, size int) []byte {
	p := fmt.Appendf(nil, "%d:", i)
	for len(p) < size {
		p = fmt.Appendf(p, "%x.", (i+1)*len(p)*2654435761)
	}
	return p[:size]
}

// consume reads records 0..n-1 of partition 0 from the beginning and compares every byte.
func consume(t *testing.T, b *node.Broker, topic string, n, size int) {
	t.Helper()
	c := client(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := 0; i < n; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume %s at record %d of %d: %v", topic, i, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != int64(i) || string(r.Value) != string(payload(i, size)) {
				t.Fatalf("%s: record %d at offset %d differs from what was produced", topic, i, r.Offset)
			}
			i++
		})
	}
}

// eventually waits until check returns nil; what it last said fails the test.
func eventually(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %v", limit, err)
}

// get is the status and body of a page of the node's HTTP listener.
func get(t *testing.T, b *node.Broker, path string) (int, string) {
	t.Helper()
	response, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + b.Admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	const most = 1 << 20
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
