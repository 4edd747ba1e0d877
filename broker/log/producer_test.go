package log

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire/record"
)

// from makes a batch of n records of a producer.
func from(t testing.TB, id int64, epoch int16, sequence int32, n int) record.Batch {
	return batchOf(t, record.Options{ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence}, now(), n)
}

// inTxn is the same inside a transaction.
func inTxn(t testing.TB, id int64, epoch int16, sequence int32, n int) record.Batch {
	return batchOf(t, record.Options{ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence, Transactional: true}, now(), n)
}

func marker(kind record.ControlType, id int64, epoch int16) record.Batch {
	return record.EndTxnMarker(record.Marker{Type: kind, ProducerID: id, ProducerEpoch: epoch, CoordinatorEpoch: 1, Timestamp: now()})
}

// try appends one batch and returns what became of it.
func try(t testing.TB, l *Log, b record.Batch) *Append {
	t.Helper()
	a := &Append{Batch: b}
	if b.IsControl() {
		a.Origin = OriginCoordinator
	}
	if err := l.AppendAsLeader([]*Append{a}, 0); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSequences(t *testing.T) {
	type step struct {
		epoch    int16
		sequence int32
		n        int
		want     error // nil: appended
		repeats  int64 // offset of the batch that it repeats, if it is one
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"in order", []step{{0, 0, 2, nil, -1}, {0, 2, 3, nil, -1}, {0, 5, 1, nil, -1}}},
		{"gap", []step{{0, 0, 2, nil, -1}, {0, 3, 1, kerr.OutOfOrderSequenceNumber, -1}, {0, 2, 1, nil, -1}}},
		{"unknown producer begins anywhere", []step{{0, 77, 2, nil, -1}, {0, 79, 1, nil, -1}}},
		{"retry of the last", []step{{0, 0, 2, nil, -1}, {0, 0, 2, nil, 0}, {0, 2, 1, nil, -1}}},
		{"retry of the fifth last", []step{{0, 0, 1, nil, -1}, {0, 1, 1, nil, -1}, {0, 2, 1, nil, -1}, {0, 3, 1, nil, -1}, {0, 4, 1, nil, -1}, {0, 0, 1, nil, 0}}},
		{"retry of the sixth last", []step{{0, 0, 1, nil, -1}, {0, 1, 1, nil, -1}, {0, 2, 1, nil, -1}, {0, 3, 1, nil, -1}, {0, 4, 1, nil, -1}, {0, 5, 1, nil, -1}, {0, 0, 1, kerr.OutOfOrderSequenceNumber, -1}}},
		{"retry with another size", []step{{0, 0, 2, nil, -1}, {0, 0, 1, kerr.OutOfOrderSequenceNumber, -1}}},
		{"new epoch begins at 0", []step{{0, 0, 2, nil, -1}, {1, 0, 1, nil, -1}, {1, 1, 1, nil, -1}}},
		{"new epoch at 5", []step{{0, 0, 2, nil, -1}, {1, 5, 1, kerr.OutOfOrderSequenceNumber, -1}}},
		{"old epoch", []step{{3, 0, 2, nil, -1}, {2, 2, 1, kerr.InvalidProducerEpoch, -1}, {2, 0, 2, kerr.InvalidProducerEpoch, -1}}},
		{"wraps", []step{{0, math.MaxInt32 - 1, 2, nil, -1}, {0, 0, 3, nil, -1}, {0, 3, 1, nil, -1}, {0, math.MaxInt32 - 1, 2, nil, 0}}},
		{"wraps inside a batch", []step{{0, math.MaxInt32, 3, nil, -1}, {0, 2, 1, nil, -1}, {0, math.MaxInt32, 3, nil, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := newTestLog(t, Config{})
			together := make([]*Append, len(c.steps))
			for i, s := range c.steps {
				checkStep := func(a *Append) {
					t.Helper()
					if !errors.Is(a.Err, s.want) || a.Duplicate != (s.repeats >= 0) || a.Duplicate && a.BaseOffset != s.repeats {
						t.Errorf("step %d: %v, duplicate %v of %d", i, a.Err, a.Duplicate, a.BaseOffset)
					}
				}
				checkStep(try(t, l, from(t, 7, s.epoch, s.sequence, s.n)))
				together[i] = &Append{Batch: from(t, 7, s.epoch, s.sequence, s.n)}
			}
			// The same in one group: judged in order, against what is not written yet.
			group, _ := newTestLog(t, Config{})
			if err := group.AppendAsLeader(together, 0); err != nil {
				t.Fatal(err)
			}
			for i, s := range c.steps {
				a := together[i]
				if !errors.Is(a.Err, s.want) || a.Duplicate != (s.repeats >= 0) || a.Duplicate && a.BaseOffset != s.repeats {
					t.Errorf("step %d in a group: %v, duplicate %v of %d", i, a.Err, a.Duplicate, a.BaseOffset)
				}
			}
			if a, b := fmt.Sprint(offsets(t, l)), fmt.Sprint(offsets(t, group)); a != b {
				t.Errorf("one by one %s, in a group %s", a, b)
			}
		})
	}
}

func offsets(t testing.TB, l *Log) (list []int64) {
	for _, b := range readAll(t, l, 0, 1<<20) {
		list = append(list, b.BaseOffset(), b.LastOffset())
	}
	return list
}

func TestTransactions(t *testing.T) {
	l, _ := newTestLog(t, Config{SegmentBytes: 600})
	steps := []struct {
		batch    record.Batch
		unstable int64
	}{
		{from(t, 1, 0, 0, 2), noUnstable},       // 0, 1
		{inTxn(t, 7, 0, 0, 2), 2},               // 2, 3
		{inTxn(t, 8, 0, 0, 1), 2},               // 4
		{from(t, 1, 0, 2, 2), 2},                // 5, 6
		{marker(record.Abort, 7, 0), 2},         // 7: still held back, the high watermark has not passed it
		{inTxn(t, 8, 0, 1, 1), 2},               // 8
		{inTxn(t, 7, 0, 2, 1), 2},               // 9: a second transaction of 7
		{marker(record.Commit, 8, 0), 2},        // 10
		{marker(record.Abort, 7, 0), 2},         // 11
		{marker(record.Abort, 9, 0), 2},         // 12: of a transaction without a batch here
		{from(t, 1, 0, 4, 1), 2},                // 13
		{batchOf(t, record.Options{}, 1, 1), 2}, // 14
	}
	l.SetConfig(Config{SegmentBytes: 600, TimestampAfterMaxMs: -1})
	for i, s := range steps {
		if a := try(t, l, s.batch); a.Err != nil {
			t.Fatalf("step %d: %v", i, a.Err)
		}
		if got := l.FirstUnstable(); got != s.unstable {
			t.Errorf("step %d: first unstable %d, want %d", i, got, s.unstable)
		}
	}
	for _, c := range []struct{ hw, unstable, stable int64 }{{7, 2, 2}, {8, 4, 4}, {11, 9, 9}, {12, noUnstable, 12}, {15, noUnstable, 15}} {
		l.SetHighWatermark(c.hw)
		if l.FirstUnstable() != c.unstable || l.LastStable() != c.stable {
			t.Errorf("high watermark %d: first unstable %d, last stable %d; want %d, %d", c.hw, l.FirstUnstable(), l.LastStable(), c.unstable, c.stable)
		}
	}
	for _, c := range []struct {
		from, to int64
		want     string
	}{
		{0, 15, "[{7 2 7 4} {7 9 11 12}]"}, {0, 2, "[]"}, {0, 3, "[{7 2 7 4}]"}, {7, 8, "[{7 2 7 4}]"}, {8, 9, "[]"}, {8, 15, "[{7 9 11 12}]"}, {12, 15, "[]"},
	} {
		if got, err := l.AbortedTxns(c.from, c.to); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("aborted in [%d, %d): %v %v, want %s", c.from, c.to, got, err, c.want)
		}
	}
}

