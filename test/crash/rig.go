package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/node"
)

// Config of a run.
type Config struct {
	Binary     string // of Varve
	Dir        string // for everything it writes; an empty folder
	Rounds     int    // lives of the node that end by SIGKILL
	Floor      int    // of them that must fall in every step; up to as many rounds again are spent on it
	CheckEvery int    // rounds between two full reads; one more is at the end
	RestEvery  int    // rounds between two lives that last until orphans are collected; one more is at the end
	Log        func(format string, args ...any)
}

// Times of a run.
const (
	reservation = 7 * time.Second // of which an upload gets two: the rest is slack for clocks
	grace       = time.Second     // between retention and the deletion of an object
	warmUp      = 150             // acknowledgements in a life before it may end
	maxRunOn    = 300 * time.Millisecond
	aimWait     = 30 * time.Second // for the step that is aimed at
	frozen      = 5 * time.Millisecond
	earlyDeaths = 4 // one round in so many has another death while the node starts
	quietWait   = 60 * time.Second
	collectWait = 5 * reservation // its end, two listings and two judgements, each half a reservation apart
	poll        = 50 * time.Millisecond
	stopGrace   = 30 * time.Second
)

// rig is one run.
type rig struct {
	cfg    Config
	minio  *minio.Server
	store  *s3.Store
	load   *load
	node   *node.Broker
	watch  *watch
	took   stepTimes
	report Report
}

// Run kills a node Rounds times and checks what is left. It ends at the first violation; too few rounds in a step
// are one. The report tells how far it came, and is nil only if nothing could be started.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r := &rig{cfg: cfg}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.openStore(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	began := time.Now()
	err := r.run(ctx)
	r.report.Took = time.Since(began)
	if err != nil && r.node != nil {
		err = fmt.Errorf("%w\nthe node's output is in %s", err, r.node.LogPath())
	}
	return &r.report, errors.Join(err, r.close())
}

func (r *rig) openStore(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Join(r.cfg.Dir, "node"), 0o755); err != nil {
		return err
	}
	if r.minio, err = minio.Start(ctx, minio.Config{Dir: filepath.Join(r.cfg.Dir, "minio")}); err != nil {
		return err
	}
	if err := r.minio.CreateBucket(ctx, "varve"); err != nil {
		return err
	}
	options := r.minio.Options("varve")
	options.Prefix = "crash"
	r.store, err = s3.New(ctx, options)
	return err
}

func (r *rig) close() error {
	var errs []error
	if r.node != nil {
		errs = append(errs, r.node.Stop(stopGrace))
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.minio != nil {
		errs = append(errs, r.minio.Close())
	}
	return errors.Join(errs...)
}

// start begins the node's next life on the same directories.
func (r *rig) start(ctx context.Context) (err error) {
	r.watch = newWatch(&r.took)
	r.node, err = node.StartVarve(ctx, node.VarveConfig{
		Binary: r.cfg.Binary, Dir: filepath.Join(r.cfg.Dir, "node"), StoreURL: "s3://varve/crash", Env: r.minio.Env(), Log: r.watch,
		Settings: []string{
			"varve.store.s3.endpoint=" + r.minio.Endpoint, "varve.store.s3.region=us-east-1", "varve.store.s3.path.style=true",
			"varve.log.level=debug", "varve.log.format=json",
			"log.retention.check.interval.ms=300", "log.segment.delete.delay.ms=100",
			fmt.Sprintf("varve.tier.reservation.ms=%d", reservation.Milliseconds()),
			fmt.Sprintf("varve.tier.delete.grace.ms=%d", grace.Milliseconds()),
		},
	})
	if err == nil {
		r.report.Starts = append(r.report.Starts, r.node.StartUp)
	}
	return err
}

func (r *rig) run(ctx context.Context) (err error) {
	if err := r.start(ctx); err != nil {
		return err
	}
	if r.load, err = newLoad(r.node.Addr); err != nil {
		return err
	}
	defer r.load.close()
	if err := r.load.createTopics(ctx); err != nil {
		return err
	}
	loadCtx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); r.load.run(loadCtx) }()
	defer func() { stop(); <-ended }()
	for n, last := 1, false; !last; n++ {
		if err := r.round(ctx, n); err != nil {
			return fmt.Errorf("round %d: %w", n, err)
		}
		last = n >= r.cfg.Rounds && (slices.Min(r.report.hits()) >= r.cfg.Floor || n >= 2*r.cfg.Rounds)
		rest := last || n%r.cfg.RestEvery == 0
		if !rest && n%r.cfg.CheckEvery != 0 {
			continue
		}
		if err := r.check(ctx, rest); err != nil {
			return fmt.Errorf("after round %d: %w", n, err)
		}
	}
	return r.report.enough(r.cfg.Floor)
}

