package log

import (
	"errors"
	"io/fs"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// sealedIndex returns what is needed for lookups in an index of a sealed, pinned segment. The first call reads
// the whole file and checks it; indexes are derived, so one that is off is built anew.
func (l *Log) sealedIndex(s *segment, x *index) (*sealedIndex, error) {
	if loaded := x.sealed.Load(); loaded != nil {
		return loaded, nil
	}
	loaded, err := loadIndex(l.fs, x, s)
	if err == nil {
		if x.sealed.CompareAndSwap(nil, loaded) {
			return loaded, nil
		}
		if loaded.file != nil {
			loaded.file.Close()
		}
		return x.sealed.Load(), nil
	}
	if !errors.Is(err, ErrFormat) && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := l.rebuild(s); err != nil {
		return nil, err
	}
	return x.sealed.Load(), nil
}

// loadIndex opens an index file and checks every entry.
func loadIndex(fsys vfs.FS, x *index, s *segment) (*sealedIndex, error) {
	data, err := readIndex(fsys, x, s)
	if err != nil {
		return nil, err
	}
	f, err := fsys.OpenReadWrite(x.name)
	if err != nil {
		return nil, err
	}
	return newSealedIndex(x.shape, data, f), nil
}

// readIndex reads the entries of an index file. A segment large enough for an entry must have one.
func readIndex(fsys vfs.FS, x *index, s *segment) ([]byte, error) {
	data, err := vfs.ReadFile(fsys, x.name)
	if err != nil {
		return nil, err
	}
	if x.width == offsetShape.width {
		return data, x.check(data, 0, s.size-1)
	}
	return data, x.check(data, 0, s.next-1-s.base)
}

// rebuild builds both indexes of a sealed, pinned segment from its batches. If they cannot be written they stay
// in memory.
func (l *Log) rebuild(s *segment) error {
	l.rebuilding <- struct{}{}
	defer func() { <-l.rebuilding }()
	l.metrics.indexRebuilds.Inc()
	l.logger.Warn("index built anew", "partition", l.tp.String(), "segment", s.base)
	fresh := newSegment(l.fs, l.dir, s.base, s.file)
	window := scans.Get().(*[scanWindow]byte)
	defer scans.Put(window)
	if err := fresh.index(s.size, l.config.Load().IndexIntervalBytes, window[:]); err != nil {
		return err
	}
	fresh.addTimeEntry()
	return errors.Join(l.replaceIndex(&s.offsets, fresh.offsets.mem), l.replaceIndex(&s.times, fresh.times.mem))
}

// corruptIf returns the damage if err is about the bytes, and err if it is about the disk.
func corruptIf(err error, damage *Damage) error {
	if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrShort) {
		return damage
	}
	return err
}

func (l *Log) replaceIndex(x *index, entries []byte) error {
	var file vfs.File
	err := vfs.WriteFileAtomic(l.fs, x.name, entries)
	if err == nil {
		file, err = l.fs.OpenReadWrite(x.name)
	}
	if err != nil {
		l.metrics.backgroundErrs.Inc()
		l.logger.Warn("index kept in memory", "file", x.name, "error", err)
	}
	// The file that this replaces stays open for lookups under way; it is closed with the segment.
	x.replaced = append(x.replaced, x.sealed.Swap(newSealedIndex(x.shape, entries, file)))
	return nil
}
