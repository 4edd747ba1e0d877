package s3

import (
	"fmt"
	"testing"
)

func TestRangeSize(t *testing.T) {
	for _, c := range []struct {
		header string
		size   int64 // -1 = refused
		ends   bool
	}{ // asked for bytes 100-199
		{"bytes 100-199/1000", 100, false},
		{"bytes 100-199/200", 100, false},
		{"bytes 100-149/150", 50, true},
		{"bytes 100-149/1000", -1, false}, // fewer than there are
		{"bytes 100-200/1000", -1, false}, // more than asked for
		{"bytes 0-99/1000", -1, false},    // others
		{"bytes 100-199/*", -1, false},
		{"bytes 100-99/1000", -1, false},
		{"bytes -100--1/1000", -1, false},
		{"bytes 100-9223372036854775807/9223372036854775807", -1, false},
		{"", -1, false},
		{"bytes */1000", -1, false},
	} {
		size, ends, err := rangeSize(c.header, 100, 199)
		if c.size < 0 != (err != nil) || err == nil && (size != c.size || ends != c.ends) {
			t.Errorf("%q: %d, %v, %v", c.header, size, ends, err)
		}
	}
}

// FuzzRangeSize: whatever a store answers, never more bytes than the buffer has, and a right
// answer is understood.
func FuzzRangeSize(f *testing.F) {
	f.Add("bytes 0-9/10", int64(0), int64(9), int64(10))
	f.Add("bytes 5-9/10", int64(5), int64(99), int64(10))
	f.Add("bytes */10", int64(-1), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, header string, off, last, total int64) {
		if off < 0 || last < off {
			return
		}
		if size, _, err := rangeSize(header, off, last); err == nil && (size <= 0 || size > last-off+1) {
			t.Fatalf("%q for %d-%d: %d bytes", header, off, last, size)
		}
		if total <= off {
			return
		}
		end := min(last, total-1)
		size, ends, err := rangeSize(fmt.Sprintf("bytes %d-%d/%d", off, end, total), off, last)
		if err != nil || size != end-off+1 || ends != (end < last) {
			t.Fatalf("%d-%d of %d for %d-%d: %d, %v, %v", off, end, total, off, last, size, ends, err)
		}
	})
}
