package log

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// crasher cuts the run before the nth change of the disk; a write that is cut may have got part of its bytes
// there.
type crasher struct {
	mu   sync.Mutex
	n    int
	rng  *rand.Rand
	op   vfs.Op
	seen int
}

func (c *crasher) Inject(op vfs.Op) vfs.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen >= c.n {
		return vfs.Outcome{Err: vfs.ErrCrashed}
	}
	if !op.Kind.Mutates() {
		return vfs.Outcome{}
	}
	if c.seen++; c.seen < c.n {
		return vfs.Outcome{}
	}
	c.op = op
	out := vfs.Outcome{Err: vfs.ErrCrashed}
	if op.Kind == vfs.OpWrite {
		out.Short = c.rng.Int64N(op.Size + 1)
	}
	return out
}

func (c *crasher) reached() bool { return c.seen >= c.n }

// history is what a workload knows of its log: every batch ever appended and not truncated, deleted ones too.
type history struct {
	start     int64 // offset of the first batch
	producers []record.ProducerEntry
	batches   []record.Batch
}

func (h *history) end() int64 {
	if n := len(h.batches); n > 0 {
		return h.batches[n-1].NextOffset()
	}
	return h.start
}

func (h *history) truncate(to int64) {
	for n := len(h.batches); n > 0 && h.batches[n-1].LastOffset() >= to; n-- {
		h.batches = h.batches[:n-1]
	}
}

// state replays the history up to an offset.
func (h *history) state(t testing.TB, end int64) (*producers, []record.AbortedTxn) {
	state := newProducers()
	state.load(h.producers)
	var aborted []record.AbortedTxn
	for _, b := range h.batches {
		if b.BaseOffset() >= end {
			break
		}
		a, err := state.apply(b, func() (record.Batch, error) { return b, nil })
		if err != nil {
			t.Fatal(err)
		}
		if a != nil {
			aborted = append(aborted, *a)
		}
	}
	return state, aborted
}

// world is a log under a workload, and what must be true of it after a crash.
type world struct {
	t   testing.TB
	rng *rand.Rand
	fs  vfs.FS
	dir *Dir
	log *Log

	history  history
	inflight []record.Batch // of an append that may or may not have happened
	durable  int64          // every record below was synced
	restart  *history       // the log may have become this one
	epoch    int32
}

var worldPartition = TopicPartition{"orders", 3}

func worldConfig() Config {
	return Config{SegmentBytes: 9000, IndexIntervalBytes: 500, SegmentIndexBytes: 400}
}

func (w *world) open() error {
	dir, err := OpenDir(DirOptions{FS: w.fs, Path: "data", ClusterID: "c", NodeID: 1, Format: true})
	if err != nil {
		return err
	}
	w.dir = dir
	o := testOptions(w.fs, worldConfig())
	o.LogDir, o.Clean, o.PageCacheSurvived = dir, dir.Clean(), dir.PageCacheSurvived()
	o.RecoveryPoint, o.LogStart = dir.RecoveryPoint(worldPartition), dir.LogStart(worldPartition)
	if w.log, err = Open(o); err != nil {
		return err
	}
	return dir.Recovered()
}

// testStart keeps the sizes of compressed batches, and with that the operations, the same in every run.
var testStart = now()

// batch makes the next batch of some producer.
func (w *world) batch() *Append {
	n, ts := 1+w.rng.IntN(4), testStart-w.rng.Int64N(1000)
	id := w.rng.Int64N(6)
	a := &Append{}
	o := record.Options{Codec: record.Codec(w.rng.IntN(5))}
	if id > 0 {
		o.ProducerID = id
		if p, ok := w.log.producers.byID[id]; ok {
			o.ProducerEpoch, o.BaseSequence = p.epoch, p.lastSequence()+1
			if open := p.txnFirst >= 0; id >= 4 && open && w.rng.IntN(2) == 0 {
				kind := record.ControlType(w.rng.IntN(2))
				return &Append{Origin: OriginCoordinator, Batch: record.EndTxnMarker(record.Marker{Type: kind, ProducerID: id,
					ProducerEpoch: p.epoch, CoordinatorEpoch: 1, Timestamp: ts})}
			}
		}
		o.Transactional = id >= 4
	}
	a.Batch = batchOf(w.t, o, ts, n)
	return a
}

// step does one random thing to the log.
func (w *world) step() error {
	l := w.log
	switch at := w.rng.IntN(100); {
	case at < 60:
		return w.append()
	case at < 72:
		end, err := l.Sync()
		if err == nil {
			w.durable = max(w.durable, end)
		}
		return err
	case at < 76:
		return l.Roll()
	case at < 80:
		return w.truncate()
	case at < 84:
		_, err := l.DeleteLocalBefore(l.LocalStart()+w.rng.Int64N(1+l.EndOffset()-l.LocalStart()), "test")
		return err
	case at < 88:
		return w.dir.Checkpoint()
	case at < 91:
		return l.SetLogStart(l.LogStart() + w.rng.Int64N(1+(l.EndOffset()-l.LogStart())/4))
	case at < 93:
		w.epoch++
		l.AssignEpoch(w.epoch)
		return nil
	case at < 95:
		return w.restartAt(l.EndOffset() + w.rng.Int64N(50) - 20)
	}
	return w.reopen()
}

