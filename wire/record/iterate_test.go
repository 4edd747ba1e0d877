package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/varve-io/varve/wire/record"
)

func TestEachStops(t *testing.T) {
	b := build(t, record.Options{BaseOffset: 10, Codec: record.LZ4}, 5)
	var seen []int64
	stop := errors.New("enough")
	if err := b.Each(1<<20, func(r record.Record) (bool, error) {
		seen = append(seen, r.Offset)
		return r.Offset < 12, nil
	}); err != nil || fmt.Sprint(seen) != "[10 11 12]" {
		t.Error(seen, err)
	}
	if err := b.Each(1<<20, func(record.Record) (bool, error) { return true, stop }); err != stop {
		t.Error(err)
	}
	if err := b.Each(10, func(record.Record) (bool, error) { return true, nil }); !errors.Is(err, record.ErrTooLarge) {
		t.Error(err)
	}
}

// recordBytes encodes one record by hand from its fields.
func recordBytes(parts ...any) []byte {
	var body []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			body = binary.AppendVarint(body, int64(p))
		case string:
			body = append(body, p...)
		}
	}
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

func TestEachRefuses(t *testing.T) {
	good := recordBytes("\x00", 0, 0, -1, 1, "v", 0)
	for _, c := range []struct {
		name    string
		count   int32
		delta   int32
		records []byte
	}{
		{"record missing", 2, 1, good},
		{"bytes left over", 1, 0, append(bytes.Clone(good), 0)},
		{"record cut", 1, 0, good[:len(good)-1]},
		{"length beyond the batch", 1, 0, append([]byte{0x7e}, good[1:]...)},
		{"negative length", 1, 0, []byte{1, 0, 0, 0, 0, 0, 0, 0}},
		{"varint without end", 1, 0, bytes.Repeat([]byte{0xff}, 20)},
		{"field beyond the record", 1, 0, recordBytes("\x00", 0, 0, -1, 9, "v", 0)},
		{"field length below -1", 1, 0, recordBytes("\x00", 0, 0, -2, 1, "v", 0)},
		{"bytes after the headers", 1, 0, recordBytes("\x00", 0, 0, -1, 1, "v", 0, 0)},
		{"a billion headers", 1, 0, recordBytes("\x00", 0, 0, -1, 1, "v", 1<<30)},
		{"negative headers", 1, 0, recordBytes("\x00", 0, 0, -1, 1, "v", -1)},
		{"null header key", 1, 0, recordBytes("\x00", 0, 0, -1, 1, "v", 1, -1, -1)},
		{"offset delta not ascending", 2, 1, append(bytes.Clone(good), good...)},
		{"offset delta beyond the last", 1, 0, recordBytes("\x00", 0, 1, -1, 1, "v", 0)},
		{"negative offset delta", 1, 0, recordBytes("\x00", 0, -1, -1, 1, "v", 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := append(build(t, record.Options{}, 1)[:record.HeaderSize:record.HeaderSize], c.records...)
			binary.BigEndian.PutUint32(b[8:], uint32(len(b)-record.Overhead))
			binary.BigEndian.PutUint32(b[23:], uint32(c.delta))
			binary.BigEndian.PutUint32(b[57:], uint32(c.count))
			batch, _, err := record.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := batch.Each(math.MaxInt32, func(record.Record) (bool, error) { return true, nil }); !errors.Is(err, record.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A compacted batch keeps its offsets and may have lost records at both ends.
func TestEachCompacted(t *testing.T) {
	b := append(build(t, record.Options{BaseOffset: 100}, 1)[:record.HeaderSize:record.HeaderSize],
		append(recordBytes("\x00", 0, 3, -1, 1, "v", 0), recordBytes("\x00", 5, 7, -1, 1, "w", 0)...)...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-record.Overhead))
	binary.BigEndian.PutUint32(b[23:], 9)
	binary.BigEndian.PutUint32(b[57:], 2)
	var got []string
	if err := b.Each(0, func(r record.Record) (bool, error) {
		got = append(got, fmt.Sprintf("%d@%d %s", r.Offset, r.Timestamp, r.Value))
		return true, nil
	}); err != nil || fmt.Sprint(got) != "[103@1000 v 107@1005 w]" {
		t.Error(got, err)
	}
}

func TestEachPlainDoesNotAllocate(t *testing.T) {
	builder := record.NewBuilder(record.Options{})
	for i := range 50 {
		builder.Append(int64(i), []byte("key"), []byte("value"))
	}
	b, _ := builder.Build()
	var sum int64
	visit := func(r record.Record) (bool, error) { sum += r.Timestamp; return true, nil }
	if n := testing.AllocsPerRun(100, func() { _ = b.Each(0, visit) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBuilderReset(t *testing.T) {
	b := record.NewBuilder(record.Options{})
	if _, err := b.Build(); !errors.Is(err, record.ErrInvalid) {
		t.Error(err)
	}
	b.Append(-1, nil, nil)
	one, err := b.Build()
	if err != nil || one.MaxTimestamp() != record.NoTimestamp || b.Len() != one.Size() {
		t.Error(err, one.MaxTimestamp(), b.Len(), one.Size())
	}
	b.Reset(record.Options{BaseOffset: 5, LogAppendTime: true})
	b.Append(9, nil, []byte("x"))
	b.Append(3, nil, []byte("y"))
	two, err := b.Build()
	if err != nil || two.BaseOffset() != 5 || two.Count() != 2 || two.MaxTimestamp() != 9 || !two.LogAppendTime() || b.Count() != 2 {
		t.Error(err, two)
	}
	if one.Count() != 1 || one.VerifyCRC() != nil {
		t.Error("the first batch changed")
	}
}
