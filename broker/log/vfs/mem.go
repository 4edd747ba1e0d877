package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrCrashed is what every operation on a Mem fails with after CrashClone or
// KillClone took its disk away: the process that held the handle is dead.
var ErrCrashed = errors.New("the machine has crashed")

// Mem is a disk in memory that can crash. It keeps two versions of everything:
// the live one, which its methods show, and the durable one, which Sync and
// SyncDir bring up to date. What lies between is decided, block by block and
// name by name, when the power is cut (CrashClone).
type Mem struct {
	mountID string

	mu struct {
		sync.Mutex
		root     *node
		pending  []entryOp // changes of names that are not durable yet, in order
		locks    map[string]bool
		used     int64 // bytes in files that have a name
		capacity int64 // 0: unlimited
		dead     bool
		clones   int
	}
}

// NewMem returns an empty disk with nothing but its root directory.
func NewMem() *Mem { return newMem("mem", newDir()) }

func newMem(mountID string, root *node) *Mem {
	m := &Mem{mountID: mountID}
	m.mu.root = root
	m.mu.locks = map[string]bool{}
	return m
}

// SetCapacity bounds the bytes in files; 0 is no bound. A write that does not
// fit writes what does and fails with ENOSPC.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.capacity = bytes
}

func (m *Mem) Create(name string) (File, error)        { return m.open("create", name, openExclusive) }
func (m *Mem) Open(name string) (File, error)          { return m.open("open", name, openReadOnly) }
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open("open", name, openExisting) }
func (m *Mem) OpenOrCreate(name string) (File, error)  { return m.open("open", name, openOrCreate) }

type openMode int

const (
	openReadOnly openMode = iota
	openExisting
	openOrCreate
	openExclusive
)

func (m *Mem) open(op, name string, mode openMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.openNode(name, mode)
	if err != nil {
		return nil, pathError(op, name, err)
	}
	return &memFile{mem: m, node: n, name: name, readOnly: mode == openReadOnly}, nil
}

func (m *Mem) openNode(name string, mode openMode) (*node, error) {
	dir, base, err := m.parent(name)
	if err != nil {
		return nil, err
	}
	n := dir.live[base]
	switch {
	case n == nil && mode < openOrCreate:
		return nil, fs.ErrNotExist
	case n == nil:
		n = newFile()
		m.change(entryOp{kind: linkOp, dir: dir, name: base, node: n})
	case mode == openExclusive:
		return nil, fs.ErrExist
	case n.isDir:
		return nil, syscall.EISDIR
	}
	return n, nil
}

func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n := dir.live[base]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if len(n.live) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.change(entryOp{kind: unlinkOp, dir: dir, name: base, node: n})
	return nil
}

func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathError("removeall", name, err)
	}
	if n := dir.live[base]; n != nil {
		m.removeTree(dir, base, n)
	}
	return nil
}

func (m *Mem) removeTree(dir *node, name string, n *node) {
	for _, child := range sortedNames(n.live) {
		m.removeTree(n, child, n.live[child])
	}
	m.change(entryOp{kind: unlinkOp, dir: dir, name: name, node: n})
}

func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.rename(oldName, newName); err != nil {
		return pathError("rename", oldName+" to "+newName, err)
	}
	return nil
}

func (m *Mem) rename(oldName, newName string) error {
	from, oldBase, err := m.parent(oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent(newName)
	if err != nil {
		return err
	}
	n, target := from.live[oldBase], to.live[newBase]
	switch {
	case n == nil:
		return fs.ErrNotExist
	case n == target:
		return nil
	case n.isDir && within(path.Clean("/"+newName), path.Clean("/"+oldName)):
		return syscall.EINVAL
	case target != nil && target.isDir && !n.isDir:
		return syscall.EISDIR
	case target != nil && !target.isDir && n.isDir:
		return syscall.ENOTDIR
	case target != nil && len(target.live) > 0:
		return syscall.ENOTEMPTY
	}
	m.change(entryOp{kind: renameOp, dir: from, name: oldBase, toDir: to, toName: newBase, node: n})
	return nil
}

func within(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }

func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.dead {
		return pathError("mkdir", dir, ErrCrashed)
	}
	at := m.mu.root
	for _, base := range split(dir) {
		next := at.live[base]
		if next == nil {
			next = newDir()
			m.change(entryOp{kind: linkOp, dir: at, name: base, node: next})
		}
		if !next.isDir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		at = next
	}
	return nil
}

