package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// diskLog opens a log on the file system below the test's temporary folder.
func diskLog(b *testing.B, config Config) *Log {
	b.Helper()
	o := testOptions(vfs.OS(), config)
	o.Dir = filepath.Join(b.TempDir(), "orders-3")
	l := openTest(b, o)
	b.Cleanup(func() { l.Close(false) })
	return l
}

// kilobytes makes a batch of 1 KiB records with about size bytes.
func kilobytes(tb testing.TB, size int, o record.Options) record.Batch {
	tb.Helper()
	b := record.NewBuilder(o)
	value := make([]byte, 1000)
	for b.Append(now(), []byte("key"), value); b.Len() < size-1000; {
		b.Append(now(), []byte("key"), value)
	}
	batch, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return batch
}

// BenchmarkAppend writes groups of batches into the page cache, validation included.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		for _, count := range []int{1, 16} {
			if size == 1<<20 && count > 1 {
				continue
			}
			for _, idempotent := range []bool{false, true} {
				b.Run(fmt.Sprintf("%dKiB/x%d/idempotent=%v", size>>10, count, idempotent), func(b *testing.B) {
					l := diskLog(b, Config{SegmentBytes: 1 << 30, MaxMessageBytes: 2 << 20})
					benchmarkAppend(b, l, size, count, idempotent)
				})
			}
		}
	}
}

func benchmarkAppend(b *testing.B, l *Log, size, count int, idempotent bool) {
	o := record.Options{}
	if idempotent {
		o.ProducerID = 7
	}
	batch := kilobytes(b, size, o)
	items := make([]*Append, count)
	for i := range items {
		items[i] = &Append{Batch: append(record.Batch(nil), batch...)}
	}
	sequence := int32(0)
	b.SetBytes(int64(count * len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		for _, a := range items {
			a.Batch.SetBaseOffset(0)
			if idempotent {
				setSequence(a.Batch, sequence) // the producer's own checksum is in the figure
				sequence = record.AddSequence(sequence, batch.Count())
			}
		}
		if err := l.AppendAsLeader(items, 0); err != nil {
			b.Fatal(err)
		}
		for _, a := range items {
			if a.Err != nil {
				b.Fatal(a.Err)
			}
		}
		if l.EndOffset() > 1<<40 || l.Size() > 2<<30 {
			b.StopTimer()
			if _, err := l.DeleteLocalBefore(l.EndOffset(), "benchmark"); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}

// BenchmarkBareWrite is the limit that BenchmarkAppend is compared with: the same bytes through the same system call.
func BenchmarkBareWrite(b *testing.B) {
	for _, c := range []struct{ size, count int }{{1 << 10, 16}, {16 << 10, 1}, {16 << 10, 16}, {1 << 20, 1}} {
		b.Run(fmt.Sprintf("%dKiB/x%d", c.size>>10, c.count), func(b *testing.B) {
			name := filepath.Join(b.TempDir(), "file")
			batch := kilobytes(b, c.size, record.Options{})
			bufs := make([][]byte, c.count)
			for i := range bufs {
				bufs[i] = append([]byte(nil), batch...)
			}
			total := int64(c.count * len(batch))
			b.SetBytes(total)
			file, pos := vfs.File(nil), int64(1<<30)
			for b.Loop() {
				if pos+total > 1<<30 { // a new file, as a new segment
					if file != nil {
						file.Close()
						_ = vfs.OS().Remove(name)
					}
					var err error
					if file, err = vfs.OS().Create(name); err != nil {
						b.Fatal(err)
					}
					pos = 0
				}
				n, err := file.WritevAt(bufs, pos)
				if err != nil {
					b.Fatal(err)
				}
				pos += n
			}
			file.Close()
		})
	}
}

// setSequence gives a batch another sequence number, as a producer would.
func setSequence(b record.Batch, sequence int32) {
	binary.BigEndian.PutUint32(b[53:], uint32(sequence))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
}

// BenchmarkRead finds 64 KiB at random offsets of a sealed segment, and at the tail.
func BenchmarkRead(b *testing.B) {
	l := diskLog(b, Config{SegmentBytes: 1 << 30, MaxMessageBytes: 2 << 20})
	batch := kilobytes(b, 16<<10, record.Options{})
	for l.Size() < 256<<20 {
		batch.SetBaseOffset(0)
		mustAppend(b, l, 0, batch)
	}
	read := func(b *testing.B, offset func() int64) {
		b.ReportAllocs()
		for b.Loop() {
			r, err := l.Read(offset(), 64<<10, l.EndOffset(), true)
			if err != nil || r.Range.Size == 0 {
				b.Fatal(err)
			}
			r.Range.Release()
		}
	}
	end := l.EndOffset()
	anywhere := func() int64 { return rand.Int64N(end) }
	b.Run("tail", func(b *testing.B) { read(b, func() int64 { return end - 16 }) })
	b.Run("active", func(b *testing.B) { read(b, anywhere) })
	if err := l.Roll(); err != nil {
		b.Fatal(err)
	}
	b.Run("sealed", func(b *testing.B) { read(b, anywhere) })
	b.Run("index", func(b *testing.B) {
		s := l.segments[0]
		for b.Loop() {
			if _, err := l.floor(s, rand.Int64N(end), false); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSync is one fdatasync a batch.
func BenchmarkSync(b *testing.B) {
	l := diskLog(b, Config{})
	batch := kilobytes(b, 4<<10, record.Options{})
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		batch.SetBaseOffset(0)
		mustAppend(b, l, 0, batch)
		if _, err := l.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
