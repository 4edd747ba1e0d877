package check

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

const a, b Key = "t-0", "t-1"

// The histories below are written with these: process 1 sends, process 2 reads.

func sent(t Type, sends ...Send) Op { return Op{Proc: 1, Type: t, F: FSend, Sends: sends} }
func txn(t Type, sends ...Send) Op  { return Op{Proc: 1, Type: t, F: FTxn, Sends: sends} }
func polled(polls ...Poll) Op       { return Op{Proc: 2, Type: OK, F: FPoll, Polls: polls} }
func reread(n int, polls ...Poll) Op {
	return Op{Proc: 2, Type: OK, F: FPoll, Polls: polls, Reread: n}
}
func assigned(at ...Position) Op { return Op{Proc: 2, Type: OK, F: FAssign, Assigned: at} }
func crashed() Op                { return Op{Proc: 2, Type: OK, F: FCrash} }

func uncommitted(op Op) Op {
	op.Uncommitted = true
	return op
}

func s(k Key, v Value, offset int64) Send { return Send{Key: k, Value: v, Offset: offset} }
func p(k Key, offset int64, v Value) Poll { return Poll{Key: k, Offset: offset, Value: v} }

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		name string
		want map[Class]int // nothing else
		ops  []Op
	}{
		{"nothing", nil, nil},
		{"all read", nil, []Op{
			sent(OK, s(a, 1, 0), s(a, 2, 1)), sent(OK, s(b, 3, 0)),
			assigned(Position{a, 0}, Position{b, 0}), polled(p(a, 0, 1), p(b, 0, 3)), polled(p(a, 1, 2)),
		}},
		{"read before its answer is noted", nil, []Op{polled(p(a, 0, 1)), sent(OK, s(a, 1, 0))}},
		{"refused and unknown, not read", nil, []Op{sent(OK, s(a, 1, 0)), sent(Fail, s(a, 2, -1)), sent(Info, s(a, 3, -1)), polled(p(a, 0, 1))}},
		{"unknown, read", nil, []Op{sent(Info, s(a, 1, -1)), polled(p(a, 0, 1))}},

		{"lost", map[Class]int{Lost: 1}, []Op{sent(OK, s(a, 1, 0), s(a, 2, 1), s(a, 3, 2)), polled(p(a, 1, 2), p(a, 2, 3))}},
		{"lost and skipped", map[Class]int{Lost: 1, Skipped: 1}, []Op{sent(OK, s(a, 1, 0), s(a, 2, 1), s(a, 3, 2)), polled(p(a, 0, 1), p(a, 2, 3))}},
		{"lost, once unknown and read", map[Class]int{Lost: 1}, []Op{
			sent(Info, s(a, 1, -1)), sent(OK, s(a, 2, 1)), polled(p(a, 0, 1), p(a, 1, 2)),
			crashed(), reread(1, p(a, 1, 2)),
		}},
		{"lost in the second complete read", map[Class]int{Lost: 1, Skipped: 1}, []Op{
			sent(OK, s(a, 1, 0), s(a, 2, 1), s(a, 3, 2)),
			assigned(Position{a, 0}), reread(1, p(a, 0, 1), p(a, 1, 2), p(a, 2, 3)),
			assigned(Position{a, 0}), reread(2, p(a, 0, 1), p(a, 2, 3)),
		}},

		{"unseen", map[Class]int{Unseen: 2}, []Op{sent(OK, s(a, 1, 0), s(a, 2, 1), s(a, 3, 2)), polled(p(a, 0, 1))}},
		{"unseen, no offset in the answer", map[Class]int{Unseen: 1}, []Op{sent(OK, s(a, 1, -1))}},
		{"unseen, a partition that nobody could read", map[Class]int{Unseen: 1}, []Op{sent(OK, s(a, 1, 0), s(b, 2, 0)), polled(p(a, 0, 1))}},
		{"unseen, a tail once read", map[Class]int{Unseen: 1}, []Op{
			sent(OK, s(a, 1, 0), s(a, 2, 1)), polled(p(a, 0, 1), p(a, 1, 2)), crashed(), reread(1, p(a, 0, 1)),
		}},
		{"unseen, a partition once read", map[Class]int{Unseen: 1}, []Op{
			sent(OK, s(a, 1, 0), s(b, 2, 0)), reread(1, p(a, 0, 1), p(b, 0, 2)), crashed(), reread(2, p(a, 0, 1)),
		}},

		{"duplicate", map[Class]int{Duplicate: 1}, []Op{sent(OK, s(a, 1, 0)), polled(p(a, 0, 1), p(a, 1, 1))}},
		{"duplicate, not where it was acknowledged", map[Class]int{Duplicate: 1}, []Op{sent(OK, s(a, 1, 0)), polled(p(a, 1, 1))}},
		{"duplicate in another partition", map[Class]int{Duplicate: 1}, []Op{sent(OK, s(a, 1, 0)), polled(p(a, 0, 1), p(b, 0, 1))}},

		{"inconsistent", map[Class]int{Inconsistent: 1}, []Op{
			sent(OK, s(a, 1, 0)), sent(Info, s(a, 2, -1)), polled(p(a, 0, 1)), crashed(), polled(p(a, 0, 2)),
		}},
		{"inconsistent answers", map[Class]int{Inconsistent: 1, Backwards: 1, Lost: 1}, []Op{sent(OK, s(a, 1, 0)), sent(OK, s(a, 2, 0)), polled(p(a, 0, 1))}},

		{"sends go back", map[Class]int{Backwards: 1}, []Op{sent(OK, s(a, 1, 1)), sent(OK, s(a, 2, 0)), polled(p(a, 0, 2), p(a, 1, 1))}},

		{"polls go back", map[Class]int{Nonmonotonic: 1}, []Op{sent(OK, s(a, 1, 0), s(a, 2, 1)), polled(p(a, 0, 1), p(a, 1, 2)), polled(p(a, 0, 1), p(a, 1, 2))}},
		{"polls go back after an assignment", nil, []Op{
			sent(OK, s(a, 1, 0), s(a, 2, 1)), polled(p(a, 0, 1), p(a, 1, 2)), assigned(Position{a, -1}), polled(p(a, 0, 1), p(a, 1, 2)),
		}},
		{"polls go back after a crash", nil, []Op{sent(OK, s(a, 1, 0)), polled(p(a, 0, 1)), crashed(), polled(p(a, 0, 1))}},

		{"skipped", map[Class]int{Skipped: 1}, []Op{
			sent(OK, s(a, 1, 0), s(a, 2, 1), s(a, 3, 2)), polled(p(a, 0, 1), p(a, 2, 3)), crashed(), polled(p(a, 1, 2)),
		}},
		{"skipped at the assigned offset", map[Class]int{Skipped: 1}, []Op{
			sent(OK, s(a, 1, 0), s(a, 2, 1)), assigned(Position{a, 0}), polled(p(a, 1, 2)), crashed(), polled(p(a, 0, 1)),
		}},
		{"a marker or an aborted record between", nil, []Op{
			sent(OK, s(a, 1, 0)), txn(Fail, s(a, 2, -1)), sent(OK, s(a, 3, 3)),
			uncommitted(polled(p(a, 0, 1), p(a, 1, 2), p(a, 3, 3))), crashed(), polled(p(a, 0, 1), p(a, 3, 3)),
		}},
		{"the largest gap", nil, []Op{sent(OK, s(a, 1, 0)), sent(OK, s(a, 2, math.MaxInt64)), polled(p(a, 0, 1), p(a, math.MaxInt64, 2))}},

		{"aborted", map[Class]int{Aborted: 1}, []Op{txn(Fail, s(a, 1, -1)), polled(p(a, 0, 1))}},
		{"aborted, read uncommitted", nil, []Op{txn(Fail, s(a, 1, -1)), uncommitted(polled(p(a, 0, 1)))}},
		{"refused and yet there", map[Class]int{Aborted: 1}, []Op{sent(Fail, s(a, 1, -1)), uncommitted(polled(p(a, 0, 1)))}},

		{"torn", map[Class]int{Torn: 1}, []Op{txn(Info, s(a, 1, -1), s(b, 2, -1)), polled(p(a, 0, 1))}},
		{"torn, though committed", map[Class]int{Torn: 1, Unseen: 1}, []Op{txn(OK, s(a, 1, 0), s(b, 2, 0)), polled(p(a, 0, 1))}},
		{"torn in the last complete read", map[Class]int{Torn: 1, Unseen: 1}, []Op{
			txn(OK, s(a, 1, 0), s(b, 2, 0)), reread(1, p(a, 0, 1), p(b, 0, 2)), crashed(), reread(2, p(a, 0, 1)),
		}},
		{"whole, or nothing", nil, []Op{txn(Info, s(a, 1, -1), s(b, 2, -1)), txn(Info, s(a, 3, -1), s(b, 4, -1)), polled(p(a, 0, 1), p(b, 0, 2))}},
		{"in part, read uncommitted", nil, []Op{txn(Info, s(a, 1, -1), s(b, 2, -1)), uncommitted(polled(p(a, 0, 1)))}},

		{"phantom", map[Class]int{Phantom: 1}, []Op{polled(p(a, 0, 1))}},
		{"phantom, sent elsewhere", map[Class]int{Phantom: 1}, []Op{sent(Info, s(b, 1, -1)), polled(p(a, 0, 1))}},

		{"changed", map[Class]int{Changed: 1, Lost: 1}, []Op{sent(OK, s(a, 1, 0), s(a, 2, 1)), polled(Poll{Key: a, Offset: 0, Changed: "a bit"}, p(a, 1, 2))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Check(c.ops)
			if !maps.Equal(r.Counts, c.want) {
				t.Errorf("found %v, want %v: %v", r.Counts, c.want, r.Err())
			}
			if clean := len(c.want) == 0; r.Clean() != clean || errors.Is(r.Err(), ErrAnomaly) == clean {
				t.Errorf("clean %v, %v", r.Clean(), r.Err())
			}
		})
	}
}

