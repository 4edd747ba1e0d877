package replica_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire/record"
)

// faultSeeds is how many histories TestReplicationFaults plays of each kind.
const faultSeeds = 20

// history is what clients of one partition saw.
type history struct {
	t     *testing.T
	next  int              // number of the next record
	seen  map[int64]string // what a consumer read at an offset: it may never change
	sent  []sending
	acked int
}

type sending struct {
	first, count int
	done         chan *replica.Produce
}

// TestReplicationFaults plays random faults (lost connections, brokers that hear nothing of the metadata, fencing, kills, and
// for fsync topics power cuts) against one partition with three replicas, two of which acknowledge. What a consumer has seen at an offset
// never changes, what was acknowledged is there in the end, and all replicas end alike.
func TestReplicationFaults(t *testing.T) {
	config := map[string]string{"min.insync.replicas": "2", "internal.segment.bytes": "16384"}
	inTiers := map[string]string{"min.insync.replicas": "2", "internal.segment.bytes": "16384", "remote.storage.enable": "true", "local.retention.ms": "2000"}
	for _, kind := range []struct {
		name, durability string
		tier             bool
		config           map[string]string
	}{{"replicated", "replicated", false, config}, {"fsync", "fsync", false, config}, {"tiered", "fsync", true, inTiers}} {
		for seed := range uint64(faultSeeds) {
			t.Run(fmt.Sprint(kind.name, " ", seed), func(t *testing.T) {
				brokers(t, kind.tier, func(t *testing.T, c *cluster) {
					c.topic("t", kind.durability, kind.config, 1, 2, 3)
					playFaults(t, c, kind.durability, rand.New(rand.NewPCG(seed, 7)))
				})
			})
		}
	}
}

func playFaults(t *testing.T, c *cluster, durability string, rng *rand.Rand) {
	h := &history{t: t, seen: map[int64]string{}}
	for range 60 {
		id := 1 + rng.Int32N(3)
		b := c.members[id]
		switch rng.IntN(12) {
		case 0:
			c.disconnect(id, true)
		case 1, 2:
			c.disconnect(id, false)
		case 3:
			if b.m != nil {
				b.becomeDeaf()
			}
		case 4, 5:
			if b.m != nil && b.deaf {
				b.hear()
			}
		case 6:
			c.fence(id)
		case 7:
			if b.m != nil {
				b.kill(durability == "fsync" && rng.IntN(2) == 0)
				c.fence(id)
			}
		case 8, 9, 10:
			c.revive(id)
		}
		for id := range c.members {
			h.produce(c, id, rng)
		}
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		for id := range c.members {
			h.consume(c, id)
		}
	}
	for id := range c.members {
		c.disconnect(id, false)
		c.revive(id)
	}
	c.awaitISR("t", time.Minute, 1, 2, 3)
	h.final(c)
}

// revive has a broker run, hear and take part.
func (c *cluster) revive(id int32) {
	b := c.members[id]
	switch {
	case b.m == nil:
		b.deaf = false
		b.start()
		return
	case b.deaf:
		b.hear()
	}
	if !c.image().Broker(id).Active() {
		c.must(&metadata.UnfenceBroker{ID: id, Epoch: b.epoch})
	}
}

// produce sends to a broker that believes to lead.
func (h *history) produce(c *cluster, id int32, rng *rand.Rand) {
	b := c.members[id]
	if b.m == nil {
		return
	}
	p, err := b.m.PartitionByName("t", 0)
	if err != nil || !p.IsLeader() {
		return
	}
	n := 1 + rng.IntN(5)
	acks := int16(-1)
	if rng.IntN(4) == 0 {
		acks = 1
	}
	done := send(p, batch(h.next, n, recordSize), acks, 5*time.Second)
	if acks == -1 {
		h.sent = append(h.sent, sending{h.next, n, done})
	}
	h.next += n
}

// consume reads what a broker shows, as leader or follower.
func (h *history) consume(c *cluster, id int32) {
	b := c.members[id]
	if b.m == nil {
		return
	}
	p, err := b.m.PartitionByName("t", 0)
	if err != nil {
		return
	}
	for offset := int64(0); offset < p.HighWatermark(); {
		f := newFetch(time.Second, replica.FetchPartition{Partition: p, Offset: offset, MaxBytes: 1 << 20})
		r := <-b.fetchAsync(context.Background(), f)
		if r.Partitions[0].Err != nil || len(r.data[0]) == 0 {
			return
		}
		for bt, err := range record.All(r.data[0]) {
			if err == nil {
				err = bt.Each(1<<30, func(r record.Record) (bool, error) {
					value := string(r.Value[:bytes.IndexByte(r.Value, ':')])
					if old, ok := h.seen[r.Offset]; ok && old != value {
						return false, fmt.Errorf("offset %d held record %s, on broker %d it is %s", r.Offset, old, id, value)
					}
					h.seen[r.Offset] = value
					offset = r.Offset + 1
					return true, nil
				})
			}
			if err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// final checks the end: every acknowledged record is read at its offset, from every replica.
func (h *history) final(c *cluster) {
	c.fill("t", 1<<20, 10) // commits what the last leader found
	c.settled("t", 1, 2, 3)
	end := c.on(1, "t").EndOffset()
	for id := range c.members {
		h.seen = map[int64]string{}
		h.consume(c, id)
		if int64(len(h.seen)) != end {
			h.t.Fatalf("broker %d shows %d of %d offsets", id, len(h.seen), end)
		}
		h.acked = 0
		for _, s := range h.sent {
			h.check(s, id)
		}
	}
	if h.acked == 0 {
		h.t.Log("nothing was acknowledged in this history")
	}
}

func (h *history) check(s sending, id int32) {
	r := <-s.done
	s.done <- r
	if r.Err != nil {
		return
	}
	h.acked++
	for i := range s.count {
		if got := h.seen[r.BaseOffset+int64(i)]; got != fmt.Sprint(s.first+i) {
			h.t.Fatalf("record %d was acknowledged at %d, on broker %d there is %q", s.first+i, r.BaseOffset+int64(i), id, got)
		}
	}
}
