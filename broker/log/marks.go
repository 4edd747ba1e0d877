package log

import "sort"

// maxMarks is how many of the last batches have their position kept in memory.
const maxMarks = 128

// marks are the places of the batches appended last, so that a reader at the tail, and the bound of a read at the high
// watermark, need no look at the disk. Guarded by Log.mu.
type marks struct {
	ring  []mark // by offset, the oldest at first
	first int
	n     int
}

type mark struct {
	seg  *segment
	base int64
	pos  int64
}

func (m *marks) add(seg *segment, base, pos int64) {
	if m.ring == nil {
		m.ring = make([]mark, maxMarks)
	}
	if m.n < maxMarks {
		m.ring[(m.first+m.n)%maxMarks] = mark{seg, base, pos}
		m.n++
		return
	}
	m.ring[m.first] = mark{seg, base, pos}
	m.first = (m.first + 1) % maxMarks
}

func (m *marks) at(i int) *mark { return &m.ring[(m.first+i)%maxMarks] }

// floor returns the last mark of seg that begins at or below offset; exact tells that the next batch does not.
func (m *marks) floor(seg *segment, offset int64) (pos int64, ok bool) {
	i := sort.Search(m.n, func(i int) bool { return m.at(i).base > offset })
	if i == 0 || m.at(i-1).seg != seg {
		return 0, false
	}
	return m.at(i - 1).pos, true
}

// begin returns the position of the batch of seg that begins exactly at offset.
func (m *marks) begin(seg *segment, offset int64) (pos int64, ok bool) {
	i := sort.Search(m.n, func(i int) bool { return m.at(i).base >= offset })
	if i == m.n || m.at(i).base != offset || m.at(i).seg != seg {
		return 0, false
	}
	return m.at(i).pos, true
}

func (m *marks) clear() { m.first, m.n = 0, 0 }