// append appends a group. Each batch is made when those before are known.
func (w *world) append() error {
	var items []*Append
	seen := map[int64]bool{}
	for range 1 + w.rng.IntN(4) {
		a := w.batch()
		if id := a.Batch.ProducerID(); id >= 0 && seen[id] {
			continue
		}
		seen[a.Batch.ProducerID()] = true
		items = append(items, a)
	}
	err := w.log.AppendAsLeader(items, w.epoch)
	expected := w.history.end()
	w.inflight = nil
	for _, a := range items {
		if err == nil && a.Err != nil {
			return fmt.Errorf("refused: %w", a.Err)
		}
		if a.Batch.BaseOffset() == expected {
			w.inflight = append(w.inflight, bytes.Clone(a.Batch))
			expected = a.Batch.NextOffset()
		}
	}
	if err == nil {
		w.history.batches = append(w.history.batches, w.inflight...)
		w.inflight = nil
	}
	return err
}

func (w *world) truncate() error {
	l := w.log
	from := l.EndOffset() - min(30, l.EndOffset()-l.LocalStart())
	if from >= l.EndOffset() {
		return nil
	}
	to := from + w.rng.Int64N(l.EndOffset()-from)
	after := history{start: w.history.start, producers: w.history.producers, batches: append([]record.Batch(nil), w.history.batches...)}
	after.truncate(to)
	w.durable = min(w.durable, after.end())
	w.restart = &after
	err := l.Truncate(to)
	if err == nil {
		w.history, w.restart = after, nil
	}
	return err
}

func (w *world) restartAt(offset int64) error {
	offset = max(offset, 0)
	entries := []record.ProducerEntry{{ProducerID: 2, ProducerEpoch: 0, CoordinatorEpoch: -1, LastTimestamp: 5, CurrentTxnFirstOffset: -1}}
	if offset > 0 {
		entries[0].Batches = []record.ProducerBatch{{LastSequence: 9, LastOffset: offset - 1, Timestamp: 5}}
	}
	after := history{start: offset, producers: entries}
	w.durable, w.restart = 0, &after
	err := w.log.TruncateFullyAndStartAt(offset, []record.EpochStart{{Epoch: w.epoch, StartOffset: max(0, offset-1)}}, entries)
	if err == nil {
		w.history, w.restart = after, nil
	}
	return err
}

func (w *world) reopen() error {
	if err := w.log.Close(true); err != nil {
		return err
	}
	w.durable = w.history.end()
	if err := w.dir.Close(true, 7); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	if !w.dir.Clean() || w.dir.CleanEpoch() != 7 {
		return errors.New("not a clean start")
	}
	return w.check(w.log, &w.history, true)
}

const workloadSteps = 60

func (w *world) run() error {
	if err := w.open(); err != nil {
		return err
	}
	for range workloadSteps {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// check compares a log with a history that it must be a part of: the whole end of it if exact, otherwise it may
// end earlier.
func (w *world) check(l *Log, h *history, exact bool) error {
	got := readAll(w.t, l, l.LocalStart(), 3000)
	first := 0
	for first < len(h.batches) && h.batches[first].LastOffset() < l.LocalStart() {
		first++
	}
	if len(got) > len(h.batches)-first {
		return fmt.Errorf("%d batches from %d, only %d were appended", len(got), l.LocalStart(), len(h.batches)-first)
	}
	for i, b := range got {
		if !bytes.Equal(b, h.batches[first+i]) {
			return fmt.Errorf("batch at %d is not what was appended at %d", b.BaseOffset(), h.batches[first+i].BaseOffset())
		}
	}
	if exact && l.EndOffset() != h.end() {
		return fmt.Errorf("the log ends at %d, want %d", l.EndOffset(), h.end())
	}
	return w.checkDerived(l, h, got)
}

func (w *world) checkDerived(l *Log, h *history, got []record.Batch) error {
	state, aborted := h.state(w.t, l.EndOffset())
	if err := sameProducers(l.ActiveProducers(), state.entries()); err != nil {
		return err
	}
	if got, want := l.FirstUnstable(), state.firstOpen(); max(want, l.LogStart()) != got && len(l.producers.ended) == 0 {
		return fmt.Errorf("first unstable offset %d, want %d", got, want)
	}
	base := l.segments[0].base
	for len(aborted) > 0 && aborted[0].LastOffset < base {
		aborted = aborted[1:]
	}
	if got, err := l.AbortedTxns(base, l.EndOffset()); err != nil || fmt.Sprint(got) != fmt.Sprint(sortAborted(aborted)) {
		return fmt.Errorf("aborted transactions from %d\n%v, want\n%v, %v", base, got, aborted, err)
	}
	for _, b := range got {
		if e := l.EpochForOffset(b.LastOffset()); b.LastOffset() >= l.LogStart() && e != b.LeaderEpoch() {
			return fmt.Errorf("epoch of %d is %d, its batch says %d, of %v", b.LastOffset(), e, b.LeaderEpoch(), l.epochs.entries)
		}
	}
	return w.checkTimes(l, got)
}

func (s *producers) firstOpen() int64 {
	if len(s.open) == 0 {
		return noUnstable
	}
	return s.open[0].first
}

// sameProducers compares states; of the last batches of a producer fewer may be remembered, but the last one.
func sameProducers(got, want []record.ProducerEntry) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d producers, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		known := g.Batches
		g.Batches, w.Batches = nil, nil
		all := want[i].Batches
		if fmt.Sprint(g) != fmt.Sprint(w) || (len(known) == 0) != (len(all) == 0) || len(known) > len(all) ||
			!slices.EqualFunc(known, all[len(all)-len(known):], sameBatch) {
			return fmt.Errorf("producer\n%+v, want\n%+v", got[i], want[i])
		}
	}
	return nil
}

