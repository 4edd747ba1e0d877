package log

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire/record"
)

// TestFollowerIsTheSame: what a follower makes of the leader's batches is the leader's log, in every part.
func TestFollowerIsTheSame(t *testing.T) {
	config := Config{SegmentBytes: 900, IndexIntervalBytes: 100}
	leader, _ := newTestLog(t, config)
	for i := range 10 {
		epoch := int32(i / 3)
		mustAppend(t, leader, epoch, inTxn(t, 7, 0, int32(2*i), 2))
		mustAppend(t, leader, epoch, from(t, 8, 0, int32(3*i), 3))
		mustAppend(t, leader, epoch, marker(record.ControlType(i%2), 7, 0))
	}
	for _, maxBytes := range []int{1, 400, 1 << 20} {
		follower, _ := newTestLog(t, config)
		for follower.EndOffset() < leader.EndOffset() {
			r, err := leader.Read(follower.EndOffset(), maxBytes, leader.EndOffset(), true)
			if err != nil {
				t.Fatal(err)
			}
			if end, err := follower.AppendAsFollower(readRange(t, r), 9); err != nil || end != r.NextOffset {
				t.Fatalf("the follower ends at %d, want %d: %v", end, r.NextOffset, err)
			}
		}
		same := func(what string, a, b any) {
			t.Helper()
			if x, y := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); x != y {
				t.Errorf("%d bytes a fetch: %s\n%s, the leader has\n%s", maxBytes, what, y, x)
			}
		}
		same("batches", readAll(t, leader, 0, 500), readAll(t, follower, 0, 500))
		same("producers", leader.ActiveProducers(), follower.ActiveProducers())
		same("epochs", leader.Epochs(0, 99), follower.Epochs(0, 99))
		a, _ := leader.AbortedTxns(0, 99)
		b, _ := follower.AbortedTxns(0, 99)
		same("aborted transactions", a, b)
		same("unstable", leader.FirstUnstable(), follower.FirstUnstable())
		same("segments", bases(leader), bases(follower))
	}
}

func bases(l *Log) (list []int64) {
	for _, s := range l.Segments() {
		list = append(list, s.Base, s.Size)
	}
	return list
}

func TestFollowerRefuses(t *testing.T) {
	at := func(offset int64, epoch int32) record.Batch {
		b := plain(t, now(), 2)
		b.SetBaseOffset(offset)
		b.SetLeaderEpoch(epoch)
		return b
	}
	bad := at(2, 1)
	bad[80] ^= 1
	for _, c := range []struct {
		name    string
		batches []record.Batch
		cut     int
		end     int64
		want    error
	}{
		{"all", []record.Batch{at(0, 1), at(2, 1)}, 0, 4, nil},
		{"half a batch at the end", []record.Batch{at(0, 1), at(2, 1)}, 10, 2, nil},
		{"a later epoch", []record.Batch{at(0, 1), at(2, 3)}, 0, 2, nil},
		{"a gap", []record.Batch{at(0, 1), at(3, 1)}, 0, 2, kerr.CorruptMessage},
		{"an overlap", []record.Batch{at(0, 1), at(1, 1)}, 0, 2, kerr.CorruptMessage},
		{"a flipped bit", []record.Batch{at(0, 1), bad}, 0, 2, kerr.CorruptMessage},
		{"rubbish", []record.Batch{at(0, 1), make([]byte, 200)}, 0, 2, kerr.CorruptMessage},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := newTestLog(t, Config{})
			var set []byte
			for _, b := range c.batches {
				set = append(set, b...)
			}
			end, err := l.AppendAsFollower(set[:len(set)-c.cut], 2)
			if end != c.end || !errors.Is(err, c.want) || l.EndOffset() != c.end {
				t.Errorf("ends at %d, %v", end, err)
			}
		})
	}
}

func TestTruncate(t *testing.T) {
	for _, to := range []int64{0, 1, 2, 3, 19, 20, 21, 39, 40, 41, 60} {
		t.Run(fmt.Sprint(to), func(t *testing.T) {
			config := Config{SegmentBytes: 700, IndexIntervalBytes: 100}
			l, mem := newTestLog(t, config)
			shadow, _ := newTestLog(t, config)
			for i := range 20 {
				b := inTxn(t, int64(5+i%3), 0, int32(2*(i/3)), 2)
				copied := bytes.Clone(b)
				mustAppend(t, l, int32(i/4), b)
				if l.EndOffset() <= to {
					mustAppend(t, shadow, int32(i/4), copied)
				}
			}
			if _, err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := l.Truncate(to); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if a, b := fmt.Sprint(offsets(t, l), l.ActiveProducers(), l.Epochs(0, 99), l.FirstUnstable(), l.SyncedEnd(), l.Size()),
					fmt.Sprint(offsets(t, shadow), shadow.ActiveProducers(), shadow.Epochs(0, 99), shadow.FirstUnstable(), l.EndOffset(), shadow.Size()); a != b {
					t.Errorf("after truncation\n%s, a log that never had more\n%s", a, b)
				}
				if err := l.Close(true); err != nil {
					t.Fatal(err)
				}
				o := testOptions(mem, config)
				o.Clean = true
				l = openTest(t, o)
			}
		})
	}
}

