package crash

import (
	"slices"
	"strings"
	"testing"
)

// good is a history of ten records, and what is read of it.
func good() (*history, []record) {
	h := newHistory()
	var all []record
	for o := range int64(10) {
		r := record{o, id{1, uint64(o)}, uint32(o) * 7}
		h.ack(r)
		all = append(all, r)
	}
	return h, all
}

// TestHistoryFaults: every way in which a log can break its promises is told.
func TestHistoryFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		rule  startRule
		spoil func(h *history, read []record) (start, end int64, _ []record)
		want  string // "" = nothing is wrong
	}{
		{"all there", startFixed, func(h *history, read []record) (int64, int64, []record) { return 0, 10, read }, ""},
		{"lost at the end", startFixed, func(h *history, read []record) (int64, int64, []record) { return 0, 9, read[:9] }, "record 1/9, acknowledged at 9, is lost"},
		{"lost in the middle", startFixed, func(h *history, read []record) (int64, int64, []record) {
			return 0, 10, slices.Delete(read, 4, 5)
		}, "record 1/4, acknowledged at 4, is lost"},
		{"ends before what the node calls its end", startFixed, func(h *history, read []record) (int64, int64, []record) {
			delete(h.acked, 9)
			return 0, 10, read[:9]
		}, "the log ends at 10, the last record read is 8"},
		{"changed", startFixed, func(h *history, read []record) (int64, int64, []record) {
			read[3].sum++
			return 0, 10, read
		}, "offset 3 was acknowledged for 1/3"},
		{"twice", startFixed, func(h *history, read []record) (int64, int64, []record) {
			return 0, 11, append(read, record{10, id{1, 2}, 14})
		}, "record 1/2 is at 2 and at 10"},
		{"at another offset", startFixed, func(h *history, read []record) (int64, int64, []record) {
			read[3].id, read[4].id = read[4].id, read[3].id
			return 0, 10, read
		}, "record 1/3, acknowledged at 3, is lost"},
		{"never acknowledged", startFixed, func(h *history, read []record) (int64, int64, []record) {
			return 0, 11, append(read, record{10, id{2, 0}, 1})
		}, "record 2/0 at 10 was acknowledged nowhere"},
		{"one offset for two records", startFixed, func(h *history, read []record) (int64, int64, []record) {
			h.ack(record{5, id{2, 0}, 1})
			h.ack(read[5])
			return 0, 10, read
		}, "offset 5 was acknowledged for 1/5 and for 2/0"},
		{"log start moved by nobody", startFixed, func(h *history, read []record) (int64, int64, []record) { return 2, 10, read[2:] }, "the log starts at 2, nothing has moved it"},
		{"log start trimmed", startTrimmed, func(h *history, read []record) (int64, int64, []record) {
			h.trim(4)
			h.told(4)
			return 4, 10, read[4:]
		}, ""},
		{"trim without an answer that had no effect", startTrimmed, func(h *history, read []record) (int64, int64, []record) {
			h.trim(4)
			return 0, 10, read
		}, ""},
		{"log start beyond what was trimmed", startTrimmed, func(h *history, read []record) (int64, int64, []record) {
			h.trim(4)
			h.told(4)
			return 5, 10, read[5:]
		}, "the log starts at 5, which DeleteRecords never asked for"},
		{"log start moved back", startTrimmed, func(h *history, read []record) (int64, int64, []record) {
			h.trim(2)
			h.trim(4)
			h.told(4)
			return 2, 10, read[2:]
		}, "the log start was 4 and is 2"},
		{"retained from somewhere on", startRetained, func(h *history, read []record) (int64, int64, []record) { return 7, 10, read[7:] }, ""},
		{"a record below the log start", startRetained, func(h *history, read []record) (int64, int64, []record) { return 7, 10, read[6:] }, "offset 6 follows 6"},
	} {
		h, read := good()
		start, end, read := test.spoil(h, read)
		err := h.check(test.rule, start, end, read)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: said %v, want %q", test.name, err, test.want)
		}
	}
}

// TestValue: a value tells which record it is, and that a bit of it differs.
func TestValue(t *testing.T) {
	want := id{3, 1 << 40}
	for _, size := range []int{1, 7, 8, 1000} {
		v := value(want, size, size == 1000)
		if len(v) != headBytes+size {
			t.Fatalf("%d bytes, want %d", len(v), headBytes+size)
		}
		if got, _, err := parse(v); err != nil || got != want {
			t.Fatalf("parsed %v, %v; want %v", got, err, want)
		}
		for i := range v {
			v[i] ^= 4
			if _, _, err := parse(v); err == nil {
				t.Fatalf("a flipped bit in byte %d of %d was not seen", i, len(v))
			}
			v[i] ^= 4
		}
	}
	if _, _, err := parse(nil); err == nil {
		t.Fatal("nothing was taken for a value")
	}
}
