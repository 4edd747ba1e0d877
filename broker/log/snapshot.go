package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/varve-io/varve/wire/record"
)

const (
	snapshotVersion   = 1
	snapshotHeader    = 2 + 4 // version, CRC of what follows
	snapshotEntrySize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeSnapshot writes a .snapshot as Kafka does: of each producer only the last batch.
func encodeSnapshot(entries []record.ProducerEntry) []byte {
	p := make([]byte, snapshotHeader, snapshotHeader+4+len(entries)*snapshotEntrySize)
	p = binary.BigEndian.AppendUint32(p, uint32(len(entries)))
	for i := range entries {
		e := &entries[i]
		last := record.ProducerBatch{LastSequence: -1, LastOffset: -1}
		if n := len(e.Batches); n > 0 {
			last = e.Batches[n-1]
		}
		p = binary.BigEndian.AppendUint64(p, uint64(e.ProducerID))
		p = binary.BigEndian.AppendUint16(p, uint16(e.ProducerEpoch))
		p = binary.BigEndian.AppendUint32(p, uint32(last.LastSequence))
		p = binary.BigEndian.AppendUint64(p, uint64(last.LastOffset))
		p = binary.BigEndian.AppendUint32(p, uint32(last.OffsetDelta))
		p = binary.BigEndian.AppendUint64(p, uint64(e.LastTimestamp))
		p = binary.BigEndian.AppendUint32(p, uint32(e.CoordinatorEpoch))
		p = binary.BigEndian.AppendUint64(p, uint64(e.CurrentTxnFirstOffset))
	}
	binary.BigEndian.PutUint16(p, snapshotVersion)
	binary.BigEndian.PutUint32(p[2:], crc32.Checksum(p[snapshotHeader:], castagnoli))
	return p
}

// decodeSnapshot reads a .snapshot taken at the given offset.
func decodeSnapshot(p []byte, offset int64) ([]record.ProducerEntry, error) {
	if len(p) < snapshotHeader+4 {
		return nil, fmt.Errorf("%w: producer snapshot of %d bytes", ErrFormat, len(p))
	}
	if v := binary.BigEndian.Uint16(p); v != snapshotVersion {
		return nil, fmt.Errorf("%w: producer snapshot version %d", ErrFormat, v)
	}
	if binary.BigEndian.Uint32(p[2:]) != crc32.Checksum(p[snapshotHeader:], castagnoli) {
		return nil, fmt.Errorf("%w: producer snapshot: CRC-32C does not match", ErrFormat)
	}
	n := int64(binary.BigEndian.Uint32(p[snapshotHeader:]))
	p = p[snapshotHeader+4:]
	if n*snapshotEntrySize != int64(len(p)) {
		return nil, fmt.Errorf("%w: producer snapshot of %d entries in %d bytes", ErrFormat, n, len(p))
	}
	entries := make([]record.ProducerEntry, 0, n)
	for ; len(p) > 0; p = p[snapshotEntrySize:] {
		last := record.ProducerBatch{
			LastSequence: int32(binary.BigEndian.Uint32(p[10:])),
			LastOffset:   int64(binary.BigEndian.Uint64(p[14:])),
			OffsetDelta:  int32(binary.BigEndian.Uint32(p[22:])),
			Timestamp:    int64(binary.BigEndian.Uint64(p[26:])),
		}
		e := record.ProducerEntry{
			ProducerID:            int64(binary.BigEndian.Uint64(p)),
			ProducerEpoch:         int16(binary.BigEndian.Uint16(p[8:])),
			CoordinatorEpoch:      int32(binary.BigEndian.Uint32(p[34:])),
			LastTimestamp:         last.Timestamp,
			CurrentTxnFirstOffset: int64(binary.BigEndian.Uint64(p[38:])),
		}
		if e.ProducerID < 0 || last.LastOffset >= offset || last.OffsetDelta < 0 ||
			e.CurrentTxnFirstOffset >= offset || e.CurrentTxnFirstOffset < -1 {
			return nil, fmt.Errorf("%w: producer snapshot at %d: entry %+v, batch %+v", ErrFormat, offset, e, last)
		}
		if last.LastOffset >= 0 && last.LastSequence >= 0 {
			e.Batches = []record.ProducerBatch{last}
		}
		entries = append(entries, e)
	}
	return entries, nil
}
