package objstore

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// CheckName reports whether name can be an object's name in every store: slash-separated, not
// empty, at most MaxNameLen bytes of UTF-8 without control characters, no empty, "." or ".."
// element. So a name is always a path below the root of a file store.
func CheckName(name string) error {
	if name == "" || len(name) > MaxNameLen {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrBadName, len(name), MaxNameLen)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: %q is not UTF-8", ErrBadName, name)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' }); i >= 0 {
		return fmt.Errorf("%w: %q has a control character or backslash", ErrBadName, name)
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element == "." || element == ".." {
			return fmt.Errorf("%w: %q has the element %q", ErrBadName, name, element)
		}
	}
	return nil
}
