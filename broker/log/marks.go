package log

import "sort"

// maxMarks is how many of the last batches are kept in memory.
const maxMarks = 64

// marks are the batches appended last, so that a reader at the tail, and the bound of a read at the high
// watermark, need no look at the disk. Guarded by Log.mu.
type marks struct {
	ring  []mark // by offset, the oldest at first
	first int
	n     int
}

// mark is a batch of a segment at its place.
type mark struct {
	seg        *segment
	base, last int64
	pos, size  int64
}

func (m *marks) add(seg *segment, b placed) {
	if m.ring == nil {
		m.ring = make([]mark, maxMarks)
	}
	at := &m.ring[(m.first+m.n)%maxMarks]
	if m.n < maxMarks {
		m.n++
	} else {
		m.first = (m.first + 1) % maxMarks
	}
	*at = mark{seg, b.base, b.last, b.pos, b.size}
}

func (m *marks) at(i int) *mark { return &m.ring[(m.first+i)%maxMarks] }

// holds returns the batch of seg that holds offset.
func (m *marks) holds(seg *segment, offset int64) (mark, bool) {
	i := sort.Search(m.n, func(i int) bool { return m.at(i).last >= offset })
	if i == m.n || m.at(i).seg != seg || m.at(i).base > offset {
		return mark{}, false
	}
	return *m.at(i), true
}

// begin returns the position of the batch of seg that begins exactly at offset.
func (m *marks) begin(seg *segment, offset int64) (pos int64, ok bool) {
	b, ok := m.holds(seg, offset)
	return b.pos, ok && b.base == offset
}

func (m *marks) clear() {
	m.first, m.n = 0, 0
	clear(m.ring)
}