// round lets the node work, ends it in the middle of the step that fewest rounds have hit, and starts it again.
func (r *rig) round(ctx context.Context, n int) error {
	acked := r.load.count()
	if err := r.until(ctx, aimWait, func() error {
		if now := r.load.count(); now < acked+warmUp {
			return fmt.Errorf("%d acknowledgements since the node is up", now-acked)
		}
		return r.load.err()
	}); err != nil {
		return err
	}
	time.Sleep(rand.N(maxRunOn))
	aim := r.report.rarest()
	if err := r.catch(ctx, aim); err != nil {
		return err
	}
	r.node.Kill()
	round := Round{Number: n, Aim: aim, Fell: r.watch.underWay(), Acked: r.load.count()}
	if rand.N(earlyDeaths) == 0 {
		if err := r.startAndKill(ctx); err != nil {
			return err
		}
		round.Again = true
	}
	r.report.add(round)
	r.cfg.Log("%v", round)
	return r.start(ctx)
}

// catch freezes the node in the middle of a step: what is seen to end after all is let go on, and the next one is waited for.
// Without luck it gives up, and the node is wherever it is.
func (r *rig) catch(ctx context.Context, aim Step) error {
	late := time.After(aimWait)
	for {
		select {
		case <-r.watch.aimAt(aim, r.node.Freeze):
		case <-late:
			return nil
		case <-r.node.Exited():
			return fmt.Errorf("the node ended by itself, see %s", r.node.LogPath())
		case <-ctx.Done():
			return ctx.Err()
		}
		time.Sleep(frozen) // until what it wrote before it froze has arrived
		if slices.Contains(r.watch.underWay(), aim) {
			return nil
		}
		r.node.Thaw()
	}
}

// startAndKill lets the node die once more while it starts.
func (r *rig) startAndKill(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, rand.N(r.report.Starts[0]))
	defer cancel()
	err := r.start(short)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		r.node.Kill()
	case short.Err() == nil:
		return err
	}
	return nil
}

// check reads everything back while the load pauses; in a rest it also waits until the bucket holds nothing but
// what rows name.
func (r *rig) check(ctx context.Context, rest bool) error {
	resume, err := r.load.pause(ctx)
	if err != nil {
		return err
	}
	defer resume()
	var before image
	var bounds map[place]reading
	if err := r.until(ctx, quietWait, func() (err error) {
		if before, err = askImage(ctx, r.node.Admin); err != nil {
			return err
		}
		if err = before.quiet(); err != nil {
			return err
		}
		bounds, err = r.load.bounds(ctx)
		return err
	}); err != nil {
		return err
	}
	records, err := r.load.readAll(ctx, r.node.Addr, bounds)
	if err != nil {
		return err
	}
	objects, err := bucket(ctx, r.store)
	if err != nil {
		return err
	}
	after, err := askImage(ctx, r.node.Admin)
	if err != nil {
		return err
	}
	orphans, err := compare(before, after, objects)
	if err := errors.Join(err, after.check()); err != nil {
		return err
	}
	r.cfg.Log("read back %d records, all as acknowledged; %d objects, %d of them without a row", records, len(objects), len(orphans))
	r.report.Records, r.report.Checks = records, r.report.Checks+1
	r.report.see(orphans)
	if !rest {
		return nil
	}
	return r.collected(ctx, orphans)
}

// collected waits until the orphans are gone, and nothing else with them.
func (r *rig) collected(ctx context.Context, orphans []string) error {
	began := time.Now()
	if err := r.until(ctx, collectWait, func() error {
		before, err := askImage(ctx, r.node.Admin)
		if err != nil {
			return err
		}
		objects, err := bucket(ctx, r.store)
		if err != nil {
			return err
		}
		left, err := compare(before, before, objects)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d objects without a row or reservation: %s", len(left), strings.Join(left[:min(3, len(left))], ", "))
		}
		return err
	}); err != nil {
		return err
	}
	r.report.Removed = len(r.report.orphans) // of those seen before, nothing is left either
	r.cfg.Log("%d orphans are gone after %v of rest", len(orphans), time.Since(began).Round(time.Second))
	return nil
}

// until waits for what says nil.
func (r *rig) until(ctx context.Context, limit time.Duration, what func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := what()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.node.Exited():
			return fmt.Errorf("the node ended by itself, see %s", r.node.LogPath())
		case <-time.After(poll):
		}
	}
}
