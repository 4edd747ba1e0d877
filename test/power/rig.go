package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"github.com/varve-io/varve/test/check"
	"github.com/varve-io/varve/test/disk"
	"github.com/varve-io/varve/test/node"
)

// config is what one run is.
type config struct {
	binary   string
	dir      string // the caller's, for everything
	rounds   int
	reread   int // rounds from one complete read to the next
	rate     int // records a second of one producer
	longest  time.Duration
	patience time.Duration // with producers and readers after a start
	control  bool          // the program does not sync: end with the first loss
	seed     uint64
	out      io.Writer
}

const (
	imageSize  = 4 << 30 // sparse
	producers  = 6
	followProc = producers + 1
	readProc   = producers + 2
	shortest   = 200 * time.Millisecond // of a round's load
	// againShare of the rounds lose power a second time, within againWithin of the start.
	againShare  = 4
	againWithin = 400 * time.Millisecond
	// neighbourShare of the rounds have a neighbour.
	neighbourShare = 2
	changeEvery    = 20 * time.Millisecond
	haltLimit      = 5 * time.Second
	segment        = "262144" // bytes, less than clients may ask for by segment.bytes
)

// The topics: one with many small segments, one that is offloaded, one that is trimmed.
const local, tiered, trimmed = "local", "tiered", "trimmed"

var topics = []string{local, tiered, trimmed}

var partitions = []partition{{local, 0}, {local, 1}, {local, 2}, {local, 3}, {tiered, 0}, {tiered, 1}, {trimmed, 0}}

// rig is one node on one disk, with its clients.
type rig struct {
	cfg       config
	rng       *rand.Rand
	disk      *disk.Disk
	broker    *node.Broker
	history   *check.History
	producers []*producer
	follower  *follower
	trimmer   *trimmer
	changer   *changer
	admin     *kgo.Client
	logs      map[partition]span // at the last complete read
	result    result
	rereads   int
}

// result is what a run found.
type result struct {
	rounds, cuts int
	report       check.Report
	changes      int           // of metadata, acknowledged
	objects      int           // in the bucket at the end
	cutBytes     int64         // that recovery cut off
	slowest      time.Duration // start of the node
}

// lost is how many acknowledged records are not there.
func (r result) lost() int { return r.report.Counts[check.Lost] + r.report.Counts[check.Unseen] }

// run is the whole of it. Its error is a promise that was broken, or what kept the rig from running.
func run(ctx context.Context, cfg config) (result, error) {
	history, err := os.Create(filepath.Join(cfg.dir, "history.json"))
	if err != nil {
		return result{}, err
	}
	defer history.Close()
	r := &rig{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.seed, 0)), history: check.NewHistory(history)}
	if r.disk, err = disk.Make(filepath.Join(cfg.dir, "data"), imageSize); err != nil {
		return result{}, err
	}
	err = r.runOnDisk(ctx)
	if r.broker != nil {
		r.broker.Kill()
	}
	objects, countErr := countFiles(filepath.Join(cfg.dir, "store"))
	r.result.objects = objects
	return r.result, errors.Join(err, countErr, r.history.Flush(), r.disk.Close())
}

// countFiles counts those below a directory.
func countFiles(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	})
	return n, err
}

func (r *rig) runOnDisk(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := r.createTopics(ctx); err != nil {
		return err
	}
	defer r.closeClients()
	if err := r.makeClients(); err != nil {
		return err
	}
	for r.result.rounds = 1; ; r.result.rounds++ {
		last := r.result.rounds == r.cfg.rounds
		if err := r.round(ctx, last); err != nil {
			return fmt.Errorf("round %d: %w", r.result.rounds, err)
		}
		if last || r.cfg.control && r.result.lost() > 0 {
			return nil
		}
	}
}

// start starts the node. All that is on the disk is below data, which node makes the log directory.
func (r *rig) start(ctx context.Context) error {
	if err := r.launch(); err != nil {
		return err
	}
	err := r.broker.Await(ctx)
	r.result.slowest = max(r.result.slowest, r.broker.StartUp)
	return err
}

