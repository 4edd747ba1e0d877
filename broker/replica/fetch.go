package replica

import (
	"time"

	"github.com/varve-io/varve/wire"
)

// Isolation is what a reader may see.
type Isolation int8

// The isolation levels of Fetch and ListOffsets, with Kafka's numbers.
const (
	ReadUncommitted Isolation = iota // up to the high watermark
	ReadCommitted                    // up to the last stable offset
)

// Fetch is one fetch from several partitions. Manager.Fetch takes it and gives it back through Done;
// meanwhile it belongs to the manager.
type Fetch struct {
	Partitions []FetchPartition // served in this order; rotating it is the caller's
	MinBytes   int
	MaxBytes   int
	MaxWait    time.Duration
	Isolation  Isolation
	Version    int16
	// Done is called exactly once: before Manager.Fetch returns, or later from any goroutine. It must
	// not block. The records are then the caller's: sent, or released.
	Done func(*Fetch)
	Tag  any // the caller's
}

// FetchPartition is what a Fetch asks of one partition, and the answer.
type FetchPartition struct {
	// Partition is nil if the caller could not find it; Err then is the caller's and is left alone.
	Partition          *Partition
	Topic              string
	TopicID            wire.UUID
	Index              int32
	Offset             int64
	MaxBytes           int
	CurrentLeaderEpoch int32 // -1 not given
	LastFetchedEpoch   int32 // -1 not given
	Tag                any   // the caller's

	// Results.
	Err              error // nil, or wraps a kerr.Error
	HighWatermark    int64
	LastStableOffset int64
	LogStart         int64
	Diverging        *wire.EpochEnd
	Aborted          []wire.AbortedTransaction // nil unless ReadCommitted
	Records          []wire.FileRange
	Size             int // bytes in Records
}
