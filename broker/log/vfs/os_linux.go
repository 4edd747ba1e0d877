package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// iovMax is the kernel's UIO_MAXIOV: more buffers in one pwritev are EINVAL.
const iovMax = 1024

func (f *osFile) WritevAt(bufs [][]byte, off int64) (int64, error) {
	var written int64
	rest := bufs
	for {
		rest = skipEmpty(rest)
		if len(rest) == 0 {
			return written, nil
		}
		var n int
		err := f.do("pwritev", func(fd int) (err error) {
			n, err = unix.Pwritev(fd, rest[:min(len(rest), iovMax)], off+written)
			return err
		})
		if err != nil {
			return written, err
		}
		if n == 0 {
			return written, &fs.PathError{Op: "pwritev", Path: f.Name(), Err: io.ErrShortWrite}
		}
		written += int64(n)
		rest = advance(rest, n)
	}
}

func skipEmpty(bufs [][]byte) [][]byte {
	for len(bufs) > 0 && len(bufs[0]) == 0 {
		bufs = bufs[1:]
	}
	return bufs
}

// advance returns what of bufs is left after n bytes. The caller's slice is
// copied before a buffer in it is cut, since the caller keeps it.
func advance(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n == 0 {
		return bufs
	}
	rest := append([][]byte(nil), bufs...)
	rest[0] = rest[0][n:]
	return rest
}

func (f *osFile) Sync() error { return f.do("fdatasync", unix.Fdatasync) }

func (f *osFile) SyncRange(off, n int64) error {
	err := f.do("sync_file_range", func(fd int) error {
		return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESPIPE) {
		return nil // not on this file system: Sync does it all
	}
	return err
}

func (f *osFile) WillNeed(off, n int64) {
	_ = f.do("fadvise", func(fd int) error { return unix.Fadvise(fd, off, n, unix.FADV_WILLNEED) })
}

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// MountID joins the boot id and the mount's unique id (Linux 6.8 and later).
// The older mount id is no proof: the kernel gives it out again after an
// unmount.
func (osFS) MountID(dir string) (string, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("boot id: %w: %w", err, errors.ErrUnsupported)
	}
	var st unix.Statx_t
	err = retryEINTR(func() error {
		return unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID_UNIQUE, &st)
	})
	if err != nil {
		return "", &fs.PathError{Op: "statx", Path: dir, Err: err}
	}
	if st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return "", fmt.Errorf("unique mount id of %s: %w", dir, errors.ErrUnsupported)
	}
	return fmt.Sprintf("%s/%d", strings.TrimSpace(string(boot)), st.Mnt_id), nil
}
