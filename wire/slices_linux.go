package wire

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const canSendfile = true

// sysWriter makes system calls on a socket through closures that are made once,
// so that a call allocates nothing.
type sysWriter struct {
	sendFn, fileFn func(fd uintptr) bool

	b    []byte // to send
	file int    // to send from,
	off  int64  // at
	left int    // so many bytes
	n    int    // sent
	err  error
}

// send writes b with MSG_MORE: what follows joins it in one segment.
func (s *sysWriter) send(raw syscall.RawConn, b []byte) (int, error) {
	if s.sendFn == nil {
		s.sendFn = s.sendNow
	}
	s.b, s.n, s.err = b, 0, nil
	err := raw.Write(s.sendFn)
	s.b = nil
	if err != nil {
		return s.n, err
	}
	return s.n, s.err
}

func (s *sysWriter) sendNow(fd uintptr) bool {
	for len(s.b) > 0 {
		n, err := unix.SendmsgN(int(fd), s.b, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err != nil:
			s.err = err
			return true
		}
		s.n += n
		s.b = s.b[n:]
	}
	return true
}

// sendFile sends size bytes of a file from off on. The offset is our own: the
// descriptor's position is shared by all its readers.
func (s *sysWriter) sendFile(raw syscall.RawConn, fd int, off int64, size int) (int, error) {
	if s.fileFn == nil {
		s.fileFn = s.sendFileNow
	}
	s.file, s.off, s.left, s.n, s.err = fd, off, size, 0, nil
	if err := raw.Write(s.fileFn); err != nil {
		return s.n, err
	}
	return s.n, s.err
}

func (s *sysWriter) sendFileNow(fd uintptr) bool {
	for s.left > 0 {
		n, err := unix.Sendfile(int(fd), s.file, &s.off, s.left)
		switch {
		case n > 0:
			s.n += n
			s.left -= n
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		case err != nil:
			s.err = err
			return true
		default:
			s.err = errCut
			return true
		}
	}
	return true
}

// sendfile sends a range by sendfile, in calls of at most maxSend bytes so that
// a large range does not fall out of the processor's cache before it is sent.
func (w *sliceWriter) sendfile(c *Conn, r *FileRange) error {
	for off, left := r.Off, r.Size; left > 0; {
		w.setDeadline(c)
		n, err := w.sys.sendFile(c.raw, r.FD, off, int(min(left, maxSend)))
		off += int64(n)
		left -= int64(n)
		if err := w.progress(c, int64(n), err); err != nil {
			if err == errCut || err == unix.EIO {
				_, _ = r.ReaderAt.ReadAt(make([]byte, 1), off)
			}
			return err
		}
	}
	return nil
}

// resident reports whether the first and the last byte of a range are in the
// page cache. It costs under a microsecond; a file system that cannot tell is trusted.
func resident(r *FileRange) bool {
	var one [1]byte
	iov := [][]byte{one[:]}
	for _, off := range [2]int64{r.Off, r.Off + r.Size - 1} {
		if _, err := unix.Preadv2(r.FD, iov, off, unix.RWF_NOWAIT); err == unix.EAGAIN {
			return false
		}
	}
	return true
}

// readNow fills b if all its bytes are in the page cache. Cold says that they
// are not; a file system that cannot tell is trusted.
func readNow(fd int, b []byte, off int64) (done, cold bool) {
	n, err := unix.Preadv2(fd, [][]byte{b}, off, unix.RWF_NOWAIT)
	return n == len(b), err == unix.EAGAIN || err == nil && n < len(b)
}

// willNeed has the kernel read ahead.
func willNeed(fd int, off, size int64) { unix.Fadvise(fd, off, size, unix.FADV_WILLNEED) }
