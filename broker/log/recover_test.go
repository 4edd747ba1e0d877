package log

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// writeLog writes segments of batches of 4 records and leaves them as a crash does; it returns where each batch
// begins.
func writeLog(t testing.TB) (mem *vfs.Mem, batches []placed) {
	t.Helper()
	l, mem := newTestLog(t, Config{SegmentBytes: 600, IndexIntervalBytes: 100})
	for i := range 12 {
		b := from(t, 7, 0, int32(4*i), 4)
		base := mustAppend(t, l, int32(i/5), b)
		s := l.active()
		batches = append(batches, placed{base: base, pos: s.size - int64(len(b)), size: int64(len(b)), minTimestamp: s.base})
	}
	if len(l.Segments()) < 3 {
		t.Fatal("too few segments")
	}
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	return mem, batches
}

// edit changes bytes of a file behind the log's back.
func edit(t testing.TB, fsys vfs.FS, name string, pos int64, set []byte) {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	if err == nil {
		_, err = f.WriteAt(set, pos)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func cut(t testing.TB, fsys vfs.FS, name string, size int64) {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// fileOf is the segment file of a batch of writeLog.
func fileOf(b placed) string { return path.Join("data/orders-3", fileName(b.minTimestamp, logSuffix)) }

func TestRecoveryTellsRotFromAnEnd(t *testing.T) {
	const corrupt, whole = -1, 48
	flip := func(n int) func(testing.TB, vfs.FS, []placed) {
		return func(t testing.TB, fsys vfs.FS, b []placed) {
			edit(t, fsys, fileOf(b[n]), b[n].pos+70, []byte{0xff, 0x3c})
		}
	}
	tear := func(n int, keep int64) func(testing.TB, vfs.FS, []placed) {
		return func(t testing.TB, fsys vfs.FS, b []placed) { cut(t, fsys, fileOf(b[n]), b[n].pos+keep) }
	}
	for _, c := range []struct {
		name      string
		damage    func(testing.TB, vfs.FS, []placed)
		recovery  int64
		page, end int64 // end with the page cache alive, and after a power loss
	}{
		{"nothing", func(testing.TB, vfs.FS, []placed) {}, 0, whole, whole},
		{"nothing, durable", func(testing.TB, vfs.FS, []placed) {}, 48, whole, whole},
		{"bit flip in the first batch", flip(0), 0, corrupt, 0},
		{"bit flip in the middle", flip(5), 0, corrupt, 20},
		{"bit flip in the last batch", flip(11), 0, 44, 44},
		{"bit flip in the last batch, durable", flip(11), 48, corrupt, corrupt},
		{"torn header", tear(11, 30), 0, 44, 44},
		{"torn batch", tear(11, 100), 0, 44, 44},
		{"torn in an inner segment", tear(5, 100), 0, corrupt, 20},
		{"torn where it was durable", tear(11, 100), 46, corrupt, corrupt},
		{"cut at a batch's end", tear(11, 0), 0, 44, 44},
		{"cut at a batch's end, durable", tear(11, 0), 48, corrupt, corrupt},
		{"zeros behind the last", func(t testing.TB, fsys vfs.FS, b []placed) {
			edit(t, fsys, fileOf(b[11]), b[11].pos+b[11].size, make([]byte, 500))
		}, 48, whole, whole},
		{"rubbish behind the last", func(t testing.TB, fsys vfs.FS, b []placed) {
			edit(t, fsys, fileOf(b[11]), b[11].pos+b[11].size, []byte(strings.Repeat("rubbish\x02", 50)))
		}, 48, whole, whole},
		{"length that lies", func(t testing.TB, fsys vfs.FS, b []placed) {
			edit(t, fsys, fileOf(b[3]), b[3].pos+8, []byte{0x7f, 0xff, 0xff, 0xff})
		}, 0, corrupt, 12},
		{"base offset flipped", func(t testing.TB, fsys vfs.FS, b []placed) {
			edit(t, fsys, fileOf(b[3]), b[3].pos+5, []byte{1})
		}, 0, corrupt, 12},
		{"a segment is missing", func(t testing.TB, fsys vfs.FS, b []placed) {
			if err := fsys.Remove(fileOf(b[4])); err != nil {
				t.Fatal(err)
			}
		}, 0, corrupt, b4base},
		{"only the last segment is left of two", func(t testing.TB, fsys vfs.FS, b []placed) {
			cut(t, fsys, fileOf(b[11]), b[11].pos)
			last := b[10]
			for _, x := range b {
				if x.minTimestamp > b[0].minTimestamp && x.minTimestamp < last.minTimestamp {
					_ = fsys.Remove(fileOf(x))
				}
			}
		}, 0, corrupt, b4base},
	} {
		for _, survived := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, page cache %v", c.name, survived), func(t *testing.T) {
				mem, batches := writeLog(t)
				c.damage(t, mem, batches)
				want := c.end
				if survived {
					want = c.page
				}
				if want == b4base {
					want = batches[4].minTimestamp
				}
				checkRecovery(t, mem, survived, c.recovery, want, batches)
			})
		}
	}
}

