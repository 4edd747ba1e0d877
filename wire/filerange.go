package wire

import "io"

// FileRange is a run of bytes of a file that a response sends without copying:
// a slice of a log segment or of a chunk of the tier's cache.
//
// The holder owns one reference to the file, given back by Release. Bytes of a
// range never change while it is held, nor after it was sent: the kernel may
// still hold the page.
type FileRange struct {
	ReaderAt io.ReaderAt // always set; reads the same bytes as FD, and learns where FD has not all of them
	FD       int         // descriptor for sendfile, -1: none
	Off      int64       // first byte
	Size     int64       // bytes; 0 is an empty range

	// Recent says that the bytes were appended moments ago, so that they are in
	// the page cache for sure and need no check before they are sent.
	Recent bool

	// Release is called exactly once, when the range was sent or dropped. May be nil.
	Release func()
}

// ReleaseRanges gives back every range of rs.
func ReleaseRanges(rs []FileRange) {
	for i := range rs {
		if f := rs[i].Release; f != nil {
			rs[i].Release = nil
			f()
		}
	}
}

// RangesSize returns the number of bytes in rs.
func RangesSize(rs []FileRange) int64 {
	var n int64
	for i := range rs {
		n += rs[i].Size
	}
	return n
}
