package crash

import (
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/test/check"
)

// The partitions that are spoiled, by what moves their log start.
var (
	fixed    = place{"kept", 1}
	trimmed  = place{"trimmed", 0}
	retained = place{"retained", 1}
)

// good is a history of ten records in every partition, and a read of all of them.
func good() (*history, map[place]reading) {
	h := newHistory()
	all := map[place]reading{}
	n := uint32(0)
	for _, t := range topics {
		for p := range t.partitions {
			at := place{t.name, p}
			r := reading{0, 10, nil}
			for o := range int64(10) {
				n++
				h.ack(0, at, check.Of(0, 0, n), o)
				r.polls = append(r.polls, check.Poll{Key: at.key(), Offset: o, Value: check.Of(0, 0, n)})
			}
			all[at] = r
		}
	}
	return h, all
}

// from is a reading of which what lies below start is gone.
func from(r reading, start int64) reading { return reading{start, r.end, r.polls[start:]} }

// TestHistoryFaults: every way in which a log can break its promises is told.
func TestHistoryFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(h *history, all map[place]reading)
		want  string // "" = nothing is wrong
	}{
		{"all there", func(*history, map[place]reading) {}, ""},
		{"lost at the end", func(h *history, all map[place]reading) {
			all[fixed] = reading{0, 9, all[fixed].polls[:9]}
		}, "unseen: 1"},
		{"all lost", func(h *history, all map[place]reading) { all[fixed] = reading{} }, "unseen: 10"},
		{"lost in the middle", func(h *history, all map[place]reading) {
			all[fixed] = reading{0, 10, slices.Delete(all[fixed].polls, 4, 5)}
		}, "lost: 1"},
		{"a hole where nothing was acknowledged", func(h *history, all map[place]reading) {
			h.ack(0, fixed, check.Of(0, 0, 999), 11)
			all[fixed] = reading{0, 12, append(all[fixed].polls, check.Poll{Key: fixed.key(), Offset: 11, Value: check.Of(0, 0, 999)})}
		}, "kept-1: offset 11 follows 9"},
		{"end beyond the last record", func(h *history, all map[place]reading) { all[fixed] = reading{0, 11, all[fixed].polls} }, "the log ends at 11, the last record read is 9"},
		{"changed", func(h *history, all map[place]reading) { all[fixed].polls[3].Changed = "other bytes" }, "changed: 1"},
		{"another record", func(h *history, all map[place]reading) {
			all[fixed].polls[3].Value, all[fixed].polls[4].Value = all[fixed].polls[4].Value, all[fixed].polls[3].Value
		}, "inconsistent: 2"},
		{"twice", func(h *history, all map[place]reading) {
			r := all[fixed]
			again := r.polls[2]
			again.Offset = 10
			all[fixed] = reading{0, 11, append(r.polls, again)}
		}, "duplicate: 1"},
		{"in two partitions", func(h *history, all map[place]reading) {
			r := all[fixed]
			all[fixed] = reading{0, 11, append(r.polls, check.Poll{Key: fixed.key(), Offset: 10, Value: all[trimmed].polls[1].Value})}
		}, "duplicate: "},
		{"never sent", func(h *history, all map[place]reading) {
			r := all[fixed]
			all[fixed] = reading{0, 11, append(r.polls, check.Poll{Key: fixed.key(), Offset: 10, Value: check.Of(0, 3, 1)})}
		}, "phantom: 1"},
		{"one offset acknowledged for two records", func(h *history, all map[place]reading) { h.ack(1, fixed, check.Of(0, 1, 1), 5) }, "inconsistent: "},
		{"a producer that was refused", func(h *history, all map[place]reading) { h.fault(check.ErrChanged) }, check.ErrChanged.Error()},
		{"log start moved by nobody", func(h *history, all map[place]reading) { all[fixed] = from(all[fixed], 2) }, "kept-1: the log starts at 2, nothing has moved it"},
		{"trimmed", func(h *history, all map[place]reading) {
			h.trim(trimmed, 4)
			h.told(trimmed, 4)
			all[trimmed] = from(all[trimmed], 4)
		}, ""},
		{"a trim that was not answered and had no effect", func(h *history, all map[place]reading) { h.trim(trimmed, 4) }, ""},
		{"a trim that was not answered and had one", func(h *history, all map[place]reading) {
			h.trim(trimmed, 4)
			all[trimmed] = from(all[trimmed], 4)
		}, ""},
		{"beyond what was to be trimmed", func(h *history, all map[place]reading) {
			h.trim(trimmed, 4)
			all[trimmed] = from(all[trimmed], 5)
		}, "trimmed-0: the log starts at 5, which DeleteRecords never asked for"},
		{"a trim that came undone", func(h *history, all map[place]reading) {
			h.trim(trimmed, 4)
			h.told(trimmed, 4)
		}, "the log start of trimmed-0 was 4 and is 0"},
		{"lost behind a trim", func(h *history, all map[place]reading) {
			h.trim(trimmed, 4)
			all[trimmed] = reading{4, 10, slices.Delete(all[trimmed].polls, 0, 5)}
		}, "lost: 1"},
		{"retained from somewhere on", func(h *history, all map[place]reading) { all[retained] = from(all[retained], 7) }, ""},
		{"below the log start", func(h *history, all map[place]reading) {
			all[retained] = reading{7, 10, all[retained].polls[6:]}
		}, "retained-1: offset 6 follows 6, the log starts at 7"},
	} {
		h, all := good()
		test.spoil(h, all)
		err := h.read(all)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: said %v, want %q", test.name, err, test.want)
		}
	}
}

// TestHistoryOfSeveralReads: what an earlier read had does not excuse a later one.
func TestHistoryOfSeveralReads(t *testing.T) {
	h, all := good()
	for range 2 {
		if err := h.read(all); err != nil {
			t.Fatal(err)
		}
	}
	all[retained] = from(all[retained], 7)
	if err := h.read(all); err != nil {
		t.Fatal(err)
	}
	all[fixed] = reading{0, 10, slices.Delete(all[fixed].polls, 4, 5)}
	if err := h.read(all); err == nil || !strings.Contains(err.Error(), "lost: 1") {
		t.Fatalf("said %v of a record that was there before", err)
	}
}
