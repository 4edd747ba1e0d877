package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

var codecs = []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

// build makes a batch of n records "k<i>" -> "value <i>", with a header in every third.
func build(t testing.TB, o record.Options, n int) record.Batch {
	t.Helper()
	b := record.NewBuilder(o)
	for i := range n {
		var headers []record.Header
		if i%3 == 0 {
			headers = []record.Header{{Key: "trace", Value: []byte{byte(i)}}, {Key: "", Value: nil}}
		}
		b.Append(int64(1000+i), fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "value %d", i), headers...)
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func TestHeaderAgreesWithKmsg(t *testing.T) {
	b := build(t, record.Options{
		BaseOffset: 42, LeaderEpoch: 7, ProducerID: 99, ProducerEpoch: 3, BaseSequence: 12,
		Transactional: true, Codec: record.Zstd,
	}, 10)
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	got := []any{k.FirstOffset, k.Length, k.PartitionLeaderEpoch, k.Magic, uint32(k.CRC), k.Attributes, k.LastOffsetDelta,
		k.FirstTimestamp, k.MaxTimestamp, k.ProducerID, k.ProducerEpoch, k.FirstSequence, k.NumRecords, len(k.Records)}
	want := []any{b.BaseOffset(), int32(b.Size() - record.Overhead), b.LeaderEpoch(), b.Magic(), b.CRC(), b.Attributes(), b.LastOffsetDelta(),
		b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Count(), len(b.Records())}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("kmsg reads\n%v\nwe read\n%v", got, want)
	}
	if got, want := fmt.Sprint(b.LastOffset(), b.NextOffset(), b.LastSequence(), b.HasProducer(), b.IsTransactional(), b.IsControl(), b.LogAppendTime(), b.Codec()),
		"51 52 21 true true false false zstd"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !bytes.Equal(k.AppendTo(nil), b) {
		t.Error("kmsg encodes it differently")
	}
	if err := errors.Join(b.Check(), b.VerifyCRC()); err != nil {
		t.Error(err)
	}
}

func TestZeroOptionsHaveNoProducer(t *testing.T) {
	if b := build(t, record.Options{}, 1); b.HasProducer() || b.ProducerEpoch() != -1 || b.BaseSequence() != -1 || b.LastSequence() != -1 {
		t.Errorf("producer %d epoch %d sequence %d", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence())
	}
	if b := build(t, record.Options{Idempotent: true}, 1); !b.HasProducer() || b.ProducerID() != 0 || b.BaseSequence() != 0 {
		t.Errorf("producer %d sequence %d", b.ProducerID(), b.BaseSequence())
	}
}

