package log

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// newFaultLog opens an empty log in a log directory on a disk that fails by rules.
func newFaultLog(t testing.TB, config Config) (*Log, *Dir, *vfs.Rules, *vfs.Mem) {
	t.Helper()
	mem, rules := vfs.NewMem(), vfs.NewRules()
	fsys := vfs.NewFault(mem, rules)
	dir, err := OpenDir(DirOptions{FS: fsys, Path: "data", ClusterID: "c", NodeID: 1, Format: true})
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(fsys, config)
	o.LogDir = dir
	return openTest(t, o), dir, rules, mem
}

func TestShortWriteIsTakenBack(t *testing.T) {
	l, dir, rules, _ := newFaultLog(t, Config{})
	first := plain(t, now(), 2)
	mustAppend(t, l, 0, first)
	rules.Add(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpWrite}, Glob: "*.log", Times: 1, Outcome: vfs.Outcome{Err: syscall.EIO, Short: 70}})
	repeated := from(t, 7, 0, 0, 1)
	items := []*Append{{Batch: from(t, 7, 0, 0, 1)}, {Batch: repeated}, {Batch: plain(t, now(), 1)}}
	if err := l.AppendAsLeader(items, 0); !errors.Is(err, syscall.EIO) || !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatalf("append: %v", err)
	}
	for i, a := range items {
		if a.Err == nil {
			t.Errorf("item %d has offset %d though nothing was written", i, a.BaseOffset)
		}
	}
	if l.EndOffset() != 2 || len(l.ActiveProducers()) != 0 || dir.Err() != nil {
		t.Errorf("end %d, producers %v, directory %v", l.EndOffset(), l.ActiveProducers(), dir.Err())
	}
	if size, err := l.active().file.Size(); err != nil || size != int64(len(first)) {
		t.Errorf("the file has %d bytes, the log %d: %v", size, len(first), err)
	}
	repeated.SetBaseOffset(0)
	if a := try(t, l, repeated); a.Err != nil || a.Duplicate || a.BaseOffset != 2 {
		t.Errorf("the retry: %+v", a)
	}
}

func TestTakingBackFails(t *testing.T) {
	l, dir, rules, _ := newFaultLog(t, Config{})
	mustAppend(t, l, 0, plain(t, now(), 2))
	rules.Add(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpWrite, vfs.OpTruncate}, Glob: "*.log", Outcome: vfs.Outcome{Err: syscall.EIO, Short: 10}})
	a := &Append{Batch: plain(t, now(), 1)}
	if err := l.AppendAsLeader([]*Append{a}, 0); !errors.Is(err, ErrOffline) || !errors.Is(a.Err, ErrOffline) {
		t.Errorf("append: %v, %v", err, a.Err)
	}
	rules.Clear()
	if err := l.AppendAsLeader([]*Append{a}, 0); !errors.Is(err, ErrOffline) {
		t.Errorf("append after the disk is well again: %v", err)
	}
	select {
	case <-dir.Offline():
	default:
		t.Error("the directory is not offline")
	}
	if got := readAll(t, l, 0, 1<<20); len(got) != 1 {
		t.Error("reads go on")
	}
}

func TestFailedSyncIsFinal(t *testing.T) {
	l, dir, rules, _ := newFaultLog(t, Config{})
	mustAppend(t, l, 0, plain(t, now(), 2))
	if end, err := l.Sync(); end != 2 || err != nil {
		t.Fatal(end, err)
	}
	mustAppend(t, l, 0, plain(t, now(), 2))
	rules.Add(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpSync}, Glob: "*.log", Times: 1, Outcome: vfs.Outcome{Err: syscall.EIO}})
	for range 3 {
		if end, err := l.Sync(); end != 2 || !errors.Is(err, ErrOffline) {
			t.Errorf("sync gave %d, %v", end, err)
		}
	}
	if !errors.Is(dir.Err(), ErrOffline) || !errors.Is(dir.Err(), kerr.KafkaStorageError) {
		t.Errorf("directory: %v", dir.Err())
	}
	if err := errors.Join(l.Close(true), dir.Close(true, 1)); err == nil {
		t.Error("closed cleanly after a failed sync")
	}
}

