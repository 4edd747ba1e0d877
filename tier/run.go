package tier

import (
	"io"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// Run is a stretch of sealed batches of one partition, to be uploaded as one object. Base and End are
// borders of batches. All of it is below the high watermark and the last stable offset, so every
// transaction that overlaps it is decided.
type Run struct {
	Topic       string
	TopicID     wire.UUID
	Partition   int32
	LeaderEpoch int32 // of the uploading leader; the commit is refused if it is no longer current

	Base, End                  int64 // offsets [Base, End)
	Size                       int64 // bytes of batches in Data
	MinTimestamp, MaxTimestamp int64 // ms, of the records; -1 none

	// Data holds the batches at [0, Size). It is read twice, concurrently the second time, and may not
	// change until Upload returns.
	Data io.ReaderAt

	Epochs    []record.EpochStart    // leader epochs of [Base, End)
	Producers []record.ProducerEntry // state at End
	Aborted   []record.AbortedTxn    // those that overlap [Base, End), wherever their markers are
	Sparse    bool                   // offsets may have gaps: the topic was compacted once
}
