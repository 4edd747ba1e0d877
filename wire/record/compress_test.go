package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/varve-io/varve/wire/record"
)

func payloads() map[string][]byte {
	random := make([]byte, 200_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	return map[string][]byte{
		"empty":  {},
		"byte":   {7},
		"text":   bytes.Repeat([]byte("a log one can read back for millennia; "), 9000),
		"random": random,
		"zeros":  make([]byte, 1<<20),
	}
}

func TestCompressRoundTrip(t *testing.T) {
	prefix := []byte("before")
	for name, plain := range payloads() {
		for _, c := range codecs {
			packed, err := record.Compress(c, bytes.Clone(prefix), plain)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(packed, prefix) {
				t.Errorf("%s %v: dst overwritten", name, c)
			}
			packed = packed[len(prefix):]
			got, err := record.Decompress(c, bytes.Clone(prefix), packed, len(plain))
			if err != nil || !bytes.Equal(got, append(bytes.Clone(prefix), plain...)) {
				t.Errorf("%s %v: %d bytes of %d, %v", name, c, len(got), len(plain), err)
			}
			if len(plain) > 0 {
				got, err = record.Decompress(c, bytes.Clone(prefix), packed, len(plain)-1)
				if !errors.Is(err, record.ErrTooLarge) || !bytes.Equal(got, prefix) {
					t.Errorf("%s %v, one byte below: %v, %d bytes", name, c, err, len(got))
				}
			}
		}
	}
}

func TestSnappyFramings(t *testing.T) {
	plain := payloads()["text"]
	xerial, err := record.Compress(record.Snappy, nil, plain)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(xerial, []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")) {
		t.Errorf("we write % x", xerial[:16])
	}
	for name, c := range map[string]struct{ packed, want []byte }{
		"raw":                    {s2.EncodeSnappy(nil, plain), plain},
		"xerial":                 {xerial, plain},
		"xerial, streams joined": {append(bytes.Clone(xerial), xerial...), append(bytes.Clone(plain), plain...)},
		"xerial, empty":          {xerial[:16], nil},
	} {
		got, err := record.Decompress(record.Snappy, nil, c.packed, 1<<20)
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for n := range 100 {
		if _, err := record.Decompress(record.Snappy, nil, xerial[:n], 1<<20); err == nil && n != 16 {
			t.Errorf("cut at %d passes", n)
		}
	}
}

// A bomb is refused with memory in proportion to the limit, whatever it declares.
func TestBombs(t *testing.T) {
	const limit = 1 << 20
	zeros := make([]byte, 256<<20)
	declared := binary.AppendUvarint(nil, 1<<31)
	xerial := append([]byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09"), append(declared, 0, 0, 0, 0)...)
	stream := new(bytes.Buffer) // without a content size
	w, _ := zstd.NewWriter(stream)
	_, _ = w.Write(zeros)
	_ = w.Close()
	sized := new(bytes.Buffer)
	lw := lz4.NewWriter(sized)
	_ = lw.Apply(lz4.SizeOption(uint64(len(zeros))))
	_, _ = lw.Write(zeros)
	_ = lw.Close()
	bombs := map[string]struct {
		codec  record.Codec
		packed []byte
	}{
		"snappy that declares 2 GiB": {record.Snappy, append(declared, 0, 0)},
		"xerial that declares 2 GiB": {record.Snappy, xerial},
		"zstd without size":          {record.Zstd, stream.Bytes()},
		"lz4 with size":              {record.LZ4, sized.Bytes()},
	}
	for _, c := range codecs[1:] {
		packed, err := record.Compress(c, nil, zeros)
		if err != nil {
			t.Fatal(err)
		}
		bombs[c.String()] = struct {
			codec  record.Codec
			packed []byte
		}{c, packed}
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := record.Decompress(bomb.codec, nil, bomb.packed, limit)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, record.ErrTooLarge) {
				t.Errorf("%d bytes: %v", len(bomb.packed), err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 16*limit {
				t.Errorf("allocated %d bytes", used)
			}
		})
	}
}

func TestDecompressGarbage(t *testing.T) {
	for _, c := range codecs[1:] {
		packed, _ := record.Compress(c, nil, payloads()["text"])
		for _, src := range [][]byte{{}, {0}, []byte("certainly not compressed"), packed[:len(packed)/2], packed[3:]} {
			if _, err := record.Decompress(c, nil, src, 1<<20); err != nil && !errors.Is(err, record.ErrCorrupt) {
				t.Errorf("%v: %v", c, err)
			}
		}
	}
	if _, err := record.Decompress(5, nil, nil, 1); !errors.Is(err, record.ErrCodec) {
		t.Error(err)
	}
	if _, err := record.Compress(-1, nil, nil); !errors.Is(err, record.ErrCodec) {
		t.Error(err)
	}
}

func TestParseCodec(t *testing.T) {
	for _, c := range codecs {
		if got, err := record.ParseCodec(c.String()); err != nil || got != c {
			t.Error(got, err)
		}
	}
	if got, err := record.ParseCodec("uncompressed"); err != nil || got != record.None {
		t.Error(got, err)
	}
	if _, err := record.ParseCodec("producer"); !errors.Is(err, record.ErrCodec) {
		t.Error(err)
	}
	if got := fmt.Sprint(record.Codec(6)); got != "codec(6)" {
		t.Error(got)
	}
}