func TestDiskFullHeals(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetCapacity(1 << 20)
	var said bytes.Buffer
	dir, err := OpenDir(DirOptions{FS: mem, Path: "data", ClusterID: "c", NodeID: 1, Format: true, Reserve: 100 << 10,
		Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem, Config{SegmentBytes: 200 << 10})
	o.LogDir = dir
	l := openTest(t, o)
	var refused error
	appended := 0
	for refused == nil && appended < 1000 {
		a := &Append{Batch: kilobytes(t, 10<<10, record.Options{})}
		if refused = l.AppendAsLeader([]*Append{a}, 0); refused == nil {
			appended++
		}
	}
	if !errors.Is(refused, ErrNoSpace) || !errors.Is(refused, kerr.KafkaStorageError) {
		t.Fatalf("after %d batches: %v", appended, refused)
	}
	if room, _, err := dir.Room(); err != nil || room > 20<<10 || appended < 80 {
		t.Errorf("refused with %d bytes of room after %d batches, %v", room, appended, err)
	}
	if got := readAll(t, l, 0, 1<<20); len(got) != appended {
		t.Errorf("%d batches are readable, %d were appended", len(got), appended)
	}
	if _, err := l.Sync(); err != nil {
		t.Error(err)
	}
	if err := l.Roll(); err != nil {
		t.Error("the reserve should let a segment be sealed:", err)
	}
	if gone, err := l.DeleteLocalBefore(l.EndOffset()/2, "test"); err != nil || len(gone) == 0 {
		t.Fatal(gone, err)
	}
	time.Sleep(2 * spacePause)
	if a := try(t, l, plain(t, now(), 1)); a.Err != nil {
		t.Errorf("after room was made: %v", a.Err)
	}
	if strings.Count(said.String(), "log directory is full") != 1 || strings.Count(said.String(), "has room again") != 1 {
		t.Errorf("logged: %s", said.String())
	}
}

// TestFullWithoutWarning: somebody else took the last bytes.
func TestFullWithoutWarning(t *testing.T) {
	l, dir, rules, _ := newFaultLog(t, Config{})
	mustAppend(t, l, 0, plain(t, now(), 2))
	rules.Add(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpWrite}, Glob: "*.log", Times: 1, Outcome: vfs.Outcome{Err: syscall.ENOSPC, Short: 33}})
	a := &Append{Batch: plain(t, now(), 1)}
	if err := l.AppendAsLeader([]*Append{a}, 0); !errors.Is(err, ErrNoSpace) {
		t.Error(err)
	}
	time.Sleep(2 * spacePause)
	if a := try(t, l, plain(t, now(), 1)); a.Err != nil || dir.Err() != nil || a.BaseOffset != 2 {
		t.Errorf("%+v, %v", a, dir.Err())
	}
}

// TestRollThatFails leaves the segment active; the append that needed it fails alone.
func TestRollThatFails(t *testing.T) {
	l, dir, rules, _ := newFaultLog(t, Config{SegmentBytes: 300})
	mustAppend(t, l, 0, plain(t, now(), 4))
	rules.Add(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpCreate}, Glob: "*.log", Times: 1, Outcome: vfs.Outcome{Err: syscall.EIO}})
	a := &Append{Batch: plain(t, now(), 4)}
	if err := l.AppendAsLeader([]*Append{a}, 0); !errors.Is(err, kerr.KafkaStorageError) || !errors.Is(a.Err, kerr.KafkaStorageError) {
		t.Errorf("appended without a segment: %v, %v", err, a.Err)
	}
	if dir.Err() != nil {
		t.Error(dir.Err())
	}
	if offset := mustAppend(t, l, 0, plain(t, now(), 4)); offset != 4 || len(l.Segments()) != 2 {
		t.Errorf("offset %d, segments %+v", offset, l.Segments())
	}
}

