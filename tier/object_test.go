package tier

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// testRun builds a run of about size bytes from base on, in batches of records random records of up to
// valueSize bytes.
func testRun(rng *rand.Rand, base int64, size, records, valueSize int) Run {
	run := Run{Topic: "orders", TopicID: wire.UUID{1, 2, 3}, Partition: 3, LeaderEpoch: 7, Base: base, MinTimestamp: 1 << 60, MaxTimestamp: -1}
	var data []byte
	var block [8]byte
	offset, ts := base, int64(1_700_000_000_000)+base*10
	for len(data) < size {
		b := record.NewBuilder(record.Options{BaseOffset: offset, LeaderEpoch: 7})
		for range records {
			value := make([]byte, 1+rng.IntN(valueSize))
			for i := 0; i < len(value); i += 8 {
				binary.LittleEndian.PutUint64(block[:], rng.Uint64())
				copy(value[i:], block[:])
			}
			ts += int64(rng.IntN(10))
			run.MinTimestamp, run.MaxTimestamp = min(run.MinTimestamp, ts), max(run.MaxTimestamp, ts)
			b.Append(ts, []byte(fmt.Sprint(offset)), value)
		}
		batch, err := b.Build()
		if err != nil {
			panic(err)
		}
		data = append(data, batch...)
		offset = batch.NextOffset()
	}
	run.End, run.Size, run.Data = offset, int64(len(data)), bytes.NewReader(data)
	run.Epochs = []record.EpochStart{{Epoch: 7, StartOffset: base}}
	run.Producers = []record.ProducerEntry{{
		ProducerID: 9, ProducerEpoch: 2, CoordinatorEpoch: -1, LastTimestamp: ts, CurrentTxnFirstOffset: -1,
		Batches: []record.ProducerBatch{{LastSequence: 4, LastOffset: offset - 1, OffsetDelta: 1, Timestamp: ts}},
	}}
	run.Aborted = []record.AbortedTxn{{ProducerID: 9, FirstOffset: base + 1, LastOffset: offset + 5, LastStableOffset: offset}}
	return run
}

func dataOf(t testing.TB, run Run) []byte {
	t.Helper()
	data := make([]byte, run.Size)
	if _, err := run.Data.ReadAt(data, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return data
}

func bytesOf(t testing.TB, s *sealed) []byte {
	t.Helper()
	all := make([]byte, s.size)
	if n, err := s.ReadAt(all, 0); n != len(all) {
		t.Fatal(n, err)
	}
	return all
}

func TestObjectRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ size, records, value int }{
		{1, 1, 1}, {100 << 10, 1, 100}, {3 << 20, 20, 1000}, {5 << 20, 1, 3 << 20}, {2 << 20, 1000, 300},
	} {
		run := testRun(rng, 1000, c.size, c.records, c.value)
		s, err := seal(context.Background(), "cluster", wire.UUID{5}, run)
		if err != nil {
			t.Fatal(err)
		}
		all := bytesOf(t, s)
		if crc := crc32.Checksum(all, castagnoli); crc != s.crc {
			t.Errorf("%v: whole object has crc %08x, announced %08x", c, crc, s.crc)
		}
		guess := tailGuess(s.size)
		x, err := decodeIndex(tail{p: all[s.size-guess:], pos: s.size - guess})
		if err != nil {
			t.Fatalf("%v: the guessed tail of %d: %v", c, guess, err)
		}
		if !reflect.DeepEqual(x, s.index) {
			t.Errorf("%v: decoded\n%+v, want\n%+v", c, x.Footer, s.index.Footer)
		}
		producers, err := decodeProducers(tail{p: all, pos: 0})
		if err != nil || !reflect.DeepEqual(producers, run.Producers) {
			t.Errorf("%v: producers %v, %v", c, producers, err)
		}
		checkIndex(t, x, dataOf(t, run))
	}
}

// checkIndex compares the index with a walk over the batches.
func checkIndex(t *testing.T, x *Index, data []byte) {
	t.Helper()
	pos, i := int64(0), -1
	for b, err := range record.All(data) {
		if err != nil {
			t.Fatal(err)
		}
		if i < 0 || x.entries[i].pos/windowSize != uint32(pos/windowSize) {
			i++
			if offset, p := x.at(i); offset != b.BaseOffset() || p != pos {
				t.Fatalf("entry %d: (%d, %d), want (%d, %d)", i, offset, p, b.BaseOffset(), pos)
			}
		}
		if x.times[i] < b.MaxTimestamp() {
			t.Fatalf("entry %d: time %d below %d", i, x.times[i], b.MaxTimestamp())
		}
		if f := x.floor(b.LastOffset()); f != i || x.floorPos(pos) != i {
			t.Fatalf("floor of offset %d, pos %d: %d, %d, want %d", b.LastOffset(), pos, f, x.floorPos(pos), i)
		}
		pos += int64(len(b))
	}
	if err := x.verify(0, data); err != nil {
		t.Error(err)
	}
	data[len(data)/2] ^= 1
	if err := x.verify(0, data); err == nil {
		t.Error("a flipped bit passed")
	}
	data[len(data)/2] ^= 1
}

func TestSealRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	good := func() (Run, []byte) {
		run := testRun(rng, 50, 40<<10, 3, 500)
		return run, dataOf(t, run)
	}
	for name, spoil := range map[string]func(run *Run, data []byte) []byte{
		"flipped byte":     func(_ *Run, data []byte) []byte { data[len(data)/2] ^= 4; return data },
		"truncated":        func(_ *Run, data []byte) []byte { return data[:len(data)-1] },
		"end inside batch": func(run *Run, data []byte) []byte { run.Size--; return data },
		"end too high":     func(run *Run, data []byte) []byte { run.End++; return data },
		"end too low":      func(run *Run, data []byte) []byte { run.End--; return data },
		"base too low":     func(run *Run, data []byte) []byte { run.Base--; return data },
		"gap": func(_ *Run, data []byte) []byte {
			_, rest, _ := record.Next(data)
			b, _, _ := record.Next(rest)
			b.SetBaseOffset(b.BaseOffset() + 1)
			return data
		},
		"backwards": func(_ *Run, data []byte) []byte {
			_, rest, _ := record.Next(data)
			b, _, _ := record.Next(rest)
			b.SetBaseOffset(2)
			return data
		},
		"garbage behind":    func(run *Run, data []byte) []byte { run.Size += 7; return append(data, "garbage"...) },
		"length of a batch": func(_ *Run, data []byte) []byte { data[8] = 0x7f; return data },
		"empty":             func(run *Run, data []byte) []byte { run.Size = 0; return nil },
	} {
		run, data := good()
		run.Data = bytes.NewReader(spoil(&run, data))
		if _, err := seal(context.Background(), "cluster", wire.UUID{5}, run); !errors.Is(err, ErrBadRun) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	run, data := good()
	b, rest, _ := record.Next(data)
	for b, err := range record.All(rest) { // a gap after the first batch
		if err != nil {
			t.Fatal(err)
		}
		b.SetBaseOffset(b.BaseOffset() + 3)
	}
	run.End, run.Sparse, run.Data = run.End+3, true, bytes.NewReader(data)
	s, err := seal(context.Background(), "cluster", wire.UUID{5}, run)
	if err != nil {
		t.Fatalf("gaps in a sparse run: %v", err)
	}
	if !s.index.Sparse || s.index.floor(b.NextOffset()) != 0 {
		t.Errorf("sparse index: %+v", s.index)
	}
}

// TestEveryByteCounts flips each byte of a tail: no decoder may accept it.
func TestEveryByteCounts(t *testing.T) {
	run := testRun(rand.New(rand.NewPCG(5, 6)), 0, 20<<10, 2, 300)
	s, err := seal(context.Background(), "cluster", wire.UUID{5}, run)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.tail {
		s.tail[i] ^= 0x10
		end := tail{p: s.tail, pos: run.Size}
		_, err1 := decodeIndex(end)
		_, err2 := decodeProducers(end)
		if err1 == nil && err2 == nil {
			t.Errorf("byte %d of the tail may be anything", i)
		}
		s.tail[i] ^= 0x10
	}
}

func FuzzTail(f *testing.F) {
	for _, size := range []int{1, 50 << 10, 2 << 20} {
		s, err := seal(context.Background(), "cluster", wire.UUID{5}, testRun(rand.New(rand.NewPCG(7, 8)), 0, size, 5, 300))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.tail, s.size-int64(len(s.tail)))
	}
	f.Fuzz(func(t *testing.T, p []byte, pos int64) {
		if pos < 0 || pos > 1<<40 {
			return
		}
		end := tail{p: p, pos: pos}
		if _, err := decodeProducers(end); err != nil {
			_ = err.Error()
		}
		x, err := decodeIndex(end)
		if err != nil {
			return
		}
		again := tail{p: appendTail(nil, x, nil), pos: x.DataSize}
		y, err := decodeIndex(again)
		if err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("decoded, encoded and decoded again: %v", err)
		}
		for offset := x.Base; offset < min(x.End, x.Base+100); offset++ {
			if i := x.floor(offset); i < 0 || i >= len(x.entries) {
				t.Fatalf("floor of %d is entry %d", offset, i)
			}
		}
	})
}

// FuzzFooter reaches the fields behind the checksums.
func FuzzFooter(f *testing.F) {
	s, err := seal(context.Background(), "cluster", wire.UUID{5}, testRun(rand.New(rand.NewPCG(9, 10)), 0, 10<<10, 5, 300))
	if err != nil {
		f.Fatal(err)
	}
	end := tail{p: s.tail, pos: s.size - int64(len(s.tail))}
	pos, size, _, err := end.trailer()
	if err != nil {
		f.Fatal(err)
	}
	footer, _ := end.slice(pos, size)
	f.Add(footer, pos, s.tail[:pos-end.pos])
	f.Fuzz(func(t *testing.T, footer []byte, pos int64, sections []byte) {
		if pos < 0 || pos > 1<<40 || len(footer) > maxFooterSize {
			return
		}
		p := append(append([]byte{}, sections...), footer...)
		p = appendTrailer(p, pos, footer)
		end := tail{p: p, pos: max(0, pos-int64(len(sections)))}
		_, _ = decodeIndex(end)
		_, _ = decodeProducers(end)
	})
}
