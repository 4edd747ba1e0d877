package cut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
	"github.com/varve-io/varve/test/proxy"
)

const (
	requestTimeout = 2 * time.Second // that the client asks for
	slack          = 3 * time.Second // a busy machine's
	// outage is longer than a broker's session: the controller fences it meanwhile.
	outage  = 4 * time.Second
	session = 2 * time.Second
	patient = 60 * time.Second
)

// rig is a node whose broker reaches its controller through a proxy.
type rig struct {
	t      *testing.T
	broker *node.Broker
	proxy  *proxy.Proxy
	client *kgo.Client
	admin  *kadm.Client
}

var binary = "varve"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "varve-cut-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, binary)
	build := exec.Command("go", "build", "-o", binary, "../../cmd/varve")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func start(t *testing.T) *rig {
	dir := t.TempDir()
	ports := freePorts(t, 3) // client, controller, admin: node.StartVarve takes them from here
	raw, err := json.Marshal(ports)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ports.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	p := proxy.Run(t, fmt.Sprintf("127.0.0.1:%d", ports[1]), proxy.Faults{})
	b, err := startVarve(t, dir, p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Stop(20 * time.Second)
		if t.Failed() {
			if out, err := os.ReadFile(b.LogPath()); err == nil {
				t.Logf("the node said:\n%s", out[max(0, len(out)-8<<10):])
			}
		}
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.MetadataMinAge(50*time.Millisecond), kgo.DefaultProduceTopic("t"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(int32(requestTimeout.Milliseconds()))
	return &rig{t: t, broker: b, proxy: p, client: client, admin: admin}
}

func freePorts(t *testing.T, n int) (ports []int) {
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close() // all stay open until the end: no port twice
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func startVarve(t *testing.T, dir, controller string) (*node.Broker, error) {
	return node.StartVarve(t.Context(), node.VarveConfig{Binary: binary, Dir: dir, Settings: []string{
		"controller.quorum.voters=1@" + controller,
		fmt.Sprintf("broker.session.timeout.ms=%d", session.Milliseconds()),
		"broker.heartbeat.interval.ms=500",
		"log.retention.check.interval.ms=200",
		"remote.log.manager.task.interval.ms=200",
	}})
}

func (r *rig) createTopic(ctx context.Context, name string) error {
	small := map[string]*string{"remote.storage.enable": kadm.StringPtr("true"), "segment.bytes": kadm.StringPtr("1048576")}
	resp, err := r.admin.CreateTopic(ctx, 1, 1, small, name)
	return errors.Join(err, resp.Err)
}

// tiered is how far the store has the topic's partition.
func (r *rig) tiered() int64 {
	r.t.Helper()
	end, err := r.offset(-5)
	if err != nil {
		r.t.Fatal(err)
	}
	return end
}

func (r *rig) offset(at int64) (int64, error) {
	offsets, err := r.admin.ListOffsetsAfterMilli(r.t.Context(), at, "t")
	if err != nil {
		return 0, err
	}
	o, ok := offsets.Lookup("t", 0)
	if !ok {
		return 0, errors.New("no answer for the partition")
	}
	return o.Offset, o.Err
}

func (r *rig) eventually(what string, check func() error) {
	r.t.Helper()
	var err error
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	r.t.Fatalf("%s: %v", what, err)
}

// writer produces without pause, one record of 64 KiB after the other, and
// reads each back at the tail.
type writer struct {
	acked, read atomic.Int64
	slowest     atomic.Int64 // nanoseconds of one produce
	failed      atomic.Pointer[error]
}

func (r *rig) write(ctx context.Context) *writer {
	w := &writer{}
	value := make([]byte, 64<<10)
	go func() {
		for ctx.Err() == nil {
			begun := time.Now()
			err := r.client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				w.failed.Store(&err)
				return
			}
			w.acked.Add(1)
			w.slowest.Store(max(w.slowest.Load(), int64(time.Since(begun))))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	reader, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(reader.Close)
	go func() {
		for ctx.Err() == nil {
			w.read.Add(int64(reader.PollFetches(ctx).NumRecords()))
		}
	}()
	return w
}

func TestControllerCut(t *testing.T) {
	for name, outageOf := range map[string]proxy.Faults{
		"refused":   {Refuse: true},
		"swallowed": proxy.BlackHole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			r.eventually("create the topic", func() error { return r.createTopic(t.Context(), "t") })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := r.write(ctx)
			r.eventually("segments in the store", func() error {
				if end := r.tiered(); end < 10 {
					return fmt.Errorf("tiered to %d", end)
				}
				return nil
			})

			r.proxy.Set(outageOf)
			if outageOf.Refuse {
				r.proxy.Reset()
			}
			time.Sleep(requestTimeout) // what was under way is decided by now
			begun, tiered, acked, read := time.Now(), r.tiered(), w.acked.Load(), w.read.Load()
			err := r.createTopic(t.Context(), "during")
			if took := time.Since(begun); err == nil || took > requestTimeout+slack {
				t.Errorf("creation without a controller: %v after %v", err, took)
			}
			time.Sleep(time.Until(begun.Add(outage)))
			if now := r.tiered(); now != tiered {
				t.Errorf("committed from %d to %d without a controller", tiered, now)
			}
			if a, b := w.acked.Load()-acked, w.read.Load()-read; a < 20 || b < 20 {
				t.Errorf("%d produced and %d read in %v without a controller: hot data must not need one", a, b, outage)
			}
			if err := w.failed.Load(); err != nil {
				t.Errorf("produce: %v", *err)
			}
			if slow := time.Duration(w.slowest.Load()); slow > slack {
				t.Errorf("a produce took %v", slow)
			}

			r.proxy.Heal()
			r.eventually("create a topic again", func() error {
				if err := r.createTopic(t.Context(), "after"); !errors.Is(err, kerr.TopicAlreadyExists) {
					return err
				}
				return nil
			})
			behind := w.acked.Load()
			r.eventually("the store to catch up", func() error {
				if end := r.tiered(); end < behind-64 { // the active segment stays
					return fmt.Errorf("tiered to %d of %d", end, behind)
				}
				return nil
			})
			if err := w.failed.Load(); err != nil {
				t.Errorf("produce: %v", *err)
			}
		})
	}
}
