package objstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// castagnoli is read-only after this: the standard library's table of CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the checksum (Castagnoli) of p, continuing from crc: 0 to begin.
func CRC32C(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// Summer is a reader of bytes to send that takes its time over them, to keep to a rate. What is read to be summed
// alone is not sent: Sum returns the checksum of size bytes at off, as they are now, without delay.
type Summer interface {
	Sum(off, size int64) (crc uint32, err error)
}

// CRC32COf reads size bytes of r at off and returns their checksum.
func CRC32COf(r io.ReaderAt, off, size int64) (crc uint32, err error) {
	if s, ok := r.(Summer); ok {
		return s.Sum(off, size)
	}
	buf := make([]byte, min(size, 256<<10))
	for done := int64(0); done < size; done += int64(len(buf)) {
		buf = buf[:min(size-done, int64(len(buf)))]
		if n, err := r.ReadAt(buf, off+done); n < len(buf) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("read %d of %d bytes: %w", done+int64(n), size, err)
		}
		crc = CRC32C(crc, buf)
	}
	return crc, nil
}

// CombineCRC32C is the checksum of a followed by b, given theirs and the length of b. Parts of
// an object are summed apart and at once; this is how they become the sum of the whole.
//
// Appending a zero bit to a message multiplies its CRC by x modulo the polynomial, a linear map of 32
// bits. That map is squared to get the one for 2, 4, 8 ... bits, and applied where sizeB*8 has a one.
func CombineCRC32C(crcA, crcB uint32, sizeB int64) uint32 {
	if sizeB <= 0 {
		return crcA
	}
	var bit crcMap // the map of one zero bit
	bit[0] = crc32.Castagnoli
	for i := 1; i < 32; i++ {
		bit[i] = 1 << (i - 1)
	}
	power := bit.square().square().square() // of one zero byte
	for ; sizeB > 0; sizeB >>= 1 {
		if sizeB&1 == 1 {
			crcA = power.apply(crcA)
		}
		power = power.square()
	}
	return crcA ^ crcB
}

// crcMap is a linear map of 32-bit vectors over GF(2), by the images of the unit vectors.
type crcMap [32]uint32

func (m *crcMap) apply(v uint32) (sum uint32) {
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 == 1 {
			sum ^= m[i]
		}
	}
	return sum
}

func (m crcMap) square() crcMap {
	var sq crcMap
	for i := range sq {
		sq[i] = m.apply(m[i])
	}
	return sq
}
