package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kbin"
)

// Field encodings that differ between classic and flexible (KIP-482) versions.

func appendArrayLen(dst []byte, n int, flex bool) []byte {
	if flex {
		return kbin.AppendCompactArrayLen(dst, n)
	}
	return kbin.AppendArrayLen(dst, n)
}

func appendString(dst []byte, s string, flex bool) []byte {
	if flex {
		return kbin.AppendCompactString(dst, s)
	}
	return kbin.AppendString(dst, s)
}

func appendNullableString(dst []byte, s *string, flex bool) []byte {
	if flex {
		return kbin.AppendCompactNullableString(dst, s)
	}
	return kbin.AppendNullableString(dst, s)
}

func appendBytesLen(dst []byte, n int, flex bool) []byte {
	if flex {
		return kbin.AppendUvarint(dst, uint32(n)+1)
	}
	return kbin.AppendInt32(dst, int32(n))
}

func appendTags(dst []byte, flex bool) []byte {
	if flex {
		return append(dst, 0)
	}
	return dst
}

// appendLeader appends tag number tag, a leader hint of KIP-951.
func appendLeader(dst []byte, tag byte, l *LeaderIDEpoch) []byte {
	dst = append(dst, tag, 4+4+1)
	dst = kbin.AppendInt32(dst, l.LeaderID)
	dst = kbin.AppendInt32(dst, l.LeaderEpoch)
	return append(dst, 0)
}

// appendEndpoints appends the tag section that ends a Produce (from 10) or Fetch
// (from 16) response of a flexible version: tag 0 holds the endpoints.
func appendEndpoints(dst []byte, nodes []NodeEndpoint) []byte {
	if len(nodes) == 0 {
		return append(dst, 0)
	}
	var b []byte
	b = kbin.AppendCompactArrayLen(b, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		b = kbin.AppendInt32(b, n.NodeID)
		b = kbin.AppendCompactString(b, n.Host)
		b = kbin.AppendInt32(b, n.Port)
		b = kbin.AppendCompactNullableString(b, n.Rack)
		b = append(b, 0)
	}
	dst = append(dst, 1, 0)
	dst = kbin.AppendUvarint(dst, uint32(len(b)))
	return append(dst, b...)
}

// decoder reads a message in place. After the first field that does not fit it
// is bad for good and yields zero values, so that callers check once, at the
// end. It never allocates by a length that the message does not back.
type decoder struct {
	b    []byte
	bad  bool
	flex bool
}

func (d *decoder) span(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	return s
}

func (d *decoder) int16() int16 {
	if s := d.span(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (d *decoder) int32() int32 {
	if s := d.span(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

func (d *decoder) uuid() (u UUID) {
	copy(u[:], d.span(len(u)))
	return u
}

func (d *decoder) uvarint() uint32 {
	var v uint32
	for i, c := range d.b {
		if i == 4 && c > 0x0f { // more than 32 bits
			break
		}
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			d.b = d.b[i+1:]
			return v
		}
	}
	d.bad, d.b = true, nil
	return 0
}

// length reads the length of a string (16 bits), or of bytes or an array (32
// bits), or a compact one; -1 is null.
func (d *decoder) length(bits int) int {
	switch {
	case d.flex:
		return int(int64(d.uvarint()) - 1)
	case bits == 16:
		return int(d.int16())
	default:
		return int(d.int32())
	}
}

// array reads the length of an array whose elements take at least min bytes.
func (d *decoder) array(min int) int {
	n := d.length(32)
	if n < -1 || n > len(d.b)/min {
		d.bad, d.b = true, nil
	}
	if d.bad || n < 0 {
		return 0
	}
	return n
}

// nullableString returns a sub-slice, nil if null.
func (d *decoder) nullableString() []byte {
	n := d.length(16)
	if n == -1 {
		return nil
	}
	return d.span(n)
}

// nullableBytes returns a sub-slice, nil if null.
func (d *decoder) nullableBytes() []byte {
	n := d.length(32)
	if n == -1 {
		return nil
	}
	return d.span(n)
}

// tags skips a tag section of a flexible version and keeps nothing of it.
func (d *decoder) tags() {
	if !d.flex {
		return
	}
	n := d.uvarint()
	if n > maxTags {
		d.bad, d.b = true, nil
	}
	for last := int64(-1); n > 0 && !d.bad; n-- {
		tag := int64(d.uvarint())
		if tag <= last {
			d.bad, d.b = true, nil
		}
		last = tag
		d.span(int(d.uvarint()))
	}
}

func (d *decoder) finish() error {
	switch {
	case d.bad:
		return ErrMalformed
	case len(d.b) != 0:
		return errTrailing
	}
	return nil
}
