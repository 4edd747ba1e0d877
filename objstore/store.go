package objstore

import (
	"context"
	"io"
	"time"
)

// Limits of every store. The part sizes are measured: 16 MiB parts, four at a time, reach
// what a single stream reaches on a fast link and double it at 30 ms of round trip.
const (
	PartSize        = 16 << 20                   // bytes of one part, the last may be smaller
	PartConcurrency = 4                          // parts of one object under way at a time
	PartThreshold   = PartConcurrency * PartSize // an object of more bytes is sent in parts
	MaxNameLen      = 1024                       // bytes of a name, prefix included: S3's own limit
	DeleteBatch     = 1000                       // names in one request of DeleteMany: S3's own limit
)

// Store is one bucket, or one prefix of a bucket. All methods may be called concurrently,
// return errors that match the sentinels of this package, and end soon after ctx does.
type Store interface {
	// Put writes the size bytes of r as the object name: the whole object or nothing.
	// It replaces an object of that name unless opts.IfAbsent. r may be read more than once
	// and concurrently, until Put returns. An error does not prove that the object
	// is absent: a reply may have been lost after the store had accepted it.
	Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts PutOptions) error

	// Get reads len(p) bytes at off into p. Like io.ReadFull it returns len(p) or an error:
	// io.ErrUnexpectedEOF if the object ends before, ErrNotExist if there is none. After an
	// error p holds undefined bytes. p is not kept.
	Get(ctx context.Context, name string, off int64, p []byte) (int, error)

	// Head describes one object.
	Head(ctx context.Context, name string) (Info, error)

	// List calls fn for every object whose name begins with prefix and is greater than
	// after, in ascending order of names (as bytes). An error of fn ends the listing and is returned;
	// fs.SkipAll ends it without an error. Objects written or deleted meanwhile may or may
	// not be seen.
	List(ctx context.Context, prefix, after string, fn func(Info) error) error

	// Delete removes an object. One that is absent is no error.
	Delete(ctx context.Context, name string) error

	// DeleteMany removes objects, in batches where the store can. Its error joins one *Error
	// for every name that may remain.
	DeleteMany(ctx context.Context, names []string) error

	// Capabilities tells what the store has been found to support so far.
	Capabilities() Capabilities

	// Close releases idle connections. Calls under way are not waited for.
	Close() error
}

// PutOptions are what a writer may ask for beyond the bytes.
type PutOptions struct {
	// CRC32C is the checksum (Castagnoli) of the whole object, if the caller knows it.
	// The bytes that arrive are checked against it, else against one computed while they leave.
	CRC32C *uint32

	// IfAbsent makes Put fail with ErrExist where an object of that name exists. A store
	// without conditional writes looks first and may lose a race: a help, never a fence.
	IfAbsent bool

	// Rate is at how many bytes a second r can be read at most, by the caller's own limit; 0: as fast as
	// it is asked. Requests may take so much longer.
	Rate int64
}

// Info describes an object.
type Info struct {
	Name     string
	Size     int64     // bytes
	CRC32C   *uint32   // of the whole object; nil where the store did not say
	ETag     string    // opaque; empty where the store has none
	Modified time.Time // the store's clock
}

// Capabilities tells stores apart where it matters.
type Capabilities struct {
	IfAbsent bool // PutOptions.IfAbsent is atomic
	Checksum bool // the store verifies CRC-32C on arrival and keeps it for Head
}
