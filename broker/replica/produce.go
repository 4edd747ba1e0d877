package replica

import (
	"time"

	"github.com/varve-io/varve/wire"
)

// Produce is one record set for one partition. Partition.Append takes it and gives it back through
// Done; meanwhile it belongs to the partition. The caller may pool it.
type Produce struct {
	// Records is the record set as it came: exactly one batch is allowed. It is patched in place and
	// not kept after Append has returned.
	Records       []byte
	Acks          int16     // 0 none, 1 the leader's, -1 all in-sync replicas
	Deadline      time.Time // for the acknowledgement; zero with Acks 0
	Version       int16     // of the Produce request
	Transactional bool      // the request names a transactional id
	// Done is called exactly once: before Append returns, or later from any goroutine. It must not block.
	Done func(*Produce)
	Tag  any // the caller's

	// Results, valid from Done on.
	Err           error // nil, or wraps a kerr.Error
	BaseOffset    int64 // -1 with an error
	LogAppendTime int64 // -1 unless the topic stamps it
	LogStart      int64
	RecordErrors  []wire.ProduceErrorRecord
}
