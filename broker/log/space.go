package log

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
)

const (
	// maxReserve and minReserve bound the default reserve, a hundredth of the file system.
	maxReserve = 1 << 30
	minReserve = 8 << 20
	// spaceGrant is how much is written at most before the file system is asked again, since others write to it
	// too.
	spaceGrant = 64 << 20
	// spacePause is how long a full directory refuses before it asks again.
	spacePause = 100 * time.Millisecond
)

// space admits writes as long as they leave the reserve alone. Asking the file system costs a system call, so
// it grants bytes in advance. It heals by itself: the next write after room was made is admitted.
type space struct {
	fs      vfs.FS
	path    string
	reserve int64 // 0: by the size of the file system
	logger  *slog.Logger

	granted atomic.Int64 // bytes that may be written before asking again
	retry   atomic.Int64 // unix nanoseconds before which a full directory is not asked again
	full    atomic.Bool  // so that only changes are logged
}

// admit takes n bytes off the grant. The error wraps ErrNoSpace, or is that of the file system.
func (s *space) admit(n int64) error {
	if s.fs == nil || s.granted.Add(-n) >= 0 {
		return nil
	}
	now := time.Now().UnixNano()
	if now < s.retry.Load() {
		return ErrNoSpace
	}
	u, err := s.fs.Usage(s.path)
	if err != nil {
		return fmt.Errorf("usage of %s: %w", s.path, err)
	}
	room := u.Free - s.keep(u.Total)
	if room < n {
		s.retry.Store(now + int64(spacePause))
		s.say(true, u)
		return fmt.Errorf("%w: %s has %d bytes free and keeps %d", ErrNoSpace, s.path, u.Free, s.keep(u.Total))
	}
	s.retry.Store(0)
	s.say(false, u)
	s.granted.Store(min(room, spaceGrant) - n)
	return nil
}

// say logs that the directory has become full, or has room again.
func (s *space) say(full bool, u vfs.Usage) {
	switch changed := s.full.CompareAndSwap(!full, full); {
	case changed && full:
		s.logger.Warn("log directory is full: writes are refused, reads go on; they are admitted again once there is room: free or add space, delete topics or shorten their retention",
			"path", s.path, "free", u.Free, "kept", s.keep(u.Total))
	case changed:
		s.logger.Info("log directory has room again", "path", s.path, "free", u.Free)
	}
}

func (s *space) keep(total int64) int64 {
	if s.reserve > 0 {
		return s.reserve
	}
	return min(max(total/100, minReserve), maxReserve)
}

// exhausted is told of a write that met the end of the disk all the same.
func (s *space) exhausted() {
	s.granted.Store(0)
	s.retry.Store(time.Now().Add(spacePause).UnixNano())
}

// Room is how many bytes may still be written before writes are refused, and how many the file system has in
// all.
func (d *Dir) Room() (room, total int64, err error) {
	u, err := d.fs.Usage(d.path)
	if err != nil {
		return 0, 0, fmt.Errorf("usage of %s: %w", d.path, err)
	}
	return max(0, u.Free-d.space.keep(u.Total)), u.Total, nil
}
