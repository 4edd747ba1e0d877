package tier

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// sealed is an object ready to be written: the run's data, and the tail that follows it.
type sealed struct {
	data  io.ReaderAt
	tail  []byte
	size  int64  // of the object
	crc   uint32 // CRC-32C of the whole object
	index *Index
}

// seal reads the run once, verifying every batch, and builds what follows the data. Memory is
// the index plus one buffer: a batch larger than scanBuffer is checksummed in pieces.
func seal(ctx context.Context, clusterID string, object wire.UUID, run Run) (*sealed, error) {
	s := scanner{run: run, expect: run.Base, index: &Index{
		Footer: Footer{
			Object: object, ClusterID: clusterID, Topic: run.Topic, TopicID: run.TopicID,
			Partition: run.Partition, LeaderEpoch: run.LeaderEpoch,
			Base: run.Base, End: run.End, DataSize: run.Size,
			MinTimestamp: run.MinTimestamp, MaxTimestamp: run.MaxTimestamp,
			WrittenMs:  time.Now().UnixMilli(),
			HasAborted: len(run.Aborted) > 0, Sparse: run.Sparse,
		},
		epochs: run.Epochs, aborted: run.Aborted,
	}}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := s.scan(ctx); err != nil {
		return nil, err
	}
	tail := appendTail(nil, s.index, run.Producers)
	return &sealed{
		data: run.Data, tail: tail, size: run.Size + int64(len(tail)),
		crc: crc32.Update(s.crc, castagnoli, tail), index: s.index,
	}, nil
}

