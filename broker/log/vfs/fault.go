package vfs

import (
	"io"
	"io/fs"
)

// OpKind says what an operation does.
type OpKind string

const (
	OpCreate    OpKind = "create"
	OpOpen      OpKind = "open"
	OpRemove    OpKind = "remove" // RemoveAll too
	OpRename    OpKind = "rename"
	OpMkdir     OpKind = "mkdir"
	OpList      OpKind = "list"
	OpStat      OpKind = "stat" // Usage, MountID and File.Size too
	OpSyncDir   OpKind = "syncdir"
	OpLock      OpKind = "lock"
	OpRead      OpKind = "read"
	OpWrite     OpKind = "write"
	OpTruncate  OpKind = "truncate"
	OpSync      OpKind = "sync"
	OpSyncRange OpKind = "syncrange"
	OpClose     OpKind = "close"
)

// Mutates reports whether the operation changes what is on the disk, or what
// of it is durable.
func (k OpKind) Mutates() bool {
	switch k {
	case OpOpen, OpList, OpStat, OpRead, OpSyncRange, OpClose, OpLock:
		return false
	}
	return true
}

// Op is one operation about to be done.
type Op struct {
	Kind OpKind
	Name string
	To   string // new name of a rename
	Off  int64  // of a read, write or syncrange
	Size int64  // bytes of a read, write or syncrange; size after a truncate
}

// Outcome is what an Injector makes of an operation. The zero value lets it
// pass.
type Outcome struct {
	// Hang makes the operation wait until the channel is closed.
	Hang <-chan struct{}
	// Err fails the operation, after Hang.
	Err error
	// Short is how many bytes of a failing write reach the file all the same.
	Short int64
}

// Injector decides about every operation before it is done. It is called from
// many goroutines.
type Injector interface {
	Inject(Op) Outcome
}

// InjectorFunc makes a function an Injector.
type InjectorFunc func(Op) Outcome

func (f InjectorFunc) Inject(op Op) Outcome { return f(op) }

// Fault is an FS that fails where its Injector says so. Its files have no
// descriptor, so that no byte passes it by.
type Fault struct {
	fs       FS
	injector Injector
	events   events
}

// NewFault puts an injector before a file system; nil injects nothing.
func NewFault(fsys FS, injector Injector) *Fault {
	if injector == nil {
		injector = InjectorFunc(func(Op) Outcome { return Outcome{} })
	}
	return &Fault{fs: fsys, injector: injector}
}

// do runs one operation under the injector and notes it.
func (f *Fault) do(op Op, run func() error) error {
	out := f.injector.Inject(op)
	if out.Hang != nil {
		<-out.Hang
	}
	err := out.Err
	if err != nil {
		err = pathError(string(op.Kind), op.Name, err)
	} else {
		err = run()
	}
	f.events.add(op, err)
	return err
}

func (f *Fault) open(kind OpKind, name string, open func(string) (File, error)) (file File, err error) {
	err = f.do(Op{Kind: kind, Name: name}, func() error {
		inner, err := open(name)
		if err == nil {
			file = &faultFile{File: inner, fault: f}
		}
		return err
	})
	return file, err
}

func (f *Fault) Create(name string) (File, error) { return f.open(OpCreate, name, f.fs.Create) }
func (f *Fault) Open(name string) (File, error)   { return f.open(OpOpen, name, f.fs.Open) }

func (f *Fault) OpenReadWrite(name string) (File, error) {
	return f.open(OpOpen, name, f.fs.OpenReadWrite)
}

func (f *Fault) OpenOrCreate(name string) (File, error) {
	return f.open(OpCreate, name, f.fs.OpenOrCreate)
}

func (f *Fault) Remove(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func() error { return f.fs.Remove(name) })
}

func (f *Fault) RemoveAll(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func() error { return f.fs.RemoveAll(name) })
}

func (f *Fault) Rename(oldName, newName string) error {
	return f.do(Op{Kind: OpRename, Name: oldName, To: newName}, func() error { return f.fs.Rename(oldName, newName) })
}

