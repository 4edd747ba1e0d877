package metadata

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
)

// replicated makes a topic of one partition with a given min.insync.replicas, the replicas of which lose what was not fsynced.
func (c *cluster) replicated(name string, minInSync int32, replicas ...int32) *Topic {
	c.t.Helper()
	c.must(&CreateTopic{ID: [16]byte{byte(len(c.log)), 1}, Name: name, Assignments: [][]int32{replicas}, Durability: "replicated", MinInSync: minInSync})
	return c.img.Topic(name)
}

// state describes who leads and who could.
func (c *cluster) state(t *Topic) string {
	p := c.img.Partition(t.ID, 0)
	return fmt.Sprintf("%d of %v elr %v known %v", p.Leader, p.ISR, p.ELR, p.LastKnownELR)
}

func (c *cluster) expect(t *Topic, want string) {
	c.t.Helper()
	if got := c.state(t); got != want {
		c.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func (c *cluster) row(t *Topic) *Partition { return c.img.Partition(t.ID, 0) }

// TestELR follows KIP-966: who leaves while too few are in sync stays eligible, and is elected after those in sync.
func TestELR(t *testing.T) {
	c := newCluster(t)
	for id := range int32(3) {
		c.broker(id + 1)
	}
	tp := c.replicated("t", 2, 1, 2, 3)
	c.alter(c.row(tp), 1, 2)
	c.expect(tp, "1 of [1 2] elr [] known []") // 3 is behind, and two are enough
	c.alter(c.row(tp), 1)
	c.expect(tp, "1 of [1] elr [2] known []")
	c.fence(1)
	c.expect(tp, "2 of [2] elr [1] known []")
	c.fence(2)
	c.expect(tp, "-1 of [] elr [1 2] known []")
	c.fence(3)
	c.unfence(3)
	c.expect(tp, "-1 of [] elr [1 2] known []") // 3 never is a candidate
	c.unfence(2)
	c.expect(tp, "2 of [2] elr [1] known []")
	c.alter(c.row(tp), 2, 3)
	c.expect(tp, "2 of [2 3] elr [] known []") // records are acknowledged again, without 1
	if p := c.row(tp); p.LossEpoch != 0 {
		t.Errorf("%+v", p)
	}
}

// TestUncleanShutdown: a broker that may have lost records is not eligible, unless they were fsynced or it proves the contrary.
func TestUncleanShutdown(t *testing.T) {
	for _, tt := range []struct {
		durability, property string
		clean                bool
		want                 string
	}{
		{"replicated", "", false, "-1 of [] elr [2] known [1]"},
		{"replicated", "", true, "-1 of [] elr [1 2] known []"},
		{"fsync", "", false, "-1 of [] elr [1 2] known []"},
		{"fsync", "replicated", false, "-1 of [] elr [2] known [1]"},
		{"replicated", "fsync", false, "-1 of [] elr [1 2] known []"},
	} {
		c := newCluster(t)
		c.broker(1)
		c.broker(2)
		tp := c.replicated("t", 2, 1, 2)
		c.row(tp)
		next := *tp
		next.Durability = tt.durability
		c.img = c.img.Replay([]Record{&next}, c.img.Index(), 1)
		if tt.property != "" {
			c.must(&AlterConfig{Type: ResourceTopic, Name: "t", Entries: map[string]string{"varve.durability": tt.property}})
		}
		c.fence(1, 2)
		previous := int64(-1)
		if tt.clean {
			previous = c.img.Broker(1).Epoch
		}
		c.register(1, previous)
		if got := c.state(tp); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
		c.unfence(1)
		if led := c.row(tp).Leader == 1; led == (tt.want == "-1 of [] elr [2] known [1]") {
			t.Errorf("%+v: %s", tt, c.state(tp))
		}
	}
}

// TestStaleEpochProvesNothing: an epoch of a life before the last one says nothing of the last one.
func TestStaleEpochProvesNothing(t *testing.T) {
	c := newCluster(t)
	first := c.broker(1).Epoch
	tp := c.replicated("t", 1, 1)
	c.fence(1)
	c.broker(1)
	c.fence(1)
	c.register(1, first)
	c.expect(tp, "-1 of [] elr [] known [1]")
}

// TestRecovery: where nobody is eligible all last known members, and whoever else lives, say what they have; the best leads, and
// the row says that records may be lost.
func TestRecovery(t *testing.T) {
	setup := func() (*cluster, *Topic) {
		c := newCluster(t)
		for id := range int32(3) {
			c.broker(id + 1)
		}
		tp := c.replicated("t", 2, 1, 2, 3)
		c.crash(1, 2, 3)
		c.expect(tp, "-1 of [] elr [] known [2 3]") // two were in sync without 1
		return c, tp
	}
	report := func(c *cluster, tp *Topic, id, epoch int32, end int64) {
		c.must(&ReportEnd{BrokerID: id, BrokerEpoch: c.img.Broker(id).Epoch, TopicID: tp.ID, LastEpoch: epoch, End: end})
	}
	t.Run("the best", func(t *testing.T) {
		c, tp := setup()
		c.refused(kerr.IneligibleReplica, &ReportEnd{BrokerID: 2, BrokerEpoch: c.img.Broker(2).Epoch, TopicID: tp.ID})
		c.unfence(1, 2, 3)
		c.refused(kerr.StaleBrokerEpoch, &ReportEnd{BrokerID: 2, TopicID: tp.ID})
		c.refused(kerr.InvalidRequest, &ReportEnd{BrokerID: 2, BrokerEpoch: c.img.Broker(2).Epoch, TopicID: tp.ID, End: -1})
		report(c, tp, 2, 0, 10)
		report(c, tp, 3, 1, 5)
		c.expect(tp, "-1 of [] elr [] known [2 3]") // 1 lives and may have more
		report(c, tp, 1, 1, 4)
		c.expect(tp, "3 of [3] elr [] known []")
		if p := c.row(tp); p.LossEpoch != p.LeaderEpoch || len(p.Ends) > 0 {
			t.Errorf("%+v", p)
		}
		report(c, tp, 1, 9, 9) // too late: harmless
		c.expect(tp, "3 of [3] elr [] known []")
	})
	t.Run("who is not a member is not waited for", func(t *testing.T) {
		c, tp := setup()
		c.unfence(2, 3)
		report(c, tp, 2, 0, 10)
		report(c, tp, 3, 0, 10)
		c.expect(tp, "2 of [2] elr [] known []")
	})
	t.Run("a member is waited for", func(t *testing.T) {
		c, tp := setup()
		c.unfence(1, 2)
		report(c, tp, 1, 0, 10)
		report(c, tp, 2, 0, 9)
		c.expect(tp, "-1 of [] elr [] known [2 3]")
		c.crash(2) // what it said was of another life
		c.unfence(2, 3)
		report(c, tp, 3, 0, 8)
		c.expect(tp, "-1 of [] elr [] known [2 3]")
		report(c, tp, 2, 0, 7)
		c.expect(tp, "1 of [1] elr [] known []")
	})
	t.Run("by order", func(t *testing.T) {
		c, tp := setup()
		c.refused(kerr.EligibleLeadersNotAvailable, &ElectLeader{TopicID: tp.ID, Unclean: true})
		c.unfence(1, 2)
		report(c, tp, 2, 0, 9)
		c.must(&ElectLeader{TopicID: tp.ID, Unclean: true})
		c.expect(tp, "2 of [2] elr [] known []")
		c.refused(kerr.ElectionNotNeeded, &ElectLeader{TopicID: tp.ID, Unclean: true})
	})
	t.Run("by order, and nobody has said anything", func(t *testing.T) {
		c, tp := setup()
		c.unfence(1, 3)
		c.must(&ElectLeader{TopicID: tp.ID, Unclean: true})
		c.expect(tp, "3 of [3] elr [] known []") // it was a member
		if p := c.row(tp); p.LossEpoch != p.LeaderEpoch {
			t.Errorf("%+v", p)
		}
	})
	t.Run("lost", func(t *testing.T) {
		c, tp := setup()
		c.unfence(1, 2)
		report(c, tp, 1, 0, 3)
		report(c, tp, 2, 0, 4)
		delete(c.dirs, 3)
		c.crash(3) // with another, empty directory: it has nothing to say
		c.expect(tp, "2 of [2] elr [] known []")
	})
}

// TestLossIsAccepted: a partition whose only copy is lost waits for the operator, and begins anew in a directory that exists.
func TestLossIsAccepted(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	tp := c.topic("t", []int32{1})
	delete(c.dirs, 1)
	c.fence(1)
	c.broker(1)
	c.expect(tp, "-1 of [] elr [] known []")
	c.must(&ReportEnd{BrokerID: 1, BrokerEpoch: c.img.Broker(1).Epoch, TopicID: tp.ID, LastEpoch: -1})
	c.expect(tp, "-1 of [] elr [] known []")
	c.must(&ElectLeader{TopicID: tp.ID, Unclean: true})
	if p := c.row(tp); p.Leader != 1 || p.LossEpoch == 0 || p.dir(0) != c.dirs[1] {
		t.Errorf("%+v", p)
	}
}

// TestMinInSyncLowered: once fewer are enough, records are acknowledged without those who were eligible: they are no longer.
func TestMinInSyncLowered(t *testing.T) {
	for _, r := range []AlterConfig{{Type: ResourceTopic, Name: "t"}, {Type: ResourceBroker}} {
		c := newCluster(t)
		c.broker(1)
		c.broker(2)
		tp := c.replicated("t", 2, 1, 2)
		other := c.replicated("other", 1, 1, 2)
		c.fence(2)
		c.expect(tp, "1 of [1] elr [2] known []")
		epoch := c.row(tp).PartitionEpoch
		r.Entries = map[string]string{"min.insync.replicas": "1"}
		c.must(&r)
		c.expect(tp, "1 of [1] elr [] known []")
		if c.row(tp).PartitionEpoch != epoch+1 || c.row(other).PartitionEpoch != 1 {
			t.Errorf("%+v, %+v", c.row(tp), c.row(other))
		}
		r.Entries, r.Version = map[string]string{"min.insync.replicas": "2"}, c.img.ConfigVersion(r.Type, r.Name)
		c.must(&r)
		c.expect(tp, "1 of [1] elr [] known []")
	}
}

func TestPreferredElection(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	c.broker(2)
	tp := c.replicated("t", 1, 1, 2)
	preferred := &ElectLeader{TopicID: tp.ID}
	c.refused(kerr.ElectionNotNeeded, preferred)
	c.refused(kerr.UnknownTopicOrPartition, &ElectLeader{TopicID: tp.ID, Partition: 7})
	c.fence(1)
	c.refused(kerr.PreferredLeaderNotAvailable, preferred)
	c.unfence(1)
	c.refused(kerr.PreferredLeaderNotAvailable, preferred) // behind
	c.alter(c.row(tp), 2, 1)
	epoch := c.row(tp).LeaderEpoch
	c.refused(nil, preferred)
	if p := c.row(tp); p.Leader != 1 || p.LeaderEpoch != epoch+1 || p.LossEpoch != 0 {
		t.Errorf("%+v", p)
	}
}

// TestHandOverFromELR: who shuts down in order hands over to who is eligible, too; if there is nobody, it leads to its end.
func TestHandOverFromELR(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	c.broker(2)
	tp := c.replicated("t", 2, 1, 2)
	c.fence(2)
	c.must(&ShutdownBroker{ID: 1, Epoch: c.img.Broker(1).Epoch})
	c.expect(tp, "1 of [1] elr [2] known []")
	c.broker(2)
	c.expect(tp, "1 of [1] elr [2] known []") // it leads, though it is about to go
	c.fence(1)
	c.expect(tp, "2 of [2] elr [1] known []")
	c.broker(1)
	c.alter(c.row(tp), 2, 1)
	c.must(&ShutdownBroker{ID: 2, Epoch: c.img.Broker(2).Epoch})
	c.expect(tp, "1 of [1] elr [2] known []")
}

// TestReassignment follows KIP-455.
func TestReassignment(t *testing.T) {
	setup := func(minInSync int32) (*cluster, *Topic) {
		c := newCluster(t)
		for id := range int32(6) {
			c.broker(id + 1)
		}
		return c, c.replicated("t", minInSync, 1, 2, 3)
	}
	to := func(tp *Topic, target ...int32) *AlterReassignment {
		return &AlterReassignment{TopicID: tp.ID, Target: target}
	}
	show := func(c *cluster, tp *Topic) string {
		p := c.row(tp)
		if len(p.Dirs) != len(p.Replicas) {
			t.Errorf("%d directories of %d replicas", len(p.Dirs), len(p.Replicas))
		}
		for i, r := range p.Replicas {
			if p.Dirs[i] != c.dirs[r] {
				t.Errorf("the replica of %d is not in its directory", r)
			}
		}
		return fmt.Sprintf("%d of %v in %v adding %v removing %v", p.Leader, p.ISR, p.Replicas, p.Adding, p.Removing)
	}
	expect := func(c *cluster, tp *Topic, want string) {
		t.Helper()
		if got := show(c, tp); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	cancel := func(tp *Topic) *AlterReassignment { return &AlterReassignment{TopicID: tp.ID, Cancel: true} }

	t.Run("refused", func(t *testing.T) {
		c, tp := setup(2)
		c.refused(kerr.NoReassignmentInProgress, cancel(tp))
		c.refused(kerr.InvalidReplicaAssignment, to(tp))
		c.refused(kerr.InvalidReplicaAssignment, to(tp, 1, 1))
		c.refused(kerr.InvalidReplicaAssignment, to(tp, 1, 99))
		c.refused(kerr.UnknownTopicOrPartition, &AlterReassignment{TopicID: tp.ID, Partition: 5, Target: []int32{1}})
		keep := to(tp, 1, 2)
		keep.KeepFactor = true
		c.refused(kerr.InvalidReplicationFactor, keep)
		c.refused(nil, to(tp, 1, 2, 3))
		if p := c.row(tp); p.PartitionEpoch != 0 {
			t.Errorf("nothing to do, yet %+v", p)
		}
	})
	t.Run("to others", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 4, 5, 6))
		expect(c, tp, "1 of [1 2 3] in [4 5 6 1 2 3] adding [4 5 6] removing [1 2 3]")
		if got := c.img.Reassignments(); len(got) != 1 || !slices.Equal(got[0].Target(), []int32{4, 5, 6}) {
			t.Errorf("%+v", got)
		}
		c.alter(c.row(tp), 1, 2, 3, 4, 5)
		expect(c, tp, "1 of [1 2 3 4 5] in [4 5 6 1 2 3] adding [4 5 6] removing [1 2 3]")
		epoch := c.row(tp).LeaderEpoch
		c.alter(c.row(tp), 1, 2, 3, 4, 5, 6)
		expect(c, tp, "4 of [4 5 6] in [4 5 6] adding [] removing []")
		if p := c.row(tp); p.LeaderEpoch != epoch+1 || len(c.img.Reassignments()) > 0 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("to fewer", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 3, 2))
		expect(c, tp, "3 of [2 3] in [3 2] adding [] removing []")
	})
	t.Run("to fewer, of whom too few are in sync", func(t *testing.T) {
		c, tp := setup(2)
		c.alter(c.row(tp), 1, 2)
		c.must(to(tp, 2, 3))
		expect(c, tp, "1 of [1 2] in [2 3 1] adding [] removing [1]")
		c.alter(c.row(tp), 1, 2, 3)
		expect(c, tp, "2 of [2 3] in [2 3] adding [] removing []")
	})
	t.Run("order", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 3, 1, 2))
		expect(c, tp, "1 of [1 2 3] in [3 1 2] adding [] removing []")
	})
	t.Run("cancelled", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 4, 5, 6))
		c.alter(c.row(tp), 1, 2, 3, 4, 5)
		c.must(&ElectLeader{TopicID: tp.ID}) // 4 leads
		c.must(cancel(tp))
		expect(c, tp, "1 of [1 2 3] in [1 2 3] adding [] removing []")
	})
	t.Run("changed on the way", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 1, 2, 4))
		c.alter(c.row(tp), 1, 2, 3)
		c.must(to(tp, 1, 2, 5))
		expect(c, tp, "1 of [1 2 3] in [1 2 5 3] adding [5] removing [3]") // 4 is forgotten
		c.must(cancel(tp))
		expect(c, tp, "1 of [1 2 3] in [1 2 3] adding [] removing []")
	})
	t.Run("not back to who has nothing", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 4, 5))
		c.alter(c.row(tp), 1, 4)
		c.alter(c.row(tp), 1, 4) // nothing new is a new row all the same
		c.fence(1, 2, 3)
		expect(c, tp, "4 of [4] in [4 5 1 2 3] adding [4 5] removing [1 2 3]")
		c.crash(1)
		c.refused(kerr.InvalidReplicaAssignment, cancel(tp)) // 4 alone has all records
		c.broker(1)
		c.alter(c.row(tp), 4, 1)
		c.refused(kerr.InvalidReplicaAssignment, cancel(tp)) // 1 would be the only one
		c.broker(2)
		c.alter(c.row(tp), 4, 1, 2)
		c.must(cancel(tp))
		expect(c, tp, "1 of [1 2] in [1 2 3] adding [] removing []")
	})
	t.Run("meanwhile", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 4, 5, 6))
		cmd, err := c.planner().CreatePartitions("t", 2, nil)
		if err != nil || len(cmd.Assignments[0]) != 3 {
			t.Fatalf("%+v, %v", cmd, err)
		}
		c.must(cmd)
		c.must(&DeleteTopic{ID: tp.ID})
		if len(c.img.Reassignments()) > 0 {
			t.Error("of a topic that is gone")
		}
	})
	t.Run("a broker that only leaves can be forgotten then", func(t *testing.T) {
		c, tp := setup(2)
		c.must(to(tp, 4, 2, 3))
		c.fence(1)
		c.refused(kerr.InvalidRequest, &UnregisterBroker{ID: 1})
		c.alter(c.row(tp), 2, 3, 4)
		expect(c, tp, "2 of [2 3 4] in [4 2 3] adding [] removing []")
		c.must(&UnregisterBroker{ID: 1})
	})
}

