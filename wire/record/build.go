package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Options are the header fields of a batch to build. The zero value is a batch of epoch 0 at
// offset 0, uncompressed, without a producer.
type Options struct {
	BaseOffset  int64
	LeaderEpoch int32
	Codec       Codec

	// The producer's fields count only if ProducerID > 0 or one of the flags below is set, so that
	// the zero value is no producer rather than producer 0.
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Idempotent    bool

	Transactional bool
	Control       bool
	LogAppendTime bool // every record has the largest of the timestamps given
}

func (o *Options) hasProducer() bool {
	return o.ProducerID > 0 || o.ProducerID == 0 && (o.Idempotent || o.Transactional || o.Control)
}

// Builder collects records and makes a batch of them. Not safe for concurrent use.
type Builder struct {
	options Options
	records []byte // encoded, uncompressed
	count   int
	base    int64 // timestamp of the first record
	max     int64
}

// NewBuilder returns an empty builder.
func NewBuilder(options Options) *Builder {
	b := new(Builder)
	b.Reset(options)
	return b
}

// Reset empties the builder for another batch and keeps its buffer.
func (b *Builder) Reset(options Options) {
	b.options, b.records, b.count, b.base, b.max = options, b.records[:0], 0, NoTimestamp, NoTimestamp
}

// Count is the number of records appended.
func (b *Builder) Count() int { return b.count }

// Len is the size in bytes that the batch would have uncompressed.
func (b *Builder) Len() int { return HeaderSize + len(b.records) }

// Append adds a record with the next offset. Everything is copied; nil key or value is null.
func (b *Builder) Append(timestamp int64, key, value []byte, headers ...Header) {
	if b.count == 0 {
		b.base = timestamp
	}
	b.max = max(b.max, timestamp)
	delta := timestamp - b.base
	size := 1 + varintSize(delta) + varintSize(int64(b.count)) +
		bytesSize(key) + bytesSize(value) + varintSize(int64(len(headers)))
	for _, h := range headers {
		size += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	p := binary.AppendVarint(b.records, int64(size))
	p = append(p, 0)
	p = binary.AppendVarint(p, delta)
	p = binary.AppendVarint(p, int64(b.count))
	p = appendBytes(appendBytes(p, key), value)
	p = binary.AppendVarint(p, int64(len(headers)))
	for _, h := range headers {
		p = append(binary.AppendVarint(p, int64(len(h.Key))), h.Key...)
		p = appendBytes(p, h.Value)
	}
	b.records = p
	b.count++
}

// Build encodes the batch into memory of its own; the builder is left as it is. An empty builder, or a batch
// beyond the 2 GiB that the format can tell, is an error.
func (b *Builder) Build() (Batch, error) {
	if b.count == 0 {
		return nil, fmt.Errorf("build batch: %w: no records", ErrInvalid)
	}
	if b.options.Codec == None {
		if b.Len() > math.MaxInt32 {
			return nil, fmt.Errorf("build batch: %w: %d bytes", ErrInvalid, b.Len())
		}
		return b.uncompressed(), nil
	}
	compressed, err := Compress(b.options.Codec, make([]byte, HeaderSize, HeaderSize+len(b.records)/2), b.records)
	if err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	if len(compressed) > math.MaxInt32 {
		return nil, fmt.Errorf("build batch: %w: %d bytes", ErrInvalid, len(compressed))
	}
	b.header(Batch(compressed), b.options.Codec)
	return Batch(compressed), nil
}

func (b *Builder) uncompressed() Batch {
	batch := make(Batch, HeaderSize+len(b.records))
	copy(batch[HeaderSize:], b.records)
	b.header(batch, None)
	return batch
}

// header fills the first HeaderSize bytes of a batch whose records are in place.
func (b *Builder) header(batch Batch, codec Codec) {
	o := &b.options
	id, epoch, sequence := int64(NoProducer), int16(-1), int32(-1)
	if o.hasProducer() {
		id, epoch, sequence = o.ProducerID, o.ProducerEpoch, o.BaseSequence
	}
	attributes := uint16(codec)
	if o.LogAppendTime {
		attributes |= attrLogAppendTime
	}
	if o.Transactional {
		attributes |= attrTransactional
	}
	if o.Control {
		attributes |= attrControl
	}
	be := binary.BigEndian
	be.PutUint64(batch[posBaseOffset:], uint64(o.BaseOffset))
	be.PutUint32(batch[posLength:], uint32(len(batch)-Overhead))
	be.PutUint32(batch[posLeaderEpoch:], uint32(o.LeaderEpoch))
	batch[posMagic] = Magic
	be.PutUint16(batch[posAttributes:], attributes)
	be.PutUint32(batch[posLastOffsetDelta:], uint32(b.count-1))
	be.PutUint64(batch[posBaseTimestamp:], uint64(b.base))
	be.PutUint64(batch[posMaxTimestamp:], uint64(b.max))
	be.PutUint64(batch[posProducerID:], uint64(id))
	be.PutUint16(batch[posProducerEpoch:], uint16(epoch))
	be.PutUint32(batch[posBaseSequence:], uint32(sequence))
	be.PutUint32(batch[posCount:], uint32(b.count))
	batch.seal()
}

// bytesSize is the encoded size of a nullable field with its length.
func bytesSize(p []byte) int {
	if p == nil {
		return 1
	}
	return varintSize(int64(len(p))) + len(p)
}

func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(p))), p...)
}

// varintSize is the size of v in zigzag encoding.
func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
