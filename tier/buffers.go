package tier

import (
	"math/bits"
	"sync"
	"sync/atomic"
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

// loan is a buffer with what was downloaded into it. It goes back, and the memory admitted for it, with the last of those
// who keep it.
type loan struct {
	p      []byte  // the bytes of use; at first all of buf
	buf    []byte  // as the pool lent it
	ticket *ticket // of the gate; nil while it is the download's
	holds  atomic.Int32
}

func newLoan(size int64) *loan {
	buf := buffers.get(size)
	l := &loan{p: buf, buf: buf}
	l.holds.Store(1)
	return l
}

// keep is for those who can be sure that somebody else keeps it meanwhile.
func (l *loan) keep() { l.holds.Add(1) }

func (l *loan) release() {
	if l.holds.Add(-1) > 0 {
		return
	}
	buffers.put(l.buf)
	l.p, l.buf = nil, nil
	if l.ticket != nil {
		l.ticket.leave()
	}
}
