//go:build !linux

package vfs

import (
	"errors"
	"fmt"
)

func (f *osFile) WritevAt(bufs [][]byte, off int64) (int64, error) {
	var written int64
	for _, b := range bufs {
		n, err := f.WriteAt(b, off+written)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Sync is the standard library's: on macOS it is F_FULLFSYNC.
func (f *osFile) Sync() error { return f.File.Sync() }

func (f *osFile) SyncRange(off, n int64) error { return nil }

func (f *osFile) WillNeed(off, n int64) {}

func (osFS) MountID(dir string) (string, error) {
	return "", fmt.Errorf("mount id of %s: %w", dir, errors.ErrUnsupported)
}
