package crash

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// headBytes of a value:
//
//	 0  producer  uint32
//	 4  sequence  uint64
//	12  CRC-32C   uint32  of all but itself
//	16  payload
const headBytes = 16

// id names a record: no two are the same.
type id struct {
	Producer uint32
	Sequence uint64
}

func (i id) String() string { return fmt.Sprintf("%d/%d", i.Producer, i.Sequence) }

// value makes the record i with a payload of size bytes, half of them compressible if so wanted.
func value(i id, size int, compressible bool) []byte {
	v := make([]byte, headBytes+size)
	binary.BigEndian.PutUint32(v, i.Producer)
	binary.BigEndian.PutUint64(v[4:], i.Sequence)
	rng := rand.New(rand.NewPCG(uint64(i.Producer), i.Sequence))
	random := v[headBytes:]
	if compressible {
		random = random[:size/2]
	}
	for len(random) >= 8 {
		binary.LittleEndian.PutUint64(random, rng.Uint64())
		random = random[8:]
	}
	for n := range random {
		random[n] = byte(rng.Uint32())
	}
	binary.BigEndian.PutUint32(v[12:], checksum(v))
	return v
}

func checksum(v []byte) uint32 {
	return crc32.Update(crc32.Checksum(v[:12], castagnoli), castagnoli, v[headBytes:])
}

// parse says which record v is; an error if it is not one of ours, byte for byte.
func parse(v []byte) (id, uint32, error) {
	if len(v) < headBytes {
		return id{}, 0, fmt.Errorf("%d bytes are no value of ours", len(v))
	}
	i := id{binary.BigEndian.Uint32(v), binary.BigEndian.Uint64(v[4:])}
	sum := binary.BigEndian.Uint32(v[12:])
	if got := checksum(v); got != sum {
		return i, sum, fmt.Errorf("record %v has checksum %08x, its bytes have %08x", i, sum, got)
	}
	return i, sum, nil
}