func TestStart(t *testing.T) {
	history := []Op{
		sent(OK, s(a, 1, 0), s(a, 2, 1), s(a, 3, 2)), txn(OK, s(a, 4, 3), s(b, 5, 0)),
		polled(p(a, 0, 1)), polled(p(a, 3, 4), p(b, 0, 5)),
	}
	for start, want := range map[int64]map[Class]int{
		3: {}, 2: {Lost: 1, Skipped: 1}, 1: {Lost: 2, Skipped: 1}, 0: {Lost: 2, Skipped: 1},
	} {
		c := New()
		c.Start(a, start)
		for _, op := range history {
			c.Add(op)
		}
		if r := c.Report(); !maps.Equal(r.Counts, want) {
			t.Errorf("log start %d: found %v, want %v", start, r.Counts, want)
		}
	}
}

func TestAllowed(t *testing.T) {
	r := Check([]Op{sent(OK, s(a, 1, 0), s(a, 2, 2)), polled(p(a, 0, 1), p(a, 1, 1))})
	if !r.Clean(Duplicate, Unseen) {
		t.Errorf("allowed, and yet: %v", r.Err(Duplicate, Unseen))
	}
	err := r.Err(Duplicate)
	if err == nil || !strings.Contains(err.Error(), "unseen: 1") || strings.Contains(err.Error(), "duplicate") {
		t.Errorf("with duplicates allowed: %v", err)
	}
}

