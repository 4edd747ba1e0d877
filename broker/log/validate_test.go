package log

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire/record"
)

// broken returns a batch with some bytes changed and, unless crc is false, the CRC made right again.
func broken(t testing.TB, o record.Options, pos int, set []byte, crc bool) record.Batch {
	b := plain(t, now(), 3)
	if o != (record.Options{}) {
		b = batchOf(t, o, now(), 3)
	}
	copy(b[pos:], set)
	if crc {
		setSequence(b, b.BaseSequence())
	}
	return b
}

func TestRefusedBatches(t *testing.T) {
	future := now() + 2*3600*1000
	idempotent := record.Options{ProducerID: 9}
	for _, c := range []struct {
		name   string
		config Config
		batch  record.Batch
		origin Origin
		want   error
	}{
		{name: "flipped bit", batch: broken(t, record.Options{}, 80, []byte{0xff}, false), want: kerr.CorruptMessage},
		{name: "magic 1", batch: broken(t, record.Options{}, 16, []byte{1}, true), want: kerr.InvalidRecord},
		{name: "cut short", batch: plain(t, now(), 3)[:100], want: kerr.CorruptMessage},
		{name: "empty", batch: record.Batch{}, want: kerr.CorruptMessage},
		{name: "two batches", batch: append(plain(t, now(), 1), plain(t, now(), 1)...), want: kerr.InvalidRecord},
		{name: "base offset", batch: broken(t, record.Options{}, 7, []byte{5}, false), want: kerr.InvalidRecord},
		{name: "count", batch: broken(t, record.Options{}, 60, []byte{2}, true), want: kerr.InvalidRecord},
		{name: "codec 7", batch: broken(t, record.Options{}, 22, []byte{7}, true), want: kerr.UnsupportedCompressionType},
		{name: "sequence missing", batch: broken(t, idempotent, 53, []byte{0xff, 0xff, 0xff, 0xff}, true), want: kerr.InvalidRecord},
		{name: "control from a client", batch: record.EndTxnMarker(record.Marker{Type: record.Commit, ProducerID: 1}), want: kerr.InvalidRecord},
		{name: "record length lies", batch: broken(t, record.Options{}, 61, []byte{0x7e}, true), want: kerr.InvalidRecord},
		{name: "offset delta", batch: broken(t, record.Options{}, 64, []byte{8}, true), want: kerr.InvalidRecord},
		{name: "too large", config: Config{MaxMessageBytes: 100}, batch: plain(t, now(), 20), want: kerr.MessageTooLarge},
		{name: "larger than a segment", config: Config{SegmentBytes: 100}, batch: plain(t, now(), 20), want: kerr.RecordListTooLarge},
		{name: "from the future", config: Config{TimestampAfterMaxMs: 3600 * 1000}, batch: plain(t, future, 3), want: kerr.InvalidTimestamp},
		{name: "from the future, compressed", config: Config{TimestampAfterMaxMs: 3600 * 1000},
			batch: batchOf(t, record.Options{Codec: record.Zstd}, future, 3), want: kerr.InvalidTimestamp},
		{name: "from the past", config: Config{TimestampBeforeMaxMs: 1000}, batch: plain(t, now()-5000, 3), want: kerr.InvalidTimestamp},
		{name: "no keys in a compacted topic", config: Config{Compact: true}, batch: keyless(t, record.None), want: kerr.InvalidRecord},
		{name: "no keys, compressed", config: Config{Compact: true}, batch: keyless(t, record.LZ4), want: kerr.InvalidRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.KeepCompression = true
			l, _ := newTestLog(t, c.config)
			good1, bad, good2 := &Append{Batch: good(t, c.config)}, &Append{Batch: c.batch, Origin: c.origin}, &Append{Batch: good(t, c.config)}
			if c.config.MaxMessageBytes > 0 || c.config.SegmentBytes > 0 {
				good1, good2 = &Append{Batch: tiny(t)}, &Append{Batch: tiny(t)}
			}
			if err := l.AppendAsLeader([]*Append{good1, bad, good2}, 0); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(bad.Err, c.want) || bad.BaseOffset != -1 {
				t.Errorf("got %v, want %v", bad.Err, c.want)
			}
			if good1.Err != nil || good2.Err != nil || good2.BaseOffset != good1.LastOffset+1 {
				t.Errorf("the others: %v at %d, %v at %d", good1.Err, good1.BaseOffset, good2.Err, good2.BaseOffset)
			}
			if got := readAll(t, l, 0, 1<<20); len(got) != 2 {
				t.Errorf("%d batches in the log", len(got))
			}
		})
	}
}

