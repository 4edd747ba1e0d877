package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/varve-io/varve/broker/log/vfs"
)

// cutAt ends the log before a bad batch, and puts aside what followed.
func (r *recovery) cutAt(i int, bad *Damage) error {
	l := r.log
	s := l.segments[i]
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	l.logger.Warn("log cut at the first batch that is not whole", "partition", l.tp.String(), "at", bad.Error(), "bytes", size-bad.Pos)
	for _, later := range l.segments[i+1:] {
		if err := r.putAside(later); err != nil {
			return err
		}
	}
	l.segments = l.segments[:i+1]
	if i > 0 && bad.Pos == 0 && bad.Offset < s.base {
		// The segment begins beyond the end of the one before: it goes as a whole.
		if err := r.putAside(s); err != nil {
			return err
		}
		l.segments = l.segments[:i]
		return errors.Join(r.reactivate(), l.fs.SyncDir(l.dir))
	}
	if size > bad.Pos {
		if err := r.cutTail(s, bad, size); err != nil {
			return err
		}
	}
	return errors.Join(s.writeTxns(), l.fs.SyncDir(l.dir))
}

// putAside gives a segment a name under which nobody looks for it.
func (r *recovery) putAside(s *segment) error {
	l := r.log
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	r.cut += size
	if err := s.close(); err != nil {
		return err
	}
	if size > 0 {
		if err := l.fs.Rename(l.path(s.base, logSuffix), r.asideName(s.base)); err != nil {
			return err
		}
	}
	return s.remove(l.fs)
}

// cutTail copies the rest of a segment and cuts it off. The file may be cut in place: nobody was ever offered
// these bytes.
func (r *recovery) cutTail(s *segment, bad *Damage, size int64) error {
	l := r.log
	aside, err := l.fs.Create(r.asideName(bad.Offset))
	if err != nil {
		return err
	}
	err = errors.Join(copyRange(aside, 0, s.file, bad.Pos, size-bad.Pos, r.window[:]), aside.Sync(), aside.Close())
	if err != nil {
		return err
	}
	r.cut += size - bad.Pos
	return errors.Join(s.file.Truncate(bad.Pos), s.file.Sync())
}

// asideName is a name for what is cut off at an offset that is not taken yet.
func (r *recovery) asideName(offset int64) string {
	name := r.log.path(offset, cutSuffix)
	for n := 1; ; n++ {
		if _, err := r.log.fs.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return name
		}
		name = path.Join(r.log.dir, fmt.Sprintf("%s.%d", fileName(offset, cutSuffix), n))
	}
}

// reactivate makes the last segment active again after it was finished as a sealed one.
func (r *recovery) reactivate() error {
	s := r.log.active()
	if !s.sealed {
		return nil
	}
	offsets, err1 := vfs.ReadFile(r.log.fs, s.offsets.name)
	times, err2 := vfs.ReadFile(r.log.fs, s.times.name)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	s.offsets.load(offsets)
	s.times.load(times)
	s.offsets.sealed.Store(nil)
	s.times.sealed.Store(nil)
	s.sealed = false
	return nil
}

// copyRange copies n bytes between files.
func copyRange(to io.WriterAt, toPos int64, from io.ReaderAt, fromPos, n int64, buf []byte) error {
	for n > 0 {
		p := buf[:min(int64(len(buf)), n)]
		if read, err := from.ReadAt(p, fromPos); read < len(p) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := to.WriteAt(p, toPos); err != nil {
			return err
		}
		fromPos, toPos, n = fromPos+int64(len(p)), toPos+int64(len(p)), n-int64(len(p))
	}
	return nil
}
