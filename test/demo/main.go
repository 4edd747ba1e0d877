package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config is what a run can be asked for.
type config struct {
	binary       string
	dir          string // of everything; removed at the end
	limit        int64  // bytes of input, 0: all
	partitions   int
	patience     time.Duration // with a reader that makes no progress
	removeObject bool
	keep         bool
	out          io.Writer
}

// timeLimit bounds the whole show.
const timeLimit = 10 * time.Minute

func main() {
	cfg := config{out: os.Stdout}
	flag.StringVar(&cfg.binary, "varve", "bin/varve", "the program")
	flag.Int64Var(&cfg.limit, "limit", 0, "bytes of input (0: all)")
	flag.IntVar(&cfg.partitions, "partitions", 4, "partitions of the topic; each keeps a segment on the local disk, so a small -limit wants few")
	flag.DurationVar(&cfg.patience, "patience", 15*time.Second, "how long a reader may make no progress")
	flag.BoolVar(&cfg.removeObject, "remove-object", false, "remove one object from the store by hand before reading back: the demo must then fail")
	flag.BoolVar(&cfg.keep, "keep", false, "leave the data for a look")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runInTemp(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "demo failed:", err)
		os.Exit(1)
	}
}

// runInTemp runs the show in a directory of its own and removes that.
func runInTemp(ctx context.Context, cfg config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	if cfg.dir, err = os.MkdirTemp("", "varve-demo-"); err != nil {
		return err
	}
	defer func() {
		if cfg.keep {
			fmt.Fprintln(cfg.out, "data left in", cfg.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(cfg.dir))
	}()
	return run(ctx, cfg)
}

// run is the show, act by act.
func run(ctx context.Context, cfg config) (err error) {
	in, err := findInput(ctx, cfg.limit)
	if err != nil {
		return err
	}
	say(cfg, "input     %s: %d files, %d bytes in %s", in.what, len(in.files), in.bytes, in.root)

	s, err := startServer(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	say(cfg, "node      %s (one process, store is a directory)", s.broker.Addr)
	if err := s.createTopic(ctx); err != nil {
		return err
	}
	began := time.Now()
	sent, err := in.produce(ctx, s.broker.Addr)
	if err != nil {
		return err
	}
	say(cfg, "produced  %d records, %d bytes in %.1f s", sent.all.records, sent.all.bytes, time.Since(began).Seconds())
	began = time.Now()
	if err := s.awaitOffload(ctx); err != nil {
		return err
	}
	say(cfg, "offloaded in %.1f s; restarting with an empty cache", time.Since(began).Seconds())
	if err := s.restartWithoutCache(ctx); err != nil {
		return err
	}
	if err := s.report(ctx); err != nil {
		return err
	}
	if cfg.removeObject {
		object, err := s.removeObject()
		if err != nil {
			return err
		}
		say(cfg, "removed   %s by hand", object)
	}
	return readBack(ctx, s, sent)
}

// readBack consumes twice with the program's own command.
func readBack(ctx context.Context, s *server, sent sent) error {
	for _, reading := range []struct {
		what, from string
		want       *digest
	}{
		{"from the beginning", "start", sent.all},
		{"from " + time.UnixMilli(sent.middle).UTC().Format(time.RFC3339Nano), fmt.Sprintf("@%d", sent.middle), sent.late},
	} {
		began := time.Now()
		got, err := s.consume(ctx, reading.from)
		if err != nil {
			return fmt.Errorf("read %s: %w", reading.what, err)
		}
		say(s.cfg, "read      %s: %d records, %d bytes in %.1f s", reading.what, got.records, got.bytes, time.Since(began).Seconds())
		say(s.cfg, "          sha256 written %s", reading.want.sum())
		say(s.cfg, "          sha256 read    %s", got.sum())
		if got.sum() != reading.want.sum() || got.records != reading.want.records {
			return fmt.Errorf("read %s: what came back is not what was written", reading.what)
		}
	}
	say(s.cfg, "agreed    every byte came back")
	return nil
}

func say(cfg config, format string, args ...any) { fmt.Fprintf(cfg.out, format+"\n", args...) }
