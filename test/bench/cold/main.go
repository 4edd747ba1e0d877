// Command cold measures how fast one consumer replays one partition whose bytes lie in
// the object store alone, with a delay added to every request to the store, beside plain parallel GETs of
// the same objects over the same way. It checks every byte and counts the GETs.
//
//	make build && go run ./test/bench/cold -delay 30ms
//
// It starts MinIO, a proxy before it, and bin/varve, and ends with an error if the median replay is slower
// than -want.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/node"
	"github.com/varve-io/varve/test/proxy"
)

type options struct {
	varve   string
	dir     string
	bytes   int64
	segment int64
	fetch   int
	delay   time.Duration
	runs    int
	want    float64
	set     []string
}

func main() {
	var o options
	flag.StringVar(&o.varve, "varve", "bin/varve", "the `binary`, as make build leaves it")
	flag.StringVar(&o.dir, "dir", "", "`folder` for all files; empty: a temporary one")
	flag.Int64Var(&o.bytes, "bytes", 1<<30, "`bytes` of records to write")
	flag.Int64Var(&o.segment, "segment", 64<<20, "segment.bytes of the topic")
	flag.IntVar(&o.fetch, "fetch", 1<<20, "max.partition.fetch.bytes of the consumer")
	flag.DurationVar(&o.delay, "delay", 30*time.Millisecond, "added to every request to the store")
	flag.IntVar(&o.runs, "runs", 5, "replays")
	flag.Float64Var(&o.want, "want", 0, "fail below so many `MB/s`")
	flag.Func("set", "a `key=value` for the server, repeatable", func(s string) error { o.set = append(o.set, s); return nil })
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "cold:", err)
		os.Exit(1)
	}
}

// sample is one replay and one plain read of the same objects.
type sample struct {
	bytes    int64 // of record values that were replayed
	replay   time.Duration
	first    time.Duration // until the first record
	cpu      time.Duration // of the broker
	storeCPU time.Duration
	ownCPU   time.Duration // of the consumer and the proxy
	rss      int64         // most resident memory of the broker, bytes
	gets     float64
	fetched  float64 // bytes that the gets brought
	plain    float64 // MB/s of plain GETs
}

func (s sample) rate() float64 { return float64(s.bytes) / 1e6 / s.replay.Seconds() }

const bucket = "cold"

func run(ctx context.Context, o options) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "varve-cold-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	store, err := minio.Start(ctx, minio.Config{Dir: filepath.Join(o.dir, "minio")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.CreateBucket(ctx, bucket); err != nil {
		return err
	}
	way, err := proxy.Start(store.Addr, proxy.Faults{})
	if err != nil {
		return err
	}
	defer way.Close()
	if err := os.MkdirAll(filepath.Join(o.dir, "node"), 0o755); err != nil {
		return err
	}
	r := &rig{options: o, store: store, way: way, cache: filepath.Join(o.dir, "cache")}
	if err := r.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.fill(ctx); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	way.Set(proxy.Faults{Up: proxy.Way{Delay: o.delay}})
	var samples []sample
	for i := range o.runs {
		s, err := r.measure(ctx)
		if err != nil {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "run %d of %d: %.0f MB/s, plain GETs %.0f MB/s\n", i+1, o.runs, s.rate(), s.plain)
		samples = append(samples, s)
	}
	return report(samples, o)
}

// rig is the node under test and what stands around it.
type rig struct {
	options
	store  *minio.Server
	way    *proxy.Proxy
	cache  string // folder
	broker *node.Broker
	sums   sums  // of what was written
	end    int64 // offset at which the local bytes begin
}

func (r *rig) start(ctx context.Context) (err error) {
	r.broker, err = node.StartVarve(ctx, node.VarveConfig{
		Binary: r.varve, Dir: filepath.Join(r.dir, "node"), StoreURL: "s3://" + bucket + "/prefix", Env: r.store.Env(),
		Settings: append([]string{
			"varve.store.s3.endpoint=http://" + r.way.Addr(), "varve.store.s3.region=" + s3.DefaultRegion, "varve.store.s3.path.style=true",
			"varve.tier.cache.dir=" + r.cache, "log.retention.check.interval.ms=500", "remote.log.manager.task.interval.ms=500",
			"log.segment.delete.delay.ms=100",
		}, r.set...),
	})
	return err
}

func (r *rig) stop() error { return r.broker.Stop(30 * time.Second) }

// measure reads the objects plainly, empties the chunk cache and replays.
func (r *rig) measure(ctx context.Context) (s sample, err error) {
	if s.plain, err = r.plain(ctx); err != nil {
		return s, fmt.Errorf("plain GETs: %w", err)
	}
	if err := r.stop(); err != nil {
		return s, err
	}
	if err := os.RemoveAll(r.cache); err != nil {
		return s, err
	}
	if err := r.start(ctx); err != nil {
		return s, err
	}
	if err := touch(r.dir, r.bytes); err != nil {
		return s, err
	}
	before, err := r.look()
	if err != nil {
		return s, err
	}
	if s.bytes, s.first, s.replay, err = r.replay(ctx); err != nil {
		return s, fmt.Errorf("replay: %w", err)
	}
	after, err := r.look()
	s.cpu, s.storeCPU, s.ownCPU, s.rss = after.cpu-before.cpu, after.storeCPU-before.storeCPU, after.ownCPU-before.ownCPU, after.rss
	s.gets, s.fetched = after.gets-before.gets, after.fetched-before.fetched
	return s, err
}

// touch makes the kernel use size bytes of memory once, as page cache of a file that is removed
// again: on a virtual machine memory that was never used costs several times more, which is not what is measured.
func touch(dir string, size int64) (err error) {
	f, err := os.Create(filepath.Join(dir, "touch"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	chunk := make([]byte, 4<<20)
	for ; size > 0; size -= int64(len(chunk)) {
		if _, err := f.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

func report(samples []sample, o options) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "replay MB/s\tplain GETs MB/s\tratio\tfirst record ms\tGETs/GiB\tfetched/read\tbroker CPU-s/GB\tstore CPU-s/GB\tconsumer and proxy CPU-s/GB\tbroker RSS MB\t")
	for _, s := range samples {
		gb := float64(s.bytes) / 1e9
		fmt.Fprintf(w, "%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", s.rate(), s.plain, s.rate()/s.plain, s.first.Seconds()*1e3,
			s.gets/(float64(s.bytes)/(1<<30)), s.fetched/float64(s.bytes), s.cpu.Seconds()/gb, s.storeCPU.Seconds()/gb, s.ownCPU.Seconds()/gb, float64(s.rss)/1e6)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.rate(), b.rate()) })
	median := samples[len(samples)/2].rate()
	fmt.Printf("median %.0f MB/s of %d replays of %.0f MB with %v added to every request; one partition, segments of %d MiB, fetches of %d KiB\n",
		median, len(samples), float64(samples[0].bytes)/1e6, o.delay, o.segment>>20, o.fetch>>10)
	if median < o.want {
		return fmt.Errorf("median %.0f MB/s, want %.0f", median, o.want)
	}
	return nil
}
