package log

import "sync"

// Buffers that are lent for one call. They hold no state between calls.
var (
	blocks = sync.Pool{New: func() any { return new([indexBlock]byte) }}
	// scans hold the window of a walk over batch headers.
	scans = sync.Pool{New: func() any { return new([scanWindow]byte) }}
	// batches hold one batch that is looked into.
	batches = sync.Pool{New: func() any { return new([]byte) }}
)

// scanWindow is how many bytes of a segment are read at once to walk its batch headers.
const scanWindow = 64 << 10

// maxPooledBatch is the largest batch buffer that is kept for the next call.
const maxPooledBatch = 2 << 20
