package interop

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// TestWeReadKafkasFiles: log.Open takes a partition directory that Apache Kafka
// wrote, with all codecs, committed and aborted transactions, whether Kafka was
// ended cleanly or not; goes on writing in it; and Kafka reads the result.
func TestWeReadKafkasFiles(t *testing.T) {
	kinds := []string{".index", ".log", ".snapshot", ".timeindex", ".txnindex"}
	written, want := writeKafkaLog(t)
	t.Run("as Kafka left them", func(t *testing.T) { dumpFiles(t, written, kinds) }) // the check itself is right
	for name, open := range map[string]func(*log.Options){
		"clean":     func(o *log.Options) { o.Clean = true },
		"recovered": func(o *log.Options) {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), filepath.Base(written))
			if err := os.CopyFS(dir, os.DirFS(written)); err != nil {
				t.Fatal(err)
			}
			config := log.DefaultConfig()
			config.SegmentBytes = 1_200_000
			o := log.Options{FS: vfs.OS(), Dir: dir, Topic: "kafka-files", Config: config}
			open(&o)
			l, err := log.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			compareKafkaLog(t, l, want)
			appendTransactions(t, l)
			if err := l.Close(true); err != nil {
				t.Fatal(err)
			}
			dumpFiles(t, dir, kinds)
		})
	}
}

// compareKafkaLog compares the data records of a log with what was sent, and
// the state that Kafka wrote beside them with what was done.
func compareKafkaLog(t *testing.T, l *log.Log, want []*kgo.Record) {
	t.Helper()
	i := 0
	for offset := int64(0); offset < l.EndOffset(); {
		r, err := l.Read(offset, 1<<20, l.EndOffset(), true)
		if err != nil || r.Range.Size == 0 {
			t.Fatalf("read at %d: %d bytes, %v", offset, r.Range.Size, err)
		}
		b := make([]byte, r.Range.Size)
		_, err = r.Range.ReaderAt.ReadAt(b, r.Range.Off)
		r.Range.Release()
		if err != nil {
			t.Fatal(err)
		}
		for {
			batch, rest, err := record.Next(b)
			if err == io.EOF {
				break
			}
			if err != nil || batch.VerifyCRC() != nil || batch.BaseOffset() != offset {
				t.Fatalf("batch at %d: %v", offset, err)
			}
			if !batch.IsControl() {
				if err := batch.Each(64<<20, func(r record.Record) (bool, error) {
					if i >= len(want) || r.Offset < offset || !bytes.Equal(r.Key, want[i].Key) || !bytes.Equal(r.Value, want[i].Value) {
						t.Fatalf("record %d at offset %d is not what was sent", i, r.Offset)
					}
					i++
					return true, nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			offset, b = batch.NextOffset(), rest
		}
	}
	if i != len(want) {
		t.Fatalf("%d of %d records in the log", i, len(want))
	}
	aborted, err := l.AbortedTxns(0, l.EndOffset())
	if err != nil || len(aborted) != len(codecs) {
		t.Errorf("aborted transactions %v, %v; want %d", aborted, err, len(codecs))
	}
	if got := len(l.ActiveProducers()); got != len(codecs) {
		t.Errorf("%d producers, want %d", got, len(codecs))
	}
	if e := l.Epochs(0, l.EndOffset()); len(e) != 1 || e[0] != (record.EpochStart{}) {
		t.Errorf("leader epochs %v, want epoch 0 from offset 0", e)
	}
}

// appendTransactions writes an aborted transaction and rolls, so that there are
// files of every kind with entries of our own.
func appendTransactions(t *testing.T, l *log.Log) {
	t.Helper()
	const producer, epoch = 4711, 0
	var sequence int32
	add := func(b record.Batch, origin log.Origin) {
		t.Helper()
		a := &log.Append{Batch: b, Origin: origin}
		if err := l.AppendAsLeader([]*log.Append{a}, epoch); err != nil || a.Err != nil {
			t.Fatalf("append: %v, %v", err, a.Err)
		}
	}
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		b := record.NewBuilder(record.Options{Codec: codec, ProducerID: producer, BaseSequence: sequence, Transactional: true})
		for range 50 {
			b.Append(1_700_000_000_000, []byte("key"), bytes.Repeat([]byte("value "), 1000))
			sequence++
		}
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		add(batch, log.OriginClient)
	}
	add(record.EndTxnMarker(record.Marker{Type: record.Abort, ProducerID: producer, Timestamp: 1_700_000_000_000}), log.OriginCoordinator)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
}