// TestFailDirs: what lies in a directory that failed is led by others at once; in fsync topics it is eligible once the broker
// comes back with it, in others it may lack records.
func TestFailDirs(t *testing.T) {
	a, b := wire.NewUUID(), wire.NewUUID()
	c := newCluster(t)
	register := func() *Broker {
		previous := int64(-1)
		if old := c.img.Broker(1); old != nil {
			previous = old.Epoch
		}
		c.must(&RegisterBroker{ID: 1, ClusterID: "c", Incarnation: wire.NewUUID(), LogDirs: []wire.UUID{a, b}, PreviousEpoch: previous, Listeners: []Listener{{Name: "P", Host: "h", Port: 1}}})
		c.unfence(1)
		return c.img.Broker(1)
	}
	b1 := register()
	c.broker(2)
	replicated, healthy, alone := c.replicated("replicated", 2, 1, 2), c.replicated("healthy", 2, 1, 2), c.replicated("alone", 1, 1)
	c.must(&CreateTopic{ID: wire.NewUUID(), Name: "fsync", Assignments: [][]int32{{1}}, Durability: "fsync"})
	fsync := c.img.Topic("fsync")
	c.must(&AssignDirs{BrokerID: 1, BrokerEpoch: b1.Epoch, Dirs: []DirAssignment{{replicated.ID, 0, a}, {healthy.ID, 0, b}, {alone.ID, 0, a}, {fsync.ID, 0, a}}})

	c.refused(kerr.StaleBrokerEpoch, &FailDirs{ID: 1, Epoch: b1.Epoch - 1, Dirs: []wire.UUID{a}})
	c.refused(nil, &FailDirs{ID: 1, Epoch: b1.Epoch, Dirs: []wire.UUID{wire.NewUUID()}}) // not one of its own
	c.expect(replicated, "1 of [1 2] elr [] known []")
	c.must(&FailDirs{ID: 1, Epoch: b1.Epoch, Dirs: []wire.UUID{a}})
	c.expect(replicated, "2 of [2] elr [] known [1]")
	c.expect(healthy, "1 of [1 2] elr [] known []")
	c.expect(alone, "-1 of [] elr [] known [1]")
	c.expect(fsync, "-1 of [] elr [1] known []")
	if !c.img.Broker(1).Active() {
		t.Error("it has another directory")
	}
	x := &AlterPartition{BrokerID: 2, BrokerEpoch: c.img.Broker(2).Epoch, TopicID: replicated.ID, LeaderEpoch: c.row(replicated).LeaderEpoch,
		PartitionEpoch: c.row(replicated).PartitionEpoch, ISR: []ISRMember{{2, -1}, {1, -1}}}
	c.refused(kerr.IneligibleReplica, x)
	c.refused(kerr.EligibleLeadersNotAvailable, &ElectLeader{TopicID: alone.ID, Unclean: true})
	index := c.row(replicated).PartitionEpoch
	c.must(&FailDirs{ID: 1, Epoch: b1.Epoch, Dirs: []wire.UUID{a}}) // told again: nothing
	if got := c.row(replicated).PartitionEpoch; got != index {
		t.Errorf("told twice: epoch %d, was %d", got, index)
	}

	c.must(&AssignDirs{BrokerID: 1, BrokerEpoch: b1.Epoch, Dirs: []DirAssignment{{fsync.ID, 0, b}}}) // it was wrong: it lies in the other one
	c.expect(fsync, "1 of [1] elr [] known []")
	c.must(&FailDirs{ID: 1, Epoch: b1.Epoch, Dirs: []wire.UUID{b}})
	c.expect(healthy, "2 of [2] elr [] known [1]")
	c.expect(fsync, "-1 of [] elr [1] known []")
	if c.img.Broker(1).Active() {
		t.Error("it has no directory left")
	}

	c.fence(1)
	register()
	c.expect(fsync, "1 of [1] elr [] known []")
	c.expect(alone, "-1 of [] elr [] known [1]")
	c.must(&ReportEnd{BrokerID: 1, BrokerEpoch: c.img.Broker(1).Epoch, TopicID: alone.ID, End: 5})
	c.expect(alone, "1 of [1] elr [] known []")
}
