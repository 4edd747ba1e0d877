// Command kill runs the crash rig for as many rounds as are wanted, prints the table and fails on a violation.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/varve-io/varve/test/crash"
)

func main() {
	rounds := flag.Int("rounds", 100, "lives of the node that end by SIGKILL")
	floor := flag.Int("floor", 5, "rounds that must fall in every step; up to as many rounds again are spent on it")
	check := flag.Int("check", 10, "rounds between two full reads")
	rest := flag.Int("rest", 25, "rounds between two lives that last until orphans are collected")
	keep := flag.String("dir", "", "empty `folder` for all files, which are kept (default: a temporary one)")
	binary := flag.String("varve", "", "`binary` to run (default: built from ./cmd/varve)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *keep, *binary, crash.Config{Rounds: *rounds, Floor: *floor, CheckEvery: *check, RestEvery: *rest}); err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, binary string, cfg crash.Config) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "varve-kill-"); err != nil {
			return err
		}
		defer func() {
			if err == nil { // else somebody will want to look
				os.RemoveAll(dir)
			}
		}()
	}
	if binary == "" {
		binary = filepath.Join(dir, "varve")
		build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/varve-io/varve/cmd/varve")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build varve: %w\n%s", err, out)
		}
	}
	cfg.Binary, cfg.Dir = binary, dir
	cfg.Log = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	report, err := crash.Run(ctx, cfg)
	if report != nil {
		report.Print(os.Stdout)
	}
	return err
}
