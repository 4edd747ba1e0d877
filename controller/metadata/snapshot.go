package metadata

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

const (
	snapshotMagic  = "VARVEIMG"
	snapshotFormat = 1
	snapshotHeader = len(snapshotMagic) + 4 + 8 + 8 + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeSnapshot writes the image; the format is drawn in the package comment.
func EncodeSnapshot(w io.Writer, m *Image) error {
	buf := bufio.NewWriterSize(w, 64<<10)
	sum := crc32.New(castagnoli)
	out := io.MultiWriter(buf, sum)

	head := append(make([]byte, 0, snapshotHeader), snapshotMagic...)
	head = binary.BigEndian.AppendUint32(head, snapshotFormat)
	head = binary.BigEndian.AppendUint64(head, m.index)
	head = binary.BigEndian.AppendUint64(head, m.term)
	count := uint64(0)
	for range m.records() {
		count++
	}
	head = binary.BigEndian.AppendUint64(head, count)
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	var row []byte
	for rec := range m.records() {
		row = appendRecord(append(row[:0], 0, 0, 0, 0), rec)
		binary.BigEndian.PutUint32(row, uint32(len(row)-4))
		if _, err := out.Write(row); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	buf.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// DecodeSnapshot reads what EncodeSnapshot wrote, and no byte more. Errors
// wrap ErrCorrupt or ErrUnsupported, or are those of r.
func DecodeSnapshot(r io.Reader) (*Image, error) {
	m, err := decodeSnapshot(r)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends early", ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return m, nil
}

func decodeSnapshot(r io.Reader) (*Image, error) {
	in := &summed{r: r, sum: crc32.New(castagnoli)}
	head := make([]byte, snapshotHeader)
	if err := in.read(head); err != nil {
		return nil, err
	}
	if string(head[:8]) != snapshotMagic {
		return nil, fmt.Errorf("%w: not a snapshot", ErrCorrupt)
	}
	if f := binary.BigEndian.Uint32(head[8:]); f != snapshotFormat {
		return nil, fmt.Errorf("%w: snapshot of format %d", ErrUnsupported, f)
	}
	m, row := New(), []byte(nil)
	for range binary.BigEndian.Uint64(head[28:]) {
		var size [4]byte
		if err := in.read(size[:]); err != nil {
			return nil, err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > maxBody+32 {
			return nil, fmt.Errorf("%w: a record of %d bytes", ErrCorrupt, n)
		}
		row = row[:0]
		for part := uint32(0); uint32(len(row)) < n; { // grow with what arrives, not with what is claimed
			part = min(n-uint32(len(row)), 64<<10)
			at := len(row)
			row = append(row, make([]byte, part)...)
			if err := in.read(row[at:]); err != nil {
				return nil, err
			}
		}
		rec, rest, err := cutRecord(row)
		if err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			return nil, fmt.Errorf("%w: %d bytes after a record", ErrCorrupt, len(rest))
		}
		rec.replay(m)
	}
	var want [4]byte
	got := in.sum.Sum32()
	if _, err := io.ReadFull(r, want[:]); err != nil {
		return nil, err
	}
	if got != binary.BigEndian.Uint32(want[:]) {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	return m.Replay(nil, binary.BigEndian.Uint64(head[12:]), binary.BigEndian.Uint64(head[20:])), nil
}

// summed keeps the checksum of what is read.
type summed struct {
	r   io.Reader
	sum hash.Hash32
}

func (s *summed) read(p []byte) error {
	_, err := io.ReadFull(s.r, p)
	s.sum.Write(p)
	return err
}
