package vfs

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
)

// CrashClone cuts the power and returns a disk as it may be found afterwards:
// everything durable, and of the rest every dirty block, every truncation and
// every change of a name with a chance of keepPercent in 100, independently of
// each other, as write-back is unordered. The same history and the same rng
// give the same disk.
//
// m is dead from then on, its files included (ErrCrashed), but may be cloned
// again: one crash has many possible outcomes. Locks are free in the clone and
// its MountID is another.
func (m *Mem) CrashClone(rng *rand.Rand, keepPercent int) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.dead = true
	m.mu.clones++
	keep := func() bool { return rng.IntN(100) < keepPercent }
	c := cloner{seen: map[*node]*node{}, file: func(n *node) *node {
		content := n.settle(keep, bytes.Clone(n.synced))
		return &node{bytes: content, synced: bytes.Clone(content), dirty: map[int64]bool{}, cut: -1}
	}}
	root := c.clone(m.mu.root)
	for _, op := range m.mu.pending {
		if keep() {
			c.op(op).apply(func(n *node) map[string]*node { return n.live })
		}
	}
	for _, n := range c.seen {
		n.durable = maps.Clone(n.live)
	}
	clone := newMem(fmt.Sprintf("%s+%d", m.mountID, m.mu.clones), root)
	clone.adopt(m)
	return clone
}

// KillClone kills the process and returns the disk with its page cache, as
// another process finds it: nothing is lost, what was not durable still is
// not, locks are free and MountID is the same. m is dead afterwards.
func (m *Mem) KillClone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.dead = true
	c := cloner{seen: map[*node]*node{}, file: func(n *node) *node {
		return &node{bytes: bytes.Clone(n.bytes), synced: bytes.Clone(n.synced), dirty: maps.Clone(n.dirty), cut: n.cut}
	}}
	root := c.clone(m.mu.root)
	var pending []entryOp
	for _, op := range m.mu.pending {
		op = c.op(op)
		op.apply(func(n *node) map[string]*node { return n.live })
		pending = append(pending, op)
	}
	clone := newMem(m.mountID, root)
	clone.mu.pending = pending
	clone.adopt(m)
	return clone
}

// adopt counts the space of a fresh clone and takes over the limit.
func (m *Mem) adopt(from *Mem) {
	m.mu.capacity = from.mu.capacity
	m.mu.used = m.mu.root.space()
}

func (n *node) space() int64 {
	sum := int64(len(n.bytes))
	for _, child := range n.live {
		sum += child.space()
	}
	return sum
}

// cloner copies the durable tree, each node once. The live names of a copied
// directory are the durable ones of its model.
type cloner struct {
	seen map[*node]*node
	file func(*node) *node
}

func (c cloner) clone(n *node) *node {
	if n == nil {
		return nil
	}
	if copied, ok := c.seen[n]; ok {
		return copied
	}
	if !n.isDir {
		copied := c.file(n)
		copied.modified = n.modified
		c.seen[n] = copied
		return copied
	}
	copied := newDir()
	copied.modified = n.modified
	c.seen[n] = copied
	for _, name := range sortedNames(n.durable) {
		child := c.clone(n.durable[name])
		copied.live[name], copied.durable[name] = child, child
	}
	return copied
}

// op moves a pending change into the copy.
func (c cloner) op(op entryOp) entryOp {
	op.dir, op.toDir, op.node = c.clone(op.dir), c.clone(op.toDir), c.clone(op.node)
	return op
}
