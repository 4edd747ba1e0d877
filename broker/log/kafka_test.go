package log

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// testdata/kafka was written by Apache Kafka 4.4.0: all codecs, idempotent and transactional producers, one
// transaction left open, a restart in between; beside it what DumpLogSegments prints of its snapshot and
// transaction index.
const (
	kafkaDir = "testdata/kafka"
	kafkaEnd = 1015
)

// copyKafka puts the partition directory on a disk in memory, without the files that skip names.
func copyKafka(t testing.TB, skip ...string) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("data/kt-0"); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(path.Join(kafkaDir, "kt-0"))
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, f := range files {
		for _, s := range skip {
			if strings.HasSuffix(f.Name(), s) {
				continue next
			}
		}
		data, err := os.ReadFile(path.Join(kafkaDir, "kt-0", f.Name()))
		if err == nil {
			err = vfs.WriteFileAtomic(mem, path.Join("data/kt-0", f.Name()), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

func kafkaOptions(fsys vfs.FS, clean bool) Options {
	return Options{FS: fsys, Dir: "data/kt-0", Topic: "kt", Clean: clean, RecoveryPoint: kafkaEnd, LogStart: -1}
}

func lines(t testing.TB, name string) []string {
	t.Helper()
	data, err := os.ReadFile(path.Join(kafkaDir, name))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		list = append(list, s.Text())
	}
	return list
}

// dumpProducer prints a producer as DumpLogSegments does.
func dumpProducer(e record.ProducerEntry) string {
	first := "OptionalLong.empty"
	if e.CurrentTxnFirstOffset >= 0 {
		first = fmt.Sprintf("OptionalLong[%d]", e.CurrentTxnFirstOffset)
	}
	s := fmt.Sprintf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d ",
		e.ProducerID, e.ProducerEpoch, e.CoordinatorEpoch, first, e.LastTimestamp)
	if n := len(e.Batches); n > 0 {
		b := e.Batches[n-1]
		s += fmt.Sprintf("firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
			b.FirstSequence(), b.LastSequence, b.LastOffset, b.OffsetDelta, b.Timestamp)
	}
	return strings.TrimSpace(s)
}

func dumpAborted(a record.AbortedTxn) string {
	return fmt.Sprintf("version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d", a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStableOffset)
}

// TestOpenKafkaDirectory opens what Kafka wrote, as it was left and with what is derived missing, and compares
// with what Kafka's own tool says.
func TestOpenKafkaDirectory(t *testing.T) {
	for _, c := range []struct {
		name  string
		clean bool
		skip  []string
	}{
		{"clean", true, nil},
		{"unclean", false, nil},
		{"unclean without anything derived", false, []string{".index", ".timeindex", ".txnindex", ".snapshot", epochFile}},
		{"clean without indexes", true, []string{".index", ".timeindex"}},
		{"clean without snapshots", true, []string{".snapshot"}},
		{"clean without epochs", true, []string{epochFile}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openTest(t, kafkaOptions(copyKafka(t, c.skip...), c.clean))
			checkKafkaLog(t, l)
			if err := l.Close(true); err != nil {
				t.Fatal(err)
			}
			l = openTest(t, kafkaOptions(l.fs, true))
			checkKafkaLog(t, l)
		})
	}
}

func checkKafkaLog(t *testing.T, l *Log) {
	t.Helper()
	if l.EndOffset() != kafkaEnd || l.LogStart() != 0 || l.TopicID().String() != "THClw_CLQxa1jHOI5xiGRA" {
		t.Errorf("start %d, end %d, topic %s", l.LogStart(), l.EndOffset(), l.TopicID())
	}
	if got, want := fmt.Sprint(l.Epochs(0, kafkaEnd)), "[{0 0} {2 508}]"; got != want {
		t.Errorf("epochs %s, want %s", got, want)
	}
	var got []string
	for _, e := range l.ActiveProducers() {
		got = append(got, dumpProducer(e))
	}
	if want := lines(t, "snapshot.txt"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("producers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	aborted, err := l.AbortedTxns(0, kafkaEnd)
	got = nil
	for _, a := range aborted {
		got = append(got, dumpAborted(a))
	}
	if want := lines(t, "txnindex.txt"); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("aborted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	records, codecs := 0, map[record.Codec]bool{}
	for _, b := range readAll(t, l, 0, 4000) {
		codecs[b.Codec()] = true
		if err := b.Each(1<<20, func(record.Record) (bool, error) { records++; return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if records != kafkaEnd || len(codecs) != 5 {
		t.Errorf("%d records, codecs %v", records, codecs)
	}
}

// TestFilesAreKafkas: what is built anew after a crash is what Kafka had written, byte for byte. Its indexes
// are compared up to its restart, after which it counts the bytes to the next entry anew.
func TestFilesAreKafkas(t *testing.T) {
	mem := copyKafka(t, ".index", ".timeindex", ".txnindex", ".snapshot", epochFile)
	l := openTest(t, kafkaOptions(mem, false))
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	for name, restart := range map[string]int{"00000000000000000000.index": 4 * 8, "00000000000000000000.timeindex": 3 * 12,
		"00000000000000000000.txnindex": 0, "00000000000000000000.log": 0, "00000000000000001015.snapshot": 0, epochFile: 0, partitionMetadataFile: 0} {
		want, err1 := os.ReadFile(path.Join(kafkaDir, "kt-0", name))
		got, err2 := vfs.ReadFile(mem, path.Join("data/kt-0", name))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if restart > 0 {
			got, want = got[:restart], want[:restart]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s\n%x, Kafka wrote\n%x", name, got, want)
		}
	}
}

func TestKafkaRetriesAreDuplicates(t *testing.T) {
	l := openTest(t, kafkaOptions(copyKafka(t), true))
	all := readAll(t, l, 0, 1<<20)
	last := all[len(all)-1] // producer 1002
	repeated := bytes.Clone(last)
	record.Batch(repeated).SetBaseOffset(0)
	a := &Append{Batch: repeated}
	l.SetConfig(Config{TimestampAfterMaxMs: -1})
	if err := l.AppendAsLeader([]*Append{a}, 2); err != nil || a.Err != nil {
		t.Fatal(err, a.Err)
	}
	if !a.Duplicate || a.BaseOffset != last.BaseOffset() || a.LastOffset != last.LastOffset() || l.EndOffset() != kafkaEnd {
		t.Errorf("%+v, the log ends at %d", a, l.EndOffset())
	}
}
