package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
	"github.com/varve-io/varve/test/disk"
	"github.com/varve-io/varve/test/lan"
	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/node"
	"github.com/varve-io/varve/test/proxy"
)

// Config is what one run is.
type Config struct {
	Binary   string        // bin/varve
	Dir      string        // the caller's, empty, for everything
	Duration time.Duration // of the faults; healing and reading come on top
	Rate     int           // records a second of all producers together
	Patience time.Duration // with a node, a replica or a client after healing
	Seed     uint64        // of sizes, moments, kinds and victims
	Kinds    []string      // of faults, none: all
	Floor    int           // how often each kind has to strike
	Out      io.Writer     // a line for every fault
}

const (
	nodes       = 3
	grace       = 20 * time.Second // for a node to end by itself
	session     = 3 * time.Second  // of a broker with the controller
	segment     = "262144"         // bytes
	diskSize    = 2 << 30          // bytes, sparse
	bucketName  = "varve"
	historyName = "history.json"
)

// settings of every node: short times, so that a run sees many failovers.
var settings = []string{
	"default.replication.factor=3",
	"min.insync.replicas=2",
	"broker.heartbeat.interval.ms=500",
	"broker.session.timeout.ms=3000",
	"replica.lag.time.max.ms=5000",
	"varve.log.dir.write.timeout.ms=5000",
	"remote.log.manager.task.interval.ms=500",
	"log.retention.check.interval.ms=500",
	"log.segment.delete.delay.ms=500",
}

// topic is one that is written and read.
type topic struct {
	name       string
	partitions int32
	properties map[string]string
}

// topics: what replicas hold in memory before they acknowledge it, what they have on disk, and what leaves for the store.
var topics = []topic{
	{"replicated", 3, map[string]string{"internal.segment.bytes": segment, "varve.durability": "replicated"}},
	{"synced", 2, map[string]string{"internal.segment.bytes": segment, "varve.durability": "fsync"}},
	{"tiered", 3, map[string]string{"internal.segment.bytes": segment, "remote.storage.enable": "true", "local.retention.bytes": "1"}},
}

// rig is a cluster with its clients.
type rig struct {
	cfg     Config
	rng     *rand.Rand
	lan     *lan.Lan
	disks   []*disk.Disk
	bucket  *minio.Server
	store   *proxy.Proxy // in front of the bucket
	cluster *node.Cluster
	watch   *watch
	load    *load
	history *check.History
	result  Result
	started []int // how often each node was, for the names of its output
}

// Run runs a cluster, breaks it for as long as cfg says, heals it and judges what clients saw. Its error is a promise
// that was broken, a floor that was missed, or what kept the rig from running; the result is as far as it came.
func Run(ctx context.Context, cfg Config) (result Result, err error) {
	kinds, err := kindsOf(cfg.Kinds)
	if err != nil {
		return Result{}, err
	}
	file, err := os.Create(filepath.Join(cfg.Dir, historyName))
	if err != nil {
		return Result{}, err
	}
	defer file.Close()
	r := &rig{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), history: check.NewHistory(file), started: make([]int, nodes)}
	r.result.Faults = map[string]*Strikes{}
	for _, k := range kinds {
		r.result.Faults[k.name] = &Strikes{}
	}
	defer func() { err = errors.Join(err, r.close(), r.history.Flush()) }()
	if err := r.start(ctx); err != nil {
		return r.result, err
	}
	if err := r.storm(ctx, kinds); err != nil {
		return r.result, err
	}
	if err := r.judge(ctx); err != nil {
		return r.result, err
	}
	return r.result, r.result.verdict(cfg.Floor)
}

// start starts store, network, disks and nodes, makes the topics and the clients.
func (r *rig) start(ctx context.Context) error {
	if err := r.startStore(ctx); err != nil {
		return err
	}
	if err := r.startNodes(ctx); err != nil {
		return err
	}
	if err := r.createTopics(ctx); err != nil {
		return err
	}
	var err error
	if r.watch, err = startWatch(r.cluster.Addrs()); err != nil {
		return err
	}
	if err := r.watch.awaitWhole(ctx, r.cfg.Patience); err != nil {
		return err
	}
	r.load, err = startLoad(r.cluster.Addrs(), r.cfg.Rate, r.cfg.Seed, r.history)
	return err
}

