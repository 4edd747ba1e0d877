package log

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What callers must tell apart. Those that a client may see wrap the Kafka error that it is answered with.
var (
	// ErrOffsetOutOfRange: a read below the local start or above the bound.
	ErrOffsetOutOfRange = fmt.Errorf("offset not in the local log: %w", kerr.OffsetOutOfRange)
	// ErrOffline: the log directory is given up for good, because bytes that were promised may be lost.
	ErrOffline = fmt.Errorf("log directory is offline: %w", kerr.KafkaStorageError)
	// ErrNoSpace: writes are refused until there is room again; reads go on.
	ErrNoSpace = fmt.Errorf("log directory is full: %w", kerr.KafkaStorageError)
	// ErrReadOnly: the log was opened up to a damage and takes no writes.
	ErrReadOnly = fmt.Errorf("log is damaged and open for reading only: %w", kerr.KafkaStorageError)
	// ErrClosed: the log was closed or deleted.
	ErrClosed = fmt.Errorf("log is closed: %w", kerr.NotLeaderForPartition)
	// ErrCorrupt: bytes that were durable are not what was written. The files are left as they are.
	ErrCorrupt = errors.New("log is corrupt")
	// ErrFormat: a file (index, snapshot, checkpoint, properties) cannot be decoded.
	ErrFormat = errors.New("malformed file")
)

// Damage tells where a log that is corrupt can no longer be believed. It matches ErrCorrupt.
type Damage struct {
	File   string // segment with the first bad byte
	Pos    int64  // where in it
	Offset int64  // the log is whole up to here, exclusive
	Reason string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%s at byte %d, good up to offset %d: %s", d.File, d.Pos, d.Offset, d.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) hold.
func (d *Damage) Is(target error) bool { return target == ErrCorrupt }
