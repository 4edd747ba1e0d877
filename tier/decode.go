package tier

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/varve-io/varve/wire/record"
)

// A tail is the last bytes of an object; pos is where they begin in it. Everything in it is judged
// before it is believed: lengths by where they must lie, bytes by their checksums. Errors
// wrap ErrCorrupt or ErrVersion.
type tail struct {
	p   []byte
	pos int64
}

var (
	// ErrCorrupt: an object, or what the store sent of it, is not what was written.
	ErrCorrupt = errors.New("object is corrupt")
	// ErrVersion: the object was written by a newer release.
	ErrVersion = errors.New("object has a newer format")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// tailGuess is how many of an object's last bytes hold the index in nearly every case: an entry
// (offset and time) for each window, a checksum for each block, and room for the rest.
func tailGuess(size int64) int64 {
	return min(size, 32<<10+size/windowSize*(offsetSize+timeSize)+size/blockSize*crcSize)
}

func (t tail) end() int64 { return t.pos + int64(len(t.p)) }

// slice returns bytes [pos, pos+size) of the object; false if the tail does not reach back to them.
func (t tail) slice(pos, size int64) ([]byte, bool) {
	if pos < t.pos {
		return nil, false
	}
	return t.p[pos-t.pos : pos-t.pos+size], true
}

// needMore says that a tail has to begin at pos or before to be decoded.
type needMore struct{ pos int64 }

func (e *needMore) Error() string { return fmt.Sprintf("tail must begin at %d", e.pos) }

// trailer finds the footer.
func (t tail) trailer() (pos, size int64, crc uint32, err error) {
	if len(t.p) < trailerSize {
		if t.pos > 0 {
			return 0, 0, 0, &needMore{max(0, t.end()-trailerSize)}
		}
		return 0, 0, 0, corrupt("%d bytes", len(t.p))
	}
	p := t.p[len(t.p)-trailerSize:]
	if !bytes.Equal(p[24:], []byte(magic)) {
		return 0, 0, 0, corrupt("no magic at the end")
	}
	if crc32.Checksum(p[:20], castagnoli) != be.Uint32(p[20:]) {
		return 0, 0, 0, corrupt("trailer checksum differs")
	}
	if v := be.Uint32(p[16:]); v != version {
		return 0, 0, 0, fmt.Errorf("%w: %d, this release knows %d", ErrVersion, v, version)
	}
	pos, size = int64(be.Uint64(p)), int64(be.Uint32(p[8:]))
	if pos < 0 || size > maxFooterSize || pos+size != t.end()-trailerSize {
		return 0, 0, 0, corrupt("footer of %d bytes at %d in %d", size, pos, t.end())
	}
	return pos, size, be.Uint32(p[12:]), nil
}

// footer decodes and checks the footer and the section table.
func (t tail) footer() (f Footer, sections []section, err error) {
	pos, size, crc, err := t.trailer()
	if err != nil {
		return f, nil, err
	}
	p, ok := t.slice(pos, size)
	if !ok {
		return f, nil, &needMore{pos}
	}
	if crc32.Checksum(p, castagnoli) != crc {
		return f, nil, corrupt("footer checksum differs")
	}
	r := reader{p: p}
	copy(f.Object[:], r.take(16))
	copy(f.TopicID[:], r.take(16))
	f.Partition, f.LeaderEpoch = r.int32(), r.int32()
	for _, v := range [...]*int64{&f.Base, &f.End, &f.DataSize, &f.Batches, &f.Records, &f.MinTimestamp, &f.MaxTimestamp, &f.WrittenMs} {
		*v = r.int64()
	}
	flags := r.uint32()
	f.HasAborted, f.Sparse = flags&flagAborted != 0, flags&flagSparse != 0
	f.ClusterID, f.Topic = r.string(), r.string()
	for n := int(r.uint8()); n > 0 && !r.bad; n-- {
		sections = append(sections, section{kind: r.uint8(), pos: r.int64(), size: r.int64(), crc: r.uint32()})
	}
	if r.bad || len(r.p) > 0 {
		return f, nil, corrupt("footer has %d bytes too many or too few", len(r.p))
	}
	if f.Base < 0 || f.End <= f.Base || f.End-f.Base > maxDataSize || f.DataSize < record.HeaderSize || f.DataSize > maxDataSize || f.DataSize > pos {
		return f, nil, corrupt("footer says offsets [%d, %d) in %d bytes", f.Base, f.End, f.DataSize)
	}
	return f, sections, checkSections(sections, f.DataSize, pos)
}

// checkSections makes sure that the sections lie one behind the other between data and footer.
func checkSections(sections []section, dataSize, footerPos int64) error {
	at := dataSize
	for _, s := range sections {
		if s.pos != at || s.size < 0 || s.size > footerPos-at {
			return corrupt("section %d of %d bytes at %d, want it at %d", s.kind, s.size, s.pos, at)
		}
		at += s.size
	}
	if at != footerPos {
		return corrupt("sections end at %d, the footer begins at %d", at, footerPos)
	}
	return nil
}

// decodeIndex decodes what readers of data need. The error is a *needMore if t is too short.
func decodeIndex(t tail) (*Index, error) {
	f, sections, err := t.footer()
	if err != nil {
		return nil, err
	}
	x := &Index{Footer: f}
	decoders := map[uint8]func([]byte) error{
		sectionEpochs: x.decodeEpochs, sectionAborted: x.decodeAborted, sectionBlocks: x.decodeBlocks,
		sectionOffsets: x.decodeOffsets, sectionTimes: x.decodeTimes,
	}
	if err := t.sections(sections, decoders); err != nil {
		return nil, err
	}
	return x, nil
}

// decodeProducers decodes the section that readers of data leave out.
func decodeProducers(t tail) ([]record.ProducerEntry, error) {
	_, sections, err := t.footer()
	if err != nil {
		return nil, err
	}
	var entries []record.ProducerEntry
	err = t.sections(sections, map[uint8]func([]byte) error{sectionProducers: func(p []byte) error {
		entries, err = parseProducers(p)
		return err
	}})
	return entries, err
}

// sections hands each section, verified, to its decoder. Each decoder must see its section once.
func (t tail) sections(sections []section, decoders map[uint8]func([]byte) error) error {
	seen := 0
	for _, s := range sections {
		decode, ok := decoders[s.kind]
		if !ok {
			continue
		}
		p, ok := t.slice(s.pos, s.size)
		if !ok {
			return &needMore{s.pos}
		}
		if crc32.Checksum(p, castagnoli) != s.crc {
			return corrupt("checksum of section %d differs", s.kind)
		}
		if err := decode(p); err != nil {
			return err
		}
		delete(decoders, s.kind)
		seen++
	}
	if len(decoders) > 0 {
		return corrupt("%d of %d sections are missing", len(decoders), seen+len(decoders))
	}
	return nil
}

func (x *Index) decodeEpochs(p []byte) error {
	if len(p)%epochSize != 0 {
		return corrupt("epochs of %d bytes", len(p))
	}
	x.epochs = make([]record.EpochStart, 0, len(p)/epochSize)
	for r := (reader{p: p}); len(r.p) > 0; {
		x.epochs = append(x.epochs, record.EpochStart{Epoch: r.int32(), StartOffset: r.int64()})
	}
	return nil
}

func (x *Index) decodeAborted(p []byte) error {
	if len(p)%abortedSize != 0 || (len(p) > 0) != x.HasAborted {
		return corrupt("aborted transactions of %d bytes", len(p))
	}
	x.aborted = make([]record.AbortedTxn, 0, len(p)/abortedSize)
	for r := (reader{p: p}); len(r.p) > 0; {
		x.aborted = append(x.aborted, record.AbortedTxn{
			ProducerID: r.int64(), FirstOffset: r.int64(), LastOffset: r.int64(), LastStableOffset: r.int64(),
		})
	}
	return nil
}

func (x *Index) decodeBlocks(p []byte) error {
	if int64(len(p)) != (x.DataSize+blockSize-1)/blockSize*crcSize {
		return corrupt("block checksums of %d bytes for %d of data", len(p), x.DataSize)
	}
	x.blocks = make([]uint32, 0, len(p)/crcSize)
	for r := (reader{p: p}); len(r.p) > 0; {
		x.blocks = append(x.blocks, r.uint32())
	}
	return nil
}

func (x *Index) decodeOffsets(p []byte) error {
	if len(p)%offsetSize != 0 || len(p) == 0 {
		return corrupt("offset index of %d bytes", len(p))
	}
	x.entries = make([]entry, 0, len(p)/offsetSize)
	for r := (reader{p: p}); len(r.p) > 0; {
		e := entry{offset: r.uint32(), pos: r.uint32()}
		if n := len(x.entries); n == 0 && e.pos != 0 || n > 0 && (e.offset <= x.entries[n-1].offset || e.pos <= x.entries[n-1].pos) {
			return corrupt("offset index does not ascend at entry %d", n)
		}
		x.entries = append(x.entries, e)
	}
	if last := x.entries[len(x.entries)-1]; x.Base+int64(last.offset) >= x.End || int64(last.pos) >= x.DataSize {
		return corrupt("offset index reaches beyond the data")
	}
	return nil
}

func (x *Index) decodeTimes(p []byte) error {
	if len(p) != len(x.entries)*timeSize {
		return corrupt("%d bytes of times for %d index entries", len(p), len(x.entries))
	}
	x.times = make([]int64, 0, len(x.entries))
	for r := (reader{p: p}); len(r.p) > 0; {
		x.times = append(x.times, r.int64())
	}
	return nil
}

func parseProducers(p []byte) ([]record.ProducerEntry, error) {
	var entries []record.ProducerEntry
	r := reader{p: p}
	for len(r.p) > 0 && !r.bad {
		e := record.ProducerEntry{
			ProducerID: r.int64(), ProducerEpoch: int16(r.uint16()), CoordinatorEpoch: r.int32(),
			CurrentTxnFirstOffset: r.int64(), LastTimestamp: r.int64(),
		}
		for n := int(r.uint8()); n > 0 && !r.bad; n-- {
			e.Batches = append(e.Batches, record.ProducerBatch{
				LastSequence: r.int32(), LastOffset: r.int64(), OffsetDelta: r.int32(), Timestamp: r.int64(),
			})
		}
		entries = append(entries, e)
	}
	if r.bad {
		return nil, corrupt("producer state ends inside an entry")
	}
	return entries, nil
}

// reader takes fixed-size fields off p; bad is set, and zeros are returned, once p has ended.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.p) {
		r.bad, r.p = true, nil
		return make([]byte, min(n, 16))
	}
	p := r.p[:n]
	r.p = r.p[n:]
	return p
}

func (r *reader) uint8() uint8   { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return be.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return be.Uint32(r.take(4)) }
func (r *reader) int32() int32   { return int32(r.uint32()) }
func (r *reader) int64() int64   { return int64(be.Uint64(r.take(8))) }

func (r *reader) string() string {
	n := int(r.uint16())
	if n > len(r.p) {
		r.bad, r.p = true, nil
		return ""
	}
	return string(r.take(n))
}
