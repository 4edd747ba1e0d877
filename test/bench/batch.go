package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Positions in a RecordBatch v2.
const (
	batchLengthPos = 8  // int32: size of all that follows it
	batchCRCPos    = 17 // uint32: over all that follows it
	batchDeltaPos  = 23 // int32: last offset delta
	batchHeader    = 61
)

// newBatch builds one uncompressed RecordBatch of count records with values of
// size random bytes (so that nothing on the way can compress them).
func newBatch(count, size int, timestamp int64) []byte {
	rng := rand.New(rand.NewPCG(uint64(count), uint64(size)))
	value := make([]byte, size)
	var records []byte
	for i := range count {
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		r := kmsg.Record{OffsetDelta: int32(i), Value: value}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // its own length takes one byte while it is zero
		records = r.AppendTo(records)
	}
	b := kmsg.RecordBatch{
		Length:               int32(batchHeader - batchLengthPos - 4 + len(records)),
		PartitionLeaderEpoch: -1,
		Magic:                2,
		LastOffsetDelta:      int32(count - 1),
		FirstTimestamp:       timestamp,
		MaxTimestamp:         timestamp,
		ProducerID:           -1,
		ProducerEpoch:        -1,
		FirstSequence:        -1,
		NumRecords:           int32(count),
		Records:              records,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[batchCRCPos:], crc32.Checksum(raw[batchCRCPos+4:], castagnoli))
	return raw
}

// checkBatches verifies that records holds whole batches from offset on
// without a gap, each with the right CRC, and returns the offset after them. A
// batch cut off at the end is left out.
func checkBatches(records []byte, offset int64) (int64, error) {
	for len(records) >= batchHeader {
		size := int(binary.BigEndian.Uint32(records[batchLengthPos:])) + batchLengthPos + 4
		if size > len(records) {
			break
		}
		b := records[:size]
		if base := int64(binary.BigEndian.Uint64(b)); base != offset {
			return 0, fmt.Errorf("batch at offset %d where %d was expected", base, offset)
		}
		if want, got := binary.BigEndian.Uint32(b[batchCRCPos:]), crc32.Checksum(b[batchCRCPos+4:], castagnoli); want != got {
			return 0, fmt.Errorf("batch at offset %d: CRC %08x, computed %08x", offset, want, got)
		}
		offset += int64(binary.BigEndian.Uint32(b[batchDeltaPos:])) + 1
		records = records[size:]
	}
	return offset, nil
}