func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupDir(dir)
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	return sortedNames(n.live), nil
}

func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return memInfo{name: path.Base(name), size: int64(len(n.bytes)), isDir: n.isDir, modified: n.modified}, nil
}

func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupDir(dir)
	if err != nil {
		return pathError("syncdir", dir, err)
	}
	m.mu.pending = syncEntries(m.mu.pending, n)
	return nil
}

func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.openNode(name, openOrCreate); err != nil {
		return nil, pathError("lock", name, err)
	}
	key := path.Clean("/" + name)
	if m.mu.locks[key] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.mu.locks[key] = true
	return &memLock{mem: m, key: key}, nil
}

type memLock struct {
	mem  *Mem
	key  string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.mem.mu.Lock()
		defer l.mem.mu.Unlock()
		delete(l.mem.mu.locks, l.key)
	})
	return nil
}

// memTotal is the size that an unlimited Mem reports.
const memTotal = 1 << 40

func (m *Mem) Usage(dir string) (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.lookupDir(dir); err != nil {
		return Usage{}, pathError("statfs", dir, err)
	}
	total := m.mu.capacity
	if total == 0 {
		total = memTotal
	}
	return Usage{Total: total, Free: max(0, total-m.mu.used)}, nil
}

func (m *Mem) MountID(dir string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.lookup(dir); err != nil {
		return "", pathError("statx", dir, err)
	}
	return m.mountID, nil
}

// parent finds the directory that holds name, and the name in it.
func (m *Mem) parent(name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", syscall.EBUSY // the root
	}
	dir, err := m.walk(parts[:len(parts)-1])
	if err == nil && !dir.isDir {
		err = syscall.ENOTDIR
	}
	return dir, parts[len(parts)-1], err
}

func (m *Mem) lookup(name string) (*node, error) { return m.walk(split(name)) }

func (m *Mem) lookupDir(name string) (*node, error) {
	n, err := m.lookup(name)
	if err == nil && !n.isDir {
		err = syscall.ENOTDIR
	}
	return n, err
}

func (m *Mem) walk(parts []string) (*node, error) {
	if m.mu.dead {
		return nil, ErrCrashed
	}
	at := m.mu.root
	for _, base := range parts {
		if !at.isDir {
			return nil, syscall.ENOTDIR
		}
		if at = at.live[base]; at == nil {
			return nil, fs.ErrNotExist
		}
	}
	return at, nil
}

// change applies a change of names to the live version and keeps it pending.
func (m *Mem) change(op entryOp) {
	if op.kind == renameOp {
		m.forget(op.toDir.live[op.toName])
	}
	if op.kind == unlinkOp {
		m.forget(op.node)
	}
	op.apply(func(n *node) map[string]*node { return n.live })
	m.mu.pending = append(m.mu.pending, op)
}

// forget takes a file that loses its name out of the account of space.
func (m *Mem) forget(n *node) {
	if n != nil && !n.isDir && !n.unlinked {
		n.unlinked = true
		m.mu.used -= int64(len(n.bytes))
	}
}

func split(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func sortedNames(entries map[string]*node) []string {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

type memInfo struct {
	name     string
	size     int64
	isDir    bool
	modified time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) IsDir() bool        { return i.isDir }
func (i memInfo) ModTime() time.Time { return i.modified }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) String() string     { return fmt.Sprintf("%s %d", i.name, i.size) }

func (i memInfo) Mode() fs.FileMode {
	if i.isDir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
