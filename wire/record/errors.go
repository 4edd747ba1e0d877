package record

import (
	"errors"
	"fmt"
)

// What callers must tell apart. Errors of this package wrap exactly one of them.
var (
	// ErrShort: the bytes end inside a batch; it may be whole once more have arrived.
	ErrShort = errors.New("record batch is incomplete")
	// ErrCorrupt: the bytes cannot be a batch (Kafka: CORRUPT_MESSAGE).
	ErrCorrupt = errors.New("record batch is corrupt")
	// ErrMagic is an ErrCorrupt: a length that could be right, but not magic 2
	// (Kafka answers INVALID_RECORD to a producer that sends it).
	ErrMagic = fmt.Errorf("%w: magic is not 2", ErrCorrupt)
	// ErrCRC is an ErrCorrupt: the checksum does not match the bytes.
	ErrCRC = fmt.Errorf("%w: CRC-32C does not match", ErrCorrupt)
	// ErrInvalid: well-formed, but not what a client may send (Kafka: INVALID_RECORD).
	ErrInvalid = errors.New("record batch is invalid")
	// ErrCodec: compression type outside 0..4 (Kafka: UNSUPPORTED_COMPRESSION_TYPE).
	ErrCodec = errors.New("unknown compression type")
	// ErrTooLarge: decompression would exceed the caller's limit.
	ErrTooLarge = errors.New("decompressed records exceed the limit")
)