func TestTransactionErrors(t *testing.T) {
	l, _ := newTestLog(t, Config{})
	for i, c := range []struct {
		batch record.Batch
		want  error
	}{
		{inTxn(t, 7, 1, 0, 1), nil},
		{from(t, 7, 1, 1, 1), kerr.InvalidTxnState},
		{marker(record.Commit, 7, 0), kerr.InvalidProducerEpoch},
		{marker(record.Commit, 7, 1), nil},
		{from(t, 7, 1, 1, 1), nil},
		{record.EndTxnMarker(record.Marker{Type: record.Abort, ProducerID: 7, ProducerEpoch: 1}), kerr.TransactionCoordinatorFenced},
		{marker(record.Abort, 7, 2), nil}, // fences
		{from(t, 7, 1, 2, 1), kerr.InvalidProducerEpoch},
		{from(t, 7, 2, 0, 1), nil},
	} {
		if a := try(t, l, c.batch); !errors.Is(a.Err, c.want) {
			t.Errorf("step %d: %v, want %v", i, a.Err, c.want)
		}
	}
}

func TestProducersExpire(t *testing.T) {
	l, _ := newTestLog(t, Config{ProducerIDExpirationMs: 1000})
	try(t, l, from(t, 1, 0, 0, 1))
	try(t, l, inTxn(t, 2, 0, 0, 1))
	l.ExpireProducers(time.Now())
	if n := len(l.ActiveProducers()); n != 2 {
		t.Errorf("%d producers", n)
	}
	l.ExpireProducers(time.Now().Add(time.Hour))
	if got := l.ActiveProducers(); len(got) != 1 || got[0].ProducerID != 2 {
		t.Errorf("%+v: one with an open transaction does not expire", got)
	}
	if a := try(t, l, from(t, 1, 0, 55, 1)); a.Err != nil {
		t.Error(a.Err)
	}
}

// TestTrimKeepsTheNewest: the producer that is one too many is not the one that goes, least of all with its transaction open.
func TestTrimKeepsTheNewest(t *testing.T) {
	s := newProducers()
	for id := range int64(maxProducers) {
		p := newProducer()
		p.lastTimestamp = id
		s.byID[id] = &p
	}
	const id = maxProducers
	b := batchOf(t, record.Options{ProducerID: id, Transactional: true}, now(), 1)
	if _, err := s.apply(b, nil); err != nil {
		t.Fatal(err)
	}
	if p := s.byID[id]; p == nil || p.txnFirst != 0 || len(s.open) != 1 || len(s.byID) > maxProducers {
		t.Errorf("%+v, %d open, %d in all", p, len(s.open), len(s.byID))
	}
}
