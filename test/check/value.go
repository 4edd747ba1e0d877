package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Value names one record. Each is sent at most once, and 0 is none.
type Value uint64

// Of makes the value of the seq-th record, counted from 1, of a process in a run.
func Of(run, proc uint16, seq uint32) Value {
	return Value(run)<<48 | Value(proc)<<32 | Value(seq)
}

func (v Value) String() string {
	return fmt.Sprintf("%d|%d|%d", uint16(v>>48), uint16(v>>32), uint32(v))
}

// Run is the run that the value was made in.
func (v Value) Run() uint16 { return uint16(v >> 48) }

// MinPayload is the size of a payload that is all header.
const MinPayload = 16

// ErrChanged: the payload is not one that Payload made.
var ErrChanged = errors.New("payload changed")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Payload is what a record carries: size bytes, at least MinPayload, all of
// which follow from the value.
func Payload(v Value, size int) []byte {
	p := make([]byte, max(size, MinPayload))
	binary.BigEndian.PutUint32(p[4:], uint32(len(p)))
	binary.BigEndian.PutUint64(p[8:], uint64(v))
	fill(p[MinPayload:], uint64(v))
	binary.BigEndian.PutUint32(p, crc32.Checksum(p[4:], castagnoli))
	return p
}

// Parse gives the value of a payload, or ErrChanged if any of its bytes differs
// from what Payload made.
func Parse(p []byte) (Value, error) {
	if len(p) < MinPayload {
		return 0, fmt.Errorf("%w: %d bytes are less than a header", ErrChanged, len(p))
	}
	if n := binary.BigEndian.Uint32(p[4:]); int64(n) != int64(len(p)) {
		return 0, fmt.Errorf("%w: %d bytes, of %d", ErrChanged, len(p), n)
	}
	v := Value(binary.BigEndian.Uint64(p[8:]))
	if crc32.Checksum(p[4:], castagnoli) != binary.BigEndian.Uint32(p) {
		return 0, fmt.Errorf("%w: value %v does not match its CRC-32C", ErrChanged, v)
	}
	return v, nil
}

// fill writes the splitmix64 sequence of a seed.
func fill(p []byte, seed uint64) {
	var word [8]byte
	for len(p) > 0 {
		seed += 0x9e3779b97f4a7c15
		z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.BigEndian.PutUint64(word[:], z^z>>31)
		p = p[copy(p, word[:]):]
	}
}
