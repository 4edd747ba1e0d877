package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// reader takes typed values out of layers. It keeps the first error, so that
// callers ask once at the end; it notes the names asked for.
type reader struct {
	scope  Scope
	layers Layers
	err    error
	asked  map[string]bool
}

func newReader(scope Scope, layers Layers) *reader {
	return &reader{scope: scope, layers: layers, asked: map[string]bool{}}
}

// text returns the effective value; ok is false for null.
func (r *reader) text(name string) (value string, ok bool) {
	p, known := Lookup(r.scope, name)
	if !known {
		panic("config: no property " + name)
	}
	r.asked[name] = true
	value, _, ok = r.layers.effective(p)
	if !ok {
		return "", false
	}
	if err := p.Validate(value); err != nil {
		r.fail(err)
		return "", false
	}
	return strings.TrimSpace(value), true
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) failValue(name, value, format string, args ...any) {
	r.fail(&ValueError{Name: name, Value: value, Reason: fmt.Sprintf(format, args...)})
}

func (r *reader) str(name string) string {
	value, _ := r.text(name)
	return value
}

// long returns 0 for null.
func (r *reader) long(name string) int64 {
	value, ok := r.text(name)
	if !ok {
		return 0
	}
	n, _ := strconv.ParseInt(value, 10, 64) // validated
	return n
}

func (r *reader) int(name string) int { return int(r.long(name)) }

func (r *reader) bool(name string) bool {
	value, _ := r.text(name)
	b, _ := parseBool(value) // validated; null is false
	return b
}

func (r *reader) list(name string) []string {
	value, _ := r.text(name)
	return splitList(value)
}

func (r *reader) ms(name string) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(r.long(name), most)) * time.Millisecond
}
