package tier

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

func TestReadBack(t *testing.T) {
	for name, c := range map[string]struct {
		records, value, maxBytes int
		sizes                    []int
	}{
		"small batches":                     {1, 50, 64 << 10, []int{300 << 10, 3 << 20, 100}},
		"one at a time":                     {1, 3000, 1, []int{200 << 10, 90 << 10}},
		"batches of 100 KiB":                {100, 2000, 1 << 20, []int{3 << 20, 5 << 20, 1 << 20}},
		"larger than chunks":                {1, 5 << 20, 1 << 20, []int{8 << 20, 9 << 20}},
		"larger than chunks, small fetches": {1, 5 << 20, 100, []int{8 << 20, 9 << 20}},
		"small objects":                     {10, 100, 1 << 20, []int{1000, 50_000, 1000, 100, 200_000}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			w := r.fill("orders", c.records, c.value, c.sizes...)
			same(t, r.readAll(w, 0, c.maxBytes), w.data)
			r.balanced()
		})
	}
}

// TestReadAnywhere asks for every offset, with sizes around those of batches.
func TestReadAnywhere(t *testing.T) {
	r := newRig(t)
	w := r.fill("orders", 7, 3000, 600<<10, 1200<<10)
	pos := 0
	for _, b := range w.batches {
		for offset := b.BaseOffset(); offset <= b.LastOffset(); offset += 3 {
			for _, maxBytes := range []int{0, 1, len(b) - 1, len(b), len(b) + 1, 3 * len(b), 100 << 10} {
				for _, minOne := range []bool{true, false} {
					res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: offset, MaxBytes: maxBytes, EndOffset: w.end(), MinOneBatch: minOne})
					if res.Err != nil {
						t.Fatal(res.Err)
					}
					got := bytesOfRanges(t, res.Ranges)
					if len(got) == 0 {
						if minOne || maxBytes >= len(b) {
							t.Fatalf("offset %d, %d bytes: nothing", offset, maxBytes)
						}
						continue
					}
					if len(got) > max(maxBytes, len(b)) || len(got) > maxBytes && !minOne {
						t.Fatalf("offset %d: %d bytes for a request of %d", offset, len(got), maxBytes)
					}
					same(t, got, w.data[pos:pos+len(got)])
					checkWhole(t, got, b.BaseOffset(), res.NextOffset)
				}
			}
		}
		pos += len(b)
	}
	r.balanced()
}

// checkWhole: only whole batches, from base up to next.
func checkWhole(t *testing.T, p []byte, base, next int64) {
	t.Helper()
	at := base
	for b, err := range record.All(p) {
		if err != nil || b.BaseOffset() != at {
			t.Fatalf("batch at %d, want %d: %v", b.BaseOffset(), at, err)
		}
		at = b.NextOffset()
	}
	if at != next {
		t.Fatalf("batches end at %d, the result says %d", at, next)
	}
}

func TestReadEndOffset(t *testing.T) {
	r := newRig(t)
	w := r.fill("orders", 3, 1000, 500<<10)
	for _, i := range []int{0, 1, 5, len(w.batches) - 1} {
		end := w.batches[i].NextOffset()
		for _, end := range []int64{end - 1, end, end + 1} {
			res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: 0, MaxBytes: 1 << 20, EndOffset: end, MinOneBatch: true})
			if res.Err != nil || res.NextOffset > end {
				t.Fatalf("bound %d: goes on at %d, %v", end, res.NextOffset, res.Err)
			}
			checkWhole(t, bytesOfRanges(t, res.Ranges), 0, res.NextOffset)
		}
	}
	r.balanced()
}

func TestReadRefuses(t *testing.T) {
	r := newRig(t)
	w := r.fill("orders", 3, 1000, 50<<10, 50<<10)
	r.ctl.advance(t, w.id, 10)
	for name, c := range map[string]struct {
		req  ReadRequest
		want error
	}{
		"below log start": {ReadRequest{TopicID: w.id, Offset: 9}, kerr.OffsetOutOfRange},
		"negative":        {ReadRequest{TopicID: w.id, Offset: -1}, kerr.OffsetOutOfRange},
		"beyond the end":  {ReadRequest{TopicID: w.id, Offset: w.end()}, ErrNotTiered},
		"unknown topic":   {ReadRequest{TopicID: wire.UUID{9}}, kerr.UnknownTopicOrPartition},
		"no partition":    {ReadRequest{TopicID: w.id, Partition: 1}, kerr.UnknownTopicOrPartition},
	} {
		c.req.MaxBytes, c.req.EndOffset = 100, 1<<40
		if res := r.get(context.Background(), c.req); !errors.Is(res.Err, c.want) || len(res.Ranges) > 0 || res.NextOffset != c.req.Offset {
			t.Errorf("%s: %+v", name, res)
		}
	}
}
