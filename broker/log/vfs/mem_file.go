package vfs

import (
	"io"
	"io/fs"
	"syscall"
)

// memFile is an open file of a Mem. It has no descriptor.
type memFile struct {
	mem      *Mem
	node     *node
	name     string
	readOnly bool
	closed   bool // guarded by mem.mu
}

func (f *memFile) Name() string { return f.name }
func (f *memFile) Fd() int      { return -1 }

// usable is called with the lock held.
func (f *memFile) usable(op string, write bool) error {
	switch {
	case f.closed:
		return pathError(op, f.name, fs.ErrClosed)
	case f.mem.mu.dead:
		return pathError(op, f.name, ErrCrashed)
	case write && f.readOnly:
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	if off >= int64(len(f.node.bytes)) && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, f.node.bytes[min(off, int64(len(f.node.bytes))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.WritevAt([][]byte{p}, off)
	return int(n), err
}

func (f *memFile) WritevAt(bufs [][]byte, off int64) (int64, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	var written int64
	for _, p := range bufs {
		fits := f.mem.reserve(f.node, off+written, p)
		f.node.write(p[:fits], off+written)
		written += int64(fits)
		if fits < len(p) {
			return written, pathError("write", f.name, syscall.ENOSPC)
		}
	}
	return written, nil
}

// reserve says how many bytes of p may be written at off, and accounts for the
// growth.
func (m *Mem) reserve(n *node, off int64, p []byte) int {
	fits := len(p)
	grow := off + int64(len(p)) - int64(len(n.bytes))
	if grow <= 0 || n.unlinked {
		return fits
	}
	if m.mu.capacity > 0 {
		if over := m.mu.used + grow - m.mu.capacity; over > 0 {
			fits = int(max(0, int64(len(p))-over))
			grow = max(0, off+int64(fits)-int64(len(n.bytes)))
			if fits == 0 {
				grow = 0
			}
		}
	}
	m.mu.used += grow
	return fits
}

func (f *memFile) Truncate(size int64) error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	if !f.node.unlinked {
		f.mem.mu.used += size - int64(len(f.node.bytes))
	}
	f.node.truncate(size)
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.node.bytes)), nil
}

func (f *memFile) Sync() error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable("sync", false); err != nil {
		return err
	}
	f.node.sync()
	return nil
}

func (f *memFile) SyncRange(off, n int64) error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	return f.usable("sync_range", false)
}

func (f *memFile) WillNeed(off, n int64) {}

func (f *memFile) Close() error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}
