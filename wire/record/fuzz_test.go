package record_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/varve-io/varve/wire/record"
)

const fuzzLimit = 1 << 20

func addBatches(f *testing.F) {
	for _, c := range codecs {
		b := build(f, record.Options{Codec: c, ProducerID: 3, BaseOffset: 7}, 5)
		f.Add([]byte(b))
		f.Add(append(append([]byte{}, b...), b[:70]...))
	}
	f.Add([]byte(record.EndTxnMarker(record.Marker{Type: record.Commit})))
}

// FuzzNext: views never reach outside the bytes, and what follows is exactly what was left.
func FuzzNext(f *testing.F) {
	addBatches(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		total := 0
		for rest := src; ; {
			b, next, err := record.Next(rest)
			if err != nil {
				if err == io.EOF != (len(rest) == 0) {
					t.Fatal(err)
				}
				if err != io.EOF && !errors.Is(err, record.ErrShort) && !errors.Is(err, record.ErrCorrupt) {
					t.Fatal(err)
				}
				return
			}
			total += b.Size()
			if b.Size() < record.HeaderSize || total+len(next) != len(src) {
				t.Fatal(b.Size(), total, len(next), len(src))
			}
			rest = next
		}
	})
}

// FuzzCheck: a batch that passes has consistent offsets and sequences, and patching keeps it valid.
func FuzzCheck(f *testing.F) {
	addBatches(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		b, _, err := record.Next(bytes.Clone(src))
		if err != nil {
			return
		}
		_ = b.VerifyCRC()
		if b.Check() != nil {
			return
		}
		if b.CheckStored() != nil || b.LastOffset()-b.BaseOffset() != int64(b.Count())-1 || b.NextOffset() < 0 && b.LastOffset() != 1<<63-1 {
			t.Fatal(b)
		}
		b.SetBaseOffset(1)
		b.SetLogAppendTime(2)
		if b.VerifyCRC() != nil || b.Check() != nil {
			t.Fatal("patched batch fails")
		}
	})
}

// FuzzEach: no panic, bounded output, ascending offsets within the batch.
func FuzzEach(f *testing.F) {
	addBatches(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		b, _, err := record.Next(src)
		if err != nil {
			return
		}
		previous := b.BaseOffset() - 1
		size := 0
		err = b.Each(fuzzLimit, func(r record.Record) (bool, error) {
			if r.Offset <= previous && b.BaseOffset() < 1<<62 {
				t.Fatal(r.Offset, previous)
			}
			previous = r.Offset
			size += len(r.Key) + len(r.Value)
			return true, nil
		})
		if b.Codec() != record.None && size > fuzzLimit {
			t.Fatalf("%d bytes", size)
		}
		_ = err
		_, _ = record.ParseMarker(b)
	})
}

// FuzzDecompress: never more than the limit, and what comes out goes back in.
func FuzzDecompress(f *testing.F) {
	for _, c := range codecs {
		packed, _ := record.Compress(c, nil, bytes.Repeat([]byte("sediment "), 100))
		f.Add(int8(c), packed)
	}
	f.Fuzz(func(t *testing.T, codec int8, src []byte) {
		c := record.Codec(codec)
		plain, err := record.Decompress(c, nil, src, fuzzLimit)
		if err != nil {
			return
		}
		if len(plain) > fuzzLimit {
			t.Fatal(len(plain))
		}
		packed, err := record.Compress(c, nil, plain)
		if err != nil {
			t.Fatal(err)
		}
		again, err := record.Decompress(c, nil, packed, len(plain))
		if err != nil || !bytes.Equal(again, plain) {
			t.Fatal(len(again), len(plain), err)
		}
	})
}
