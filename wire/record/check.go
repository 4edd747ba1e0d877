package record

import "fmt"

// Check tells whether a producer may send the batch, looking at the header alone (the CRC and the
// compressed records are not touched): it wraps ErrMagic, ErrCodec, ErrCorrupt or ErrInvalid if not.
// The rules are those of Kafka's LogValidator and ProduceRequest; whether control batches are
// allowed depends on the origin and is the caller's to decide.
func (b Batch) Check() error {
	if err := b.CheckStored(); err != nil {
		return err
	}
	count, delta := b.Count(), b.LastOffsetDelta()
	switch {
	case count < 1:
		return fmt.Errorf("%w: %d records", ErrInvalid, count)
	case delta != count-1:
		return fmt.Errorf("%w: last offset delta %d with %d records", ErrInvalid, delta, count)
	case b.HasProducer() && b.ProducerEpoch() < 0:
		return fmt.Errorf("%w: producer epoch %d", ErrInvalid, b.ProducerEpoch())
	case b.HasProducer() && !b.IsControl() && b.BaseSequence() < 0:
		return fmt.Errorf("%w: base sequence %d of producer %d", ErrInvalid, b.BaseSequence(), b.ProducerID())
	case b.IsTransactional() && !b.HasProducer():
		return fmt.Errorf("%w: transactional without a producer id", ErrInvalid)
	case b.HasDeleteHorizon():
		return fmt.Errorf("%w: delete horizon set", ErrInvalid)
	}
	return nil
}

// CheckStored tells whether the header can be that of a batch in a log, where compaction may have
// left fewer records than offsets, or none. It wraps ErrMagic, ErrCodec or ErrCorrupt if not.
func (b Batch) CheckStored() error {
	if len(b) < HeaderSize {
		return ErrShort
	}
	count, delta := b.Count(), b.LastOffsetDelta()
	switch {
	case b.Magic() != Magic:
		return ErrMagic
	case b.Codec() > Zstd:
		return fmt.Errorf("%w: %d", ErrCodec, b.Codec())
	case count < 0 || delta < 0 || int64(count) > int64(delta)+1:
		return fmt.Errorf("%w: %d records in %d offsets", ErrCorrupt, count, int64(delta)+1)
	case b.BaseOffset() < 0 || b.LastOffset() < 0:
		return fmt.Errorf("%w: offsets %d to %d", ErrCorrupt, b.BaseOffset(), b.LastOffset())
	case b.Codec() == None && int64(count)*minRecordSize > int64(len(b)-HeaderSize):
		return fmt.Errorf("%w: %d records in %d bytes", ErrCorrupt, count, len(b)-HeaderSize)
	}
	return nil
}

// minRecordSize is the size of a record with null key, null value and no headers.
const minRecordSize = 7
