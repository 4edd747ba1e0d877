package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"
)

// Key is a partition: topic-partition.
type Key string

// KeyOf names a partition.
func KeyOf(topic string, partition int32) Key {
	return Key(fmt.Sprintf("%s-%d", topic, partition))
}

// Type is how an operation ended.
type Type string

const (
	OK   Type = "ok"   // it was done
	Fail Type = "fail" // it surely was not done
	Info Type = "info" // nobody knows
)

// F is what an operation did.
type F string

const (
	FSend   F = "send"   // Sends
	FPoll   F = "poll"   // Polls
	FAssign F = "assign" // Assigned: the process reads from there
	FTxn    F = "txn"    // Sends in one transaction: OK is committed, Fail is aborted
	FCrash  F = "crash"  // the process lost its positions
)

// Send is one record that was sent. Offset is the answer's, -1 if there is none.
type Send struct {
	Key    Key   `json:"k"`
	Value  Value `json:"v"`
	Offset int64 `json:"o"`
}

// Poll is one record that was read.
type Poll struct {
	Key     Key    `json:"k"`
	Offset  int64  `json:"o"`
	Value   Value  `json:"v"`
	Changed string `json:"changed,omitempty"` // the error of Parse; Value means nothing then
}

// Position is where a process goes on to read; an Offset of -1 is unknown.
type Position struct {
	Key    Key   `json:"k"`
	Offset int64 `json:"o"`
}

// Op is one operation of one process; a process does one at a time.
type Op struct {
	Proc        int        `json:"proc"`
	Type        Type       `json:"type"`
	F           F          `json:"f"`
	Start       int64      `json:"start"` // ns since the history began
	End         int64      `json:"end"`
	Sends       []Send     `json:"sends,omitempty"`
	Polls       []Poll     `json:"polls,omitempty"`
	Assigned    []Position `json:"assigned,omitempty"`
	Uncommitted bool       `json:"uncommitted,omitempty"` // Polls were read with read_uncommitted
	// Reread counts the complete reads of everything, from 1; 0 is a poll that belongs to none. Of several the last
	// one says what is lost; without any, all polls do.
	Reread int    `json:"reread,omitempty"`
	Error  string `json:"error,omitempty"` // for who reads the history
}

// History collects operations from all processes of a test. Its methods may be
// called concurrently.
type History struct {
	began time.Time

	mu  sync.Mutex
	ops []Op
	out *bufio.Writer // nil: only in memory
	err error         // the first of out
}

// NewHistory keeps operations in memory and, unless w is nil, appends each to w
// as a line of JSON. The caller keeps w and closes it after Flush.
func NewHistory(w io.Writer) *History {
	h := &History{began: time.Now()}
	if w != nil {
		h.out = bufio.NewWriter(w)
	}
	return h
}

// Now is the time for Start and End.
func (h *History) Now() int64 { return int64(time.Since(h.began)) }

// Add appends an operation. The caller does not touch its slices any more.
func (h *History) Add(op Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	if h.out == nil || h.err != nil {
		return
	}
	line, err := json.Marshal(op)
	if err == nil {
		_, err = h.out.Write(append(line, '\n'))
	}
	h.err = err
}

// Ops gives what was added so far, in the order it was added.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ops[:len(h.ops):len(h.ops)]
}

// Flush hands everything to the writer and reports the first error that it gave.
func (h *History) Flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.out != nil && h.err == nil {
		h.err = h.out.Flush()
	}
	return h.err
}

// Decode reads a history that was written to r. It ends at the first error.
func Decode(r io.Reader) iter.Seq2[Op, error] {
	return func(yield func(Op, error) bool) {
		d := json.NewDecoder(r)
		for {
			var op Op
			err := d.Decode(&op)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(op, err) || err != nil {
				return
			}
		}
	}
}
