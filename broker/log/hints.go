package log

import "sync"

// maxHints is how many batches at which a read ended are remembered; a power of two.
const maxHints = 32

// hints are the batches before which reads ended: a consumer that reads on begins there, and finds it without
// the index. A small table by offset in which the last one wins.
type hints struct {
	mu    sync.Mutex
	table []mark
}

func (h *hints) slot(offset int64) *mark {
	return &h.table[(uint64(offset)*0x9e3779b97f4a7c15)>>59%maxHints]
}

func (h *hints) put(b mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.table == nil {
		h.table = make([]mark, maxHints)
	}
	*h.slot(b.base) = b
}

// get returns the batch of seg that begins at offset, or a zero mark.
func (h *hints) get(seg *segment, offset int64) mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.table == nil {
		return mark{}
	}
	if b := h.slot(offset); b.seg == seg && b.base == offset {
		return *b
	}
	return mark{}
}

// clear forgets all, and with that the segments.
func (h *hints) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.table)
}
