package wire

import (
	"math/bits"
	"sync"
)

// Buffers come in classes of a power of two, plus room for the headers around a
// record set of exactly that size.
const (
	minBufferBits = 12 // 4 KiB
	maxBufferBits = 27 // 128 MiB, above the largest frame
	bufferSlack   = 4 << 10
)

// buffer is a pooled byte slice.
type buffer struct {
	b     []byte
	class int
}

// buffers pools by size class. It has no limit of its own: what is in use is
// admitted by a Budget, what is idle is the garbage collector's to take.
type buffers [maxBufferBits - minBufferBits + 1]sync.Pool

func bufferSize(class int) int { return 1<<(class+minBufferBits) + bufferSlack }

// get returns a buffer of at least n bytes.
func (p *buffers) get(n int) *buffer {
	class := 0
	if n > bufferSize(0) {
		class = bits.Len(uint(n-bufferSlack-1)) - minBufferBits
	}
	if b, _ := p[class].Get().(*buffer); b != nil {
		return b
	}
	return &buffer{make([]byte, bufferSize(class)), class}
}

func (p *buffers) put(b *buffer) {
	if b != nil {
		p[b.class].Put(b)
	}
}
