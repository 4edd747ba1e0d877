package replica_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/controller/metadata"
)

// TestReplication: what a leader acknowledges with acks=all is on every replica, and soon each knows how much is committed.
func TestReplication(t *testing.T) {
	for _, durability := range []string{"replicated", "fsync"} {
		t.Run(durability, func(t *testing.T) {
			brokers(t, false, func(t *testing.T, c *cluster) {
				c.topic("t", durability, nil, 1, 2, 3)
				start := time.Now()
				c.fill("t", 0, 200)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("20 batches took %v", took)
				}
				for _, id := range []int32{2, 3} {
					if end := c.on(id, "t").EndOffset(); end != 200 {
						t.Errorf("broker %d ends at %d", id, end)
					}
				}
				c.settled("t", 2, 3)
				for id, b := range c.members {
					b.consume(c.on(id, "t"), 0, 200)
				}
			})
		})
	}
}

// TestFailover: a leader dies, another member of the ISR takes over with all that was acknowledged, and the first comes back, drops what
// nobody else has, and rejoins.
func TestFailover(t *testing.T) {
	for _, durability := range []string{"replicated", "fsync"} {
		t.Run(durability, func(t *testing.T) {
			brokers(t, false, func(t *testing.T, c *cluster) {
				c.topic("t", durability, map[string]string{"min.insync.replicas": "2"}, 1, 2, 3)
				c.fill("t", 0, 100)
				c.disconnect(1, true)
				b := c.members[1]
				lost := send(c.on(1, "t"), batch(100, 10, recordSize), -1, 2*time.Second) // nobody fetches it
				if r := <-lost; !errors.Is(r.Err, kerr.RequestTimedOut) {
					t.Fatalf("acknowledged without replicas: %v", r.Err)
				}
				b.kill(false)
				c.fence(1)
				if leader := c.row("t").Leader; leader != 2 {
					t.Fatalf("leader %d", leader)
				}
				c.fill("t", 100, 50)
				c.disconnect(1, false)
				b.start()
				c.awaitISR("t", lagTime, 1, 2, 3)
				c.settled("t", 1, 3)
				for id, b := range c.members {
					b.consume(c.on(id, "t"), 0, 150)
				}
			})
		})
	}
}

// TestEmptyEpochs: leaders that come and go without a record leave epochs at the end of their logs that no other has (KAFKA-8306);
// replication goes on all the same.
func TestEmptyEpochs(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", nil, 1, 2, 3)
		c.fill("t", 0, 30)
		for _, id := range []int32{1, 2, 3, 1, 2, 3} {
			b := c.members[id]
			c.disconnect(id, true) // nobody learns the epoch that begins
			c.fence(c.row("t").Leader)
			b.stop(true)
			c.disconnect(id, false)
			b.start()
			time.Sleep(time.Second)
			for _, other := range []int32{1, 2, 3} {
				if !c.image().Broker(other).Active() {
					c.must(&metadata.UnfenceBroker{ID: other, Epoch: c.members[other].epoch})
				}
			}
			c.awaitISR("t", 3*lagTime, 1, 2, 3)
		}
		c.fill("t", 30, 30)
		c.settled("t", 1, 2, 3)
	})
}

// TestFastFailovers is KIP-279's case: records of two leaders that were never committed, in epochs that follow each other, on
// different replicas; each must find where its log left the others'.
func TestFastFailovers(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", map[string]string{"min.insync.replicas": "2"}, 1, 2, 3)
		c.fill("t", 0, 20)
		c.settled("t", 2, 3)
		// Epoch by epoch another leader writes alone; then the one before it comes back.
		for round := range 4 {
			id := c.row("t").Leader
			b := c.members[id]
			c.disconnect(id, true)
			<-send(c.on(id, "t"), batch(1000+round*10, 3+round, recordSize), 1, time.Second)
			b.stop(true)
			c.fence(id)
			c.fill("t", 20+10*round, 10)
			c.disconnect(id, false)
			b.start()
			c.awaitISR("t", lagTime, 1, 2, 3)
		}
		c.settled("t", 1, 2, 3)
		for id, b := range c.members {
			b.consume(c.on(id, "t"), 0, 60)
		}
	})
}

