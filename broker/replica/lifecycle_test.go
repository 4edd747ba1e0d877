package replica_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// K74, C10, G24: a topic that is deleted and made again under its name has nothing of the old one, in either tier; requests in flight and
// by the old id are refused.
func TestRecreatedTopicIsEmpty(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1"))
		n.fill(p, 0, 300)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 150 })
		parked := n.fetchAsync(context.Background(), newFetch(time.Hour, part(p, 300)))
		n.must(&metadata.DeleteTopic{ID: p.TopicID()})
		if r := <-parked; r.Partitions[0].Err == nil {
			t.Error("a parked fetch outlives its topic")
		}
		if r := <-send(p, batch(0, 1, 10), -1, time.Second); r.Err == nil {
			t.Error("appended to a deleted topic")
		}
		if _, err := n.m.Partition(p.TopicID(), 0); !errors.Is(err, kerr.UnknownTopicID) {
			t.Error(err)
		}
		if _, err := n.m.PartitionByName("t", 0); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Error(err)
		}
		again := n.topic("t", tiered())
		if again.EndOffset() != 0 || again.LogStart() != 0 {
			t.Errorf("[%d, %d)", again.LogStart(), again.EndOffset())
		}
		if r := n.fetch(newFetch(0, part(again, 5))); !errors.Is(r.Partitions[0].Err, kerr.OffsetOutOfRange) {
			t.Error(r.Partitions[0].Err)
		}
		n.fill(again, 0, 20)
		n.consume(again, 0, 20)
	})
}

// A topic that was deleted while the broker was down is set aside, not served and not destroyed; one made anew meanwhile begins empty.
func TestStrayDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		p := n.topic("t", nil)
		n.fill(p, 0, 50)
		n.stop(true)
		n.must(&metadata.DeleteTopic{ID: p.TopicID()})
		n.must(&metadata.CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: [][]int32{{nodeID}}, Durability: "fsync"})
		n.start()
		defer func() { n.stop(true) }()
		again := n.partition("t")
		if again.TopicID() == p.TopicID() || again.EndOffset() != 0 {
			t.Errorf("end %d", again.EndOffset())
		}
		names, err := n.fs.List("/data")
		if err != nil || !strings.Contains(strings.Join(names, " "), "t-0."+p.TopicID().String()+"-stray") {
			t.Error(names, err)
		}
		n.fill(again, 0, 20)
		n.restart(true)
		n.consume(n.partition("t"), 0, 20)
	})
}

// A log that could not be opened after a crash is recovered once it can be, even if the broker ended cleanly meanwhile; and if its
// topic is deleted instead, it does not stand in the way of the next of that name.
func TestUnopenedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		disk := n.fs.(*vfs.Mem)
		crash := func(failure error) {
			t.Helper()
			next := disk.KillClone()
			n.abandon()
			disk = next
			n.fs = vfs.NewFault(disk, vfs.NewRules(vfs.Rule{Kinds: []vfs.OpKind{vfs.OpOpen}, Glob: "*.log", Outcome: vfs.Outcome{Err: failure}}))
			n.start()
			p, err := n.m.PartitionByName("t", 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.CheckLeader(-1); !errors.Is(err, kerr.KafkaStorageError) {
				t.Fatal(err)
			}
		}
		n.start()
		n.fill(n.topic("t", nil), 0, 50)
		crash(syscall.EMFILE)
		n.stop(true)
		n.fs = disk
		n.start()
		if n.logDirs[0].Clean() {
			t.Error("clean, though a log was not recovered")
		}
		n.consume(n.partition("t"), 0, 50)

		crash(syscall.EMFILE)
		p, _ := n.m.PartitionByName("t", 0)
		n.must(&metadata.DeleteTopic{ID: p.TopicID()})
		n.fill(n.topic("t", nil), 0, 20)
		n.consume(n.partition("t"), 0, 20)
		n.stop(true)
	})
}

// Partitions spread over the log directories, are found again, and one that fails takes only its own with it.
func TestSeveralLogDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.dirs = []string{"/a", "/b", "/c"}
		disk := withSlowDisk(n)
		n.start()
		names := []string{"t0", "t1", "t2", "t3", "t4", "t5"}
		for _, name := range names {
			n.fill(n.topic(name, nil), 0, 30)
		}
		for _, d := range n.m.LogDirs() {
			if len(d.Partitions) != 2 || d.Err != nil || d.Partitions[0].Size == 0 || d.Total <= 0 {
				t.Errorf("%+v", d)
			}
		}
		// The controller is told where each replica lies (KIP-858).
		n.eventually("the directories are assigned", time.Second, func() bool {
			for _, name := range names {
				if n.row(n.partition(name)).Dirs[0].IsZero() {
					return false
				}
			}
			return true
		})
		n.restart(true)
		disk.fail.Store(true)
		first := n.partition("t0")
		if r := <-send(first, batch(30, 1, 10), -1, time.Second); !errors.Is(r.Err, kerr.KafkaStorageError) {
			t.Error(r.Err)
		}
		disk.fail.Store(false)
		failed, served := 0, 0
		for _, name := range names {
			p, err := n.m.PartitionByName(name, 0)
			if err != nil {
				t.Fatal(err)
			}
			r := <-send(p, batch(30, 1, 10), -1, time.Second)
			if errors.Is(r.Err, kerr.KafkaStorageError) {
				failed++
			} else if r.Err == nil {
				served++
			}
			n.consume(p, 0, 30)
		}
		if failed != 2 || served != 4 {
			t.Errorf("%d failed, %d served", failed, served)
		}
		offline := 0
		for _, d := range n.m.LogDirs() {
			if d.Err != nil {
				offline++
			}
		}
		if offline != 1 || n.gauge("varve_replica_offline_partitions") != 2 {
			t.Errorf("%d directories, %v partitions are offline", offline, n.gauge("varve_replica_offline_partitions"))
		}
		n.stop(false)
	})
}

