package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

// maxEvents bounds the event log; what comes later is counted only.
const maxEvents = 1 << 16

// events is the transcript of what changed the disk, a line each.
type events struct {
	mu      sync.Mutex
	lines   []string
	dropped int
}

func (e *events) add(op Op, err error) {
	if !op.Kind.Mutates() {
		return
	}
	line := op.String()
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		line += ": " + err.Error()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.lines) == maxEvents {
		e.dropped++
		return
	}
	e.lines = append(e.lines, line)
}

// String is the form of the event log: kind, name, and for a write the bytes
// as offset+size.
func (op Op) String() string {
	switch op.Kind {
	case OpRename:
		return fmt.Sprintf("%s %s to %s", op.Kind, op.Name, op.To)
	case OpRead, OpWrite, OpSyncRange:
		return fmt.Sprintf("%s %s %d+%d", op.Kind, op.Name, op.Off, op.Size)
	case OpTruncate:
		return fmt.Sprintf("%s %s %d", op.Kind, op.Name, op.Size)
	}
	return fmt.Sprintf("%s %s", op.Kind, op.Name)
}

// Events returns what was done to the disk so far, a line an operation in the
// order of completion, each with its error, and forgets it. Names begin after
// the prefix root, so that a transcript does not depend on where a test ran.
func (f *Fault) Events(root string) string {
	e := &f.events
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for _, line := range e.lines {
		b.WriteString(strings.ReplaceAll(line, strings.TrimSuffix(root, "/")+"/", ""))
		b.WriteByte('\n')
	}
	if e.dropped > 0 {
		fmt.Fprintf(&b, "and %d more\n", e.dropped)
	}
	e.lines, e.dropped = nil, 0
	return b.String()
}
