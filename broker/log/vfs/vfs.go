package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrLocked is what Lock returns at once when another holder has the lock.
var ErrLocked = errors.New("locked by another process")

// FS is a file system. All methods are safe for concurrent use.
type FS interface {
	// Create makes a new file for reading and writing. It fails with
	// fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(name string) (File, error)
	// OpenOrCreate opens a file for reading and writing and makes an empty one
	// if there is none.
	OpenOrCreate(name string) (File, error)

	// Remove deletes a file or an empty directory. Open handles stay usable.
	Remove(name string) error
	// RemoveAll deletes a file, or a directory with all below. A name that does
	// not exist is no error.
	RemoveAll(name string) error
	// Rename gives a file or directory another name, replacing a file (or an
	// empty directory) of that name atomically.
	Rename(oldName, newName string) error
	// MkdirAll makes a directory and its parents as far as they are missing.
	MkdirAll(dir string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error

	// Lock takes an exclusive lock on a file, which is made if missing and
	// stays after Close of the result. It never waits: ErrLocked.
	Lock(name string) (io.Closer, error)
	// Usage measures the file system that holds dir.
	Usage(dir string) (Usage, error)
	// MountID identifies one mount during one boot: as long as it is equal,
	// whatever a process wrote to files below dir is still there although it
	// was never synced. The error wraps errors.ErrUnsupported where the system
	// cannot prove that; callers must then assume a power loss.
	MountID(dir string) (string, error)
}

// File is an open file. Reads, writes, syncs and the hints are safe for
// concurrent use; where concurrent writes overlap the result is undefined.
// After Close every method but Name and Fd fails with fs.ErrClosed.
type File interface {
	io.ReaderAt
	// WriteAt extends the file if need be. A short write comes with an error;
	// what was written then is unknown.
	io.WriterAt
	// WritevAt writes the buffers one behind the other from off on, with as few
	// system calls as it can. It returns how many bytes were written; fewer
	// than given come with an error. The buffers are not kept.
	WritevAt(bufs [][]byte, off int64) (int64, error)
	// Truncate cuts the file to size, or extends it with zeros.
	Truncate(size int64) error
	// Size returns the current length in bytes.
	Size() (int64, error)
	// Sync makes bytes and size durable (fdatasync).
	Sync() error
	// SyncRange starts writing n bytes from off back to the disk and does not
	// wait. It promises no durability; it spreads the work of the next Sync.
	SyncRange(off, n int64) error
	// WillNeed starts reading n bytes from off into the page cache; a hint.
	WillNeed(off, n int64)
	// Fd is the descriptor, valid until Close, or -1 where there is none.
	Fd() int
	// Name is the name that the file was opened by.
	Name() string
	Close() error
}

// Usage is the room of a file system, in bytes.
type Usage struct {
	Total int64
	Free  int64 // for unprivileged processes
}