// TestHighWatermarkAtTheFollower is KIP-101's first case: a follower that restarts with a high watermark that is behind must not throw
// away what is committed, should its leader die at that moment.
func TestHighWatermarkAtTheFollower(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", nil, 1, 2)
		c.fill("t", 0, 50)
		c.members[2].kill(false) // before it noted the high watermark anywhere
		c.members[1].stop(true)
		c.fence(2)
		c.must(&metadata.FenceBroker{ID: 1, Epoch: c.members[1].epoch})
		c.members[1].start()
		c.members[2].start()
		c.fill("t", 50, 10)
		for id := int32(1); id <= 2; id++ {
			c.members[id].consume(c.on(id, "t"), 0, 60)
		}
	})
}

// TestISR: who does not fetch leaves, who has caught up comes back, and the high watermark waits for members only.
func TestISR(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", map[string]string{"min.insync.replicas": "2"}, 1, 2, 3)
		c.fill("t", 0, 10)
		c.settled("t", 2, 3)
		c.disconnect(3, true)
		_, p := c.leader("t")
		slow := send(p, batch(10, 10, recordSize), -1, time.Minute)
		time.Sleep(time.Second)
		if len(slow) > 0 || p.HighWatermark() != 10 {
			t.Fatalf("high watermark %d while a member has not the record", p.HighWatermark())
		}
		c.awaitISR("t", 2*lagTime, 1, 2)
		if r := <-slow; r.Err != nil {
			t.Error(r.Err)
		}
		c.fill("t", 20, 10)
		c.disconnect(2, true)
		alone := send(p, batch(30, 10, recordSize), -1, time.Minute)
		c.awaitISR("t", 2*lagTime, 1)
		time.Sleep(time.Second)
		// Fewer than min.insync.replicas: nothing more is committed, nothing is taken that asks for it, and the rest waits.
		if p.HighWatermark() != 30 || len(alone) > 0 {
			t.Errorf("high watermark %d with one in sync", p.HighWatermark())
		}
		if r := <-send(p, batch(40, 10, recordSize), -1, time.Minute); !errors.Is(r.Err, kerr.NotEnoughReplicas) {
			t.Errorf("acks=all with one in sync: %v", r.Err)
		}
		if r := <-send(p, batch(40, 10, recordSize), 1, time.Minute); r.Err != nil {
			t.Errorf("acks=1 with one in sync: %v", r.Err)
		}
		c.disconnect(2, false)
		c.awaitISR("t", lagTime, 1, 2)
		if r := <-alone; r.Err != nil {
			t.Error(r.Err)
		}
		c.disconnect(3, false)
		c.awaitISR("t", lagTime, 1, 2, 3)
		c.settled("t", 2, 3)
	})
}

// TestUnknownProposal: a proposal that nobody answers may have been accepted. Until the image tells, both ISRs count.
func TestUnknownProposal(t *testing.T) {
	for _, want := range []bool{false, true} {
		applied := want
		brokers(t, false, func(t *testing.T, c *cluster) {
			c.topic("t", "replicated", nil, 1, 2, 3)
			c.fill("t", 0, 10)
			c.settled("t", 2, 3)
			silent := true
			c.refuseWith(func(cmd metadata.Command) error {
				x, ok := cmd.(*metadata.AlterPartition)
				if !ok || !silent {
					return nil
				}
				if applied && len(x.ISR) == 2 {
					applied = false
					old := c.img
					next, recs, _ := metadata.Apply(old, cmd, metadata.Meta{Index: old.Index() + 1, Term: 1, TimeMs: time.Now().UnixMilli()})
					c.img = next
					for _, b := range c.members {
						b.m.Apply(metadata.NewDelta(old, next, recs))
					}
				}
				return errLost
			})
			was := want
			c.disconnect(3, true)
			_, p := c.leader("t")
			slow := send(p, batch(10, 10, recordSize), -1, time.Hour)
			time.Sleep(3 * lagTime)
			if got := p.HighWatermark(); was && got != 20 || !was && got != 10 {
				t.Errorf("applied %v: high watermark %d", was, got)
			}
			c.turn <- struct{}{}
			silent = false
			<-c.turn
			c.awaitISR("t", lagTime, 1, 2)
			if r := <-slow; r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
}

// TestStaleLeader: a leader that does not hear of its successor commits nothing more, for nobody fetches in its epoch; and when it
// hears, its clients are told.
func TestStaleLeader(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", map[string]string{"min.insync.replicas": "2"}, 1, 2, 3)
		c.fill("t", 0, 20)
		zombie, old := c.members[1], c.on(1, "t")
		zombie.becomeDeaf()
		c.fence(1)
		waits := send(old, batch(20, 10, recordSize), -1, time.Hour)
		c.fill("t", 20, 20)
		time.Sleep(3 * lagTime)
		if len(waits) > 0 || old.HighWatermark() != 20 {
			t.Fatalf("a stale leader committed up to %d", old.HighWatermark())
		}
		zombie.hear()
		if r := <-waits; !errors.Is(r.Err, kerr.NotLeaderForPartition) {
			t.Errorf("%v", r.Err)
		}
		c.must(&metadata.UnfenceBroker{ID: 1, Epoch: zombie.epoch})
		c.awaitISR("t", lagTime, 1, 2, 3)
		c.settled("t", 1, 3)
		zombie.consume(old, 0, 40)
	})
}

// TestPowerLossEverywhere: an fsync topic loses nothing that was acknowledged when every broker loses its power at once.
func TestPowerLossEverywhere(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "fsync", nil, 1, 2, 3)
		c.fill("t", 0, 100)
		for id, b := range c.members {
			b.kill(true)
			c.fence(id)
		}
		for id := int32(1); id <= 3; id++ {
			c.members[id].start()
		}
		c.awaitISR("t", lagTime, 1, 2, 3)
		c.fill("t", 100, 10)
		for id, b := range c.members {
			c.settled("t", id)
			b.consume(c.on(id, "t"), 0, 110)
		}
	})
}