func TestNext(t *testing.T) {
	one := build(t, record.Options{}, 3)
	two := build(t, record.Options{BaseOffset: 3}, 2)
	set := append(append([]byte{}, one...), two...)

	first, rest, err := record.Next(set)
	if err != nil || !bytes.Equal(first, one) {
		t.Fatalf("first: %v", err)
	}
	second, rest, err := record.Next(rest)
	if err != nil || !bytes.Equal(second, two) {
		t.Fatalf("second: %v", err)
	}
	if _, _, err = record.Next(rest); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for n := 1; n < len(one); n++ {
		if _, _, err := record.Next(one[:n]); err != record.ErrShort {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	n := 0
	for b, err := range record.All(set) {
		if err != nil {
			t.Fatal(err)
		}
		n += int(b.Count())
	}
	if n != 5 {
		t.Errorf("All saw %d records", n)
	}
}

func TestNextRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		pos  int
		set  []byte
		want error
	}{
		{"length below the header", 8, []byte{0, 0, 0, 48}, record.ErrCorrupt},
		{"negative length", 8, []byte{0xff, 0xff, 0xff, 0xff}, record.ErrCorrupt},
		{"length beyond the bytes", 8, []byte{0x7f, 0xff, 0xff, 0xff}, record.ErrShort},
		{"magic 1", 16, []byte{1}, record.ErrMagic},
		{"magic 3", 16, []byte{3}, record.ErrMagic},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build(t, record.Options{}, 3)
			copy(b[c.pos:], c.set)
			if _, _, err := record.Next(b); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	if !errors.Is(record.ErrMagic, record.ErrCorrupt) || !errors.Is(record.ErrCRC, record.ErrCorrupt) {
		t.Error("magic and CRC are kinds of corruption")
	}
}

func TestCheckRefuses(t *testing.T) {
	idempotent := record.Options{Idempotent: true}
	for _, c := range []struct {
		name string
		o    record.Options
		pos  int
		set  []byte
		want error
	}{
		{"codec 5", record.Options{}, 22, []byte{5}, record.ErrCodec},
		{"codec 7", record.Options{}, 22, []byte{7}, record.ErrCodec},
		{"no records", record.Options{}, 57, []byte{0, 0, 0, 0}, record.ErrInvalid},
		{"negative count", record.Options{}, 57, []byte{0xff, 0xff, 0xff, 0xff}, record.ErrCorrupt},
		{"more records than offsets", record.Options{}, 57, []byte{0, 0, 0, 4}, record.ErrCorrupt},
		{"fewer records than offsets", record.Options{}, 57, []byte{0, 0, 0, 2}, record.ErrInvalid},
		{"count that cannot fit", record.Options{}, 23, []byte{0x7f, 0xff, 0xff, 0xfe}, record.ErrInvalid},
		{"negative delta", record.Options{}, 23, []byte{0xff, 0xff, 0xff, 0xff}, record.ErrCorrupt},
		{"negative offset", record.Options{}, 0, []byte{0x80}, record.ErrCorrupt},
		{"last offset overflows", record.Options{}, 0, []byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, record.ErrCorrupt},
		{"producer without sequence", idempotent, 53, []byte{0xff, 0xff, 0xff, 0xff}, record.ErrInvalid},
		{"producer without epoch", idempotent, 51, []byte{0xff, 0xff}, record.ErrInvalid},
		{"transaction without producer", record.Options{}, 22, []byte{0x10}, record.ErrInvalid},
		{"delete horizon", record.Options{}, 22, []byte{0x40}, record.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build(t, c.o, 3)
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			copy(b[c.pos:], c.set)
			if err := b.Check(); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	// A million records in a few bytes: only the header has to be looked at.
	b := build(t, record.Options{}, 3)
	copy(b[23:], []byte{0, 0x0f, 0x42, 0x3f})
	copy(b[57:], []byte{0, 0x0f, 0x42, 0x40})
	if err := b.Check(); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("count beyond the bytes: %v", err)
	}
	// Compaction leaves batches that a client may not send.
	b = build(t, record.Options{}, 3)
	copy(b[57:], []byte{0, 0, 0, 0})
	if err := b.CheckStored(); err != nil {
		t.Errorf("empty batch in a compacted log: %v", err)
	}
}

func TestPatchInPlace(t *testing.T) {
	b := build(t, record.Options{}, 4)
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(17)
	if err := b.VerifyCRC(); err != nil {
		t.Errorf("offset and epoch are not under the CRC: %v", err)
	}
	if b.BaseOffset() != 1<<40 || b.LastOffset() != 1<<40+3 || b.LeaderEpoch() != 17 {
		t.Error(b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
	}
	b.SetLogAppendTime(5555)
	if err := b.VerifyCRC(); err != nil {
		t.Error(err)
	}
	_ = b.Each(math.MaxInt32, func(r record.Record) (bool, error) {
		if r.Timestamp != 5555 {
			t.Errorf("record %d has timestamp %d", r.Offset, r.Timestamp)
		}
		return true, nil
	})
	b.SetMaxTimestamp(1003)
	if b.LogAppendTime() || b.MaxTimestamp() != 1003 || b.VerifyCRC() != nil {
		t.Error("back to create time", b)
	}
	b[len(b)-1] ^= 1
	if err := b.VerifyCRC(); err != record.ErrCRC {
		t.Errorf("flipped bit: %v", err)
	}
}

func TestSequencesWrap(t *testing.T) {
	b := build(t, record.Options{Idempotent: true, BaseSequence: math.MaxInt32 - 1}, 4)
	if got := b.LastSequence(); got != 1 {
		t.Errorf("last sequence %d, want 1", got)
	}
	p := record.ProducerBatch{LastSequence: 1, OffsetDelta: 3, LastOffset: 10}
	if p.FirstSequence() != math.MaxInt32-1 || p.FirstOffset() != 7 {
		t.Error(p.FirstSequence(), p.FirstOffset())
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	b := build(t, record.Options{ProducerID: 5}, 100)
	set := append(append([]byte{}, b...), b...)
	var sum int64
	n := testing.AllocsPerRun(100, func() {
		for rest := set; len(rest) > 0; {
			var batch record.Batch
			var err error
			if batch, rest, err = record.Next(rest); err != nil {
				t.Fatal(err)
			}
			if batch.VerifyCRC() != nil || batch.Check() != nil {
				t.Fatal("refused")
			}
			batch.SetBaseOffset(77)
			batch.SetLeaderEpoch(1)
			sum += batch.LastOffset() + batch.MaxTimestamp() + batch.ProducerID() + int64(batch.LastSequence())
		}
		if _, _, err := record.Next(set[:20]); err != record.ErrShort {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
