package log

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// Suffixes of the files of a segment, and of what stands beside it.
const (
	logSuffix       = ".log"
	offsetSuffix    = ".index"
	timeSuffix      = ".timeindex"
	txnSuffix       = ".txnindex"
	snapshotSuffix  = ".snapshot"
	keptSuffix      = ".kept" // the unfinished new file of a truncation
	cutSuffix       = ".cut"  // what recovery cut off, kept for a human
	deletedSuffix   = ".deleted"
	offsetNameWidth = 20
)

// fileName is the name of a file that belongs to an offset.
func fileName(offset int64, suffix string) string {
	return fmt.Sprintf("%0*d%s", offsetNameWidth, offset, suffix)
}

// parseFileName is its inverse.
func parseFileName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != offsetNameWidth {
		return 0, false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	return offset, err == nil && offset >= 0
}

// placed is a batch at its place in a segment: what indexes and marks want to know of it.
type placed struct {
	base, last   int64
	pos, size    int64
	maxTimestamp int64
	minTimestamp int64
	epoch        int32
	control      bool
}

func place(h record.Batch, pos, size int64) placed {
	return placed{base: h.BaseOffset(), last: h.LastOffset(), pos: pos, size: size,
		maxTimestamp: h.MaxTimestamp(), minTimestamp: h.BaseTimestamp(), epoch: h.LeaderEpoch(), control: h.IsControl()}
}

// segment is one .log file with its indexes. Bytes below size never change, so that readers who hold a pin need
// no lock.
type segment struct {
	base int64
	file vfs.File

	offsets index
	times   index
	txns    txnIndex

	// Guarded by Log.mu; written with the append turn held.
	size         int64
	next         int64 // offset after the last batch
	sinceIndex   int64 // bytes since the last entry of offsets
	maxTimestamp int64 // largest so far, -1 none
	maxOffset    int64 // last offset of the first batch that has it
	minData      int64 // timestamps of data batches alone, as far as known
	maxData      int64
	dataKnown    bool  // minData and maxData cover the whole segment
	rollFrom     int64 // timestamp of the first batch, which segment.ms counts from; -1 none
	firstAppend  time.Time
	sealed       bool

	jitter  time.Duration
	written int64 // size up to which write-back was started; owned by the append turn

	distrusted atomic.Bool // the indexes in memory were loaded from files that turned out to be wrong

	pins    atomic.Int64
	release func() // gives one pin back; made once, so that a read allocates nothing
}

func newSegment(fsys vfs.FS, dir string, base int64, file vfs.File) *segment {
	s := &segment{base: base, file: file, next: base, maxTimestamp: record.NoTimestamp, maxOffset: base,
		minData: record.NoTimestamp, maxData: record.NoTimestamp, dataKnown: true, rollFrom: record.NoTimestamp}
	s.offsets = index{shape: offsetShape, fs: fsys, name: path.Join(dir, fileName(base, offsetSuffix))}
	s.times = index{shape: timeShape, fs: fsys, name: path.Join(dir, fileName(base, timeSuffix))}
	s.txns = txnIndex{fs: fsys, name: path.Join(dir, fileName(base, txnSuffix))}
	s.release = func() { s.pins.Add(-1) }
	return s
}

// createSegment makes the files of an empty segment. A file of that name left over by a crash goes.
func createSegment(fsys vfs.FS, dir string, base int64, jitterMs int64) (*segment, error) {
	for _, suffix := range []string{logSuffix, offsetSuffix, timeSuffix, txnSuffix} {
		if err := removeIfThere(fsys, path.Join(dir, fileName(base, suffix))); err != nil {
			return nil, err
		}
	}
	file, err := fsys.Create(path.Join(dir, fileName(base, logSuffix)))
	if err != nil {
		return nil, err
	}
	s := newSegment(fsys, dir, base, file)
	s.setJitter(jitterMs)
	return s, nil
}

func (s *segment) setJitter(ms int64) {
	if ms > 0 {
		s.jitter = time.Duration(rand.Int64N(ms)) * time.Millisecond
	}
}

// add takes a batch that was written into the account and into the indexes. The caller holds Log.mu.
func (s *segment) add(b placed, interval int) {
	if s.size == 0 {
		s.rollFrom = b.maxTimestamp
	}
	if b.maxTimestamp > s.maxTimestamp {
		s.maxTimestamp, s.maxOffset = b.maxTimestamp, b.last
	}
	s.addTimes(b)
	if s.sinceIndex > int64(interval) {
		s.addIndexEntry(b)
	}
	s.sinceIndex += b.size
	s.size = b.pos + b.size
	s.next = b.last + 1
}

// addTimes counts the timestamps of a data batch; those of markers say nothing about records.
func (s *segment) addTimes(b placed) {
	if b.control {
		return
	}
	if b.minTimestamp >= 0 && (s.minData < 0 || b.minTimestamp < s.minData) {
		s.minData = b.minTimestamp
	}
	s.maxData = max(s.maxData, b.maxTimestamp)
}

func (s *segment) addIndexEntry(b placed) {
	s.offsets.add(entry{b.last - s.base, int32(b.pos)})
	s.addTimeEntry()
	s.sinceIndex = 0
}

// addTimeEntry notes the largest timestamp so far, unless that is known already.
func (s *segment) addTimeEntry() {
	if s.maxTimestamp >= 0 && (s.times.entries() == 0 || s.maxTimestamp > s.times.last.key) {
		s.times.add(entry{s.maxTimestamp, int32(s.maxOffset - s.base)})
	}
}

// close gives all files back; the names stay.
func (s *segment) close() error {
	return errors.Join(s.offsets.close(), s.times.close(), s.txns.close(), s.file.Close())
}

// remove takes the names away, so that a crash leaves no log without its transaction index: the log first,
// durably, then what is derived from it. Handles stay usable.
func (s *segment) remove(fsys vfs.FS) error {
	dir := path.Dir(s.offsets.name)
	if err := removeIfThere(fsys, path.Join(dir, fileName(s.base, logSuffix))); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	return s.removeDerived(fsys)
}

func (s *segment) removeDerived(fsys vfs.FS) error {
	return errors.Join(removeIfThere(fsys, s.offsets.name), removeIfThere(fsys, s.times.name), removeIfThere(fsys, s.txns.name))
}

func removeIfThere(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
