package check

import (
	"errors"
	"testing"
	"time"
)

func TestLinearizable(t *testing.T) {
	read := func(got string, start, end int64) Access {
		return Access{Kind: Read, Got: got, Type: OK, Start: start, End: end}
	}
	write := func(v string, typ Type, start, end int64) Access {
		return Access{Kind: Write, New: v, Type: typ, Start: start, End: end}
	}
	swap := func(from, to string, typ Type, start, end int64) Access {
		return Access{Kind: Swap, Old: from, New: to, Type: typ, Start: start, End: end}
	}
	for _, c := range []struct {
		name string
		ops  []Access
		want error
	}{
		{"empty at first", []Access{read("", 1, 2)}, nil},
		{"own write", []Access{write("x", OK, 1, 2), read("x", 3, 4)}, nil},
		{"stale read", []Access{write("x", OK, 1, 2), read("", 3, 4)}, ErrNotLinearizable},
		{"read beside a write, either way", []Access{write("x", OK, 1, 5), read("", 2, 3), read("x", 4, 6)}, nil},
		{"there and gone", []Access{write("x", OK, 1, 9), read("x", 2, 3), read("", 4, 5)}, ErrNotLinearizable},
		{"an unknown write that came late", []Access{write("x", Info, 1, 2), read("", 3, 4), read("x", 5, 6)}, nil},
		{"a refused write that came", []Access{write("x", Fail, 1, 2), read("x", 3, 4)}, ErrNotLinearizable},
		{"swap", []Access{swap("", "x", OK, 1, 2), swap("x", "y", OK, 3, 4), read("y", 5, 6)}, nil},
		{"two swaps won", []Access{swap("", "x", OK, 1, 4), swap("", "y", OK, 2, 3)}, ErrNotLinearizable},
		{"a swap refused without reason", []Access{swap("", "x", Fail, 1, 2)}, ErrNotLinearizable},
		{"a swap of unknown outcome, either way", []Access{swap("", "x", Info, 1, 2), swap("", "y", OK, 3, 4), swap("y", "z", Info, 5, 6), read("z", 7, 8)}, nil},
	} {
		if err := Linearizable(c.ops, time.Minute); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestRegistersStandAlone(t *testing.T) {
	ops := []Access{
		{Register: "a", Kind: Write, New: "x", Type: OK, Start: 1, End: 2},
		{Register: "b", Kind: Read, Got: "", Type: OK, Start: 3, End: 4},
	}
	if err := Linearizable(ops, time.Minute); err != nil {
		t.Error(err)
	}
}