// b4base stands for the base of the segment that holds the fifth batch.
const b4base = -2

func checkRecovery(t *testing.T, mem *vfs.Mem, survived bool, recovery, want int64, batches []placed) {
	t.Helper()
	o := testOptions(mem, Config{SegmentBytes: 600, IndexIntervalBytes: 100})
	o.PageCacheSurvived, o.RecoveryPoint = survived, recovery
	l, err := Open(o)
	if want < 0 {
		var damage *Damage
		if !errors.Is(err, ErrCorrupt) || !errors.As(err, &damage) {
			t.Fatalf("opened with %v", err)
		}
		checkDamaged(t, o, damage)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if l.EndOffset() != want {
		t.Fatalf("the log ends at %d, want %d", l.EndOffset(), want)
	}
	if n := len(readAll(t, l, 0, 1000)); int64(n) != want/4 {
		t.Errorf("%d batches", n)
	}
	if want > 0 {
		if got := l.ActiveProducers(); len(got) != 1 || got[0].LastOffset() != want-1 {
			t.Errorf("producers %+v", got)
		}
	}
	if offset := mustAppend(t, l, 5, from(t, 7, 0, int32(want), 4)); offset != want {
		t.Errorf("next offset %d", offset)
	}
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	o.Clean, o.RecoveryPoint = true, want+4
	if got := readAll(t, openTest(t, o), 0, 1000); int64(len(got)) != want/4+1 {
		t.Errorf("%d batches after a clean restart", len(got))
	}
}

// checkDamaged: the files stay as they are, and what is good can be read.
func checkDamaged(t *testing.T, o Options, damage *Damage) {
	t.Helper()
	before := content(t, o.FS, ".log")
	o.AcceptDamage = true
	l := openTest(t, o)
	if l.Damage() == nil || l.EndOffset() != damage.Offset {
		t.Errorf("damage %v, the log ends at %d", l.Damage(), l.EndOffset())
	}
	readAll(t, l, 0, 1000)
	for _, err := range []error{l.AppendAsLeader([]*Append{{Batch: plain(t, now(), 1)}}, 9), l.Truncate(0), l.Roll()} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("a write gave %v", err)
		}
	}
	if err := l.Close(true); err != nil {
		t.Error(err)
	}
	if after := content(t, o.FS, ".log"); after != before {
		t.Errorf("files changed from %s to %s", before, after)
	}
	// It is not forgotten: neither a clean end nor a power loss makes a torn tail of it.
	for _, clean := range []bool{true, false} {
		again := o
		again.AcceptDamage, again.PageCacheSurvived, again.Clean = false, false, clean
		if _, err := Open(again); !errors.Is(err, ErrCorrupt) {
			t.Errorf("opened again, clean %v, with %v", clean, err)
		}
	}
}

