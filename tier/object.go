package tier

import (
	"errors"
	"hash/crc32"
	"math"
	"sort"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

const (
	magic       = "VARVESEG"
	version     = 1
	trailerSize = 32

	// blockSize is what one block checksum covers. Chunks are whole blocks.
	blockSize = 1 << 20
	// windowSize is the grain of the index: one entry for the first batch that begins
	// in each window.
	windowSize = 16 << 10

	// maxDataSize is what the index's 32-bit positions reach; Kafka's own segments end at 2 GiB.
	maxDataSize = math.MaxUint32
	// maxFooterSize and maxTailSize bound what a decoder allocates for bytes it has not judged yet.
	maxFooterSize = 1 << 17
	maxTailSize   = 256 << 20
)

// section kinds, in the order in which they lie in the object.
const (
	sectionProducers = iota + 1
	sectionEpochs
	sectionAborted
	sectionBlocks
	sectionOffsets
	sectionTimes
	sectionKinds = iota
)

const (
	flagAborted = 1 << iota
	flagSparse
)

// sizes of the sections' entries.
const (
	epochSize   = 12
	abortedSize = 32
	crcSize     = 4
	offsetSize  = 8
	timeSize    = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Footer says what an object holds. With the object's name alone lost, it still is enough to
// put the object back in its place.
type Footer struct {
	Object       wire.UUID
	ClusterID    string
	Topic        string
	TopicID      wire.UUID
	Partition    int32
	LeaderEpoch  int32 // of the leader that uploaded it
	Base, End    int64 // offsets [Base, End)
	DataSize     int64 // bytes of batches
	Batches      int64
	Records      int64
	MinTimestamp int64 // ms, -1 if no record has one
	MaxTimestamp int64
	WrittenMs    int64 // when it was encoded, Unix time in ms
	HasAborted   bool
	Sparse       bool // offsets may have gaps: the topic was compacted once
}

// section is a stretch of bytes behind the data.
type section struct {
	kind uint8
	pos  int64
	size int64
	crc  uint32
}

// entry is one entry of the sparse index.
type entry struct {
	offset uint32 // base offset of the batch, relative to the object's
	pos    uint32 // where the batch begins in data
}

// Index is what reading an object's data needs, decoded. It is immutable.
type Index struct {
	Footer
	epochs  []record.EpochStart
	aborted []record.AbortedTxn
	blocks  []uint32 // CRC-32C of each block
	entries []entry
	times   []int64 // largest timestamp from entries[i] up to entries[i+1]
}

// cost is roughly what the index weighs in memory, in bytes.
func (x *Index) cost() int64 {
	return int64(512 + len(x.ClusterID) + len(x.Topic) + len(x.epochs)*16 + len(x.aborted)*abortedSize +
		len(x.blocks)*crcSize + len(x.entries)*(offsetSize+timeSize))
}

// floor returns the last entry whose batch begins at or below offset. offset is not below Base.
func (x *Index) floor(offset int64) int {
	return max(0, sort.Search(len(x.entries), func(i int) bool {
		return x.Base+int64(x.entries[i].offset) > offset
	})-1)
}

// floorPos returns the last entry at or below pos.
func (x *Index) floorPos(pos int64) int {
	return sort.Search(len(x.entries), func(i int) bool { return int64(x.entries[i].pos) > pos }) - 1
}

// at returns where entry i begins; one past the last stands for the end of the data.
func (x *Index) at(i int) (offset, pos int64) {
	if i >= len(x.entries) {
		return x.End, x.DataSize
	}
	return x.Base + int64(x.entries[i].offset), int64(x.entries[i].pos)
}

// verify checks bytes of data that begin at pos, a border of a block, and end at one or at the
// data's end.
func (x *Index) verify(pos int64, p []byte) error {
	for i := int(pos / blockSize); len(p) > 0; i++ {
		n := min(blockSize, len(p))
		if i >= len(x.blocks) || crc32.Checksum(p[:n], castagnoli) != x.blocks[i] {
			return errBlock
		}
		p = p[n:]
	}
	return nil
}

// overlapping returns the aborted transactions that overlap [from, to).
func (x *Index) overlapping(from, to int64) []record.AbortedTxn {
	var txns []record.AbortedTxn
	for _, t := range x.aborted {
		if t.FirstOffset < to && t.LastOffset >= from {
			txns = append(txns, t)
		}
	}
	return txns
}

var errBlock = errors.New("block checksum differs")
