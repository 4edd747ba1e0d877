package check

import (
	"iter"
	"slices"
)

const pageSize = 1 << 10

// table is an array with gaps, in pages: values and offsets come in runs, but
// a faulty service may answer with any of them.
type table[T any] struct {
	pages map[uint64]*[pageSize]T
}

// at gives the element of an index, to be changed in place.
func (t *table[T]) at(i uint64) *T {
	p := t.pages[i/pageSize]
	if p == nil {
		if t.pages == nil {
			t.pages = map[uint64]*[pageSize]T{}
		}
		p = new([pageSize]T)
		t.pages[i/pageSize] = p
	}
	return &p[i%pageSize]
}

// between gives the elements of all pages from index lo up to hi, without hi,
// in ascending order.
func (t *table[T]) between(lo, hi uint64) iter.Seq2[uint64, *T] {
	return func(yield func(uint64, *T) bool) {
		if lo >= hi {
			return
		}
		for _, n := range t.pagesBetween(lo/pageSize, (hi-1)/pageSize) {
			for j := range t.pages[n] {
				at := n*pageSize + uint64(j)
				if at >= lo && at < hi && !yield(at, &t.pages[n][j]) {
					return
				}
			}
		}
	}
}

// pagesBetween gives the numbers of the pages that exist from first to last. A
// short range is tried page by page: it must not cost a walk of all.
func (t *table[T]) pagesBetween(first, last uint64) []uint64 {
	var found []uint64
	if last-first < uint64(len(t.pages)) {
		for n := first; n <= last; n++ {
			if t.pages[n] != nil {
				found = append(found, n)
			}
		}
		return found
	}
	for n := range t.pages {
		if n >= first && n <= last {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found
}
