package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/varve-io/varve/test/check"
)

// Limits of the control, which ends with the first loss.
const (
	controlRounds   = 10
	controlPatience = 10 * time.Second
)

var errToothless = errors.New("the control without fdatasync lost nothing: this rig would not notice a loss")

func main() {
	cfg := config{out: os.Stdout}
	flag.IntVar(&cfg.rounds, "rounds", 30, "power losses")
	flag.IntVar(&cfg.reread, "reread", 3, "rounds from one complete read to the next")
	flag.IntVar(&cfg.rate, "rate", 500, "records a second of each of the 6 producers")
	flag.DurationVar(&cfg.longest, "longest", 4*time.Second, "the longest load before a power loss")
	flag.DurationVar(&cfg.patience, "patience", 60*time.Second, "how long clients may wait for a node that is back")
	flag.Uint64Var(&cfg.seed, "seed", rand.Uint64(), "of sizes and moments")
	keep := flag.Bool("keep", false, "leave histories and output of the nodes for a look, also of a run that is clean")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := inTemp(ctx, cfg, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "power failed:", err)
		os.Exit(1)
	}
}

// inTemp runs in a directory of its own, which stays if anything is wrong.
func inTemp(ctx context.Context, cfg config, keep bool) error {
	dir, err := os.MkdirTemp("", "varve-power-")
	if err != nil {
		return err
	}
	cfg.dir = dir
	err = runBoth(ctx, cfg)
	if keep || err != nil {
		fmt.Fprintln(cfg.out, "histories and output are in", dir)
		return err
	}
	return os.RemoveAll(dir)
}

// runBoth runs the program as it is, then the control, and prints a table.
func runBoth(ctx context.Context, cfg config) error {
	fmt.Fprintf(cfg.out, "seed %d\n", cfg.seed)
	real, err := runOne(ctx, cfg, "fsync", false)
	if err != nil {
		return err
	}
	cfg.control, cfg.rounds, cfg.reread, cfg.patience = true, controlRounds, 1, min(cfg.patience, controlPatience)
	control, err := runOne(ctx, cfg, "unsynced", true)
	if err != nil {
		return err
	}
	printTable(cfg.out, real, control)
	return verdict(real, control)
}

// verdict says whether the run did what it is for, and whether the control shows that it would have noticed a loss.
func verdict(real, control result) error {
	switch {
	case control.lost() == 0:
		return errToothless
	case real.objects == 0 || real.changes == 0 || real.report.Acked == 0:
		return fmt.Errorf("nothing was tested: %d records, %d changes of metadata, %d objects", real.report.Acked, real.changes, real.objects)
	}
	return nil
}

// runOne builds the program and runs it in a directory of its own.
func runOne(ctx context.Context, cfg config, name string, unsynced bool) (result, error) {
	cfg.dir = filepath.Join(cfg.dir, name)
	if err := os.Mkdir(cfg.dir, 0o755); err != nil {
		return result{}, err
	}
	cfg.binary = filepath.Join(cfg.dir, "varve")
	if err := build(ctx, cfg.binary, unsynced); err != nil {
		return result{}, err
	}
	fmt.Fprintf(cfg.out, "%s:\n", name)
	r, err := run(ctx, cfg)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func printTable(out io.Writer, real, control result) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\trounds\tpower losses\tacknowledged\tlost\tchanged\tduplicates\tread\tchanges\tobjects\tbytes cut off\tslowest start\t")
	for _, row := range []struct {
		name string
		r    result
	}{{"fsync", real}, {"without", control}} {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d ms\t\n", row.name, row.r.rounds, row.r.cuts, row.r.report.Acked, row.r.lost(),
			row.r.report.Counts[check.Changed], row.r.report.Counts[check.Duplicate], row.r.report.Read, row.r.changes, row.r.objects, row.r.cutBytes, row.r.slowest.Milliseconds())
	}
	w.Flush()
}
