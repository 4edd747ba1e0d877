package replica_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/wire/record"
)

// txnBatch is one batch of a transactional producer.
func txnBatch(producer int64, sequence, first, n int) record.Batch {
	b := record.NewBuilder(record.Options{ProducerID: producer, BaseSequence: int32(sequence), Transactional: true})
	for i := first; i < first+n; i++ {
		b.Append(time.Now().UnixMilli(), nil, value(i, recordSize))
	}
	out, err := b.Build()
	if err != nil {
		panic(err)
	}
	return out
}

func (n *node) appendTxn(p *replica.Partition, records record.Batch, coordinator bool) int64 {
	n.t.Helper()
	done := make(chan *replica.Produce, 1)
	p.Append([]*replica.Produce{{Records: records, Acks: -1, Deadline: time.Now().Add(time.Minute), Version: 9, Transactional: true,
		Coordinator: coordinator, Done: func(x *replica.Produce) { done <- x }}})
	r := <-done
	if r.Err != nil {
		n.t.Fatal(r.Err)
	}
	return r.BaseOffset
}

// committed reads as a read_committed client does and returns the offsets it would show.
func (n *node) committed(p *replica.Partition, from, to int64) map[int64]bool {
	n.t.Helper()
	seen := map[int64]bool{}
	for offset, idle := from, 0; offset < to; {
		f := newFetch(time.Second, part(p, offset))
		f.Isolation = replica.ReadCommitted
		r := n.fetch(f)
		if err := r.Partitions[0].Err; err != nil {
			n.t.Fatalf("offset %d: %v", offset, err)
		}
		txns := r.Partitions[0].Aborted
		if txns == nil {
			n.t.Fatal("read_committed without a list of aborted transactions")
		}
		for i := 1; i < len(txns); i++ {
			if txns[i].FirstOffset < txns[i-1].FirstOffset {
				n.t.Errorf("not sorted (P37): %v", txns)
			}
		}
		before := offset
		aborted := map[int64]bool{}
		for b, err := range record.All(r.data[0]) {
			if err != nil {
				n.t.Fatal(err)
			}
			for len(txns) > 0 && txns[0].FirstOffset <= b.LastOffset() {
				aborted[txns[0].ProducerID] = true
				txns = txns[1:]
			}
			if b.IsControl() {
				if m, err := record.ParseMarker(b); err == nil && m.Type == record.Abort {
					delete(aborted, b.ProducerID())
				}
			} else if !aborted[b.ProducerID()] {
				for o := max(b.BaseOffset(), from); o <= b.LastOffset(); o++ {
					seen[o] = true
				}
			}
			offset = b.NextOffset()
		}
		if offset == before {
			if idle++; idle > 20 {
				n.t.Fatalf("no progress at %d", offset)
			}
		}
	}
	return seen
}

// K31, K32, P38: transactions longer than a segment, interleaved, half of them aborted: what a read_committed client sees is the same from
// the local log, from the store and across the seam, at every starting point.
func TestReadCommittedOverBothTiers(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered())
		rng := rand.New(rand.NewPCG(7, 7))
		type open struct {
			producer int64
			sequence int
			offsets  []int64
		}
		var txns []*open
		want := map[int64]bool{}
		next := int64(100)
		end := func(i int) {
			x := txns[i]
			kind := record.ControlType(rng.IntN(2))
			n.appendTxn(p, record.EndTxnMarker(record.Marker{Type: kind, ProducerID: x.producer, Timestamp: time.Now().UnixMilli()}), true)
			for _, o := range x.offsets {
				want[o] = kind == record.Commit
			}
			txns = append(txns[:i], txns[i+1:]...)
		}
		for range 150 {
			switch {
			case len(txns) < 3:
				txns = append(txns, &open{producer: next})
				next++
			case rng.IntN(12) == 0:
				end(rng.IntN(len(txns)))
				continue
			}
			x := txns[rng.IntN(len(txns))]
			base := n.appendTxn(p, txnBatch(x.producer, x.sequence, int(p.EndOffset()), 10), false)
			x.sequence += 10
			for o := base; o < base+10; o++ {
				x.offsets = append(x.offsets, o)
			}
		}
		// Open transactions hold the last stable offset, and with it the uploads (E).
		if stable := p.LastStableOffset(); stable >= p.HighWatermark() {
			t.Errorf("last stable offset %d, high watermark %d", stable, p.HighWatermark())
		}
		time.Sleep(10 * time.Second)
		if n.remoteEnd(p) > p.LastStableOffset() {
			t.Errorf("uploaded to %d, beyond the last stable offset %d", n.remoteEnd(p), p.LastStableOffset())
		}
		latest := n.list(p, replica.OffsetQuery{Timestamp: replica.LatestTimestamp, Isolation: replica.ReadCommitted, CurrentLeaderEpoch: -1})
		if latest.Offset != p.LastStableOffset() { // P29
			t.Errorf("latest of read_committed is %d", latest.Offset)
		}
		for len(txns) > 0 {
			end(0)
		}
		n.fill2(p, 100) // so that everything above is sealed
		stop := p.HighWatermark()
		check := func(where string) {
			t.Helper()
			for _, from := range []int64{0, 5, 137, stop / 2, stop - 150} {
				got := n.committed(p, from, stop)
				for o, visible := range want {
					if o >= from && got[o] != visible {
						t.Fatalf("%s, from %d: offset %d visible %v, want %v (local from %d)", where, from, o, got[o], visible, p.LocalStart())
					}
				}
			}
		}
		check("local")
		n.configure("t", tiered("local.retention.bytes", "200000"))
		n.eventually("half of it is only in the store", time.Minute, func() bool { return p.LocalStart() > 300 })
		check("seam")
		n.configure("t", tiered("local.retention.bytes", "1"))
		n.eventually("most is only in the store", time.Minute, func() bool { return p.LocalStart() > stop-150 })
		check("store")
		n.restart(true)
		p = n.partition("t")
		check("after a restart")
	})
}

// fill2 produces records whose values do not matter.
func (n *node) fill2(p *replica.Partition, count int) {
	n.t.Helper()
	for range count / 10 {
		n.produce(p, batch(0, 10, recordSize))
	}
}
