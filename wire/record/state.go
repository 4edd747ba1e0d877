package record

// AbortedTxn is one aborted transaction of a partition, as .txnindex keeps it.
type AbortedTxn struct {
	ProducerID       int64
	FirstOffset      int64 // of the transaction's first batch
	LastOffset       int64 // of its abort marker
	LastStableOffset int64 // of the partition, once the marker was appended
}

// EpochStart is one line of a leader-epoch checkpoint: the first offset appended in an epoch.
type EpochStart struct {
	Epoch       int32
	StartOffset int64
}

// MaxProducerBatches is how many batches of a producer are remembered to recognise duplicates;
// clients keep at most as many in flight.
const MaxProducerBatches = 5

// ProducerBatch is what is remembered of one appended batch of a producer.
type ProducerBatch struct {
	LastSequence int32
	LastOffset   int64
	OffsetDelta  int32 // LastOffset - offset of the first record; also the difference of the sequences
	Timestamp    int64 // the batch's maximum
}

// FirstSequence is the sequence number of the batch's first record.
func (b ProducerBatch) FirstSequence() int32 {
	return int32((int64(b.LastSequence) - int64(b.OffsetDelta)) & 0x7fffffff)
}

// FirstOffset is the offset of the batch's first record.
func (b ProducerBatch) FirstOffset() int64 { return b.LastOffset - int64(b.OffsetDelta) }

// ProducerEntry is the state of one producer in one partition: what one entry of Kafka's .snapshot
// holds, and the last batches beyond the one that Kafka keeps there.
type ProducerEntry struct {
	ProducerID            int64
	ProducerEpoch         int16
	CoordinatorEpoch      int32           // of the last marker, -1 none
	LastTimestamp         int64           // of the last append, for expiry
	CurrentTxnFirstOffset int64           // of the open transaction, -1 none
	Batches               []ProducerBatch // oldest first, at most MaxProducerBatches; empty after a marker
}

// LastSequence is the sequence number of the last appended record, -1 if none is remembered.
func (e *ProducerEntry) LastSequence() int32 {
	if len(e.Batches) == 0 {
		return -1
	}
	return e.Batches[len(e.Batches)-1].LastSequence
}

// LastOffset is the offset of the last appended record, -1 if none is remembered.
func (e *ProducerEntry) LastOffset() int64 {
	if len(e.Batches) == 0 {
		return -1
	}
	return e.Batches[len(e.Batches)-1].LastOffset
}