// TestFollowerEndIsSynced: in an fsync topic the high watermark does not pass what a member has on its disk.
func TestFollowerEndIsSynced(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "fsync", nil, 1, 2)
		c.fill("t", 0, 10)
		clone := c.members[2].disk.CrashClone(rand.New(rand.NewPCG(1, 1)), 0)
		c.members[2].stop(false)
		c.members[2].disk = clone
		c.fence(2)
		c.disconnect(2, true)
		c.members[2].start()
		if end := c.on(2, "t").EndOffset(); end != 10 {
			t.Errorf("after a power loss the replica ends at %d", end)
		}
	})
}

// TestWipedFollower: a replica that lost its disk begins where the store ends, reads the rest from the store, takes part in the ISR, and leads
// with all there is; so does one that was away until the leader's local log had gone past it.
func TestWipedFollower(t *testing.T) {
	for _, wiped := range []bool{true, false} {
		brokers(t, true, func(t *testing.T, c *cluster) {
			c.topic("t", "replicated", tiered("local.retention.ms", "1000"), 1, 2, 3)
			c.fill("t", 0, 300)
			c.settled("t", 2, 3)
			b := c.members[3]
			b.stop(true)
			c.fence(3)
			if wiped {
				b.disk = vfs.NewMem()
			}
			c.fill("t", 300, 900)
			_, p := c.leader("t")
			c.eventually("local segments leave the leader", time.Minute, func() bool { return p.LocalStart() > 600 })
			b.start()
			c.awaitISR("t", lagTime, 1, 2, 3)
			c.settled("t", 2, 3)
			if start := c.on(3, "t").LocalStart(); start < 600 || c.on(3, "t").LogStart() != 0 {
				t.Errorf("wiped %v: the replica begins locally at %d, its log at %d", wiped, start, c.on(3, "t").LogStart())
			}
			b.consume(c.on(3, "t"), 0, 1200)
			// The other two go: what it has must do.
			for _, id := range []int32{1, 2} {
				c.members[id].stop(true)
				c.fence(id)
			}
			c.fill("t", 1200, 100)
			b.consume(c.on(3, "t"), 0, 1300)
		})
	}
}

// TestLocalRetentionOnFollowers: every replica deletes what the store has, by its own applied metadata, wherever its segments end
// (KAFKA-17020); and DeleteRecords reaches all.
func TestLocalRetentionOnFollowers(t *testing.T) {
	brokers(t, true, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", tiered("local.retention.ms", "1000"), 1, 2, 3)
		c.fill("t", 0, 900)
		for id := range c.members {
			c.eventually("local segments go", time.Minute, func() bool { return c.on(id, "t").LocalStart() > 600 })
			c.members[id].consume(c.on(id, "t"), 0, 900)
		}
		lead, p := c.leader("t")
		if _, err := lead.m.DeleteRecords(context.Background(), p, 700); err != nil {
			t.Fatal(err)
		}
		for id := range c.members {
			c.eventually("log start arrives", time.Second, func() bool { return c.on(id, "t").LogStart() == 700 })
		}
	})
}

