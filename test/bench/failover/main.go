package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the command's flags.
type options struct {
	varve      string
	dir        string
	side       string
	fault      string
	client     string
	rounds     int
	kafka      int
	partitions int
	settle     time.Duration
	patience   time.Duration
	limit      time.Duration
	equal      bool
	keep       bool
	set        []string
}

func main() {
	var o options
	flag.StringVar(&o.varve, "varve", "bin/varve", "the `binary`, as make build leaves it")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "`folder` for the nodes' data")
	flag.StringVar(&o.side, "side", "both", "`which` cluster: varve, kafka or both")
	flag.StringVar(&o.fault, "fault", faultKill, "`what` happens to the leader: kill (SIGKILL), pause (SIGSTOP until writes go on) or stop (SIGTERM)")
	flag.StringVar(&o.client, "client", clientLean, "`who` writes: lean or franz")
	flag.IntVar(&o.rounds, "rounds", 20, "faults of each cluster")
	flag.IntVar(&o.kafka, "kafka-rounds", 0, "faults of Kafka's, if another number")
	flag.IntVar(&o.partitions, "partitions", 6, "of the topic")
	flag.DurationVar(&o.settle, "settle", 2*time.Second, "undisturbed writing before each fault")
	flag.DurationVar(&o.patience, "patience", time.Minute, "how long writes may stand still, and a node may take to come back")
	flag.DurationVar(&o.limit, "limit", time.Hour, "ends everything that is not done by then")
	flag.BoolVar(&o.equal, "equal", false, "give both clusters the same short timeouts, instead of their defaults")
	flag.BoolVar(&o.keep, "keep", false, "leave the nodes' files")
	flag.Func("set", "a `key=value` for Varve's nodes, repeatable", func(s string) error { o.set = append(o.set, s); return nil })
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
}

// sides are the clusters that -side may name, in the order in which they are measured.
var sides = []string{"kafka", "varve"}

func run(ctx context.Context, o options) (err error) {
	if o.partitions < nodes {
		return fmt.Errorf("-partitions %d: every node must lead one", o.partitions)
	}
	dir, err := os.MkdirTemp(o.dir, "varve-failover-")
	if err != nil {
		return err
	}
	if o.keep {
		progress("the nodes' files are in %s", dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	found := map[string][]round{}
	for _, kind := range sides {
		if o.side != "both" && o.side != kind {
			continue
		}
		if found[kind], err = measure(ctx, kind, dir, o); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("no side %q", o.side)
	}
	return report(os.Stdout, found, o)
}

// measure runs one cluster and all its rounds.
func measure(ctx context.Context, kind, dir string, o options) (rounds []round, err error) {
	r, err := openRig(ctx, kind, dir, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	n := o.rounds
	if kind == "kafka" && o.kafka > 0 {
		n = o.kafka
	}
	for i := range n {
		got, err := r.round(ctx, i%2 == 0)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		progress("%s round %d of %d: node %d (%s), %d partitions: first %v, last %v, in sync again after %v", kind, i+1, n,
			got.node+1, got.role(), got.partitions, ms(got.first), ms(got.last), ms(got.whole))
		rounds = append(rounds, got)
	}
	return rounds, nil
}

// progress goes to standard error; results alone go to standard output.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
