package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/varve-io/varve/test/node"
)

// options are the command's flags.
type options struct {
	varve      string
	dir        string
	out        string
	only       string
	workloads  string
	durability string
	runs       int
	starts     int
	duration   time.Duration
	settle     time.Duration
	warmup     time.Duration
	limit      time.Duration
	most       int64
	touch      int64
	spin       bool
	set        []string
}

func parseFlags() options {
	var o options
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	flag.StringVar(&o.varve, "varve", "bin/varve", "Varve's binary")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "folder for both brokers' data; on the disk that is to be measured")
	flag.StringVar(&o.out, "json", "", "file for all single runs, as JSON")
	flag.StringVar(&o.only, "only", "", "run one side alone: kafka or varve")
	flag.StringVar(&o.workloads, "workloads", strings.Join(names, ","), "which workloads, comma separated")
	flag.StringVar(&o.durability, "durability", "pagecache,fsync", "at which durability to produce, comma separated")
	flag.IntVar(&o.runs, "runs", 5, "runs of every workload on every side")
	flag.IntVar(&o.starts, "starts", 5, "starts of every broker, for start-up time and idle memory; 0: none")
	flag.DurationVar(&o.duration, "duration", 8*time.Second, "measured part of a run")
	flag.DurationVar(&o.settle, "settle", 2*time.Second, "load before the measured part")
	flag.DurationVar(&o.warmup, "warmup", 30*time.Second, "load on each broker before the first run")
	flag.DurationVar(&o.limit, "limit", time.Hour, "ends everything that is not done by then")
	flag.Int64Var(&o.most, "max-bytes", 6<<30, "bytes of records after which a run ends early")
	flag.Int64Var(&o.touch, "touch", 8<<30, "bytes of memory to touch first (virtual machines); 0: none")
	flag.BoolVar(&o.spin, "spin", true, "keep CPUs awake by loops at idle priority (virtual machines)")
	flag.Func("set", "property of Varve's, k=v; may be repeated", func(kv string) error { o.set = append(o.set, kv); return nil })
	flag.Parse()
	return o
}

func main() {
	if slices.Equal(os.Args[1:], []string{spinArg}) {
		spin()
	}
	o := parseFlags()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "varve-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	chosen, err := choose(o)
	if err != nil {
		return err
	}
	sides, err := chooseSides(ctx, o)
	if err != nil {
		return err
	}
	if o.touch > 0 {
		progress("touching %d MB of memory", o.touch/1e6)
		if err := touch(dir, o.touch); err != nil {
			return err
		}
	}
	if o.spin {
		end, err := startSpinners()
		if err != nil {
			return err
		}
		defer end()
	}
	rep := newReport(o)
	if rep.Starts, err = measureStarts(ctx, sides, dir, o.starts); err != nil {
		return err
	}
	for _, s := range sides {
		if err := s.open(ctx, dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err := warm(ctx, sides, chosen, o); err != nil {
		return err
	}
	for _, c := range chosen {
		if err := rep.add(ctx, c, sides, o); err != nil {
			return err
		}
	}
	rep.print(os.Stdout)
	return rep.save(o.out)
}

// progress goes to standard error; results alone go to standard output.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// choice is one row of the result.
type choice struct {
	workload
	durability durability
}

// choose returns the rows that the flags ask for. What was fetched is in the
// page cache either way, so fetches have one row.
func choose(o options) ([]choice, error) {
	var rows []choice
	for name := range strings.SplitSeq(o.workloads, ",") {
		i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no workload %q", name)
		}
		for d := range strings.SplitSeq(o.durability, ",") {
			switch {
			case topicSettings["varve"][durability(d)] == nil:
				return nil, fmt.Errorf("no durability %q", d)
			case workloads[i].fetch > 0 && durability(d) != pageCache:
			default:
				rows = append(rows, choice{workloads[i], durability(d)})
			}
		}
	}
	return rows, nil
}

func chooseSides(ctx context.Context, o options) ([]*side, error) {
	kafka := &side{kind: "kafka", start: func(ctx context.Context, dir string) (*node.Broker, error) {
		java, err := node.FindJava(ctx)
		if err != nil {
			return nil, err
		}
		return node.StartKafka(ctx, java, node.KafkaConfig{Dir: dir, Settings: deleteSoon})
	}}
	varve := &side{kind: "varve", start: func(ctx context.Context, dir string) (*node.Broker, error) {
		return node.StartVarve(ctx, node.VarveConfig{Binary: o.varve, Dir: dir, Settings: o.set})
	}}
	switch o.only {
	case "":
		return []*side{kafka, varve}, nil
	case "kafka":
		return []*side{kafka}, nil
	case "varve":
		return []*side{varve}, nil
	}
	return nil, fmt.Errorf("no side %q", o.only)
}

// start is what one fresh start showed.
type startSample struct {
	Side    string
	StartUp time.Duration
	IdleRSS int64
}

// idleTime lets a fresh broker finish what it does at its start before its
// idle memory is read.
const idleTime = 5 * time.Second

func measureStarts(ctx context.Context, sides []*side, dir string, starts int) ([]startSample, error) {
	var out []startSample
	for i := range starts {
		for _, s := range order(sides, i) {
			progress("start %d of %d: %s", i+1, starts, s.kind)
			if err := s.open(ctx, dir); err != nil {
				return nil, errors.Join(err, s.close())
			}
			time.Sleep(idleTime)
			m, err := s.broker.Memory()
			out = append(out, startSample{s.kind, s.broker.StartUp, m.RSS})
			if err := errors.Join(err, s.close()); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// order alternates who goes first.
func order(sides []*side, run int) []*side {
	if run%2 == 0 || len(sides) < 2 {
		return sides
	}
	return []*side{sides[1], sides[0]}
}

// warm gives every side each chosen kind of load, o.warmup in all.
func warm(ctx context.Context, sides []*side, rows []choice, o options) error {
	for _, s := range sides {
		progress("warming %s for %v", s.kind, o.warmup)
		for _, c := range rows {
			sp := span{duration: o.warmup / time.Duration(len(rows)), most: o.most}
			if _, err := c.measure(ctx, s, nil, c.durability, sp); err != nil {
				return fmt.Errorf("warm-up: %w", err)
			}
		}
	}
	return nil
}

// commit is the version of the working tree, for the record.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
