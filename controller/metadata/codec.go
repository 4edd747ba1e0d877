package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varve-io/varve/wire"
)

// Limits of what is decoded; longer input is refused before anything is
// allocated for it.
const (
	maxList   = 1 << 20  // elements of one list
	maxString = 64 << 10 // bytes of one string
	maxBody   = 16 << 20 // bytes of one command or record
)

// ErrCorrupt is wrapped by every error about bytes that do not decode.
var ErrCorrupt = errors.New("corrupt metadata")

// coder walks the fields of a value in their one order, either writing or
// reading them: so a type has a single list of fields and the two directions
// cannot disagree. The first error sticks.
type coder struct {
	b       []byte // written so far, or still to be read
	reading bool
	err     error
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
}

// ended reports whether a reader has nothing more to read: the writer was
// older and this field, like all after it, keeps its zero value.
func (c *coder) ended() bool { return c.err != nil || len(c.b) == 0 }

// present demands that a reader has more to read: for what is not a field of
// a body, and so cannot be missing.
func (c *coder) present() *coder {
	if c.reading && len(c.b) == 0 {
		c.fail("ends early")
	}
	return c
}

func (c *coder) uvarint(v *uint64) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	if c.ended() {
		return
	}
	x, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail("bad varint")
		return
	}
	*v, c.b = x, c.b[n:]
}

// num codes any signed integer as a zigzag varint, and refuses one that does
// not fit the field.
func num[T ~int8 | ~int16 | ~int32 | ~int64 | ~int](c *coder, v *T) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	if c.ended() {
		return
	}
	x, n := binary.Varint(c.b)
	if n <= 0 || int64(T(x)) != x {
		c.fail("bad or overflowing number")
		return
	}
	*v, c.b = T(x), c.b[n:]
}

func (c *coder) bool(v *bool) {
	var x uint64
	if *v {
		x = 1
	}
	if c.uvarint(&x); c.reading {
		if x > 1 {
			c.fail("bad bool %d", x)
		}
		*v = x == 1
	}
}

// take cuts n bytes off what is to be read.
func (c *coder) take(n uint64) []byte {
	if c.err == nil && n > uint64(len(c.b)) {
		c.fail("want %d bytes, have %d", n, len(c.b))
	}
	if c.err != nil {
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

// length codes the length of what follows, at most limit.
func (c *coder) length(n, limit int) int {
	x := uint64(n)
	c.uvarint(&x)
	if c.reading && x > uint64(limit) {
		c.fail("length %d above %d", x, limit)
	}
	if c.err != nil {
		return 0
	}
	return int(x)
}

func (c *coder) string(v *string) {
	n := c.length(len(*v), maxString)
	if !c.reading {
		c.b = append(c.b, *v...)
	} else {
		*v = string(c.take(uint64(n)))
	}
}

func (c *coder) uuid(v *wire.UUID) {
	if !c.reading {
		c.b = append(c.b, v[:]...)
		return
	}
	if c.ended() {
		return
	}
	copy(v[:], c.take(uint64(len(v))))
}

// nested codes a structure with its own size, so that it can grow by itself.
func (c *coder) nested(fields func(*coder)) {
	if !c.reading {
		inner := coder{}
		fields(&inner)
		c.b = binary.AppendUvarint(c.b, uint64(len(inner.b)))
		c.b = append(c.b, inner.b...)
		return
	}
	if c.ended() {
		return
	}
	inner := coder{reading: true, b: c.take(uint64(c.length(0, maxBody)))}
	if c.err != nil {
		return
	}
	if fields(&inner); c.err == nil {
		c.err = inner.err
	}
}

// list codes a slice; nil and empty are one. Every element takes at least one
// byte, so a count that lies is noticed before it costs memory.
func list[T any](c *coder, v *[]T, each func(*coder, *T)) {
	n := c.length(len(*v), maxList)
	if !c.reading {
		for i := range *v {
			each(c, &(*v)[i])
		}
		return
	}
	if n > len(c.b) {
		c.fail("list of %d in %d bytes", n, len(c.b))
	}
	if c.err != nil || n == 0 {
		return
	}
	out := make([]T, 0, min(n, 1024))
	for range n {
		var e T
		if c.ended() {
			c.fail("list ends early")
		}
		if each(c, &e); c.err != nil {
			return
		}
		out = append(out, e)
	}
	*v = out
}

// strings codes a map in the order of its keys.
func (c *coder) strings(v *map[string]string) {
	type pair struct{ k, v string }
	var pairs []pair
	if !c.reading {
		for _, k := range slices.Sorted(maps.Keys(*v)) {
			pairs = append(pairs, pair{k, (*v)[k]})
		}
	}
	list(c, &pairs, func(c *coder, p *pair) { c.string(&p.k); c.string(&p.v) })
	if !c.reading || len(pairs) == 0 {
		return
	}
	*v = make(map[string]string, len(pairs))
	for _, p := range pairs {
		(*v)[p.k] = p.v
	}
}

func number32(c *coder, v *int32) { num(c, v) }
func uuid(c *coder, v *wire.UUID) { c.uuid(v) }
