package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/node"
)

var targetFlag = flag.String("target", "varve", "what to test: varve, kafka, or host:port of a running broker")

// target is the broker under test; TestMain starts it.
var target struct {
	addr   string
	broker *node.Broker // nil if it was already running
	tiered bool         // it is Varve, started here: reads cross tiers
	java   node.Java
	admin  *kadm.Client
}

// bucket is where the node under test stores.
const bucket = "interop"

// varveSettings make the tier do its work within seconds.
var varveSettings = []string{
	"log.retention.check.interval.ms=300",
	"log.segment.delete.delay.ms=100",
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := testMain(m)
	if err != nil {
		log.Fatal("interop: ", err)
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for tool, wayOut := range map[string]string{"kcat": "apt-get install kcat", "gcc": "apt-get install gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return 0, fmt.Errorf("%s is not installed: %s", tool, wayOut)
		}
	}
	if target.java, err = node.FindJava(ctx); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "varve-interop-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	stop, err := startTarget(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() {
		if code != 0 && target.broker != nil {
			if out, err := os.ReadFile(target.broker.LogPath()); err == nil {
				log.Printf("the end of the broker's output:\n%s", out[max(0, len(out)-8<<10):])
			}
		}
		err = errors.Join(err, stop())
	}()
	client, err := kgo.NewClient(kgo.SeedBrokers(target.addr))
	if err != nil {
		return 0, err
	}
	target.admin = kadm.NewClient(client)
	defer target.admin.Close()
	return m.Run(), nil
}

// startTarget fills target.
func startTarget(ctx context.Context, dir string) (stop func() error, err error) {
	switch *targetFlag {
	case "kafka":
		target.broker, err = node.StartKafka(ctx, target.java, node.KafkaConfig{Dir: dir})
		if err != nil {
			return nil, err
		}
		target.addr = target.broker.Addr
		return func() error { return target.broker.Stop(30 * time.Second) }, nil
	case "varve":
		store, err := minio.Start(ctx, minio.Config{Dir: filepath.Join(dir, "minio")})
		if err != nil {
			return nil, err
		}
		if err := store.CreateBucket(ctx, bucket); err != nil {
			return nil, errors.Join(err, store.Close())
		}
		target.broker, err = node.StartVarve(ctx, node.VarveConfig{
			Binary:   "../../bin/varve",
			Dir:      dir,
			StoreURL: "s3://" + bucket + "/cluster",
			Settings: append([]string{
				"varve.store.s3.endpoint=" + store.Endpoint,
				"varve.store.s3.region=us-east-1",
				"varve.store.s3.path.style=true",
			}, varveSettings...),
			Env: store.Env(),
		})
		if err != nil {
			return nil, errors.Join(err, store.Close())
		}
		target.addr, target.tiered = target.broker.Addr, true
		return func() error { return errors.Join(target.broker.Stop(30*time.Second), store.Close()) }, nil
	}
	target.addr = *targetFlag
	return func() error { return nil }, nil
}

// createTopic makes a topic with small segments; on Varve one whose records
// leave the local disk as soon as they may.
func createTopic(t *testing.T, name string, partitions int32, configs map[string]string) {
	t.Helper()
	all := map[string]*string{
		"segment.bytes":     kadm.StringPtr("1200000"),
		"max.message.bytes": kadm.StringPtr("1150000"),
	}
	if target.tiered {
		all["remote.storage.enable"] = kadm.StringPtr("true")
		all["local.retention.bytes"] = kadm.StringPtr("1")
	}
	for k, v := range configs {
		all[k] = kadm.StringPtr(v)
	}
	if _, err := target.admin.CreateTopic(t.Context(), partitions, 1, all, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}
