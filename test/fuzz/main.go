// Command fuzz runs every FuzzXxx of the module for a time each, prints a table and
// fails on a finding. It finds the targets by itself, so that a new one is never forgotten.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// grace is how long building a target and minimising its corpus may take beyond the fuzzing.
const grace = 5 * time.Minute

func main() {
	each := flag.Duration("time", time.Minute, "`duration` of each target")
	jobs := flag.Int("jobs", 2, "targets under way at a time, each on one core")
	only := flag.String("run", ".", "targets to run, a `regexp` of package and name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *each, *jobs, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, each time.Duration, jobs int, only string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	targets, err := find(ctx, match)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return errors.New("found no target")
	}
	fmt.Printf("%d targets, %v each, %d at a time\n", len(targets), each, jobs)
	results := make([]result, len(targets))
	slots := make(chan struct{}, max(1, jobs))
	var wg sync.WaitGroup
	for i, t := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			results[i] = t.fuzz(ctx, each)
			fmt.Fprintf(os.Stderr, "%s %s: %s\n", t.pkg, t.name, results[i].verdict())
			<-slots
		})
	}
	wg.Wait()
	return report(results)
}

// target is one fuzz function.
type target struct{ pkg, dir, name string }

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// find reads the test files of all packages below the working directory.
func find(ctx context.Context, match *regexp.Regexp) ([]target, error) {
	const format = `{{.ImportPath}}|{{.Dir}}|{{join .TestGoFiles ","}},{{join .XTestGoFiles ","}}`
	out, err := exec.CommandContext(ctx, "go", "list", "-f", format, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var targets []target
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		for file := range strings.SplitSeq(fields[2], ",") {
			if file == "" {
				continue
			}
			src, err := os.ReadFile(filepath.Join(fields[1], file))
			if err != nil {
				return nil, err
			}
			for _, m := range fuzzFunc.FindAllSubmatch(src, -1) {
				t := target{pkg: fields[0], dir: fields[1], name: string(m[1])}
				if match.MatchString(t.pkg + " " + t.name) {
					targets = append(targets, t)
				}
			}
		}
	}
	return targets, nil
}

// result of one target. Only a nil error is a pass.
type result struct {
	target
	execs, corpus string
	took          time.Duration
	output        string
	err           error
}

func (r result) verdict() string {
	if r.err != nil {
		return "FAIL"
	}
	return "ok"
}

var progress = regexp.MustCompile(`execs: (\d+).*\(total: (\d+)\)`)

func (t target) fuzz(ctx context.Context, each time.Duration) result {
	ctx, cancel := context.WithTimeout(ctx, each+grace)
	defer cancel()
	start := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(), "-parallel", "1", t.pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets go test end its workers
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	r := result{target: t, execs: "-", corpus: "-", err: cmd.Run()}
	r.took, r.output = time.Since(start), out.String()
	if all := progress.FindAllStringSubmatch(r.output, -1); all != nil {
		last := all[len(all)-1]
		r.execs, r.corpus = last[1], last[2]
	} else if r.err == nil {
		r.err = errors.New("it did not fuzz")
	}
	return r
}

func report(results []result) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tTARGET\tEXECS\tCORPUS\tTIME\tRESULT")
	failed := 0
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%s\n", r.pkg, r.name, r.execs, r.corpus, r.took.Round(time.Second), r.verdict())
		if r.err != nil {
			failed++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.err != nil {
			fmt.Printf("\n%s %s: %v\n%s", r.pkg, r.name, r.err, r.output)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d targets failed; a failing input is below the package's testdata/fuzz", failed, len(results))
	}
	return nil
}
