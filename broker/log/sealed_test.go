package log

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/varve-io/varve/wire/record"
)

func TestSealed(t *testing.T) {
	l, mem := newTestLog(t, Config{SegmentBytes: 900, IndexIntervalBytes: 100})
	ts := now()
	for i := range 12 {
		mustAppend(t, l, int32(i/4), batchOf(t, record.Options{ProducerID: 7, BaseSequence: int32(3 * i), Transactional: true}, ts-int64(i*10), 3))
		if i%5 == 4 {
			mustAppend(t, l, int32(i/4), marker(record.Abort, 7, 0))
		}
	}
	check := func(l *Log) {
		t.Helper()
		last := l.Segments()[len(l.Segments())-1].Base
		for next := int64(0); ; {
			s, ok, err := l.Sealed(next)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				if next != last {
					t.Errorf("sealed up to %d, the active segment begins at %d", next, last)
				}
				break
			}
			checkSealed(t, l, s, next)
			next = s.End
			s.Release()
		}
		// From inside a segment: the rest of it, from the batch that holds the offset.
		s, ok, err := l.Sealed(4)
		if err != nil || !ok || s.Base != 3 {
			t.Errorf("sealed at 4: %d to %d, %v %v", s.Base, s.End, ok, err)
		}
		checkSealed(t, l, s, 3)
		s.Release()
	}
	check(l)
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem, Config{SegmentBytes: 900, IndexIntervalBytes: 100})
	o.Clean = true
	check(openTest(t, o))
}

func checkSealed(t *testing.T, l *Log, s Sealed, base int64) {
	t.Helper()
	p := make([]byte, s.Size)
	if _, err := s.Data.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	want := history{start: 0}
	var min, max int64
	for _, b := range readAll(t, l, 0, 1<<20) {
		if b.BaseOffset() >= s.End {
			break
		}
		want.batches = append(want.batches, b)
		if b.BaseOffset() < base {
			continue
		}
		if !bytes.Equal(p[:len(b)], b) {
			t.Fatalf("batch at %d differs", b.BaseOffset())
		}
		p = p[len(b):]
		if !b.IsControl() {
			if min == 0 || b.BaseTimestamp() < min {
				min = b.BaseTimestamp()
			}
			if b.MaxTimestamp() > max {
				max = b.MaxTimestamp()
			}
		}
	}
	if s.Base != base || len(p) != 0 || s.MinTimestamp != min || s.MaxTimestamp != max {
		t.Errorf("%d to %d, %d bytes too many, times %d to %d, want %d to %d", s.Base, s.End, len(p), s.MinTimestamp, s.MaxTimestamp, min, max)
	}
	state, _ := want.state(t, s.End)
	if err := sameProducers(s.Producers, state.entries()); err != nil {
		t.Errorf("at %d: %v", s.End, err)
	}
	if n := len(state.entries()); n > 0 && s.End > 20 && len(s.Producers[0].Batches) < 5 {
		t.Errorf("at %d only %d of the last batches", s.End, len(s.Producers[0].Batches))
	}
	if len(s.Epochs) == 0 || s.Epochs[0].StartOffset != s.Base {
		t.Errorf("epochs %v of %d to %d", s.Epochs, s.Base, s.End)
	}
	aborted, err := l.AbortedTxns(s.Base, s.End)
	if err != nil || fmt.Sprint(aborted) != fmt.Sprint(s.Aborted) {
		t.Errorf("aborted %v, want %v", s.Aborted, aborted)
	}
}