// sameBatch leaves the timestamp out, which a snapshot does not have.
func sameBatch(a, b record.ProducerBatch) bool {
	a.Timestamp, b.Timestamp = 0, 0
	return a == b
}

func (w *world) checkTimes(l *Log, got []record.Batch) error {
	for range 4 {
		if len(got) == 0 {
			break
		}
		ts := got[w.rng.IntN(len(got))].BaseTimestamp() + w.rng.Int64N(3) - 1
		want, found := TimeOffset{}, false
		for _, b := range got {
			err := b.Each(1<<20, func(r record.Record) (bool, error) {
				if !found && r.Timestamp >= ts && r.Offset >= l.LocalStart() {
					found = true
					want = TimeOffset{r.Offset, r.Timestamp, b.LeaderEpoch()}
				}
				return !found, nil
			})
			if err != nil {
				return err
			}
		}
		at, ok, err := l.OffsetForTime(ts, l.EndOffset())
		if err != nil || ok != found || at != want {
			return fmt.Errorf("time %d is at %+v %v, want %+v %v, %w", ts, at, ok, want, found, err)
		}
	}
	return nil
}

// survive opens what a crash left and demands that nothing is lost that may not be.
func (w *world) survive(fsys vfs.FS, powerLoss bool) error {
	after := &world{t: w.t, rng: w.rng, fs: fsys, epoch: w.epoch + 1}
	if err := after.open(); err != nil {
		return err
	}
	l := after.log
	h := w.history
	h.batches = append(append([]record.Batch(nil), h.batches...), w.inflight...)
	err := after.check(l, &h, false)
	if err != nil && w.restart != nil {
		h = *w.restart
		err2 := after.check(l, &h, false)
		if err = fmt.Errorf("as it was: %w; as it should become: %w", err, err2); err2 == nil {
			err = nil
		}
	}
	if err != nil && w.restart != nil && l.Size() == 0 {
		h, err = history{start: l.EndOffset()}, nil // all names gone, none new yet
		h.producers = l.ActiveProducers()
	}
	if err != nil {
		return err
	}
	if l.EndOffset() < w.durable {
		return fmt.Errorf("the log ends at %d, %d was synced", l.EndOffset(), w.durable)
	}
	if !powerLoss && w.restart == nil && l.EndOffset() < w.history.end() {
		return fmt.Errorf("the log ends at %d, %d was written and the page cache is whole", l.EndOffset(), w.history.end())
	}
	h.truncate(l.EndOffset())
	after.history = h
	for range 3 {
		if err := after.append(); err != nil {
			return err
		}
	}
	return after.reopen()
}

var (
	crashFirst = flag.Uint64("crash.first", 0, "first seed of TestCrashPoints")
	crashSeeds = flag.Uint64("crash.seeds", 2, "how many seeds TestCrashPoints visits")
)

// TestCrashPoints cuts a workload at every operation that changes the disk, with the power and with the process
// alone.
func TestCrashPoints(t *testing.T) {
	seeds := *crashSeeds
	if testing.Short() {
		seeds = 1
	}
	for seed := *crashFirst; seed < *crashFirst+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			for n := 1; crashAt(t, seed, n); n++ {
			}
		})
	}
}

// crashAt reports whether the run came as far as the nth operation.
func crashAt(t *testing.T, seed uint64, n int) bool {
	for _, mode := range []struct {
		name string
		keep int // -1: the process dies, not the machine
	}{{"kill", -1}, {"power, nothing kept", 0}, {"power, half kept", 50}, {"power, most kept", 90}} {
		mem := vfs.NewMem()
		c := &crasher{n: n, rng: rand.New(rand.NewPCG(seed, uint64(n)))}
		w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewFault(mem, c)}
		err := w.run()
		if err != nil && !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("before the crash: %v", err)
		}
		if !c.reached() {
			return false
		}
		var disk *vfs.Mem
		if mode.keep < 0 {
			disk = mem.KillClone()
		} else {
			disk = mem.CrashClone(c.rng, mode.keep)
		}
		if err := w.survive(disk, mode.keep >= 0); err != nil {
			t.Logf("%s", w.fs.(*vfs.Fault).Events("data"))
			t.Fatalf("seed %d, %s before operation %d (%s): %v", seed, mode.name, n, c.op, err)
		}
	}
	return true
}