func TestExamplesAreBounded(t *testing.T) {
	var ops []Op
	for v := range Value(100) {
		ops = append(ops, sent(OK, s(a, v+1, int64(v))))
	}
	r := Check(ops)
	if r.Counts[Unseen] != 100 || len(r.Examples[Unseen]) != maxExamples {
		t.Errorf("%d unseen with %d examples", r.Counts[Unseen], len(r.Examples[Unseen]))
	}
	if !slices.Contains(Classes, Unseen) || !strings.Contains(r.String(), "100 unseen") {
		t.Errorf("report: %v", r)
	}
}

// TestLoad: a long history with a gap after every batch, as transactions leave it.
func TestLoad(t *testing.T) {
	const records, batch = 1_000_000, 10
	c := New()
	for v := 1; v <= records; v += batch {
		var op Op
		offset := int64(v + v/batch)
		for i := range batch {
			op.Sends = append(op.Sends, s(a, Of(1, 1, uint32(v+i)), offset+int64(i)))
			op.Polls = append(op.Polls, p(a, offset+int64(i), Of(1, 1, uint32(v+i))))
		}
		c.Add(txn(OK, op.Sends...))
		c.Add(polled(op.Polls...))
	}
	if r := c.Report(); !r.Clean() || r.Acked != records || r.Read != records {
		t.Errorf("%v: %v", r, r.Err())
	}
}