func (r *rig) launch() error {
	b, err := node.LaunchVarve(node.VarveConfig{Binary: r.cfg.binary, Dir: r.cfg.dir, Settings: []string{
		"remote.log.manager.task.interval.ms=300", "log.retention.check.interval.ms=300"}})
	if err == nil {
		r.broker = b
	}
	return err
}

func (r *rig) createTopics(ctx context.Context) error {
	var err error
	if r.admin, err = kgo.NewClient(clientOptions(r.broker.Addr)...); err != nil {
		return err
	}
	size, small, on := segment, "1", "true"
	for name, properties := range map[string]map[string]*string{
		local:   {"internal.segment.bytes": &size},
		tiered:  {"internal.segment.bytes": &size, "remote.storage.enable": &on, "local.retention.bytes": &small},
		trimmed: {"internal.segment.bytes": &size},
	} {
		n := int32(0)
		for _, p := range partitions {
			if p.topic == name {
				n++
			}
		}
		if _, err := kadm.NewClient(r.admin).CreateTopic(ctx, n, 1, properties, name); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	return nil
}

func (r *rig) makeClients() error {
	r.trimmer = &trimmer{client: r.admin, at: partition{trimmed, 0}}
	r.changer = &changer{client: r.admin, states: map[string]state{}}
	for i := range producers {
		p := &producer{run: 1, proc: i + 1, addr: r.broker.Addr, partitions: partitions, history: r.history,
			rng: rand.New(rand.NewPCG(r.cfg.seed, uint64(i)+1)), slots: make(chan struct{}, inFlight)}
		r.producers = append(r.producers, p)
		if err := p.dial(); err != nil {
			return err
		}
	}
	var err error
	r.follower, err = follow(followProc, r.broker.Addr, partitions, r.history)
	return err
}

func (r *rig) closeClients() {
	for _, p := range r.producers {
		p.client.Close()
	}
	if r.follower != nil {
		r.follower.stop()
	}
	r.admin.Close()
}

// round is load, power loss, and all there again.
func (r *rig) round(ctx context.Context, last bool) error {
	var sent sync.WaitGroup
	loading, stop := context.WithCancel(ctx)
	defer sent.Wait()
	defer stop()
	for _, p := range r.producers {
		sent.Go(func() { p.load(loading, r.cfg.rate) })
	}
	length := shortest + rand64(r.rng, r.cfg.longest-shortest)
	trimAt := rand64(r.rng, length)
	sent.Go(func() { r.trimmer.trim(loading, trimAt) })
	sent.Go(func() { r.changer.change(loading, changeEvery) })
	if r.rng.IntN(neighbourShare) == 0 {
		sent.Go(func() { neighbour(loading, r.disk.Dir) })
	}
	if err := sleep(ctx, length); err != nil {
		return err
	}
	if err := r.cut(stop); err != nil {
		return err
	}
	sent.Wait()
	if err := r.disk.Remount(); err != nil {
		return err
	}
	if err := r.comeBack(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil && !r.cfg.control {
		return err
	}
	if err := r.addMetrics(ctx); err != nil {
		return err
	}
	if !last && r.result.rounds%r.cfg.reread != 0 {
		r.tell(length)
		return nil
	}
	err := r.judge(ctx)
	r.tell(length)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// rand64 is a random duration in [0, n).
func rand64(rng *rand.Rand, n time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(n)))
}

// cut is the power loss: the node executes nothing any more, with its syncs under way, then the disk forgets. What goes
// on meanwhile is told to end after it.
func (r *rig) cut(stop func()) error {
	r.result.cuts++
	if err := r.broker.Halt(haltLimit); err != nil {
		return err
	}
	if err := r.disk.Cut(); err != nil {
		return err
	}
	r.broker.Kill()
	stop()
	// What it printed stays beside the next one's.
	return os.Rename(r.broker.LogPath(), fmt.Sprintf("%s.%d", r.broker.LogPath(), r.result.cuts))
}

// comeBack starts the node, in some rounds only after power went again while it started.
func (r *rig) comeBack(ctx context.Context) error {
	if r.rng.IntN(againShare) == 0 {
		if err := r.cutWhileStarting(ctx); err != nil {
			return err
		}
	}
	for i, p := range r.producers {
		if i%2 == 1 {
			if err := p.dial(); err != nil {
				return err
			}
		}
	}
	return r.start(ctx)
}

// cutWhileStarting starts the node and takes the power before or soon after it serves.
func (r *rig) cutWhileStarting(ctx context.Context) error {
	if err := r.launch(); err != nil {
		return err
	}
	select {
	case <-r.broker.Exited():
		return r.broker.Await(ctx) // which tells why
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand64(r.rng, againWithin)):
	}
	return errors.Join(r.cut(func() {}), r.disk.Remount())
}

