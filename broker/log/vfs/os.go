package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func (osFS) OpenReadWrite(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) OpenOrCreate(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE)
}

func (osFS) Remove(name string) error    { return os.Remove(name) }
func (osFS) RemoveAll(name string) error { return os.RemoveAll(name) }
func (osFS) Rename(o, n string) error    { return os.Rename(o, n) }
func (osFS) MkdirAll(dir string) error   { return os.MkdirAll(dir, 0o755) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock uses flock, which a dead process gives up and which, unlike fcntl
// locks, a second open in the same process does not share.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = control(f, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

func (osFS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := int64(st.Bsize)
	return Usage{Total: int64(st.Blocks) * block, Free: int64(st.Bavail) * block}, nil
}

// osFile adds what os.File lacks. Descriptors are used through
// SyscallConn alone: it holds a reference, so that a concurrent Close cannot
// hand the number to another file in the middle of a write.
type osFile struct {
	*os.File
	fd int
}

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	if err := spared(f); err != nil {
		if flag&os.O_EXCL != 0 {
			err = errors.Join(err, os.Remove(name))
		}
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, fd: int(f.Fd())}, nil
}

// maxSpared and its share of the limit bound the descriptors that files leave to connections: a process that has none
// left cannot even be told to give some back.
const (
	maxSpared   = 512
	sparedShare = 8
)

// spared refuses a file that took one of the last descriptors. The kernel gives the lowest free number, so the number tells.
func spared(f *os.File) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil // then it is for the kernel alone to refuse
	}
	allowed := uint64(limit.Cur)
	spare := min(allowed/sparedShare, maxSpared)
	if uint64(f.Fd()) < allowed-spare {
		return nil
	}
	return &fs.PathError{Op: "open", Path: f.Name(), Err: fmt.Errorf("%w: the process may have %d, of which %d are kept for connections; "+
		"raise the limit (LimitNOFILE, ulimit -n), or delete topics", syscall.EMFILE, allowed, spare)}
}

func (f *osFile) Fd() int { return f.fd }

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// do runs a system call on the descriptor and names it in the error.
func (f *osFile) do(op string, call func(fd int) error) error {
	if err := control(f.File, call); err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

func control(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		callErr = retryEINTR(func() error { return call(int(fd)) })
	})
	if err != nil {
		return fs.ErrClosed
	}
	return callErr
}

func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
