package check

import (
	"bytes"
	"errors"
	"testing"
)

func TestPayload(t *testing.T) {
	for _, size := range []int{0, MinPayload, 17, 1000} {
		v := Of(7, 3, 12345)
		payload := Payload(v, size)
		if len(payload) != max(size, MinPayload) {
			t.Fatalf("%d bytes for size %d", len(payload), size)
		}
		if got, err := Parse(payload); err != nil || got != v {
			t.Fatalf("size %d: %v, %v", size, got, err)
		}
		for i := range payload {
			damaged := bytes.Clone(payload)
			damaged[i] ^= 1 << (i % 8)
			if _, err := Parse(damaged); !errors.Is(err, ErrChanged) {
				t.Fatalf("size %d: a bit of byte %d changed: %v", size, i, err)
			}
			if _, err := Parse(payload[:i]); !errors.Is(err, ErrChanged) {
				t.Fatalf("size %d: cut to %d: %v", size, i, err)
			}
		}
	}
	if bytes.Equal(Payload(Of(1, 1, 1), 100)[MinPayload:], Payload(Of(1, 1, 2), 100)[MinPayload:]) {
		t.Error("two values fill alike")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Payload(Of(1, 2, 3), 40))
	f.Fuzz(func(t *testing.T, p []byte) {
		v, err := Parse(p)
		if err == nil && len(p) != len(Payload(v, len(p))) {
			t.Errorf("%v of %d bytes", v, len(p))
		}
	})
}
