package vfs

import (
	"maps"
	"slices"
	"time"
)

// blockSize is the unit in which unsynced bytes survive a crash or not, the
// page of the page cache.
const blockSize = 4096

// node is a file or a directory, in its live and its durable version.
type node struct {
	isDir    bool
	modified time.Time

	// Of a directory: its names.
	live    map[string]*node
	durable map[string]*node

	// Of a file: its bytes. bytes and synced differ at most in the blocks of
	// dirty and in their length. cut is the smallest size that a truncation
	// since the last sync left, or -1: without it a file that was cut and
	// grew again could not lose the growth and keep the cut.
	bytes    []byte
	synced   []byte
	dirty    map[int64]bool
	cut      int64
	unlinked bool
}

func newFile() *node {
	return &node{modified: time.Now(), dirty: map[int64]bool{}, cut: -1}
}

func newDir() *node {
	return &node{isDir: true, modified: time.Now(), live: map[string]*node{}, durable: map[string]*node{}}
}

func (n *node) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	from := min(off, int64(len(n.bytes)))
	n.resize(end, false)
	copy(n.bytes[off:], p)
	for b := from / blockSize; b*blockSize < end; b++ {
		n.dirty[b] = true
	}
	n.modified = time.Now()
}

// resize makes the file exactly size long, or at least that long.
func (n *node) resize(size int64, exactly bool) {
	old := int64(len(n.bytes))
	if size > old {
		n.bytes = append(n.bytes, make([]byte, size-old)...)
	} else if exactly {
		n.bytes = n.bytes[:size]
	}
}

func (n *node) truncate(size int64) {
	old := int64(len(n.bytes))
	if size < old && (n.cut < 0 || size < n.cut) {
		n.cut = size
	}
	n.resize(size, true)
	for b := old / blockSize; b*blockSize < size; b++ {
		n.dirty[b] = true
	}
	for b := range n.dirty {
		if b*blockSize >= size {
			delete(n.dirty, b)
		}
	}
	n.modified = time.Now()
}

func (n *node) sync() {
	n.synced = n.settle(func() bool { return true }, n.synced)
	n.dirty, n.cut = map[int64]bool{}, -1
}

// settle returns what a disk with the content of base holds after those of
// the pending changes for which keep says so: the cut first, then the blocks
// in ascending order. It may use base.
func (n *node) settle(keep func() bool, base []byte) []byte {
	if n.cut >= 0 && keep() && n.cut < int64(len(base)) {
		base = base[:n.cut]
	}
	for _, b := range slices.Sorted(maps.Keys(n.dirty)) {
		if !keep() {
			continue
		}
		from := b * blockSize
		to := min(from+blockSize, int64(len(n.bytes)))
		if grow := to - int64(len(base)); grow > 0 {
			base = append(base, make([]byte, grow)...)
		}
		copy(base[from:to], n.bytes[from:to])
	}
	return base
}

type entryKind int

const (
	linkOp entryKind = iota
	unlinkOp
	renameOp
)

// entryOp is one atomic change of names.
type entryOp struct {
	kind   entryKind
	dir    *node
	name   string
	toDir  *node // of a rename
	toName string
	node   *node
}

// apply makes the change in the version of the directories that entries picks.
// A rename or removal of a file that is not there under its old name, because
// the change that put it there was lost, is lost with it.
func (op entryOp) apply(entries func(*node) map[string]*node) {
	dir := entries(op.dir)
	if op.kind == linkOp {
		dir[op.name] = op.node
		return
	}
	if dir[op.name] != op.node {
		return
	}
	delete(dir, op.name)
	if op.kind == renameOp {
		entries(op.toDir)[op.toName] = op.node
	}
}

type entryKey struct {
	dir  *node
	name string
}

func (op entryOp) keys() []entryKey {
	keys := []entryKey{{op.dir, op.name}}
	if op.kind == renameOp {
		keys = append(keys, entryKey{op.toDir, op.toName})
	}
	return keys
}

// syncEntries makes all pending changes of dir durable, and those older ones
// of other directories that they build upon (a rename out of one settles how
// its file came to be there), as a journal does. It returns what is left.
func syncEntries(pending []entryOp, dir *node) []entryOp {
	settled := make([]bool, len(pending))
	needed := map[entryKey]bool{}
	for i, op := range slices.Backward(pending) {
		settled[i] = op.dir == dir || op.toDir == dir || slices.ContainsFunc(op.keys(), func(k entryKey) bool { return needed[k] })
		if settled[i] {
			for _, key := range op.keys() {
				needed[key] = true
			}
		}
	}
	var left []entryOp
	for i, op := range pending {
		if settled[i] {
			op.apply(func(n *node) map[string]*node { return n.durable })
		} else {
			left = append(left, op)
		}
	}
	return left
}
