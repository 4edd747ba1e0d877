package interop

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// codecs by Kafka's number, the low three bits of a batch's attributes.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// event is what producers write and consumers must read.
type event struct {
	offset     int64 // of consumers
	key, value []byte
}

// client is one program under test.
type client interface {
	name() string
	// produce writes records, in any partition, and returns once all are acknowledged.
	produce(ctx context.Context, topic, codec string, records []event) error
	// consume reads n records of a partition from offset on.
	consume(ctx context.Context, topic string, partition int32, offset int64, n int) ([]event, error)
	// text says that the client can produce lines of text only.
	text() bool
}

// Delimiters that stand in no record.
const (
	keyEnd    = "\x01\x02=\x02\x01"
	recordEnd = "\x01\x02;\x02\x01"
)

// sizes of values: every producer writes each of them with every codec, up to
// one of 1 MiB, and some hundred of random sizes.
var sizes = []int{1, 2, 3, 10, 100, 1000, 1024, 5000, 16 << 10, 64 << 10, 250_000, 1 << 20}

const (
	randomRecords = 300
	randomSize    = 2000
)

// newRecords are the records of one producer and codec, in the order in which
// they are sent. A key tells them apart: <codec>/<number>.
func newRecords(producer, codec string, text bool) []event {
	seed := []byte(fmt.Sprintf("%-32s", producer+"/"+codec))
	rng := rand.New(rand.NewChaCha8([32]byte(seed)))
	all := slices.Clone(sizes)
	for range randomRecords {
		all = append(all, 1+rng.IntN(randomSize))
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var records []event
	for i, size := range all {
		records = append(records, event{key: fmt.Appendf(nil, "%s/%04d", codec, i), value: newValue(rng, size, text)})
	}
	return records
}

// newValue is compressible by about a half: words, some of them random. Binary
// values hold every byte, but no delimiter.
func newValue(rng *rand.Rand, size int, text bool) []byte {
	const words = 8
	b := make([]byte, 0, size+words)
	for len(b) < size {
		if rng.IntN(2) == 0 {
			b = append(b, "varve... "[:words]...)
			continue
		}
		for range words {
			if text {
				b = append(b, byte(' '+rng.IntN('~'-' ')))
			} else {
				b = append(b, byte(rng.Uint32()))
			}
		}
	}
	b = b[:size]
	for _, d := range []string{keyEnd, recordEnd} {
		b = bytes.ReplaceAll(b, []byte(d), bytes.Repeat([]byte{'x'}, len(d)))
	}
	return b
}

// codecOf is the codec that a record was produced with, by its key.
func codecOf(key []byte) string {
	codec, _, _ := strings.Cut(string(key), "/")
	return codec
}
