package log

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// TestReadersAgainstEverything: readers at random offsets while the log is appended to, rolled, truncated, cut
// at the start and synced. Every batch that they get must be one that was appended at its offset, whole and
// unchanged for as long as they hold it.
func TestReadersAgainstEverything(t *testing.T) {
	o := testOptions(vfs.OS(), Config{SegmentBytes: 20_000, IndexIntervalBytes: 500})
	o.Dir = filepath.Join(t.TempDir(), "orders-3")
	l := openTest(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	var group sync.WaitGroup
	var reads atomic.Int64
	for seed := range uint64(4) {
		group.Go(func() { readRandomly(ctx, t, l, seed, &reads) })
	}
	group.Go(func() {
		for ctx.Err() == nil {
			if _, err := l.Sync(); err != nil {
				t.Error(err)
			}
		}
	})
	writeRandomly(ctx, t, l)
	group.Wait()
	if reads.Load() < 100 {
		t.Errorf("%d reads only", reads.Load())
	}
	if err := l.Close(true); err != nil {
		t.Error(err)
	}
	if n := len(l.retired); n > 0 {
		t.Logf("%d retired segments were left to Close", n)
	}
}

// writeRandomly appends batches whose records say which offset and which generation they are of; a truncation
// begins a new generation, told by the leader epoch.
func writeRandomly(ctx context.Context, t *testing.T, l *Log) {
	rng := rand.New(rand.NewPCG(1, 1))
	epoch := int32(0)
	for ctx.Err() == nil {
		var err error
		switch at := rng.IntN(100); {
		case at < 90:
			for range 4 {
				mustAppend(t, l, epoch, stamped(t, l.EndOffset(), 1+rng.IntN(5)))
			}
			l.SetHighWatermark(l.EndOffset())
		case at < 94:
			epoch++
			if end := l.EndOffset(); end > l.LocalStart() {
				err = l.Truncate(max(l.LocalStart(), end-rng.Int64N(200)))
			}
		case at < 97:
			_, err = l.DeleteLocalBefore(l.EndOffset()-rng.Int64N(400), "test")
		case at < 98:
			err = l.SetLogStart(max(l.LogStart(), l.EndOffset()-500))
		default:
			err = l.MaybeRoll(time.Now())
			l.ExpireProducers(time.Now())
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// stamped makes a batch whose records hold their offset.
func stamped(t testing.TB, offset int64, n int) record.Batch {
	b := record.NewBuilder(record.Options{})
	for i := range n {
		b.Append(now(), nil, []byte{byte((offset + int64(i)) >> 8), byte(offset + int64(i))})
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func readRandomly(ctx context.Context, t *testing.T, l *Log, seed uint64, reads *atomic.Int64) {
	rng := rand.New(rand.NewPCG(2, seed))
	for ctx.Err() == nil {
		start, end := l.LocalStart(), l.EndOffset()
		offset := start + rng.Int64N(max(1, end-start))
		for range 1 + rng.IntN(5) {
			r, err := l.Read(offset, 1+rng.IntN(30_000), l.EndOffset(), true)
			if errors.Is(err, ErrOffsetOutOfRange) {
				break
			}
			if err != nil {
				t.Errorf("read at %d: %v", offset, err)
				return
			}
			if r.Range.Size == 0 {
				break
			}
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
			}
			if err := checkStamped(r, offset); err != nil {
				t.Errorf("read at %d: %v", offset, err)
				return
			}
			reads.Add(1)
			offset = r.NextOffset
		}
		if rng.IntN(50) == 0 {
			if _, _, err := l.OffsetForTime(now()-rng.Int64N(500), l.EndOffset()); err != nil {
				t.Error(err)
			}
			if s, ok, err := l.Sealed(offset); err != nil {
				t.Error(err)
			} else if ok {
				s.Release()
			}
			l.Segments()
			l.ActiveProducers()
		}
	}
}

func checkStamped(r Read, offset int64) error {
	p := make([]byte, r.Range.Size)
	if _, err := r.Range.ReaderAt.ReadAt(p, r.Range.Off); err != nil && err != io.EOF {
		return err
	}
	r.Range.Release()
	next := r.FirstOffset
	for b, err := range record.All(p) {
		if err != nil {
			return err
		}
		if err := b.VerifyCRC(); err != nil {
			return err
		}
		if b.BaseOffset() != next || next == r.FirstOffset && b.LastOffset() < offset {
			return errors.New("not the batch that follows")
		}
		err := b.Each(1<<20, func(r record.Record) (bool, error) {
			if r.Value[0] != byte(r.Offset>>8) || r.Value[1] != byte(r.Offset) {
				return false, errors.New("a record of another offset")
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		next = b.NextOffset()
	}
	if next != r.NextOffset {
		return errors.New("ends elsewhere than it says")
	}
	return nil
}

// TestSyncIsShared: many that wait cost few syncs.
func TestSyncIsShared(t *testing.T) {
	mem := vfs.NewMem()
	var syncs atomic.Int64
	fsys := vfs.NewFault(mem, vfs.InjectorFunc(func(op vfs.Op) vfs.Outcome {
		if op.Kind == vfs.OpSync {
			syncs.Add(1)
			time.Sleep(time.Millisecond)
		}
		return vfs.Outcome{}
	}))
	l := openTest(t, testOptions(fsys, Config{}))
	var group sync.WaitGroup
	before := syncs.Load()
	for range 50 {
		group.Go(func() {
			for range 4 {
				offset := mustAppend(t, l, 0, plain(t, now(), 1))
				if end, err := l.Sync(); err != nil || end <= offset {
					t.Errorf("synced up to %d, appended %d: %v", end, offset, err)
				}
			}
		})
	}
	group.Wait()
	if n := syncs.Load() - before; n > 60 {
		t.Errorf("%d syncs for 200 appends of 50 at a time", n)
	}
}