// TestLocalTopicStart: the log start of a topic without a store is its leader's affair, and followers follow it.
func TestLocalTopicStart(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", map[string]string{"internal.segment.bytes": "65536", "retention.bytes": "200000"}, 1, 2, 3)
		c.fill("t", 0, 900)
		_, p := c.leader("t")
		c.eventually("retention", time.Minute, func() bool { return p.LogStart() > 300 })
		for id := range c.members {
			c.eventually("log start arrives", time.Minute, func() bool {
				r := c.on(id, "t")
				return r.LogStart() == p.LogStart() && r.LocalStart() == p.LocalStart()
			})
		}
		// A replica that was away until all it has is gone begins where the leader does.
		c.members[3].stop(true)
		c.fence(3)
		c.fill("t", 900, 2000)
		c.eventually("retention", time.Minute, func() bool { return p.LogStart() > 1500 })
		c.members[3].start()
		c.awaitISR("t", lagTime, 1, 2, 3)
		c.settled("t", 3)
		c.members[3].consume(c.on(3, "t"), p.LogStart(), 2900)
	})
}

// TestStrayedLeader: a leader that was elected although it was not in sync, with other records where the store has some, gives its own up:
// the tier wins.
func TestStrayedLeader(t *testing.T) {
	brokers(t, true, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", tiered(), 1, 2)
		c.fill("t", 0, 100)
		c.settled("t", 2)
		old := c.members[1]
		c.disconnect(1, true)
		for i := range 60 { // nobody else has these, and they end beyond what the store will have
			<-send(c.on(1, "t"), batch(5000+10*i, 10, recordSize), 1, time.Second)
		}
		old.stop(true)
		c.fence(1)
		c.fill("t", 100, 400)
		c.eventually("uploads", time.Minute, func() bool { end, ok := c.row("t").RemoteEnd.Offset(); return ok && end > 200 })
		c.members[2].stop(true)
		end, _ := c.row("t").RemoteEnd.Offset()
		c.fence(2)
		c.disconnect(1, false)
		old.start()
		if c.row("t").Leader != metadata.NoLeader {
			t.Fatalf("led by %d", c.row("t").Leader)
		}
		row := *c.row("t")
		row.Leader, row.ISR, row.ELR = 1, []int32{1}, nil
		row.LeaderEpoch++
		row.PartitionEpoch++
		c.impose(&row)
		c.eventually("a leader", 10*time.Second, func() bool { return c.on(1, "t").IsLeader() })
		if got := c.on(1, "t"); got.EndOffset() != end || got.LocalStart() != end {
			t.Errorf("log [%d, %d) instead of nothing after %d", got.LocalStart(), got.EndOffset(), end)
		}
		old.consume(c.on(1, "t"), 0, end)
	})
}

// TestUnknownJoin: who may have been taken into the ISR counts for the high watermark, for he may be elected.
func TestUnknownJoin(t *testing.T) {
	brokers(t, false, func(t *testing.T, c *cluster) {
		c.topic("t", "replicated", nil, 1, 2, 3)
		c.fill("t", 0, 10)
		c.disconnect(3, true)
		slow := send(c.on(1, "t"), batch(10, 10, recordSize), -1, time.Hour)
		c.awaitISR("t", 2*lagTime, 1, 2)
		<-slow
		asked := make(chan struct{}, 100)
		c.refuseWith(func(cmd metadata.Command) error {
			if _, ok := cmd.(*metadata.AlterPartition); ok {
				asked <- struct{}{}
				return errLost
			}
			return nil
		})
		c.disconnect(3, false)
		<-asked
		c.disconnect(3, true)
		_, p := c.leader("t")
		waits := send(p, batch(20, 10, recordSize), -1, time.Hour)
		time.Sleep(3 * lagTime)
		if len(waits) > 0 || p.HighWatermark() != 20 {
			t.Errorf("high watermark %d without one who may be in sync", p.HighWatermark())
		}
		c.refuseWith(nil)
		if r := <-waits; r.Err != nil {
			t.Error(r.Err)
		}
		c.awaitISR("t", lagTime, 1, 2)
	})
}