// ReadAt makes the object one stream of bytes.
func (s *sealed) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.size {
		return 0, io.EOF
	}
	n, dataSize := 0, s.size-int64(len(s.tail))
	if off < dataSize {
		want := int(min(int64(len(p)), dataSize-off))
		got, err := s.data.ReadAt(p[:want], off)
		if got < want {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return got, err
		}
		n = got
	}
	if n < len(p) {
		n += copy(p[n:], s.tail[off+int64(n)-dataSize:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// scanBuffer is the read size of the pass over a run: one block.
const scanBuffer = blockSize

// scanner walks over the data of a run block by block. The state of the batch that the walk is in
// survives the border of a block, so that no batch needs to be in memory as a whole.
type scanner struct {
	run    Run
	index  *Index
	crc    uint32 // of all data so far
	expect int64  // smallest base offset that may follow

	header  []byte // the current batch's header as far as it was read
	left    int64  // bytes of the batch not seen yet, once the header is complete
	sum     uint32 // CRC of the batch's bytes under its own checksum so far
	started int64  // position of the current batch
}

func (s *scanner) check() error {
	r := s.run
	switch {
	case r.Base < 0 || r.End <= r.Base || r.End-r.Base > maxDataSize:
		return fmt.Errorf("%w: offsets [%d, %d)", ErrBadRun, r.Base, r.End)
	case r.Size < record.HeaderSize || r.Size > maxDataSize:
		return fmt.Errorf("%w: %d bytes", ErrBadRun, r.Size)
	}
	return nil
}

func (s *scanner) scan(ctx context.Context) error {
	buf := buffers.get(min(scanBuffer, s.run.Size))
	defer buffers.put(buf)
	for pos := int64(0); pos < s.run.Size; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := buf[:min(int64(len(buf)), s.run.Size-pos)]
		if n, err := s.run.Data.ReadAt(p, pos); n < len(p) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read run at %d: %w", pos, err)
		}
		sum := crc32.Checksum(p, castagnoli)
		s.index.blocks = append(s.index.blocks, sum)
		s.crc = crc32.Update(s.crc, castagnoli, p)
		if err := s.feed(p, pos); err != nil {
			return err
		}
		pos += int64(len(p))
	}
	if s.left > 0 || len(s.header) > 0 || s.expect != s.run.End {
		return fmt.Errorf("%w: batches end at offset %d with %d bytes open, want %d", ErrBadRun, s.expect, s.left, s.run.End)
	}
	return nil
}

// feed consumes the next bytes of data, which begin at pos.
func (s *scanner) feed(p []byte, pos int64) error {
	for len(p) > 0 {
		if s.left == 0 {
			if len(s.header) == 0 {
				s.started = pos
			}
			n := min(record.HeaderSize-len(s.header), len(p))
			s.header = append(s.header, p[:n]...)
			p, pos = p[n:], pos+int64(n)
			if len(s.header) < record.HeaderSize {
				return nil
			}
			if err := s.begin(); err != nil {
				return err
			}
		}
		n := min(s.left, int64(len(p)))
		s.sum = crc32.Update(s.sum, castagnoli, p[:n])
		p, pos, s.left = p[n:], pos+n, s.left-n
		if s.left == 0 {
			if s.sum != record.Batch(s.header).CRC() {
				return fmt.Errorf("%w: batch at offset %d: %w", ErrBadRun, record.Batch(s.header).BaseOffset(), record.ErrCRC)
			}
			s.header = s.header[:0]
		}
	}
	return nil
}

// crcStart is the first byte of a batch under the batch's own checksum.
const crcStart = 21

// begin judges a complete header and enters the batch into the index.
func (s *scanner) begin() error {
	b := record.Batch(s.header)
	size, err := record.SizeOf(b)
	if err != nil || b.Magic() != record.Magic {
		return fmt.Errorf("%w: no batch at position %d", ErrBadRun, s.started)
	}
	base, next := b.BaseOffset(), b.NextOffset()
	if base < s.expect || base > s.expect && !s.run.Sparse || next <= base || next > s.run.End {
		return fmt.Errorf("%w: batch [%d, %d) at position %d, want %d", ErrBadRun, base, next, s.started, s.expect)
	}
	if s.started+size > s.run.Size {
		return fmt.Errorf("%w: batch at offset %d reaches beyond the data", ErrBadRun, base)
	}
	s.expect = next
	s.left = size - record.HeaderSize
	s.sum = crc32.Checksum(s.header[crcStart:], castagnoli)
	x := s.index
	x.Batches++
	x.Records += int64(b.Count())
	if last := len(x.entries) - 1; last < 0 || int64(x.entries[last].pos)/windowSize != s.started/windowSize {
		x.entries = append(x.entries, entry{uint32(base - x.Base), uint32(s.started)})
		x.times = append(x.times, record.NoTimestamp)
	}
	last := len(x.times) - 1
	x.times[last] = max(x.times[last], b.MaxTimestamp())
	x.MaxTimestamp = max(x.MaxTimestamp, b.MaxTimestamp())
	if s.left == 0 { // a batch without records: nothing is left to be summed
		if s.sum != b.CRC() {
			return fmt.Errorf("%w: batch at offset %d: %w", ErrBadRun, base, record.ErrCRC)
		}
		s.header = s.header[:0]
	}
	return nil
}

// appendTail writes sections, footer and trailer.
func appendTail(dst []byte, x *Index, producers []record.ProducerEntry) []byte {
	start := len(dst)
	sections := make([]section, 0, sectionKinds)
	add := func(kind uint8, write func([]byte) []byte) {
		from := len(dst)
		dst = write(dst)
		sections = append(sections, section{
			kind: kind, pos: x.DataSize + int64(from-start), size: int64(len(dst) - from),
			crc: crc32.Checksum(dst[from:], castagnoli),
		})
	}
	add(sectionProducers, func(p []byte) []byte { return appendProducers(p, producers) })
	add(sectionEpochs, x.appendEpochs)
	add(sectionAborted, x.appendAborted)
	add(sectionBlocks, x.appendBlocks)
	add(sectionOffsets, x.appendOffsets)
	add(sectionTimes, x.appendTimes)
	from := len(dst)
	dst = appendFooter(dst, &x.Footer, sections)
	return appendTrailer(dst, x.DataSize+int64(from-start), dst[from:])
}

var be = binary.BigEndian

func appendProducers(p []byte, producers []record.ProducerEntry) []byte {
	for _, e := range producers {
		p = be.AppendUint64(p, uint64(e.ProducerID))
		p = be.AppendUint16(p, uint16(e.ProducerEpoch))
		p = be.AppendUint32(p, uint32(e.CoordinatorEpoch))
		p = be.AppendUint64(p, uint64(e.CurrentTxnFirstOffset))
		p = be.AppendUint64(p, uint64(e.LastTimestamp))
		p = append(p, uint8(len(e.Batches)))
		for _, b := range e.Batches {
			p = be.AppendUint32(p, uint32(b.LastSequence))
			p = be.AppendUint64(p, uint64(b.LastOffset))
			p = be.AppendUint32(p, uint32(b.OffsetDelta))
			p = be.AppendUint64(p, uint64(b.Timestamp))
		}
	}
	return p
}

func (x *Index) appendEpochs(p []byte) []byte {
	for _, e := range x.epochs {
		p = be.AppendUint32(p, uint32(e.Epoch))
		p = be.AppendUint64(p, uint64(e.StartOffset))
	}
	return p
}

func (x *Index) appendAborted(p []byte) []byte {
	for _, t := range x.aborted {
		for _, v := range [...]int64{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStableOffset} {
			p = be.AppendUint64(p, uint64(v))
		}
	}
	return p
}

func (x *Index) appendBlocks(p []byte) []byte {
	for _, crc := range x.blocks {
		p = be.AppendUint32(p, crc)
	}
	return p
}

func (x *Index) appendOffsets(p []byte) []byte {
	for _, e := range x.entries {
		p = be.AppendUint32(p, e.offset)
		p = be.AppendUint32(p, e.pos)
	}
	return p
}

func (x *Index) appendTimes(p []byte) []byte {
	for _, t := range x.times {
		p = be.AppendUint64(p, uint64(t))
	}
	return p
}

func appendFooter(p []byte, f *Footer, sections []section) []byte {
	p = append(p, f.Object[:]...)
	p = append(p, f.TopicID[:]...)
	p = be.AppendUint32(p, uint32(f.Partition))
	p = be.AppendUint32(p, uint32(f.LeaderEpoch))
	for _, v := range [...]int64{f.Base, f.End, f.DataSize, f.Batches, f.Records, f.MinTimestamp, f.MaxTimestamp, f.WrittenMs} {
		p = be.AppendUint64(p, uint64(v))
	}
	var flags uint32
	if f.HasAborted {
		flags |= flagAborted
	}
	if f.Sparse {
		flags |= flagSparse
	}
	p = be.AppendUint32(p, flags)
	p = appendString(p, f.ClusterID)
	p = appendString(p, f.Topic)
	p = append(p, uint8(len(sections)))
	for _, s := range sections {
		p = append(p, s.kind)
		p = be.AppendUint64(p, uint64(s.pos))
		p = be.AppendUint64(p, uint64(s.size))
		p = be.AppendUint32(p, s.crc)
	}
	return p
}

func appendString(p []byte, s string) []byte {
	p = be.AppendUint16(p, uint16(len(s)))
	return append(p, s...)
}

func appendTrailer(p []byte, footerPos int64, footer []byte) []byte {
	from := len(p)
	p = be.AppendUint64(p, uint64(footerPos))
	p = be.AppendUint32(p, uint32(len(footer)))
	p = be.AppendUint32(p, crc32.Checksum(footer, castagnoli))
	p = be.AppendUint32(p, version)
	p = be.AppendUint32(p, crc32.Checksum(p[from:], castagnoli))
	return append(p, magic...)
}

// ErrBadRun: the bytes given for upload are not what was promised; nothing was uploaded.
var ErrBadRun = errors.New("not a sound run of batches")
