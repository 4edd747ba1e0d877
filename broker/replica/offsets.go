package replica

// Special timestamps of ListOffsets.
const (
	LatestTimestamp                int64 = -1
	EarliestTimestamp              int64 = -2
	MaxTimestamp                   int64 = -3 // KIP-734
	EarliestLocalTimestamp         int64 = -4 // KIP-405
	LatestTieredTimestamp          int64 = -5 // KIP-1005
	EarliestPendingUploadTimestamp int64 = -6 // KIP-1023
)

// OffsetQuery asks for the first offset at or after a time, or for a special one.
type OffsetQuery struct {
	Timestamp          int64
	Isolation          Isolation
	CurrentLeaderEpoch int32 // -1 not given
}

// OffsetResult answers an OffsetQuery; Offset is -1, without an error, if there is none.
type OffsetResult struct {
	Offset      int64
	Timestamp   int64 // of the record found; -1 for the special offsets
	LeaderEpoch int32 // of the offset; -1 unknown
	Err         error // nil, or wraps a kerr.Error
}