func (f *Fault) MkdirAll(dir string) error {
	return f.do(Op{Kind: OpMkdir, Name: dir}, func() error { return f.fs.MkdirAll(dir) })
}

func (f *Fault) SyncDir(dir string) error {
	return f.do(Op{Kind: OpSyncDir, Name: dir}, func() error { return f.fs.SyncDir(dir) })
}

func (f *Fault) List(dir string) (names []string, err error) {
	err = f.do(Op{Kind: OpList, Name: dir}, func() (err error) {
		names, err = f.fs.List(dir)
		return err
	})
	return names, err
}

func (f *Fault) Stat(name string) (info fs.FileInfo, err error) {
	err = f.do(Op{Kind: OpStat, Name: name}, func() (err error) {
		info, err = f.fs.Stat(name)
		return err
	})
	return info, err
}

func (f *Fault) Lock(name string) (lock io.Closer, err error) {
	err = f.do(Op{Kind: OpLock, Name: name}, func() (err error) {
		lock, err = f.fs.Lock(name)
		return err
	})
	return lock, err
}

func (f *Fault) Usage(dir string) (usage Usage, err error) {
	err = f.do(Op{Kind: OpStat, Name: dir}, func() (err error) {
		usage, err = f.fs.Usage(dir)
		return err
	})
	return usage, err
}

func (f *Fault) MountID(dir string) (id string, err error) {
	err = f.do(Op{Kind: OpStat, Name: dir}, func() (err error) {
		id, err = f.fs.MountID(dir)
		return err
	})
	return id, err
}

// faultFile passes Name and WillNeed through and everything else the injector.
type faultFile struct {
	File
	fault *Fault
}

func (f *faultFile) Fd() int { return -1 }

func (f *faultFile) op(kind OpKind, off, size int64) Op {
	return Op{Kind: kind, Name: f.Name(), Off: off, Size: size}
}

func (f *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fault.do(f.op(OpRead, off, int64(len(p))), func() (err error) {
		n, err = f.File.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.WritevAt([][]byte{p}, off)
	return int(n), err
}

func (f *faultFile) WritevAt(bufs [][]byte, off int64) (n int64, err error) {
	var size int64
	for _, b := range bufs {
		size += int64(len(b))
	}
	op := f.op(OpWrite, off, size)
	out := f.fault.injector.Inject(op)
	if out.Hang != nil {
		<-out.Hang
	}
	if out.Err == nil {
		n, err = f.File.WritevAt(bufs, off)
	} else {
		n, err = f.File.WritevAt(prefix(bufs, out.Short), off)
		if err == nil {
			err = pathError(string(OpWrite), f.Name(), out.Err)
		}
	}
	f.fault.events.add(op, err)
	return n, err
}

// prefix returns the first n bytes of bufs.
func prefix(bufs [][]byte, n int64) [][]byte {
	var first [][]byte
	for _, b := range bufs {
		if n <= 0 {
			break
		}
		b = b[:min(int64(len(b)), n)]
		first = append(first, b)
		n -= int64(len(b))
	}
	return first
}

func (f *faultFile) Truncate(size int64) error {
	return f.fault.do(f.op(OpTruncate, 0, size), func() error { return f.File.Truncate(size) })
}

func (f *faultFile) Size() (size int64, err error) {
	err = f.fault.do(f.op(OpStat, 0, 0), func() (err error) {
		size, err = f.File.Size()
		return err
	})
	return size, err
}

func (f *faultFile) Sync() error {
	return f.fault.do(f.op(OpSync, 0, 0), f.File.Sync)
}

func (f *faultFile) SyncRange(off, n int64) error {
	return f.fault.do(f.op(OpSyncRange, off, n), func() error { return f.File.SyncRange(off, n) })
}

// Close gives the handle back even where it is to fail.
func (f *faultFile) Close() error {
	closeErr := f.File.Close()
	return f.fault.do(f.op(OpClose, 0, 0), func() error { return closeErr })
}
