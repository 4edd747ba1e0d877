package log

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"testing"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// TestFormats pins the bytes of every file, beside those that Kafka wrote.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"offset index", offsetShape.append(nil, entry{0x01020304, 0x05060708}), "0102030405060708"},
		{"time index", timeShape.append(nil, entry{0x0102030405060708, 0x090a0b0c}), "0102030405060708090a0b0c"},
		{"transaction index", encodeTxnIndex([]record.AbortedTxn{{ProducerID: 1, FirstOffset: 2, LastOffset: 3, LastStableOffset: 4}}),
			"00000000000000000001000000000000000200000000000000030000000000000004"},
		{"snapshot", encodeSnapshot([]record.ProducerEntry{{ProducerID: 1, ProducerEpoch: 2, CoordinatorEpoch: 7, LastTimestamp: 6, CurrentTxnFirstOffset: -1,
			Batches: []record.ProducerBatch{{LastSequence: 9}, {LastSequence: 3, LastOffset: 4, OffsetDelta: 5, Timestamp: 6}}}}),
			"0001" + "c5f361a0" + "00000001" + "0000000000000001" + "0002" + "00000003" + "0000000000000004" + "00000005" + "0000000000000006" + "00000007" + "ffffffffffffffff"},
		{"snapshot without producers", encodeSnapshot(nil), "0001" + "48674bc7" + "00000000"},
		{"epochs", encodeEpochs([]record.EpochStart{{Epoch: 1, StartOffset: 0}, {Epoch: 5, StartOffset: 77}}), fmt.Sprintf("%x", "0\n2\n1 0\n5 77\n")},
		{"offsets", encodeOffsets(map[TopicPartition]int64{{"b", 1}: 5, {"a", 10}: 6, {"a", 2}: 7}), fmt.Sprintf("%x", "0\n3\na 2 7\na 10 6\nb 1 5\n")},
		{"partition metadata", encodePartitionMetadata(wire.UUID{15: 9}), fmt.Sprintf("%x", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ")},
		{"meta properties", encodeMetaProperties(MetaProperties{ClusterID: "c", NodeID: 3, DirectoryID: wire.UUID{15: 9}}),
			fmt.Sprintf("%x", "cluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAACQ\nnode.id=3\nvarve.version=1\nversion=1\n")},
	} {
		if got := fmt.Sprintf("%x", c.got); got != c.want {
			t.Errorf("%s\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

func TestPartitionDirNames(t *testing.T) {
	for name, want := range map[string]string{
		"orders-3": "orders-3", "a-b-c-0": "a-b-c-0", "orders": "", "-3": "", "orders-": "", "orders-x": "", "orders-03": "",
		"orders-3.b1-delete": "", "orders--1": "orders--1", "orders-99999999999": "",
	} {
		tp, ok := ParsePartitionDir(name)
		if ok != (want != "") || ok && tp.String() != want {
			t.Errorf("%s: %v %v", name, tp, ok)
		}
	}
}

// seed adds the files of testdata/kafka with a suffix to a corpus.
func seed(f *testing.F, names ...string) {
	f.Helper()
	for _, name := range names {
		data, err := os.ReadFile(path.Join(kafkaDir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func FuzzIndex(f *testing.F) {
	seed(f, "kt-0/00000000000000000000.index", "kt-0/00000000000000000000.timeindex")
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, s := range []shape{offsetShape, timeShape} {
			if s.check(p, 0, 1<<30) != nil {
				continue
			}
			x := newSealedIndex(s, p, nil)
			var again []byte
			for i := 0; i < len(p); i += s.width {
				e := s.decode(p[i:])
				again = s.append(again, e)
				for byPos, target := range map[bool]int64{false: e.key, true: int64(e.val)} {
					if s.width == timeShape.width && byPos {
						continue // vals may repeat
					}
					if found, ok, err := x.floor(target, byPos); err != nil || !ok || found != e {
						t.Fatalf("floor of %d is %+v %v %v, want %+v", target, found, ok, err, e)
					}
				}
			}
			if !bytes.Equal(again, p) {
				t.Fatalf("%x became %x", p, again)
			}
		}
	})
}

func FuzzTxnIndex(f *testing.F) {
	seed(f, "kt-0/00000000000000000000.txnindex")
	f.Fuzz(func(t *testing.T, p []byte) {
		if entries, err := decodeTxnIndex(p, 0, kafkaEnd); err == nil && !bytes.Equal(encodeTxnIndex(entries), p) {
			t.Fatalf("%x became %x", p, encodeTxnIndex(entries))
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	seed(f, "kt-0/00000000000000000508.snapshot", "kt-0/00000000000000001015.snapshot")
	f.Fuzz(func(t *testing.T, p []byte) {
		entries, err := decodeSnapshot(p, kafkaEnd)
		if err != nil {
			return
		}
		again, err := decodeSnapshot(encodeSnapshot(entries), kafkaEnd)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(entries) {
			t.Fatalf("%+v became %+v, %v", entries, again, err)
		}
	})
}

func FuzzCheckpoints(f *testing.F) {
	seed(f, "kt-0/leader-epoch-checkpoint", "kt-0/partition.metadata", "meta.properties")
	f.Add([]byte("0\n2\norders 0 5\norders 1 6\n"))
	f.Add(encodeMetaProperties(MetaProperties{ClusterID: "c", NodeID: 3, DirectoryID: wire.UUID{15: 9}}))
	f.Fuzz(func(t *testing.T, p []byte) {
		if entries, err := decodeEpochs(p); err == nil {
			if again, err := decodeEpochs(encodeEpochs(entries)); err != nil || fmt.Sprint(again) != fmt.Sprint(entries) {
				t.Fatalf("epochs %v became %v, %v", entries, again, err)
			}
		}
		if offsets, err := decodeOffsets(p); err == nil {
			if again, err := decodeOffsets(encodeOffsets(offsets)); err != nil || fmt.Sprint(again) != fmt.Sprint(offsets) {
				t.Fatalf("offsets %v became %v, %v", offsets, again, err)
			}
		}
		if id, err := decodePartitionMetadata(p); err == nil {
			if again, err := decodePartitionMetadata(encodePartitionMetadata(id)); err != nil || again != id {
				t.Fatalf("topic id %s became %s, %v", id, again, err)
			}
		}
		if m, err := decodeMetaProperties(p); err == nil && !m.Kafka {
			if again, err := decodeMetaProperties(encodeMetaProperties(m)); err != nil || again != m {
				t.Fatalf("properties %+v became %+v, %v", m, again, err)
			}
		}
	})
}

// FuzzRecovery opens a partition directory with arbitrary bytes in its segment and indexes, after a crash of
// either kind and after a clean end. Whatever is opened can be read to its end, takes appends, and is the same
// after closing.
func FuzzRecovery(f *testing.F) {
	read := func(name string) []byte {
		data, err := os.ReadFile(path.Join(kafkaDir, "kt-0", name))
		if err != nil {
			f.Fatal(err)
		}
		return data
	}
	log, index, times := read("00000000000000000000.log")[:6000], read("00000000000000000000.index"), read("00000000000000000000.timeindex")
	for mode := range byte(8) {
		f.Add(log, index, times, mode)
		f.Add(log[:5000], []byte{}, []byte{}, mode)
	}
	f.Fuzz(func(t *testing.T, log, index, times []byte, mode byte) {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("data/orders-3"); err != nil {
			t.Fatal(err)
		}
		for suffix, data := range map[string][]byte{logSuffix: log, offsetSuffix: index, timeSuffix: times} {
			if err := vfs.WriteFileAtomic(mem, path.Join("data/orders-3", fileName(0, suffix)), data); err != nil {
				t.Fatal(err)
			}
		}
		o := testOptions(mem, Config{TimestampAfterMaxMs: -1})
		o.Clean, o.PageCacheSurvived, o.AcceptDamage = mode&1 > 0, mode&2 > 0, mode&4 > 0
		l, err := Open(o)
		if err != nil {
			return
		}
		// After a clean end the batches are not read at start, so what is wrong with them shows when they are.
		count, err := readLeniently(l)
		if err != nil {
			if !o.Clean {
				t.Fatal(err)
			}
			return
		}
		if _, _, err := l.OffsetForTime(0, l.EndOffset()); err != nil && !o.Clean {
			t.Logf("time lookup: %v", err) // records of a batch with a right CRC may still be rubbish
		}
		if l.Damage() != nil {
			return
		}
		mustAppend(t, l, l.LastEpoch()+1, plain(t, now(), 2))
		if err := l.Close(true); err != nil {
			t.Fatal(err)
		}
		o.Clean, o.RecoveryPoint = true, l.EndOffset()
		if l, err = Open(o); err != nil {
			t.Fatal(err)
		}
		if again, err := readLeniently(l); err != nil || again != count+1 {
			t.Fatalf("%d batches, then %d: %v", count, again, err)
		}
	})
}

// readLeniently reads the whole log and returns how many batches it has, or that one is bad.
func readLeniently(l *Log) (n int, err error) {
	for at := l.LocalStart(); at < l.EndOffset(); {
		r, err := l.Read(at, 1<<20, l.EndOffset(), true)
		if err != nil {
			return n, err
		}
		if r.NextOffset <= at {
			return n, fmt.Errorf("no progress at %d: %+v", at, r)
		}
		p := make([]byte, r.Range.Size)
		if len(p) > 0 {
			if _, err := r.Range.ReaderAt.ReadAt(p, r.Range.Off); err != nil {
				return n, err
			}
			r.Range.Release()
		}
		for b, err := range record.All(p) {
			if err == nil {
				err = b.VerifyCRC()
			}
			if err != nil {
				return n, err
			}
			n++
		}
		at = r.NextOffset
	}
	return n, nil
}