// TestHungDisk: status and fencing do not wait for a disk, and say since when it hangs.
func TestHungDisk(t *testing.T) {
	l, dir, rules, _ := newFaultLog(t, Config{})
	mustAppend(t, l, 0, plain(t, now(), 2))
	hang := make(chan struct{})
	rules.Add(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpWrite}, Glob: "*.log", Times: 1, Outcome: vfs.Outcome{Hang: hang}})
	done := make(chan error)
	go func() {
		done <- l.AppendAsLeader([]*Append{{Batch: plain(t, now(), 1)}}, 0)
	}()
	for dir.Busy() < 5*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	l.SetHighWatermark(2)
	l.AssignEpoch(9) // fences the append that hangs
	if l.EndOffset() != 2 || l.LastStable() != 2 || l.LastEpoch() != 9 || len(l.Segments()) != 1 || l.Size() == 0 {
		t.Error("state while the disk hangs")
	}
	if got := readAll(t, l, 0, 1<<20); len(got) != 1 {
		t.Error("reads go on")
	}
	if err := l.SetLogStart(1); err != nil {
		t.Error(err)
	}
	close(hang)
	if err := <-done; !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("the append of a fenced epoch gave %v", err)
	}
	if offset := mustAppend(t, l, 9, plain(t, now(), 1)); offset != 2 || l.EpochForOffset(2) != 9 || len(readAll(t, l, 1, 1<<20)) != 2 {
		t.Errorf("offset %d in epoch %d", offset, l.EpochForOffset(2))
	}
	if dir.Busy() != 0 {
		t.Error("still busy")
	}
}

// TestGivenUpWhileHung: when the directory is given up, nobody goes on waiting for the disk but who is in it.
func TestGivenUpWhileHung(t *testing.T) {
	l, dir, rules, _ := newFaultLog(t, Config{})
	mustAppend(t, l, 0, plain(t, now(), 2))
	hang := make(chan struct{})
	rules.Add(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpWrite, vfs.OpSync}, Glob: "*.log", Outcome: vfs.Outcome{Hang: hang, Err: syscall.EIO}})
	inside := make(chan error, 2)
	go func() { inside <- l.AppendAsLeader([]*Append{{Batch: plain(t, now(), 1)}}, 0) }()
	for l.writeSince.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	waiting := make(chan error)
	for _, wait := range []func() error{
		func() error { return l.AppendAsLeader([]*Append{{Batch: plain(t, now(), 1)}}, 0) },
		func() error { return l.Truncate(1) },
		l.Roll,
		func() error { return l.Close(true) },
	} {
		go func() { waiting <- wait() }()
	}
	time.Sleep(5 * time.Millisecond)
	_ = dir.Fail(errors.New("a write has not completed"))
	for range 4 {
		if err := <-waiting; !errors.Is(err, ErrOffline) {
			t.Errorf("gave %v", err)
		}
	}
	close(hang)
	if err := <-inside; err == nil {
		t.Error("the append that hung succeeded")
	}
}

// TestGoneWhileRead: bytes under a pin stay as they are, whatever happens to the log.
func TestGoneWhileRead(t *testing.T) {
	l, mem := newTestLog(t, Config{SegmentBytes: 300})
	var want []record.Batch
	for range 6 {
		want = append(want, plain(t, now(), 4))
		mustAppend(t, l, 0, want[len(want)-1])
	}
	check := func(r Read, b record.Batch) {
		t.Helper()
		p := make([]byte, r.Range.Size)
		if _, err := r.Range.ReaderAt.ReadAt(p, r.Range.Off); err != nil || !bytes.Equal(p, b) {
			t.Errorf("batch at %d changed under its reader: %v", b.BaseOffset(), err)
		}
	}
	read := func(offset int64) Read {
		r, err := l.Read(offset, 1, l.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, last := read(0), read(22)
	if _, err := l.DeleteLocalBefore(8, "test"); err != nil {
		t.Fatal(err)
	}
	if err := l.Truncate(21); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 0, plain(t, now()+1000, 4))
	check(first, want[0])
	check(last, want[5])
	if _, err := l.Read(0, 100, l.EndOffset(), true); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("below the local start: %v", err)
	}
	name := "data/orders-3/00000000000000000000.log"
	if _, err := mem.Stat(name); err != nil {
		t.Errorf("removed under its reader: %v", err)
	}
	first.Range.Release()
	last.Range.Release()
	if err := l.MaybeRoll(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat(name); err == nil {
		t.Error("not removed after the last reader")
	}
	if n := len(l.retired); n != 0 {
		t.Errorf("%d segments wait to be removed", n)
	}
}