// Section 5: a directory that does not complete a write within its time gives up, and what waits is told.
func TestHungDiskGivesUp(t *testing.T) {
	synctestNode(t, func(n *node) *slowDisk {
		n.tune = func(c *replica.Config) { c.WriteTimeout = 10 * time.Second }
		return withSlowDisk(n)
	}, func(t *testing.T, n *node, d *slowDisk) {
		p := n.topic("t", nil)
		n.fill(p, 0, 10)
		d.took.Store(int64(time.Minute))
		start := time.Now()
		if r := <-send(p, batch(10, 1, 10), -1, time.Hour); !errors.Is(r.Err, kerr.KafkaStorageError) || time.Since(start) > 15*time.Second {
			t.Errorf("%v after %v", r.Err, time.Since(start))
		}
	})
}

// P2 for one node: power is cut at any moment; in an fsync topic every acknowledged record is there, in its place, and the tiers
// still meet.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			n := newNode(t)
			disk := n.fs.(*vfs.Mem)
			slowly := withSlowDisk(n)
			slowly.took.Store(int64(2 * time.Millisecond))
			n.start()
			n.topic("t", tiered("local.retention.bytes", "1"))
			acked := int64(0)
			for range 4 {
				p := n.partition("t")
				stop := time.Now().Add(time.Duration(rng.IntN(800)) * time.Millisecond)
				for time.Now().Before(stop) {
					b := batch(int(p.EndOffset()), 10, recordSize)
					r := <-send(p, b, -1, time.Second)
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					acked = r.BaseOffset + 10
					if rng.IntN(3) == 0 {
						time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
					}
				}
				send(p, batch(int(p.EndOffset()), 10, recordSize), 0, 0) // not acknowledged
				next := disk.CrashClone(rng, rng.IntN(101))
				n.abandon()
				disk = next
				n.fs = disk
				slowly = withSlowDisk(n)
				slowly.took.Store(int64(2 * time.Millisecond))
				n.start()
				p = n.partition("t")
				if p.EndOffset() < acked || p.LogStart() != 0 {
					t.Fatalf("seed %d: acknowledged to %d, log is [%d, %d)", seed, acked, p.LogStart(), p.EndOffset())
				}
				n.consume(p, 0, p.EndOffset())
			}
			n.stop(true)
		})
	}
}

// abandon ends a node whose disk is gone: nothing that it still says matters.
func (n *node) abandon() {
	n.crashed = true
	n.stop(false)
	n.crashed = false
}

// The tier wins (K7, K17, D): a log that ends below the remote end, because the disk was lost, begins anew there with the epochs and the
// producers of the last object.
func TestLostDiskContinuesAtTheRemoteEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		p := n.topic("t", tiered())
		n.fill(p, 0, 250)
		n.eventually("offloaded", time.Minute, func() bool { return n.remoteEnd(p) > 150 })
		end := n.remoteEnd(p)
		n.stop(true)
		n.fs = vfs.NewMem() // a new disk; the controller says that the replica may lead
		n.start()
		n.overwriteLeader(p.TopicID())
		defer func() { n.stop(true) }()
		n.eventually("it leads again", time.Minute, func() bool {
			q, err := n.m.PartitionByName("t", 0)
			return err == nil && q.IsLeader()
		})
		p = n.partition("t")
		if p.LogStart() != 0 || p.LocalStart() != end || p.EndOffset() != end {
			t.Errorf("log start %d, local [%d, %d), remote end %d", p.LogStart(), p.LocalStart(), p.EndOffset(), end)
		}
		n.consume(p, 0, end)
		if r := n.offset(p, replica.LatestTieredTimestamp); r.Offset != end-1 || r.LeaderEpoch < 0 {
			t.Errorf("%+v", r) // K38: the history of epochs covers the store
		}
		n.fill(p, int(end), 300)
		n.eventually("uploads continue without a gap", time.Minute, func() bool { return n.remoteEnd(p) > end })
		n.consume(p, 0, end+300)
	})
}

// overwriteLeader makes this broker the leader of a partition, and its only replica in sync, in a new epoch.
func (n *node) overwriteLeader(id wire.UUID) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	row := *n.img.Partition(id, 0)
	row.Leader, row.LeaderEpoch, row.ISR, row.ELR = nodeID, row.LeaderEpoch+1, []int32{nodeID}, nil
	row.Dirs = []wire.UUID{n.logDirs[0].ID()}
	old, recs := n.img, []metadata.Record{&row}
	n.img = old.Replay(recs, old.Index()+1, 1)
	n.m.Apply(metadata.NewDelta(old, n.img, recs))
}

// Many partitions upload side by side, and a partition with a long backlog does not hold up the others.
func TestUploadsAreFair(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		s.down.Store(true)
		long := n.topic("long", tiered())
		n.fill(long, 0, 3000)
		var short []*replica.Partition
		for _, name := range []string{"s0", "s1", "s2", "s3", "s4", "s5"} {
			p := n.topic(name, tiered())
			n.fill(p, 0, 150)
			short = append(short, p)
		}
		s.delay.Store(int64(time.Second)) // every upload takes seconds: the object is looked at after it was put
		s.down.Store(false)
		n.eventually("every short one is there", 2*time.Minute, func() bool {
			for _, p := range short {
				if n.remoteEnd(p) < 0 {
					return false
				}
			}
			return true
		})
		if n.remoteEnd(long) > 2000 {
			t.Errorf("the long one went first, to %d", n.remoteEnd(long))
		}
		n.eventually("all of it is there", 10*time.Minute, func() bool { return n.remoteEnd(long) > 2800 })
	})
}
