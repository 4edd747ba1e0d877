package check

import (
	"fmt"
	"math"
)

// Checker judges a history. The zero Checker is not usable; New makes one, and
// it belongs to one goroutine.
type Checker struct {
	report Report

	ids     map[Key]int32
	keys    []*partition
	values  table[fate]
	txns    [][]Value // the records of each transaction that did not fail
	reads   map[cursor]int64
	sent    map[cursor]int64
	jumps   []jump
	rereads int // the highest Reread
}

// partition is what is known of one key.
type partition struct {
	key     Key
	start   int64 // records below it may be gone
	bound   int64 // the last offset read, -1 for none; of the last complete read if there is one
	offsets table[Value]
}

// fate is what is known of one value. Keys are counted from 1 here, 0 is none.
type fate struct {
	offset     int64 // where it was acknowledged, or first read
	op         int32 // that sent it, counted from 0
	sent, read int32 // the key it was sent to, and the one it was first read from
	reread     int32 // the last complete read that had it
	outcome    outcome
	placed     bool // offset is known
	committed  bool // read by a reader that sees only what is committed
	plain      bool // not sent in a transaction
}

type outcome uint8

const (
	unknown outcome = iota
	done
	failed
)

var outcomes = map[Type]outcome{OK: done, Fail: failed, Info: unknown}

// cursor is a process on a partition.
type cursor struct {
	proc int
	key  int32
}

// jump is a gap between two successive polls; whether it skipped anything is
// known when all is known.
type jump struct {
	key      int32
	proc     int
	op       int
	from, to int64 // the offsets between, from inclusive
}

// New makes a Checker that has seen nothing.
func New() *Checker {
	return &Checker{
		report: Report{Counts: map[Class]int{}, Examples: map[Class][]string{}},
		ids:    map[Key]int32{}, reads: map[cursor]int64{}, sent: map[cursor]int64{},
	}
}

// Check judges a whole history.
func Check(ops []Op) Report {
	c := New()
	for _, op := range ops {
		c.Add(op)
	}
	return c.Report()
}

// Start says that retention or DeleteRecords may have removed what a partition
// has below offset.
func (c *Checker) Start(key Key, offset int64) { c.keys[c.id(key)-1].start = offset }

// Add takes the next operation. The order of the operations of one process
// counts, that of different processes does not.
func (c *Checker) Add(op Op) {
	n := c.report.Ops
	c.report.Ops++
	switch op.F {
	case FCrash:
		c.forget(op.Proc)
	case FAssign:
		c.assign(op)
	}
	var txn []Value
	for _, s := range op.Sends {
		c.send(n, op, s)
		if op.F == FTxn && op.Type != Fail {
			txn = append(txn, s.Value)
		}
	}
	if len(txn) > 1 {
		c.txns = append(c.txns, txn)
	}
	for _, p := range op.Polls {
		c.poll(n, op, p)
	}
}

func (c *Checker) id(key Key) int32 {
	id, ok := c.ids[key]
	if !ok {
		c.keys = append(c.keys, &partition{key: key, bound: -1})
		id = int32(len(c.keys))
		c.ids[key] = id
	}
	return id
}

func (c *Checker) forget(proc int) {
	for at := range c.reads {
		if at.proc == proc {
			delete(c.reads, at)
		}
	}
}

func (c *Checker) assign(op Op) {
	for _, p := range op.Assigned {
		at := cursor{op.Proc, c.id(p.Key)}
		if p.Offset < 0 {
			delete(c.reads, at)
		} else {
			c.reads[at] = p.Offset - 1
		}
	}
}

func (c *Checker) send(n int, op Op, s Send) {
	id := c.id(s.Key)
	f := c.values.at(uint64(s.Value))
	f.op, f.sent, f.outcome, f.plain = int32(n), id, outcomes[op.Type], op.F != FTxn
	switch f.outcome {
	case failed:
		c.report.Failed++
		return
	case unknown:
		c.report.Unknown++
	case done:
		c.report.Acked++
	}
	if s.Offset < 0 {
		return
	}
	at := cursor{op.Proc, id}
	if last, ok := c.sent[at]; ok && s.Offset <= last {
		c.report.add(Backwards, "operation %d: process %d sent %v to %s at offset %d after one at %d", n, op.Proc, s.Value, s.Key, s.Offset, last)
	}
	c.sent[at] = s.Offset
	c.place(n, id, s.Offset, s.Value, f)
}

func (c *Checker) poll(n int, op Op, p Poll) {
	c.report.Read++
	id := c.id(p.Key)
	c.advance(n, op, id, p.Offset)
	c.bind(op.Reread, c.keys[id-1], p.Offset)
	if p.Changed != "" {
		c.report.add(Changed, "operation %d: %s offset %d: %s", n, p.Key, p.Offset, p.Changed)
		return
	}
	f := c.values.at(uint64(p.Value))
	switch {
	case f.read == 0:
		f.read = id
	case f.read != id:
		c.report.add(Duplicate, "operation %d: %v in %s offset %d and in %s", n, p.Value, p.Key, p.Offset, c.keys[f.read-1].key)
	}
	f.committed = f.committed || !op.Uncommitted
	f.reread = max(f.reread, int32(op.Reread))
	c.place(n, id, p.Offset, p.Value, f)
}

