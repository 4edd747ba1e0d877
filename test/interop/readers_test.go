package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sealedValue is a value that proves itself: its offset, padding, and the
// SHA-256 of both.
func sealedValue(offset int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = append(b, bytes.Repeat(b[:8], 150)...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// TestReadersBesideAWriter: many consumers, each from an offset of its own, read
// one partition to its end while it is written, offloaded and dropped locally
// beneath them. Every record is the one that was written at its offset.
func TestReadersBesideAWriter(t *testing.T) {
	const (
		topic   = "readers"
		records = 20_000 // of 1.2 KiB: some 20 segments
		readers = 32
	)
	createTopic(t, topic, 1, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var (
		wg    sync.WaitGroup
		acked atomic.Int64
		start = make(chan struct{}) // closed once half is written
	)
	wg.Go(func() {
		var once sync.Once
		defer once.Do(func() { close(start) })
		c, err := kgo.NewClient(kgo.SeedBrokers(target.addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(64<<10),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		const group = 100
		for i := int64(0); i < records; i += group {
			var out []*kgo.Record
			for j := range int64(group) {
				out = append(out, &kgo.Record{Value: sealedValue(i + j)})
			}
			if err := c.ProduceSync(ctx, out...).FirstErr(); err != nil {
				t.Errorf("produce at %d: %v", i, err)
				cancel()
				return
			}
			acked.Store(i + group)
			if i > records/2 {
				once.Do(func() { close(start) })
				time.Sleep(20 * time.Millisecond) // let the readers and the tier keep up
			}
		}
	})
	<-start
	for r := range int64(readers) {
		wg.Go(func() {
			if err := readSealed(ctx, topic, r*records/2/readers, records); err != nil {
				t.Errorf("reader %d: %v", r, err)
			}
		})
	}
	wg.Wait()
	if acked.Load() != records {
		t.Fatalf("%d of %d records acknowledged", acked.Load(), records)
	}
	awaitTiers(t, topic, 1)
	if err := readSealed(ctx, topic, 0, records); err != nil {
		t.Fatalf("once more, from both tiers: %v", err)
	}
}

// readSealed reads from an offset to the end and checks every record.
func readSealed(ctx context.Context, topic string, from, end int64) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(target.addr), kgo.FetchMaxPartitionBytes(256<<10),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))
	if err != nil {
		return err
	}
	defer c.Close()
	for next := from; next < end; {
		f := c.PollFetches(ctx)
		for _, e := range f.Errors() {
			return fmt.Errorf("at %d: %w", next, e.Err)
		}
		var wrong error
		f.EachRecord(func(r *kgo.Record) {
			if wrong == nil && (r.Offset != next || !bytes.Equal(r.Value, sealedValue(r.Offset))) {
				wrong = fmt.Errorf("offset %d where %d was expected, or not the bytes that were written", r.Offset, next)
			}
			next++
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}
