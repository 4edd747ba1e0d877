package wire

// ProduceRequest is a decoded Produce request, versions 3 to 13. The record
// sets are sub-slices of the frame they came in: valid, and writable in place,
// until Handler.Handle returns.
type ProduceRequest struct {
	TransactionalID *string
	Acks            int16 // 0 none, 1 leader, -1 all in-sync replicas
	TimeoutMillis   int32
	Topics          []ProduceTopic
}

// ProduceTopic names a topic by Topic (versions to 12) or TopicID (from 13, KIP-516).
type ProduceTopic struct {
	Topic      string
	TopicID    UUID
	Partitions []ProducePartition
}

// ProducePartition carries the record set of one partition, nil if null.
type ProducePartition struct {
	Partition int32
	Records   []byte
}

// ProduceResponse answers a ProduceRequest, versions 3 to 13.
type ProduceResponse struct {
	Topics         []ProduceTopicResponse
	ThrottleMillis int32
	NodeEndpoints  []NodeEndpoint // from version 10, KIP-951
}

// Key implements Response.
func (*ProduceResponse) Key() int16 { return 0 }

// ProduceTopicResponse mirrors ProduceTopic.
type ProduceTopicResponse struct {
	Topic      string
	TopicID    UUID
	Partitions []ProducePartitionResponse
}

// ProducePartitionResponse is the fate of one record set.
type ProducePartitionResponse struct {
	Partition       int32
	ErrorCode       int16
	BaseOffset      int64 // -1 with an error
	LogAppendTimeMs int64 // -1 unless the topic stamps LogAppendTime
	LogStartOffset  int64 // -1 unknown; from version 5
	ErrorRecords    []ProduceErrorRecord
	ErrorMessage    *string
	CurrentLeader   *LeaderIDEpoch // from version 10, KIP-951; nil: none
}

// ProduceErrorRecord names a record that made its batch fail (KIP-467, from version 8).
type ProduceErrorRecord struct {
	RelativeOffset int32
	ErrorMessage   *string
}

// LeaderIDEpoch is a leader hint of KIP-951.
type LeaderIDEpoch struct {
	LeaderID    int32
	LeaderEpoch int32
}

// NodeEndpoint tells where a node named by a leader hint listens.
type NodeEndpoint struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   *string
}
