package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/varve-io/varve/broker/log/vfs"
)

// indexBlock is how many bytes of a sealed index one lookup reads.
const indexBlock = 4096

// entry is one entry of an index: (relative offset, position) in an .index, (timestamp, relative offset) in a
// .timeindex. Both fields ascend from entry to entry.
type entry struct {
	key int64
	val int32
}

// shape is the form of an index file: how wide an entry is and what the file may hold.
type shape struct {
	width int
	// strict: vals ascend strictly too.
	strict bool
}

var (
	offsetShape = shape{width: 8, strict: true}
	timeShape   = shape{width: 12}
)

func (s shape) decode(p []byte) entry {
	if s.width == 8 {
		return entry{int64(int32(binary.BigEndian.Uint32(p))), int32(binary.BigEndian.Uint32(p[4:]))}
	}
	return entry{int64(binary.BigEndian.Uint64(p)), int32(binary.BigEndian.Uint32(p[8:]))}
}

func (s shape) append(p []byte, e entry) []byte {
	if s.width == 8 {
		p = binary.BigEndian.AppendUint32(p, uint32(e.key))
	} else {
		p = binary.BigEndian.AppendUint64(p, uint64(e.key))
	}
	return binary.BigEndian.AppendUint32(p, uint32(e.val))
}

// floor returns the last entry of p, which ascends, whose key (or val) is at most target.
func (s shape) floor(p []byte, target int64, byVal bool) (e entry, found bool) {
	lo, hi := 0, len(p)/s.width
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		at := s.decode(p[mid*s.width:])
		if at.field(byVal) > target {
			hi = mid
		} else {
			e, found, lo = at, true, mid+1
		}
	}
	return e, found
}

func (e entry) field(byVal bool) int64 {
	if byVal {
		return int64(e.val)
	}
	return e.key
}

// check tells whether p can be an index: whole entries, ascending, vals in [0, maxVal].
func (s shape) check(p []byte, minKey int64, maxVal int64) error {
	if len(p)%s.width != 0 {
		return fmt.Errorf("%w: index of %d bytes, entries have %d", ErrFormat, len(p), s.width)
	}
	last := entry{minKey - 1, -1}
	for i := 0; i < len(p); i += s.width {
		e := s.decode(p[i:])
		if e.key <= last.key || e.val < last.val || s.strict && e.val == last.val || int64(e.val) > maxVal {
			return fmt.Errorf("%w: index entry %d is (%d, %d) after (%d, %d)", ErrFormat, i/s.width, e.key, e.val, last.key, last.val)
		}
		last = e
	}
	return nil
}

// index is one index of a segment. While the segment is active all entries are in memory and are written
// behind, a block at a time; that is enough, because after a crash the indexes of an active segment are built
// anew. Once the segment is sealed, only the first entry of each block stays in memory and a lookup costs one
// read.
type index struct {
	shape
	fs   vfs.FS
	name string

	mem     []byte   // every entry while active; guarded by Log.mu
	last    entry    // of mem; guarded by Log.mu
	flushed int      // bytes of mem that are in file; owned by the append turn
	file    vfs.File // for writing, opened at the first flush; owned by the append turn

	sealed   atomic.Pointer[sealedIndex] // nil while active, and before the first lookup
	replaced []*sealedIndex              // by rebuilds, still open; owned by the slot Log.rebuilding
}

// load takes the entries of a file that was checked.
func (x *index) load(entries []byte) {
	x.mem, x.last = entries, entry{}
	if n := x.entries(); n > 0 {
		x.last = x.decode(entries[(n-1)*x.width:])
	}
}

func (x *index) entries() int { return len(x.mem) / x.width }

// add appends an entry. The caller holds Log.mu and has checked that it ascends.
func (x *index) add(e entry) {
	x.mem = x.shape.append(x.mem, e)
	x.last = e
}

// flush writes the whole blocks of mem behind, or everything. The caller holds the append turn.
func (x *index) flush(all bool) error {
	end := len(x.mem)
	if !all {
		end = x.flushed + (end-x.flushed)/indexBlock*indexBlock
	}
	if x.file == nil && (all || end > x.flushed) {
		f, err := x.fs.OpenOrCreate(x.name)
		if err != nil {
			return err
		}
		if err := f.Truncate(0); err != nil {
			f.Close()
			return err
		}
		x.file, x.flushed = f, 0
		if !all {
			end = len(x.mem) / indexBlock * indexBlock
		}
	}
	if end <= x.flushed {
		return nil
	}
	if _, err := x.file.WriteAt(x.mem[x.flushed:end], int64(x.flushed)); err != nil {
		return err
	}
	x.flushed = end
	return nil
}

// seal writes everything and returns what lookups need from now on. The caller then drops mem under Log.mu.
func (x *index) seal() (*sealedIndex, error) {
	if err := x.flush(true); err != nil {
		return nil, err
	}
	return newSealedIndex(x.shape, x.mem, x.file), nil
}

// close gives the files back. Nobody looks anything up any more.
func (x *index) close() error {
	var err error
	for _, s := range append(x.replaced, x.sealed.Load()) {
		if s != nil && s.file != nil && s.file != x.file {
			err = errors.Join(err, s.file.Close())
		}
	}
	if x.file != nil {
		err = errors.Join(err, x.file.Close())
	}
	return err
}

// sealedIndex answers lookups of an index that does not grow any more.
type sealedIndex struct {
	shape
	file vfs.File // nil if all is in mem
	mem  []byte   // all entries where the file could not be written
	top  []entry  // first entry of each block
	n    int      // entries
	last entry
}

func newSealedIndex(s shape, entries []byte, file vfs.File) *sealedIndex {
	x := &sealedIndex{shape: s, file: file, n: len(entries) / s.width}
	if file == nil {
		x.mem = entries
	}
	for i := 0; i < len(entries); i += x.block() {
		x.top = append(x.top, s.decode(entries[i:]))
	}
	if x.n > 0 {
		x.last = s.decode(entries[len(entries)-s.width:])
	}
	return x
}

// block is the size of a block in bytes: whole entries only.
func (x *sealedIndex) block() int { return indexBlock / x.width * x.width }

// floor returns the last entry whose key (or val) is at most target.
func (x *sealedIndex) floor(target int64, byVal bool) (entry, bool, error) {
	if x.mem != nil {
		e, ok := x.shape.floor(x.mem, target, byVal)
		return e, ok, nil
	}
	i, _ := slices.BinarySearchFunc(x.top, target, func(e entry, target int64) int {
		if e.field(byVal) > target {
			return 1
		}
		return -1
	})
	if i == 0 {
		return entry{}, false, nil
	}
	buf := blocks.Get().(*[indexBlock]byte)
	defer blocks.Put(buf)
	off := (i - 1) * x.block()
	p := buf[:min(x.block(), x.n*x.width-off)]
	if _, err := x.file.ReadAt(p, int64(off)); err != nil && err != io.EOF {
		return entry{}, false, err
	}
	e, ok := x.shape.floor(p, target, byVal)
	return e, ok, nil
}