// content names the files of the partition with a suffix and their sizes.
func content(t *testing.T, fsys vfs.FS, suffix string) string {
	names, err := fsys.List("data/orders-3")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		if info, err := fsys.Stat(path.Join("data/orders-3", name)); err == nil && strings.Contains(name, suffix) {
			fmt.Fprintf(&b, "%s=%d ", name, info.Size())
		}
	}
	return b.String()
}

func TestCutBytesAreKept(t *testing.T) {
	mem, batches := writeLog(t)
	last := batches[11]
	edit(t, mem, fileOf(last), last.pos+70, []byte{0xff})
	edit(t, mem, fileOf(batches[5]), batches[5].pos+70, []byte{0xff})
	o := testOptions(mem, Config{})
	if l := openTest(t, o); l.EndOffset() != 20 {
		t.Fatal(l.EndOffset())
	}
	var sum int64
	for _, b := range batches[5:] {
		sum += b.size
	}
	names, err := mem.List("data/orders-3")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, cutSuffix) {
			info, err := mem.Stat(path.Join("data/orders-3", name))
			if err != nil {
				t.Fatal(err)
			}
			sum -= info.Size()
		}
	}
	if sum != 0 {
		t.Errorf("%d bytes too few were kept: %v", sum, names)
	}
}

// TestIndexesAreNotTrusted: whatever is in them, reads are right, after a clean start and after a crash.
func TestIndexesAreNotTrusted(t *testing.T) {
	const name = "data/orders-3/00000000000000000000"
	for _, c := range []struct {
		name   string
		damage func(testing.TB, vfs.FS)
	}{
		{"offset index gone", func(t testing.TB, f vfs.FS) { f.Remove(name + offsetSuffix) }},
		{"time index gone", func(t testing.TB, f vfs.FS) { f.Remove(name + timeSuffix) }},
		{"time index empty", func(t testing.TB, f vfs.FS) { cut(t, f, name+timeSuffix, 0) }},
		{"offset index with part of an entry", func(t testing.TB, f vfs.FS) { cut(t, f, name+offsetSuffix, 7) }},
		{"time index with part of an entry", func(t testing.TB, f vfs.FS) { cut(t, f, name+timeSuffix, 13) }},
		{"positions beyond the log", func(t testing.TB, f vfs.FS) { edit(t, f, name+offsetSuffix, 4, []byte{0x7f}) }},
		{"descending", func(t testing.TB, f vfs.FS) { edit(t, f, name+offsetSuffix, 8, make([]byte, 8)) }},
		{"positions between batches", func(t testing.TB, f vfs.FS) { edit(t, f, name+offsetSuffix, 7, []byte{0xee}) }},
		{"wrong offset", func(t testing.TB, f vfs.FS) { edit(t, f, name+offsetSuffix, 3, []byte{1}) }},
		{"zeros behind", func(t testing.TB, f vfs.FS) { edit(t, f, name+offsetSuffix, 24, make([]byte, 800)) }},
		{"timestamps of the future", func(t testing.TB, f vfs.FS) { edit(t, f, name+timeSuffix, 0, []byte{0x7f}) }},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, clean %v", c.name, clean), func(t *testing.T) {
				mem, batches := writeLog(t)
				c.damage(t, mem)
				o := testOptions(mem, Config{SegmentBytes: 600, IndexIntervalBytes: 100})
				o.Clean, o.RecoveryPoint = clean, 48
				l := openTest(t, o)
				if got := readAll(t, l, 0, 300); len(got) != len(batches) {
					t.Errorf("%d batches", len(got))
				}
				for _, b := range batches {
					if r, err := l.Read(b.base+2, 1, 48, true); err != nil || r.FirstOffset != b.base || r.Range.Off != b.pos {
						t.Errorf("batch at %d: %+v, %v", b.base, r, err)
					}
				}
				if found, ok, err := l.OffsetForTime(0, 48); err != nil || !ok || found.Offset != 0 {
					t.Errorf("%+v %v %v", found, ok, err)
				}
			})
		}
	}
}