// neighbour is another program that syncs a file of its own all the time. Each sync commits what the file system has
// written back of the others: parts of what nobody synced survive a power loss too, in any order.
func neighbour(ctx context.Context, dir string) {
	f, err := os.Create(filepath.Join(dir, "neighbour"))
	if err != nil {
		return
	}
	defer f.Close()
	for ctx.Err() == nil {
		if _, err := f.WriteAt([]byte{1}, 0); err != nil {
			return
		}
		if err := unix.Syncfs(int(f.Fd())); err != nil {
			return
		}
	}
}

// settle waits until every record that was in flight has an answer: the node goes on where it was.
func (r *rig) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.patience)
	defer cancel()
	for _, p := range r.producers {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// judge reads everything and checks all that happened so far.
func (r *rig) judge(ctx context.Context) error {
	r.rereads++
	var errs []error
	var err error
	asking, cancel := context.WithTimeout(ctx, r.cfg.patience)
	defer cancel()
	if r.logs, err = spans(asking, r.admin, partitions); err != nil {
		errs = append(errs, err)
	}
	for p, s := range r.logs {
		if p.topic == trimmed {
			errs = append(errs, r.trimmer.verify(s.start))
		} else if s.start != 0 {
			errs = append(errs, fmt.Errorf("%s begins at %d, though nothing deletes there", p.key(), s.start))
		}
	}
	errs = append(errs, reread(ctx, r.broker.Addr, r.rereads, readProc, r.logs, r.history, r.cfg.patience),
		r.follower.lossSeen(), r.changer.verify(asking))
	r.result.changes = r.changer.done()
	c := check.New()
	for p, s := range r.logs {
		c.Start(p.key(), s.start)
	}
	for _, op := range r.history.Ops() {
		c.Add(op)
	}
	r.result.report = c.Report()
	if r.cfg.control {
		return nil // what is broken there is what it is for
	}
	return errors.Join(append(errs, r.result.report.Err())...)
}

// addMetrics adds what the node says of its recovery. It fails if corruption was found, which a power loss does not make.
func (r *rig) addMetrics(ctx context.Context) error {
	cut, err := metric(ctx, r.broker.Admin, "varve_log_recovery_cut_bytes_total")
	if err != nil {
		return err
	}
	r.result.cutBytes += cut
	for _, found := range []string{"corruption", "error"} {
		n, err := metric(ctx, r.broker.Admin, `varve_log_recoveries_total{found="`+found+`"}`)
		if err != nil {
			return err
		}
		if n > 0 && !r.cfg.control {
			return fmt.Errorf("recovery of %d logs ended with %s", n, found)
		}
	}
	return nil
}

// metric is the value of a series, 0 if there is none.
func metric(ctx context.Context, addr, series string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics: %s: %w", resp.Status, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int64(f), err
		}
	}
	return 0, nil
}

func (r *rig) tell(length time.Duration) {
	fmt.Fprintf(r.cfg.out, "round %3d: load %4d ms, start %4d ms, %d bytes cut off so far", r.result.rounds, length.Milliseconds(), r.broker.StartUp.Milliseconds(), r.result.cutBytes)
	if r.result.rounds%r.cfg.reread == 0 || r.result.rounds == r.cfg.rounds {
		fmt.Fprintf(r.cfg.out, "; %v", r.result.report)
	}
	fmt.Fprintln(r.cfg.out)
}