// startStore makes the network, and in it a MinIO behind a proxy.
func (r *rig) startStore(ctx context.Context) error {
	err := lan.Sweep()
	if err != nil {
		return err
	}
	if r.lan, err = lan.Make(nodes); err != nil {
		return err
	}
	if r.bucket, err = minio.Start(ctx, minio.Config{Dir: filepath.Join(r.cfg.Dir, "minio")}); err != nil {
		return err
	}
	if err := r.bucket.CreateBucket(ctx, bucketName); err != nil {
		return err
	}
	r.store, err = proxy.StartAt(r.lan.Addr(lan.Outside), r.bucket.Addr, proxy.Faults{})
	return err
}

// startNodes gives each node a host of the network and a disk, which is its log directory and holds all that it writes.
func (r *rig) startNodes(ctx context.Context) error {
	cfg := node.VarveConfig{Binary: r.cfg.Binary, Dir: r.cfg.Dir, StoreURL: "s3://" + bucketName + "/chaos", Env: r.bucket.Env(), Settings: append([]string{
		"varve.store.s3.endpoint=http://" + r.store.Addr(), "varve.store.s3.region=us-east-1", "varve.store.s3.path.style=true"}, settings...)}
	cluster, err := node.NewCluster(cfg, nodes)
	if err != nil {
		return err
	}
	for i := range nodes {
		cluster.Hosts[i] = node.Host{Addr: r.lan.Addr(i), Namespace: r.lan.Namespace(i)}
		d, err := disk.Make(filepath.Join(cluster.Dir(i), "data"), diskSize)
		if err != nil {
			return err
		}
		r.disks = append(r.disks, d)
	}
	r.cluster = cluster
	return r.cluster.StartAll(ctx)
}

// createTopics tries until all brokers are there.
func (r *rig) createTopics(ctx context.Context) error {
	client, err := kgo.NewClient(clientOptions(r.cluster.Addrs())...)
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	if err := within(ctx, r.cfg.Patience, func(ctx context.Context) error {
		m, err := adm.BrokerMetadata(ctx)
		if err == nil && len(m.Brokers) != nodes {
			err = fmt.Errorf("%d of %d brokers have registered", len(m.Brokers), nodes)
		}
		return err
	}); err != nil {
		return err
	}
	for _, t := range topics {
		properties := map[string]*string{}
		for k, v := range t.properties {
			properties[k] = &v
		}
		if _, err := adm.CreateTopic(ctx, t.partitions, nodes, properties, t.name); err != nil {
			return fmt.Errorf("create %s: %w", t.name, err)
		}
	}
	return nil
}

// close ends all that runs and takes away what was made. A node that does not end within its grace is an error.
func (r *rig) close() error {
	var errs []error
	for _, d := range r.disks {
		errs = append(errs, d.Thaw())
	}
	if r.load != nil {
		r.load.close()
	}
	if r.watch != nil {
		r.watch.stop()
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop(grace))
	}
	for _, d := range r.disks {
		errs = append(errs, d.Close())
	}
	if r.store != nil {
		r.store.Close()
	}
	if r.bucket != nil {
		errs = append(errs, r.bucket.Close())
	}
	if r.lan != nil {
		errs = append(errs, r.lan.Close())
	}
	return errors.Join(errs...)
}

// restart starts a node that is down and waits until it serves clients.
func (r *rig) restart(ctx context.Context, i int) error {
	r.started[i]++
	log := r.cluster.Node(i).LogPath()
	if err := os.Rename(log, fmt.Sprintf("%s.%d", log, r.started[i])); err != nil {
		return err
	}
	return r.cluster.Start(ctx, i)
}

// within tries until it works, for at most limit.
func within(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	const pause = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, err)
		case <-time.After(pause):
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
