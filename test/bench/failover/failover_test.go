package main

import (
	"testing"
	"time"

	"github.com/varve-io/varve/wire/record"
)

func TestQuantile(t *testing.T) {
	var sorted []float64
	for i := range 30 {
		sorted = append(sorted, float64(i+1))
	}
	for percent, want := range map[int]float64{50: 15, 99: 30, 100: 30} {
		if got := quantile(sorted, percent); got != want {
			t.Errorf("p%d of 1 to 30: %v, want %v", percent, got, want)
		}
	}
}

// TestBatch: what the lean client writes is one whole batch of one record.
func TestBatch(t *testing.T) {
	b, rest, err := record.Next(batch)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%v, %d bytes behind it", err, len(rest))
	}
	if err := b.VerifyCRC(); err != nil {
		t.Error(err)
	}
	count := 0
	err = b.Each(1<<20, func(r record.Record) (bool, error) {
		count++
		if len(r.Value) != len(value) {
			t.Errorf("a value of %d bytes", len(r.Value))
		}
		return true, nil
	})
	if err != nil || count != 1 {
		t.Errorf("%d records, %v", count, err)
	}
}

// TestNote: a fault takes nothing that was noted of the one before.
func TestNote(t *testing.T) {
	w := newWatch(2)
	w.acked[1] <- time.Now()
	w.after(time.Now())
	if len(w.acked[1]) != 0 {
		t.Error("an acknowledgement of the last fault is left")
	}
}