// TestNoSegments: a directory that lost all its files is not a new one.
func TestNoSegments(t *testing.T) {
	mem, batches := writeLog(t)
	for _, b := range batches {
		_ = mem.Remove(fileOf(b))
	}
	o := testOptions(mem, Config{})
	o.RecoveryPoint = 48
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) {
		t.Errorf("opened with %v", err)
	}
	o.AcceptDamage = true
	if l := openTest(t, o); l.Damage() == nil || l.EndOffset() != 0 {
		t.Errorf("damage %v, ends at %d", l.Damage(), l.EndOffset())
	}
}

// TestRotBelowWithoutIndex: the index must be built anew from batches that cannot be believed.
func TestRotBelowWithoutIndex(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem, batches := writeLog(t)
		edit(t, mem, fileOf(batches[1]), batches[1].pos+8, []byte{0x7f})
		if err := mem.Remove("data/orders-3/00000000000000000000.timeindex"); err != nil {
			t.Fatal(err)
		}
		o := testOptions(mem, Config{})
		o.RecoveryPoint, o.Clean = 48, clean
		if _, err := Open(o); !errors.Is(err, ErrCorrupt) {
			t.Errorf("opened with %v", err)
		}
		o.AcceptDamage = true
		if l := openTest(t, o); l.Damage() == nil || l.EndOffset() != 4 || len(readAll(t, l, 0, 100)) != 1 {
			t.Errorf("damage %v, ends at %d", l.Damage(), l.EndOffset())
		}
	}
}

// TestKafkasOldFormats: batches of magic 0 and 1 are refused with a clear text.
func TestKafkasOldFormats(t *testing.T) {
	mem, batches := writeLog(t)
	edit(t, mem, fileOf(batches[0]), 16, []byte{1})
	o := testOptions(mem, Config{})
	o.RecoveryPoint = 48
	o.Clean = true
	l, err := Open(o)
	if err == nil {
		_, err = l.Read(0, 100, 48, true)
	}
	if !errors.Is(err, record.ErrMagic) && !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
}

// TestMissingInTheMiddle: what is gone from between whole segments is missed at every start, and what comes before it can
// be read. Where compaction may have taken it, it is no damage.
func TestMissingInTheMiddle(t *testing.T) {
	for name, damage := range map[string]func(fsys vfs.FS, b []placed){
		"a segment":        func(fsys vfs.FS, b []placed) { _ = fsys.Remove(fileOf(b[4])) },
		"all of a segment": func(fsys vfs.FS, b []placed) { cut(t, fsys, fileOf(b[4]), 0) },
		"its last batch":   func(fsys vfs.FS, b []placed) { cut(t, fsys, fileOf(b[5]), b[5].pos) },
		"its last bytes":   func(fsys vfs.FS, b []placed) { cut(t, fsys, fileOf(b[5]), b[5].pos+100) },
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, clean end %v", name, clean), func(t *testing.T) {
				mem, batches := writeLog(t)
				o := testOptions(mem, Config{SegmentBytes: 600, IndexIntervalBytes: 100})
				o.RecoveryPoint = 48
				if err := openTest(t, o).Close(true); err != nil {
					t.Fatal(err)
				}
				damage(mem, batches)
				o.Clean = clean
				_, err := Open(o)
				var found *Damage
				if !errors.As(err, &found) {
					t.Fatalf("opened with %v", err)
				}
				if name != "its last bytes" {
					compacted := o
					compacted.Config.Compact = true
					if l := openTest(t, compacted); l.EndOffset() != 48 {
						t.Errorf("ends at %d", l.EndOffset())
					}
				}
				checkDamaged(t, o, found)
			})
		}
	}
}
