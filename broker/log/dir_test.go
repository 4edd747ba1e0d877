package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/varve-io/varve/broker/log/vfs"
)

func dirOptions(fsys vfs.FS) DirOptions {
	return DirOptions{FS: fsys, Path: "data", ClusterID: "cluster-a", NodeID: 1, Format: true}
}

func TestDirRefuses(t *testing.T) {
	formatted := func(t *testing.T) *vfs.Mem {
		mem := vfs.NewMem()
		d, err := OpenDir(dirOptions(mem))
		if err == nil {
			err = d.Close(true, 5)
		}
		if err != nil {
			t.Fatal(err)
		}
		return mem
	}
	put := func(t *testing.T, mem *vfs.Mem, name, data string) {
		if err := errors.Join(mem.MkdirAll(path.Dir(name)), vfs.WriteFileAtomic(mem, name, []byte(data))); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		make func(*testing.T) (*vfs.Mem, DirOptions)
		want error
		text string // of the way out
	}{
		{"another cluster", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := formatted(t)
			o := dirOptions(mem)
			o.ClusterID = "cluster-b"
			return mem, o
		}, ErrOtherCluster, "log.dirs"},
		{"another node", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := formatted(t)
			o := dirOptions(mem)
			o.NodeID = 2
			return mem, o
		}, ErrOtherNode, "node.id=1"},
		{"a second process", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := formatted(t)
			if _, err := mem.Lock("data/.lock"); err != nil {
				t.Fatal(err)
			}
			return mem, dirOptions(mem)
		}, vfs.ErrLocked, "stop the other process"},
		{"a whole Kafka directory", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			data, err := os.ReadFile(path.Join(kafkaDir, metaPropertiesFile))
			if err != nil {
				t.Fatal(err)
			}
			put(t, mem, "data/meta.properties", string(data))
			return mem, dirOptions(mem)
		}, ErrKafkaDir, "mirror the topics"},
		{"data without an identity", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			put(t, mem, "data/orders-0/partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
			return mem, dirOptions(mem)
		}, ErrKafkaDir, "Restore"},
		{"checkpoints without an identity", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			put(t, mem, "data/recovery-point-offset-checkpoint", "0\n0\n")
			return mem, dirOptions(mem)
		}, ErrKafkaDir, "Restore"},
		{"missing, not to be formatted", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			o := dirOptions(mem)
			o.Format = false
			return mem, o
		}, ErrUnformatted, "does not exist"},
		{"empty, not to be formatted", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			o := dirOptions(mem)
			o.Format = false
			return mem, errJoin(t, mem.MkdirAll("data"), o)
		}, ErrUnformatted, "not formatted"},
		{"rubbish", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			put(t, mem, "data/meta.properties", "varve.version=1\nversion=1\nnode.id=x\n")
			return mem, dirOptions(mem)
		}, ErrFormat, "node.id"},
		{"emptied by the disk", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			put(t, mem, "data/meta.properties", "")
			return mem, dirOptions(mem)
		}, ErrFormat, "restore that file"},
		{"cut short by the disk", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			put(t, mem, "data/meta.properties", "cluster.id=a\ndirectory.id=b\nnode.id=1\n")
			return mem, dirOptions(mem)
		}, ErrFormat, "restore that file"},
		{"of a newer release", func(t *testing.T) (*vfs.Mem, DirOptions) {
			mem := vfs.NewMem()
			put(t, mem, "data/meta.properties", "varve.version=2\nversion=1\nnode.id=1\n")
			return mem, dirOptions(mem)
		}, ErrFormat, "newer release"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, o := c.make(t)
			_, err := OpenDir(o)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func errJoin(t *testing.T, err error, o DirOptions) DirOptions {
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDirRemembers(t *testing.T) {
	mem := vfs.NewMem()
	open := func(fsys vfs.FS) *Dir {
		d, err := OpenDir(dirOptions(fsys))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	state := func(d *Dir) string {
		return fmt.Sprintf("clean %v epoch %d survived %v", d.Clean(), d.CleanEpoch(), d.PageCacheSurvived())
	}
	expect := func(d *Dir, want string) {
		t.Helper()
		if got := state(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	d := open(mem)
	id := d.ID()
	expect(d, "clean false epoch -1 survived false")
	mem = mem.KillClone() // before Recovered: nothing is known
	d = open(mem)
	expect(d, "clean false epoch -1 survived false")
	if d.ID() != id || id.IsZero() {
		t.Errorf("directory id %s, was %s", d.ID(), id)
	}
	if err := d.Recovered(); err != nil {
		t.Fatal(err)
	}
	mem = mem.KillClone()
	d = open(mem)
	expect(d, "clean false epoch -1 survived true")
	mem = mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 100)
	d = open(mem)
	expect(d, "clean false epoch -1 survived false")
	mem = mem.KillClone() // killed while it recovers from the power loss: that may not look like a mere kill
	d = open(mem)
	expect(d, "clean false epoch -1 survived false")
	if err := errors.Join(d.Recovered(), d.Close(true, 42)); err != nil {
		t.Fatal(err)
	}
	d = open(mem)
	expect(d, "clean true epoch 42 survived true")
	mem = mem.KillClone()
	d = open(mem)
	expect(d, "clean false epoch -1 survived true")
	if _, err := OpenDir(dirOptions(mem)); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if err := d.Close(false, 0); err != nil {
		t.Fatal(err)
	}
	expect(open(mem), "clean false epoch -1 survived true")
}

// TestPreviousEpoch: a life is told of to the controller if all that it wrote is there: it ended cleanly or was killed, and
// then only once the epoch was noted; not if power failed.
func TestPreviousEpoch(t *testing.T) {
	mem := vfs.NewMem()
	open := func(want int64) *Dir {
		t.Helper()
		d, err := OpenDir(dirOptions(mem))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.PreviousEpoch(); got != want {
			t.Fatalf("previous epoch %d, want %d", got, want)
		}
		return d
	}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	d := open(-1)
	must(d.NoteEpoch(-1), d.NoteEpoch(5))
	mem = mem.KillClone()
	open(5)
	mem = mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 100)
	d = open(-1)
	must(d.NoteEpoch(6))
	mem = mem.KillClone() // while it recovered from the power loss
	d = open(-1)
	must(d.NoteEpoch(6), d.Recovered())
	mem = mem.KillClone()
	open(6)
	mem = mem.KillClone() // before it registered: what was there is there
	d = open(6)
	must(d.NoteEpoch(7), d.NoteEpoch(8))
	mem = mem.KillClone()
	d = open(8)
	must(d.Close(true, -1)) // had no epoch: but it was not recovered, so it is not clean
	d = open(8)
	must(d.Recovered(), d.Close(true, -1))
	d = open(8)
	must(d.Recovered(), d.NoteEpoch(9), d.Close(true, 9))
	open(9)
	mem = mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 100)
	open(-1)
}

// TestAbortedStartIsUnclean: a start that is given up before the logs are recovered, however orderly, leaves them to be recovered.
func TestAbortedStartIsUnclean(t *testing.T) {
	mem := vfs.NewMem()
	open := func() *Dir {
		d, err := OpenDir(dirOptions(mem))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	open()
	mem = mem.KillClone()
	for range 2 {
		d := open()
		if d.Clean() {
			t.Fatal("clean, though nothing was recovered since the crash")
		}
		if err := d.Close(true, 1); err != nil {
			t.Fatal(err)
		}
	}
	d := open()
	if err := errors.Join(d.Recovered(), d.Close(true, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a clean end stays one, too, if a start is given up
		d = open()
		if !d.Clean() {
			t.Fatal("not clean")
		}
		if err := d.Close(true, 1); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirCheckpoints(t *testing.T) {
	mem := vfs.NewMem()
	d, err := OpenDir(dirOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	open := func(partition int32) *Log {
		o := testOptions(mem, Config{})
		o.LogDir, o.Partition, o.Dir = d, partition, path.Join("data", TopicPartition{"orders", partition}.String())
		return openTest(t, o)
	}
	a, b := open(0), open(1)
	for range 5 {
		mustAppend(t, a, 0, plain(t, now(), 2))
		mustAppend(t, b, 0, plain(t, now(), 1))
	}
	a.SetHighWatermark(8)
	if err := a.SetLogStart(3); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := d.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(true), d.Close(true, 1)); err != nil {
		t.Fatal(err)
	}
	if d, err = OpenDir(dirOptions(mem)); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(d.RecoveryPoint(a.tp), d.LogStart(a.tp), d.HighWatermark(a.tp), d.RecoveryPoint(b.tp), d.LogStart(b.tp))
	if want := "10 3 8 0 -1"; got != want {
		t.Errorf("checkpoints %s, want %s", got, want)
	}
	list, err := d.Partitions()
	if err != nil || len(list) != 1 || list[0].TopicPartition != a.tp || list[0].TopicID != testID {
		t.Errorf("partitions %+v, %v", list, err)
	}
	text, err := vfs.ReadFile(mem, "data/recovery-point-offset-checkpoint")
	if err != nil || string(text) != "0\n1\norders 0 10\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestDeletionIsFinished(t *testing.T) {
	mem := vfs.NewMem()
	rules := vfs.NewRules(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpRemove}, Glob: "*-delete", Outcome: vfs.Outcome{Err: errors.New("no")}})
	d, err := OpenDir(dirOptions(vfs.NewFault(mem, rules)))
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(vfs.NewFault(mem, rules), Config{})
	o.LogDir = d
	l := openTest(t, o)
	mustAppend(t, l, 0, plain(t, now(), 2))
	r, err := l.Read(0, 100, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	go r.Range.Release()
	if err := l.Delete(); err == nil {
		t.Error("the files could not be removed, and nobody said so")
	}
	if _, err := l.Read(0, 100, 2, true); !errors.Is(err, ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if err := d.Close(true, 0); err != nil {
		t.Fatal(err)
	}
	if d, err = OpenDir(dirOptions(mem)); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("data")
	if list, err2 := d.Partitions(); err != nil || err2 != nil || len(list) != 0 || strings.Contains(strings.Join(names, " "), "orders") {
		t.Errorf("%v %v, %v %v", names, err, list, err2)
	}
}

// TestSameNameAgain: what was noted of a topic says nothing about the next of that name.
func TestSameNameAgain(t *testing.T) {
	mem := vfs.NewMem()
	d, err := OpenDir(dirOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem, Config{})
	o.LogDir = d
	l := openTest(t, o)
	for range 10 {
		mustAppend(t, l, 0, plain(t, now(), 2))
	}
	if err := errors.Join(l.SetLogStart(6), l.Close(true), d.Checkpoint()); err != nil {
		t.Fatal(err)
	}
	if err := mem.Rename(o.Dir, o.Dir+".set-aside"); err != nil {
		t.Fatal(err)
	}
	o.TopicID[7]++
	l = openTest(t, o)
	mustAppend(t, l, 0, plain(t, now(), 2))
	mem = mem.KillClone()
	if d, err = OpenDir(dirOptions(mem)); err != nil {
		t.Fatal(err)
	}
	if rp, start := d.RecoveryPoint(l.tp), d.LogStart(l.tp); rp != 0 || start > 0 {
		t.Errorf("recovery point %d and log start %d of another topic", rp, start)
	}
	o.FS, o.LogDir, o.RecoveryPoint = mem, d, d.RecoveryPoint(l.tp)
	if l = openTest(t, o); l.EndOffset() != 2 {
		t.Errorf("ends at %d", l.EndOffset())
	}
}

// TestSameNameAtOnce: a topic is deleted and made again, and the broker dies, all before the next checkpoint.
func TestSameNameAtOnce(t *testing.T) {
	mem := vfs.NewMem()
	d, err := OpenDir(dirOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem, Config{})
	o.LogDir = d
	l := openTest(t, o)
	for range 10 {
		mustAppend(t, l, 0, plain(t, now(), 2))
	}
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.SetLogStart(6), d.Checkpoint(), l.Delete()); err != nil {
		t.Fatal(err)
	}
	o.TopicID[7]++
	l = openTest(t, o)
	mustAppend(t, l, 0, plain(t, now(), 2))
	mem = mem.KillClone()
	if d, err = OpenDir(dirOptions(mem)); err != nil {
		t.Fatal(err)
	}
	if rp, start := d.RecoveryPoint(l.tp), d.LogStart(l.tp); rp != 0 || start > 0 {
		t.Errorf("recovery point %d and log start %d of the deleted topic", rp, start)
	}
}

func TestOtherTopicID(t *testing.T) {
	l, mem := newTestLog(t, Config{})
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem, Config{})
	o.TopicID[3]++
	if _, err := Open(o); !errors.Is(err, ErrOtherTopic) {
		t.Errorf("opened with %v", err)
	}
}

// TestDamageKeepsItsMeasure: the offset up to which a damaged log was durable is not lowered to where it can be read.
func TestDamageKeepsItsMeasure(t *testing.T) {
	mem, batches := writeLog(t)
	edit(t, mem, fileOf(batches[11]), batches[11].pos+70, []byte{0xff})
	if err := vfs.WriteFileAtomic(mem, "data/recovery-point-offset-checkpoint", []byte("0\n1\norders 3 48\n")); err != nil {
		t.Fatal(err)
	}
	meta := encodeMetaProperties(MetaProperties{ClusterID: "cluster-a", NodeID: 1, DirectoryID: testID})
	if err := vfs.WriteFileAtomic(mem, "data/meta.properties", meta); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d, err := OpenDir(dirOptions(mem))
		if err != nil {
			t.Fatal(err)
		}
		o := testOptions(mem, Config{})
		o.LogDir, o.Clean, o.AcceptDamage, o.RecoveryPoint = d, d.Clean(), true, d.RecoveryPoint(TopicPartition{"orders", 3})
		l := openTest(t, o)
		if l.Damage() == nil || l.EndOffset() != 44 {
			t.Fatalf("damage %v, ends at %d", l.Damage(), l.EndOffset())
		}
		if err := errors.Join(d.Checkpoint(), l.Close(true), d.Close(true, 1)); err != nil {
			t.Fatal(err)
		}
		if rp := d.RecoveryPoint(l.tp); rp != 48 {
			t.Errorf("recovery point %d", rp)
		}
	}
}