// bind moves the last offset read. The first poll of a new complete read begins
// it anew on every partition.
func (c *Checker) bind(reread int, k *partition, offset int64) {
	if reread > c.rereads {
		c.rereads = reread
		for _, k := range c.keys {
			k.bound = -1
		}
	}
	if reread == c.rereads {
		k.bound = max(k.bound, offset)
	}
}

// advance moves a process's position past offset.
func (c *Checker) advance(n int, op Op, id int32, offset int64) {
	at := cursor{op.Proc, id}
	last, ok := c.reads[at]
	c.reads[at] = offset
	switch {
	case !ok:
	case offset <= last:
		c.report.add(Nonmonotonic, "operation %d: process %d read %s offset %d after %d", n, op.Proc, c.keys[id-1].key, offset, last)
	case offset > last+1:
		c.jumps = append(c.jumps, jump{id, op.Proc, n, last + 1, offset})
	}
}

// place notes that a value is at an offset.
func (c *Checker) place(n int, id int32, offset int64, v Value, f *fate) {
	k := c.keys[id-1]
	switch at := k.offsets.at(uint64(offset)); {
	case *at == 0:
		*at = v
	case *at != v:
		c.report.add(Inconsistent, "operation %d: %s offset %d has %v, and had %v", n, k.key, offset, v, *at)
	}
	switch {
	case !f.placed:
		f.offset, f.placed = offset, true
	case f.offset != offset:
		c.report.add(Duplicate, "operation %d: %v in %s at offsets %d and %d", n, v, k.key, f.offset, offset)
	}
}

// Report judges what was added, once all of it was.
func (c *Checker) Report() Report {
	for v, f := range c.values.between(0, math.MaxUint64) {
		c.judge(Value(v), f)
	}
	for _, values := range c.txns {
		c.judgeTxn(values)
	}
	for _, j := range c.jumps {
		c.judgeJump(j)
	}
	return c.report
}

// judge says what became of one value.
func (c *Checker) judge(v Value, f *fate) {
	switch {
	case f.read != 0 && f.sent != f.read:
		c.report.add(Phantom, "%v was read from %s, but not sent there", v, c.keys[f.read-1].key)
	case f.read != 0 && f.outcome == failed && (f.committed || f.plain):
		c.report.add(Aborted, "%v in %s was read, but operation %d that sent it failed", v, c.keys[f.read-1].key, f.op)
	case f.sent == 0 || !f.isCommitted() || c.wasRead(f):
	case f.placed && f.offset < c.keys[f.sent-1].start:
	case f.placed && f.offset <= c.keys[f.sent-1].bound:
		c.report.add(Lost, "%v in %s offset %d of operation %d: the partition was read up to %d without it", v, c.keys[f.sent-1].key, f.offset, f.op, c.keys[f.sent-1].bound)
	default:
		c.report.add(Unseen, "%v in %s%s of operation %d: the partition ended at %d", v, c.keys[f.sent-1].key, f.where(), f.op, c.keys[f.sent-1].bound)
	}
}

// isCommitted: the answer said so, or a reader did.
func (f *fate) isCommitted() bool {
	return f.outcome == done || f.outcome == unknown && f.read != 0 && (f.committed || f.plain)
}

// wasRead: by the last complete read if there is one, else by anybody.
func (c *Checker) wasRead(f *fate) bool {
	return f.read != 0 && (c.rereads == 0 || int(f.reread) == c.rereads) && (f.committed || f.plain)
}

func (f *fate) where() string {
	if !f.placed {
		return ""
	}
	return fmt.Sprintf(" offset %d", f.offset)
}

// judgeTxn finds a transaction that was read in part.
func (c *Checker) judgeTxn(values []Value) {
	var read, missing Value
	for _, v := range values {
		f := c.values.at(uint64(v))
		switch {
		case c.wasRead(f):
			read = v
		case !f.placed || f.offset >= c.keys[f.sent-1].start:
			missing = v
		}
	}
	if read != 0 && missing != 0 {
		c.report.add(Torn, "operation %d: %v was read, %v was not", c.values.at(uint64(read)).op, read, missing)
	}
}

// judgeJump says whether there was a committed record where a reader jumped.
func (c *Checker) judgeJump(j jump) {
	k := c.keys[j.key-1]
	for offset, v := range k.offsets.between(uint64(max(j.from, k.start)), uint64(j.to)) {
		if *v != 0 && c.values.at(uint64(*v)).isCommitted() {
			c.report.add(Skipped, "operation %d: process %d read %s offset %d after %d, over %v at %d", j.op, j.proc, k.key, j.to, j.from-1, *v, offset)
			return
		}
	}
}
