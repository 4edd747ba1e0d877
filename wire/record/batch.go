package record

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"iter"
)

// Positions of the header's fields, see the package comment.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	// HeaderSize is the size of the header in bytes, baseOffset to records count.
	HeaderSize = 61
	// Overhead is what batchLength does not count: itself and baseOffset.
	Overhead = 12
	// Magic is the only version of the format that is read or written.
	Magic = 2
)

const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// NoProducer is the producer id of a batch without one.
const NoProducer = -1

// NoTimestamp is what Kafka writes where there is no timestamp.
const NoTimestamp = -1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is the bytes of exactly one record batch, header included: a view, not a copy. Accessors
// may only be called on what Next returned (or Build made); they do not check the length again.
type Batch []byte

// Next returns the first whole batch of b and what follows it, both aliasing b. It looks at length
// and magic only. The error is io.EOF if b is empty, wraps ErrShort if b ends inside the batch, ErrMagic or
// ErrCorrupt if b cannot begin with a batch. No allocation.
func Next(b []byte) (batch Batch, rest []byte, err error) {
	if len(b) == 0 {
		return nil, b, io.EOF
	}
	if len(b) < posLeaderEpoch {
		return nil, b, ErrShort
	}
	length := int64(int32(binary.BigEndian.Uint32(b[posLength:])))
	if length < HeaderSize-Overhead {
		return nil, b, ErrCorrupt
	}
	if len(b) > posMagic && b[posMagic] != Magic {
		return nil, b, ErrMagic
	}
	size := length + Overhead
	if int64(len(b)) < size {
		return nil, b, ErrShort
	}
	return Batch(b[:size:size]), b[size:], nil
}

// SizeOf returns the size in bytes that the batch beginning at b declares, for readers that have only its
// first bytes. b holds at least 12 bytes; the size is at least HeaderSize or the error wraps ErrCorrupt.
func SizeOf(b []byte) (int64, error) {
	if len(b) < posLeaderEpoch {
		return 0, ErrShort
	}
	length := int64(int32(binary.BigEndian.Uint32(b[posLength:])))
	if length < HeaderSize-Overhead {
		return 0, ErrCorrupt
	}
	return length + Overhead, nil
}

// All iterates over the batches of b. The last pair carries the error that ended it early, if any.
func All(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(b) > 0 {
			batch, rest, err := Next(b)
			if !yield(batch, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

// Size is the size of the batch in bytes, header included.
func (b Batch) Size() int { return len(b) }

// BaseOffset is the offset of the first record (or of what was the first before compaction).
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[posBaseOffset:])) }

// LastOffset is the offset of the last record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the first offset after the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// LastOffsetDelta is LastOffset - BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:])) }

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[posLeaderEpoch:])) }

// Magic is the format version.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[posCRC:]) }

// Attributes are the flags and the codec, see the package comment.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[posAttributes:])) }

// Codec is the compression of the records; Check refuses unknown ones.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// LogAppendTime tells that every record's timestamp is MaxTimestamp.
func (b Batch) LogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// IsTransactional tells that the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl tells that the batch is a marker that clients skip.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// HasDeleteHorizon tells that BaseTimestamp is a delete horizon (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// BaseTimestamp is what the records' timestamp deltas count from, in ms.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])) }

// MaxTimestamp is the largest timestamp of the records in ms, -1 if none has one.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])) }

// ProducerID is NoProducer for producers that are not idempotent.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[posProducerID:])) }

// HasProducer tells that the batch comes from an idempotent or transactional producer.
func (b Batch) HasProducer() bool { return b.ProducerID() > NoProducer }

// ProducerEpoch is -1 without a producer.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[posProducerEpoch:])) }

// BaseSequence is the sequence number of the first record, -1 without (markers have none).
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[posBaseSequence:])) }

// LastSequence is the sequence number of the last record, -1 without.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base < 0 {
		return base
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// Count is the number of records as the header tells it.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[posCount:])) }

// Records is the payload after the header, compressed by Codec.
func (b Batch) Records() []byte { return b[HeaderSize:] }

// SetBaseOffset assigns the offset of the first record, in place. Not under the CRC.
func (b Batch) SetBaseOffset(offset int64) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(offset))
}

// SetLeaderEpoch assigns the leader epoch, in place. Not under the CRC.
func (b Batch) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(epoch))
}

// SetMaxTimestamp declares create time with the given maximum, in place, and computes the CRC anew.
func (b Batch) SetMaxTimestamp(ts int64) { b.setTimestamp(ts, b.Attributes()&^attrLogAppendTime) }

// SetLogAppendTime declares ts the append time of every record, in place, and computes the CRC anew.
func (b Batch) SetLogAppendTime(ts int64) { b.setTimestamp(ts, b.Attributes()|attrLogAppendTime) }

func (b Batch) setTimestamp(ts int64, attributes int16) {
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(attributes))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ts))
	b.seal()
}

// seal writes the CRC of the bytes as they are.
func (b Batch) seal() { binary.BigEndian.PutUint32(b[posCRC:], b.computeCRC()) }

func (b Batch) computeCRC() uint32 { return crc32.Checksum(b[posAttributes:], castagnoli) }

// VerifyCRC returns ErrCRC if the checksum does not match the bytes under it. No allocation.
func (b Batch) VerifyCRC() error {
	if b.computeCRC() != b.CRC() {
		return ErrCRC
	}
	return nil
}

// AddSequence advances a sequence number by n >= 0, wrapping from 2^31-1 to 0 as Kafka does.
func AddSequence(sequence, n int32) int32 { return int32((int64(sequence) + int64(n)) & 0x7fffffff) }