// TestOffsetForTime compares with a search through everything, with timestamps in any order and all codecs
// (G16).
func TestOffsetForTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	l, mem := newTestLog(t, Config{SegmentBytes: 5000, IndexIntervalBytes: 400, TimestampAfterMaxMs: -1})
	type rec struct{ offset, ts int64 }
	var all []rec
	for range 120 {
		b := record.NewBuilder(record.Options{Codec: record.Codec(rng.IntN(5))})
		end := l.EndOffset()
		for i := range 1 + rng.IntN(6) {
			ts := 1000 + end*2 + rng.Int64N(200) - 100
			b.Append(ts, nil, []byte("some value of some length"))
			all = append(all, rec{end + int64(i), ts})
		}
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, int32(end/100), batch)
	}
	check := func(l *Log) {
		t.Helper()
		for range 400 {
			ts, end := 800+rng.Int64N(l.EndOffset()*2+600), l.LocalStart()+rng.Int64N(l.EndOffset()-l.LocalStart()+1)
			var want TimeOffset
			found := false
			for _, r := range all {
				if !found && r.ts >= ts && r.offset < end && r.offset >= l.LocalStart() {
					want, found = TimeOffset{r.offset, r.ts, l.EpochForOffset(r.offset)}, true
				}
			}
			if got, ok, err := l.OffsetForTime(ts, end); err != nil || ok != found || got != want {
				t.Fatalf("time %d below %d: %+v %v %v, want %+v %v", ts, end, got, ok, err, want, found)
			}
			want, found = TimeOffset{Timestamp: -1}, false
			for _, r := range all {
				if r.ts > want.Timestamp && r.offset < end && r.offset >= l.LocalStart() {
					want, found = TimeOffset{r.offset, r.ts, l.EpochForOffset(r.offset)}, true
				}
			}
			if got, ok, err := l.MaxTimestamp(end); err != nil || ok != found || found && got != want {
				t.Fatalf("largest below %d: %+v %v %v, want %+v", end, got, ok, err, want)
			}
		}
	}
	check(l)
	if err := l.SetLogStart(77); err != nil {
		t.Fatal(err)
	}
	check(l)
	if _, err := l.DeleteLocalBefore(200, "test"); err != nil {
		t.Fatal(err)
	}
	check(l)
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem, Config{SegmentBytes: 5000, IndexIntervalBytes: 400})
	o.Clean, o.LogStart = true, 77
	check(openTest(t, o))
}

func TestRollByTime(t *testing.T) {
	config := Config{SegmentMs: 60_000, TimestampAfterMaxMs: -1}
	l, _ := newTestLog(t, config)
	ts := now()
	mustAppend(t, l, 0, plain(t, ts, 1))
	mustAppend(t, l, 0, plain(t, ts+60_000, 1))
	if n := len(l.Segments()); n != 1 {
		t.Errorf("%d segments", n)
	}
	mustAppend(t, l, 0, plain(t, ts+60_001, 1)) // counted by the records' time, as in Kafka
	if n := len(l.Segments()); n != 2 {
		t.Errorf("%d segments", n)
	}
	if err := l.MaybeRoll(time.Now().Add(59 * time.Second)); err != nil || len(l.Segments()) != 2 {
		t.Errorf("%v, %+v", err, l.Segments())
	}
	if err := l.MaybeRoll(time.Now().Add(61 * time.Second)); err != nil || len(l.Segments()) != 3 { // idle, by the clock
		t.Errorf("%v, %+v", err, l.Segments())
	}
	if err := l.MaybeRoll(time.Now().Add(time.Hour)); err != nil || len(l.Segments()) != 3 { // an empty one is not sealed
		t.Errorf("%v, %+v", err, l.Segments())
	}
}

func TestRollByIndexAndOffset(t *testing.T) {
	l, _ := newTestLog(t, Config{IndexIntervalBytes: 1, SegmentIndexBytes: 10 * 12})
	for range 40 {
		mustAppend(t, l, 0, plain(t, now(), 1))
	}
	if n := len(l.Segments()); n < 3 {
		t.Errorf("%d segments of at most ten index entries", n)
	}
	if err := l.TruncateFullyAndStartAt(0, nil, nil); err != nil {
		t.Fatal(err)
	}
	l.SetConfig(Config{Compact: true})
	far := plain(t, now(), 1)
	far.SetBaseOffset(5)
	further := plain(t, now(), 1)
	further.SetBaseOffset(1 << 31)
	if end, err := l.AppendAsFollower(append(bytes.Clone(far), further...), 0); err != nil || end != 1<<31+1 || len(l.Segments()) != 2 {
		t.Errorf("ends at %d in %d segments, %v", end, len(l.Segments()), err)
	}
	if got := readAll(t, l, 0, 1000); len(got) != 2 {
		t.Errorf("%d batches across the gap", len(got))
	}
}