func good(t testing.TB, _ Config) record.Batch { return plain(t, now(), 2) }

func tiny(t testing.TB) record.Batch {
	b := record.NewBuilder(record.Options{})
	b.Append(now(), []byte("k"), nil)
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func keyless(t testing.TB, codec record.Codec) record.Batch {
	b := record.NewBuilder(record.Options{Codec: codec})
	b.Append(now(), []byte("key"), []byte("value"))
	b.Append(now(), nil, []byte("value"))
	b.Append(now(), nil, []byte("value"))
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func TestRecordErrors(t *testing.T) {
	l, _ := newTestLog(t, Config{Compact: true, KeepCompression: true})
	for _, codec := range []record.Codec{record.None, record.Gzip} {
		a := &Append{Batch: keyless(t, codec)}
		if err := l.AppendAsLeader([]*Append{a}, 0); err != nil {
			t.Fatal(err)
		}
		if len(a.RecordErrors) != 2 || a.RecordErrors[0].Index != 1 || a.RecordErrors[1].Index != 2 {
			t.Errorf("%s: %+v", codec, a.RecordErrors)
		}
	}
}

func TestLogAppendTime(t *testing.T) {
	l, _ := newTestLog(t, Config{LogAppendTime: true, KeepCompression: true})
	before := now()
	for _, codec := range []record.Codec{record.None, record.Snappy} {
		a := &Append{Batch: batchOf(t, record.Options{Codec: codec}, 12345, 3)}
		if err := l.AppendAsLeader([]*Append{a}, 0); err != nil || a.Err != nil {
			t.Fatal(err, a.Err)
		}
		if a.LogAppendTime < before || a.LogAppendTime > now() {
			t.Errorf("append time %d", a.LogAppendTime)
		}
	}
	for _, b := range readAll(t, l, 0, 1<<20) {
		if !b.LogAppendTime() || b.MaxTimestamp() < before {
			t.Errorf("batch at %d has timestamp %d", b.BaseOffset(), b.MaxTimestamp())
		}
	}
	found, ok, err := l.OffsetForTime(before, l.EndOffset())
	if err != nil || !ok || found.Offset != 0 {
		t.Errorf("%+v %v %v", found, ok, err)
	}
}

func TestTopicCompression(t *testing.T) {
	for _, target := range []record.Codec{record.None, record.Zstd} {
		l, _ := newTestLog(t, Config{Compression: target})
		for _, source := range []record.Codec{record.None, record.LZ4, record.Zstd} {
			o := record.Options{Codec: source, ProducerID: int64(source) + 1, ProducerEpoch: 2}
			a := &Append{Batch: batchOf(t, o, now(), 5)}
			before := bytes.Clone(a.Batch)
			if err := l.AppendAsLeader([]*Append{a}, 0); err != nil || a.Err != nil {
				t.Fatal(err, a.Err)
			}
			got := readAll(t, l, a.BaseOffset, 1<<20)[0]
			if got.Codec() != target || got.ProducerID() != o.ProducerID || got.ProducerEpoch() != 2 || got.BaseSequence() != 0 {
				t.Errorf("%s into %s: %s of producer %d, epoch %d, sequence %d", source, target, got.Codec(), got.ProducerID(), got.ProducerEpoch(), got.BaseSequence())
			}
			if a, b := values(t, before), values(t, got); a != b {
				t.Errorf("%s into %s: records\n%s, want\n%s", source, target, b, a)
			}
		}
	}
}

// values prints the records of a batch, offsets aside.
func values(t testing.TB, b record.Batch) string {
	var out bytes.Buffer
	err := b.Each(1<<20, func(r record.Record) (bool, error) {
		out.WriteString(time.UnixMilli(r.Timestamp).String() + string(r.Key) + "=" + string(r.Value) + "\n")
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestMaxTimestampIsCorrected: the header's maximum drives lookups by time, so it is what the records say.
func TestMaxTimestampIsCorrected(t *testing.T) {
	l, _ := newTestLog(t, Config{})
	b := plain(t, now(), 3)
	want := b.MaxTimestamp()
	b.SetMaxTimestamp(want - 5000)
	mustAppend(t, l, 0, b)
	if got := readAll(t, l, 0, 1<<20)[0].MaxTimestamp(); got != want {
		t.Errorf("stored maximum %d, want %d", got, want)
	}
}