func TestTruncateBelowLocalStart(t *testing.T) {
	l, _ := newTestLog(t, Config{SegmentBytes: 300})
	for range 6 {
		mustAppend(t, l, 0, plain(t, now(), 4))
	}
	if _, err := l.DeleteLocalBefore(8, "test"); err != nil {
		t.Fatal(err)
	}
	if err := l.Truncate(4); !errors.Is(err, ErrOffsetOutOfRange) || l.EndOffset() != 24 {
		t.Errorf("%v, ends at %d", err, l.EndOffset())
	}
}

func TestStartAt(t *testing.T) {
	l, mem := newTestLog(t, Config{SegmentBytes: 300})
	for range 6 {
		mustAppend(t, l, 3, plain(t, now(), 4))
	}
	pinned, err := l.Read(0, 100, 24, true)
	if err != nil {
		t.Fatal(err)
	}
	entries := []record.ProducerEntry{{ProducerID: 5, ProducerEpoch: 1, CoordinatorEpoch: -1, LastTimestamp: 9, CurrentTxnFirstOffset: -1,
		Batches: []record.ProducerBatch{{LastSequence: 3, LastOffset: 90, OffsetDelta: 1, Timestamp: 8}, {LastSequence: 7, LastOffset: 99, OffsetDelta: 3, Timestamp: 9}}}}
	epochs := []record.EpochStart{{Epoch: 2, StartOffset: 0}, {Epoch: 4, StartOffset: 70}}
	for _, at := range []int64{100, 0, 100} {
		if err := l.TruncateFullyAndStartAt(at, epochs, entries); err != nil {
			t.Fatal(err)
		}
		if l.EndOffset() != at || l.LocalStart() != at || l.LogStart() != 0 || l.Size() != 0 || l.EpochForOffset(80) != 4 {
			t.Errorf("end %d, local start %d, log start %d, epoch %d", l.EndOffset(), l.LocalStart(), l.LogStart(), l.EpochForOffset(80))
		}
	}
	if got := readRange(t, pinned); len(got) == 0 {
		t.Error("the old bytes are gone")
	}
	for range 2 {
		if got := l.ActiveProducers(); len(got) != 1 || got[0].LastOffset() != 99 || got[0].LastSequence() != 7 {
			t.Errorf("producers %+v", got)
		}
		if err := l.Close(true); err != nil {
			t.Fatal(err)
		}
		o := testOptions(mem, Config{})
		o.Clean, o.LogStart = true, 0
		l = openTest(t, o)
		if epoch, end := l.EndOffsetForEpoch(3); epoch != 2 || end != 70 {
			t.Errorf("epoch 3 ends as %d at %d", epoch, end)
		}
	}
	a := &Append{Batch: from(t, 5, 1, 8, 2)}
	if err := l.AppendAsLeader([]*Append{a}, 3); !errors.Is(err, kerr.NotLeaderForPartition) || !errors.Is(a.Err, kerr.NotLeaderForPartition) {
		t.Errorf("append in an old epoch: %v", err)
	}
	if offset := mustAppend(t, l, 4, from(t, 5, 1, 8, 2)); offset != 100 {
		t.Errorf("next offset %d", offset)
	}
}

func TestEpochCache(t *testing.T) {
	var c EpochCache
	for _, e := range []record.EpochStart{{Epoch: 2, StartOffset: 0}, {Epoch: 4, StartOffset: 11}, {Epoch: 7, StartOffset: 20}} {
		c.assign(e.Epoch, e.StartOffset)
	}
	for _, q := range []struct {
		epoch int32
		want  record.EpochStart
	}{{-1, record.EpochStart{Epoch: -1, StartOffset: -1}}, {1, record.EpochStart{Epoch: 1, StartOffset: 0}}, {2, record.EpochStart{Epoch: 2, StartOffset: 11}},
		{3, record.EpochStart{Epoch: 2, StartOffset: 11}}, {4, record.EpochStart{Epoch: 4, StartOffset: 20}}, {6, record.EpochStart{Epoch: 4, StartOffset: 20}},
		{7, record.EpochStart{Epoch: 7, StartOffset: 30}}, {8, record.EpochStart{Epoch: -1, StartOffset: -1}}} {
		if epoch, end := c.endOf(q.epoch, 30); epoch != q.want.Epoch || end != q.want.StartOffset {
			t.Errorf("epoch %d ends as %d at %d, want %+v", q.epoch, epoch, end, q.want)
		}
	}
	for offset, want := range map[int64]int32{0: 2, 10: 2, 11: 4, 19: 4, 20: 7, 99: 7} {
		if got := c.at(offset); got != want {
			t.Errorf("epoch of %d is %d, want %d", offset, got, want)
		}
	}
	if got := fmt.Sprint(c.between(15, 20), c.between(11, 21), c.between(0, 5)); got != "[{4 15}] [{4 11} {7 20}] [{2 0}]" {
		t.Error(got)
	}
	c.truncateStart(15)
	c.truncateEnd(20)
	if got := fmt.Sprint(c.entries); got != "[{4 15}]" || c.at(14) != NoEpoch {
		t.Error(got)
	}
	c.assign(9, 16)
	c.assign(5, 16) // a leader of a shorter log: what contradicts goes
	if got := fmt.Sprint(c.entries); got != "[{4 15} {5 16}]" {
		t.Error(got)
	}
}
