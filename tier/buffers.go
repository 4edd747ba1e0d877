package tier

import (
	"math/bits"
	"sync"
)

// buffers lends byte slices by power-of-two size class. What is too large for the classes is
// made and left to the collector.
var buffers pool

const (
	minClass = 16 // 64 KiB
	maxClass = 26 // 64 MiB
)

type pool struct {
	classes [maxClass - minClass + 1]sync.Pool
}

func classOf(size int64) int { return max(minClass, bits.Len64(uint64(max(size, 1)-1))) }

// get returns a slice of the given length with undefined content.
func (p *pool) get(size int64) []byte {
	class := classOf(size)
	if class > maxClass {
		return make([]byte, size)
	}
	if b, ok := p.classes[class-minClass].Get().(*[]byte); ok {
		return (*b)[:size]
	}
	return make([]byte, size, 1<<class)
}

// put takes back what get lent.
func (p *pool) put(b []byte) {
	class := classOf(int64(cap(b)))
	if class > maxClass || cap(b) != 1<<class {
		return
	}
	b = b[:0]
	p.classes[class-minClass].Put(&b)
}
