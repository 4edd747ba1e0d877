// Run is the command of package chaos: `make chaos`.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/varve-io/varve/test/chaos"
)

func main() {
	cfg := chaos.Config{Out: os.Stdout}
	flag.DurationVar(&cfg.Duration, "duration", 10*time.Minute, "of the faults")
	flag.Uint64Var(&cfg.Seed, "seed", rand.Uint64(), "of kinds, victims, moments and sizes")
	flag.IntVar(&cfg.Rate, "rate", 1000, "records a second")
	flag.IntVar(&cfg.Floor, "floor", 3, "how often each kind has to strike")
	flag.DurationVar(&cfg.Patience, "patience", 60*time.Second, "how long nodes, replicas and clients may take after healing")
	kinds := flag.String("kinds", "", "of faults, with commas: "+strings.Join(chaos.KindNames(), ",")+" (default all)")
	flag.StringVar(&cfg.Binary, "varve", "", "the program; built if empty")
	keep := flag.Bool("keep", false, "leave history and output of the nodes for a look, also of a run that is clean")
	flag.Parse()
	if *kinds != "" {
		cfg.Kinds = strings.Split(*kinds, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "chaos failed:", err)
		os.Exit(1)
	}
}

// run runs in a directory of its own, which stays if anything is wrong.
func run(ctx context.Context, cfg chaos.Config, keep bool) error {
	dir, err := os.MkdirTemp("", "varve-chaos-")
	if err != nil {
		return err
	}
	cfg.Dir = dir
	if cfg.Binary == "" {
		cfg.Binary = filepath.Join(dir, "varve")
		build := exec.CommandContext(ctx, "go", "build", "-o", cfg.Binary, "github.com/varve-io/varve/cmd/varve")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build varve: %w\n%s", err, out)
		}
	}
	fmt.Fprintf(cfg.Out, "seed %d, %v\n", cfg.Seed, cfg.Duration)
	result, err := chaos.Run(ctx, cfg)
	fmt.Fprintln(cfg.Out, result)
	if keep || err != nil {
		fmt.Fprintln(cfg.Out, "history and output are in", dir)
		return err
	}
	return os.RemoveAll(dir)
}
