package wire

// FetchResponse answers a Fetch request, versions 4 to 18. Its record data are
// file ranges; whoever drops a response that was never given to Request.Reply
// calls Release.
type FetchResponse struct {
	ThrottleMillis int32
	ErrorCode      int16
	SessionID      int32
	Topics         []FetchTopic
	NodeEndpoints  []NodeEndpoint // from version 16, KIP-951
}

// FetchTopic names a topic by Topic (versions to 12) or TopicID (from 13).
type FetchTopic struct {
	Topic      string
	TopicID    UUID
	Partitions []FetchPartition
}

// FetchPartition is the part of a fetch response that belongs to one partition.
type FetchPartition struct {
	Partition            int32
	ErrorCode            int16
	HighWatermark        int64
	LastStableOffset     int64                // -1 unknown
	LogStartOffset       int64                // -1 unknown; from version 5
	DivergingEpoch       *EpochEnd            // from version 12; nil: none
	CurrentLeader        *LeaderIDEpoch       // from version 12; nil: none
	AbortedTransactions  []AbortedTransaction // nil is null: read_uncommitted
	PreferredReadReplica int32                // -1 none; from version 11
	Records              []FileRange          // sent one after another; empty: an empty record set
}

// EpochEnd is where an epoch of the leader ends, told to a follower that diverged (KIP-595).
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// AbortedTransaction is a transaction whose records in this response were rolled back.
type AbortedTransaction struct {
	ProducerID  int64
	FirstOffset int64
}

// Key implements Response.
func (*FetchResponse) Key() int16 { return 1 }

// Release gives back every file range of the response. It is idempotent.
func (r *FetchResponse) Release() {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			ReleaseRanges(r.Topics[i].Partitions[j].Records)
		}
	}
}
