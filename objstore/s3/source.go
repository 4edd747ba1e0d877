package s3

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/varve-io/varve/objstore"
)

// source is the caller's bytes. It remembers that reading them failed: the HTTP client
// reports that as a broken request, which would be tried again.
type source struct {
	r    io.ReaderAt
	size int64
	err  atomic.Pointer[error]
}

// section is the n bytes at off, to be read once more for every attempt.
func (s *source) section(off, n int64) io.ReadSeeker { return io.NewSectionReader(s, off, n) }

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, off)
	if err != nil && n < len(p) && off+int64(n) < s.size {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		s.err.Store(&err)
	}
	return n, err
}

// failed is the error that reading ended with, nil if none did.
func (s *source) failed() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// check compares the bytes with the checksum that the caller knows, where the store will not.
func (s *source) check(want *uint32) error {
	if want == nil {
		return nil
	}
	got, err := objstore.CRC32COf(s.r, 0, s.size)
	if err != nil {
		return &localError{err: err}
	}
	if got != *want {
		return &localError{kind: objstore.ErrChecksum}
	}
	return nil
}
