package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// testID is the topic id of the logs under test.
var testID = wire.UUID{0: 7, 15: 9}

func testOptions(fsys vfs.FS, config Config) Options {
	return Options{FS: fsys, Dir: "data/orders-3", Topic: "orders", TopicID: testID, Partition: 3, Config: config, LogStart: -1}
}

func openTest(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newTestLog opens an empty log on a disk in memory.
func newTestLog(t testing.TB, config Config) (*Log, *vfs.Mem) {
	t.Helper()
	mem := vfs.NewMem()
	return openTest(t, testOptions(mem, config)), mem
}

// batchOf makes a batch of n records with timestamps from ts on, each valued by its number.
func batchOf(t testing.TB, o record.Options, ts int64, n int) record.Batch {
	t.Helper()
	b := record.NewBuilder(o)
	for i := range n {
		b.Append(ts+int64(i), fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value-%d-%d", ts, i))
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func plain(t testing.TB, ts int64, n int) record.Batch { return batchOf(t, record.Options{}, ts, n) }

// now is a timestamp that validation accepts.
func now() int64 { return time.Now().UnixMilli() }

// mustAppend appends one batch and returns its base offset.
func mustAppend(t testing.TB, l *Log, epoch int32, b record.Batch) int64 {
	t.Helper()
	a := &Append{Batch: b}
	if b.IsControl() {
		a.Origin = OriginCoordinator
	}
	if err := l.AppendAsLeader([]*Append{a}, epoch); err != nil {
		t.Fatal(err)
	}
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.BaseOffset
}

// readRange returns the bytes of a read and gives the pin back.
func readRange(t testing.TB, r Read) []byte {
	t.Helper()
	p := make([]byte, r.Range.Size)
	if len(p) == 0 {
		return p
	}
	if _, err := r.Range.ReaderAt.ReadAt(p, r.Range.Off); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	r.Range.Release()
	return p
}

// readAll reads the log from an offset to its end, one read after the other, and checks what each says of
// itself.
func readAll(t testing.TB, l *Log, from int64, maxBytes int) []record.Batch {
	t.Helper()
	var all []record.Batch
	for from < l.EndOffset() {
		r, err := l.Read(from, maxBytes, l.EndOffset(), true)
		if err != nil {
			t.Fatalf("read at %d: %v", from, err)
		}
		p := readRange(t, r)
		if len(p) == 0 {
			t.Fatalf("nothing at %d, the log ends at %d", from, l.EndOffset())
		}
		next := from
		for b, err := range record.All(p) {
			if err != nil {
				t.Fatalf("read at %d gave part of a batch: %v", from, err)
			}
			if err := b.VerifyCRC(); err != nil {
				t.Fatalf("batch at %d: %v", b.BaseOffset(), err)
			}
			all = append(all, bytes.Clone(b))
			next = b.NextOffset()
		}
		if r.NextOffset != next {
			t.Fatalf("read at %d says next is %d, its last batch says %d", from, r.NextOffset, next)
		}
		if first := record.Batch(p); first.BaseOffset() != r.FirstOffset || first.LastOffset() < from {
			t.Fatalf("read at %d begins with batch %d..%d, says %d", from, first.BaseOffset(), first.LastOffset(), r.FirstOffset)
		}
		from = next
	}
	return all
}

func TestAppendAndRead(t *testing.T) {
	l, _ := newTestLog(t, Config{SegmentBytes: 4000, IndexIntervalBytes: 300})
	ts := now()
	var want []record.Batch
	for i := range 60 {
		b := plain(t, ts+int64(i), 1+i%7)
		offset := mustAppend(t, l, 4, b)
		if len(want) > 0 && offset != want[len(want)-1].NextOffset() {
			t.Fatalf("batch %d got offset %d", i, offset)
		}
		want = append(want, b)
	}
	if n := len(l.Segments()); n < 3 {
		t.Fatalf("%d segments", n)
	}
	for _, maxBytes := range []int{1, 100, 500, 1500, 1 << 20} {
		got := readAll(t, l, 0, maxBytes)
		if len(got) != len(want) {
			t.Fatalf("max %d: read %d batches, appended %d", maxBytes, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("max %d: batch %d differs", maxBytes, i)
			}
		}
	}
	for offset := range l.EndOffset() {
		r, err := l.Read(offset, 1<<20, l.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := record.Next(readRange(t, r))
		if err != nil || b.BaseOffset() > offset || b.LastOffset() < offset {
			t.Fatalf("read at %d gave %d..%d, %v", offset, b.BaseOffset(), b.LastOffset(), err)
		}
	}
}

func TestReadIsBoundedByEnd(t *testing.T) {
	l, _ := newTestLog(t, Config{IndexIntervalBytes: 200})
	for i := range 300 {
		mustAppend(t, l, 0, plain(t, now()+int64(i), 2))
	}
	for _, end := range []int64{0, 1, 2, 3, 100, 101, 398, 399, 598, 599, 600, 9999} {
		for _, from := range []int64{0, 1, 99, 100, 397, 398, 596, 599} {
			r, err := l.Read(from, 1<<20, end, true)
			if err != nil {
				t.Fatal(err)
			}
			p := readRange(t, r)
			last := from
			for b := range record.All(p) {
				last = b.NextOffset()
			}
			bound := min(end, 600) / 2 * 2 // a batch is all or nothing
			if want := max(bound, from); len(p) > 0 && last != want || len(p) == 0 && from/2*2+2 <= bound {
				t.Errorf("read [%d, %d) went to %d, want %d", from, end, last, want)
			}
			if r.NextOffset != last {
				t.Errorf("read [%d, %d) says next %d, want %d", from, end, r.NextOffset, last)
			}
		}
	}
}

func TestReadOutOfRange(t *testing.T) {
	l, _ := newTestLog(t, Config{})
	mustAppend(t, l, 0, plain(t, now(), 3))
	for _, offset := range []int64{-1, 4, 1 << 40} {
		if _, err := l.Read(offset, 100, l.EndOffset(), true); !errors.Is(err, ErrOffsetOutOfRange) || !errors.Is(err, kerr.OffsetOutOfRange) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	r, err := l.Read(3, 100, l.EndOffset(), true)
	if err != nil || r.Range.Size != 0 || r.NextOffset != 3 {
		t.Errorf("at the end: %+v, %v", r, err)
	}
	r, err = l.Read(0, 10, l.EndOffset(), false)
	if err != nil || r.Range.Size != 0 {
		t.Errorf("a batch larger than the maximum without minOneBatch: %+v, %v", r, err)
	}
}

func TestCleanReopen(t *testing.T) {
	l, mem := newTestLog(t, Config{SegmentBytes: 3000, IndexIntervalBytes: 300})
	for i := range 50 {
		mustAppend(t, l, int32(i/20), batchOf(t, record.Options{ProducerID: 5, BaseSequence: int32(2 * i)}, now(), 2))
	}
	want, producers, epochs := readAll(t, l, 0, 700), l.ActiveProducers(), l.Epochs(0, 100)
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem, Config{SegmentBytes: 3000, IndexIntervalBytes: 300})
	o.Clean, o.RecoveryPoint = true, 100
	l = openTest(t, o)
	got := readAll(t, l, 0, 900)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error("other batches after reopening")
	}
	if got := l.ActiveProducers(); fmt.Sprint(got) != fmt.Sprint(producers) {
		t.Errorf("producers\n%+v, want\n%+v", got, producers)
	}
	if got := l.Epochs(0, 100); fmt.Sprint(got) != fmt.Sprint(epochs) {
		t.Errorf("epochs %v, want %v", got, epochs)
	}
	if offset := mustAppend(t, l, 2, batchOf(t, record.Options{ProducerID: 5, BaseSequence: 100}, now(), 2)); offset != 100 {
		t.Errorf("next offset %d", offset)
	}
}

// TestHotPathAllocatesNothing: an append and a read at the tail or in sequence leave nothing to the collector.
func TestHotPathAllocatesNothing(t *testing.T) {
	o := testOptions(vfs.OS(), Config{MaxMessageBytes: 2 << 20})
	o.Dir = t.TempDir() + "/orders-3"
	l := openTest(t, o)
	defer l.Close(false)
	items := []*Append{{Batch: kilobytes(t, 16<<10, record.Options{})}, {Batch: kilobytes(t, 16<<10, record.Options{ProducerID: 7})}}
	sequence := int32(0)
	appendOnce := func() {
		items[0].Batch.SetBaseOffset(0)
		items[1].Batch.SetBaseOffset(0)
		setSequence(items[1].Batch, sequence)
		sequence += items[1].Batch.Count()
		if err := l.AppendAsLeader(items, 0); err != nil || items[0].Err != nil || items[1].Err != nil {
			t.Fatal(err, items[0].Err, items[1].Err)
		}
	}
	for range 200 {
		appendOnce()
	}
	at := int64(0)
	readOnce := func() {
		r, err := l.Read(at, 64<<10, l.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		r.Range.Release()
		if at = r.NextOffset; at == l.EndOffset() {
			at = l.EndOffset() - 10
		}
	}
	if n := testing.AllocsPerRun(100, appendOnce); n > 0.5 {
		t.Errorf("%.1f allocations for an append", n)
	}
	if n := testing.AllocsPerRun(100, readOnce); n > 0.5 {
		t.Errorf("%.1f allocations for a read", n)
	}
}
