package controller

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// describe asks a controller for the quorum.
func (n *node) quorum() *kmsg.DescribeQuorumResponseTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = quorumTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	resp := ask[*kmsg.DescribeQuorumResponse](n.t, n.client(), req)
	return &resp.Topics[0].Partitions[0]
}

func (n *node) add(id int32, dir [16]byte, address string) error {
	n.t.Helper()
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID, req.TimeoutMillis = id, dir, 15000
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		n.t.Fatal(err)
	}
	l := kmsg.NewAddRaftVoterRequestListener()
	l.Name, l.Host = quorumListener, host
	fmt.Sscan(port, &l.Port)
	req.Listeners = append(req.Listeners, l)
	resp := ask[*kmsg.AddRaftVoterResponse](n.t, n.client(), req)
	if resp.ErrorCode != 0 && resp.ErrorMessage == nil {
		n.t.Errorf("error %d without a reason", resp.ErrorCode)
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (n *node) remove(id int32, dir [16]byte) error {
	n.t.Helper()
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = id, dir
	return kerr.ErrorForCode(ask[*kmsg.RemoveRaftVoterResponse](n.t, n.client(), req).ErrorCode)
}

// decided asks whoever leads until the answer is final. If an outcome was
// unknown, done is what the next attempt says of one that was made.
func (v *voters) decided(done error, change func(*node) error) error {
	v.t.Helper()
	unknown := false
	var answer error
	eventually(v.t, func() error {
		answer = change(v.leader())
		switch {
		case errors.Is(answer, kerr.NotController), errors.Is(answer, kerr.RequestTimedOut):
			unknown = true
			return answer
		case unknown && errors.Is(answer, done):
			answer = nil
		}
		return nil
	})
	return answer
}

func (v *voters) add(id int32, dir [16]byte, address string) error {
	v.t.Helper()
	return v.decided(kerr.DuplicateVoter, func(n *node) error { return n.add(id, dir, address) })
}

func (v *voters) remove(id int32, dir [16]byte) error {
	v.t.Helper()
	return v.decided(kerr.VoterNotFound, func(n *node) error { return n.remove(id, dir) })
}

// observer waits until a controller that waits to be added is known.
func (v *voters) observer(id int32) [16]byte {
	v.t.Helper()
	var dir [16]byte
	eventually(v.t, func() error {
		for _, o := range v.leader().quorum().Observers {
			if o.ReplicaID == id {
				dir = o.ReplicaDirectoryID
				return nil
			}
		}
		return fmt.Errorf("node %d does not wait", id)
	})
	return dir
}

func directory(n *node) [16]byte {
	id, _ := wire.ParseUUID(n.c.member.Load().memberID)
	return id
}

// TestReplaceController: a controller whose disk was lost is replaced, the old
// member out before the new one in, and the new one has everything.
func TestReplaceController(t *testing.T) {
	v := newVoters(t, 3).startAll()
	for i := range 5 {
		v.commit(fmt.Sprintf("f%d", i))
	}
	v.agree()
	lost := int(v.leader().c.cfg.NodeID) % 3 // a follower
	old := directory(v.nodes[lost])
	eventually(t, func() error {
		if q := v.leader().quorum(); len(q.CurrentVoters) != 3 || len(q.Observers) != 0 || q.LeaderEpoch == 0 || q.LeaderID <= 0 {
			return fmt.Errorf("%+v", q)
		}
		return nil
	})
	v.stop(lost)
	v.wipe(lost)
	n := v.start(lost)
	id := int32(lost + 1)
	dir := v.observer(id)
	if dir != directory(n) || dir == old {
		t.Fatal("the one that waits has another directory")
	}
	eventually(t, func() error {
		q := v.leader().quorum()
		if len(q.CurrentVoters) != 3 {
			return fmt.Errorf("%+v", q)
		}
		for _, state := range q.CurrentVoters {
			if alive := state.ReplicaID != id; alive != (state.LastFetchTimestamp > 0) {
				return fmt.Errorf("alive %v: %+v", alive, state)
			}
		}
		return nil
	})
	if err := v.add(id, dir, v.list[lost].Address); !errors.Is(err, kerr.DuplicateVoter) {
		t.Errorf("added while the old one is in: %v", err)
	}
	if err := v.remove(id, dir); !errors.Is(err, kerr.VoterNotFound) {
		t.Errorf("removed what is not in: %v", err)
	}
	if err := v.remove(id, old); err != nil {
		t.Fatal(err)
	}
	if err := v.add(id, old, v.list[lost].Address); !errors.Is(err, kerr.InvalidVoterKey) {
		t.Errorf("added with a directory that is gone: %v", err)
	}
	if err := v.add(id, dir, v.list[lost].Address); err != nil {
		t.Fatal(err)
	}
	v.agree()
	if len(n.c.quorum.Members()) != 3 || n.c.Image().Feature("f4") != 1 {
		t.Errorf("%v", n.c.quorum.Members())
	}
	// It counts: with another one gone it makes the majority.
	v.stop((lost + 1) % 3)
	v.commit("after")
	v.agree()
	v.stop(lost)
	v.start(lost)
	v.agree()
}

// TestNoLiveMajority: no change leaves a quorum of which no majority is alive,
// and only the active controller changes it.
func TestNoLiveMajority(t *testing.T) {
	v := newVoters(t, 3).startAll()
	v.agree()
	leader := v.leader()
	dead := int(leader.c.cfg.NodeID) % 3
	alive := (dead + 1) % 3
	keep := directory(v.nodes[alive])
	v.stop(dead)
	if err := v.remove(int32(alive+1), keep); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("removed one of the last two that live: %v", err)
	}
	eventually(t, func() error {
		leader := v.leader()
		for _, n := range v.nodes {
			if n == nil || n == leader {
				continue
			}
			if err := n.remove(int32(dead+1), keep); !errors.Is(err, kerr.NotController) {
				return fmt.Errorf("a follower changes the quorum: %v", err)
			}
			if q := n.quorum(); q.ErrorCode != kerr.NotLeaderForPartition.Code {
				return fmt.Errorf("a follower describes the quorum: %+v", q)
			}
		}
		return nil
	})
	v.commit("still")
}

// TestGrowFromOne: a lone controller becomes one of three, and shrinks again,
// down to one and not further.
func TestGrowFromOne(t *testing.T) {
	v := newVoters(t, 3)
	list := v.list
	v.list = list[:1]
	first := v.start(0)
	v.commit("alone")
	v.list = list
	for i := 1; i < 3; i++ {
		n := v.start(i)
		if err := v.add(int32(i+1), v.observer(int32(i+1)), list[i].Address); err != nil {
			t.Fatal(err)
		}
		v.agree()
		if n.c.Image().Feature("alone") != 1 || n.c.ClusterID() != first.c.ClusterID() {
			t.Errorf("node %d is of cluster %s", i+1, n.c.ClusterID())
		}
	}
	for _, i := range []int{2, 0} {
		if err := v.remove(int32(i+1), directory(v.nodes[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.remove(2, directory(v.nodes[1])); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("removed the only one: %v", err)
	}
	if last := v.commit("alone again"); last != v.nodes[1] {
		t.Errorf("node %d leads, which was removed", last.c.cfg.NodeID)
	}
}

// TestRemoveLeader: the active controller can be taken out; another one leads.
func TestRemoveLeader(t *testing.T) {
	v := newVoters(t, 3).startAll()
	v.agree()
	var old *node
	if err := v.decided(kerr.VoterNotFound, func(n *node) error {
		if old == nil {
			old = n
		}
		return n.remove(old.c.cfg.NodeID, directory(old))
	}); err != nil {
		t.Fatal(err)
	}
	v.commit("after", old)
	eventually(t, func() error {
		if err := old.c.Ready(); !errors.Is(err, ErrNoQuorum) {
			return fmt.Errorf("the one that was taken out says %v", err)
		}
		return nil
	})
	id := old.c.cfg.NodeID
	if err := v.add(id, v.observer(id), old.addr); err != nil {
		t.Fatal(err)
	}
	v.agree()
}

// TestInstallSnapshot: a member that was away for longer than the log reaches
// back, and a new one, get a snapshot over the quorum's connections.
func TestInstallSnapshot(t *testing.T) {
	v := newVoters(t, 3).startAll()
	v.agree()
	behind := int(v.leader().c.cfg.NodeID) % 3
	id := int32(behind + 1)
	v.stop(behind)
	for i := range 50 {
		v.commit(fmt.Sprintf("f%d", i))
	}
	v.agree()
	for _, n := range v.nodes { // whoever leads later has no more than the snapshot
		if n == nil {
			continue
		}
		r := n.c.quorum.(*raftQuorum).raft
		timeouts := r.ReloadableConfig()
		timeouts.TrailingLogs = 1
		if err := errors.Join(r.ReloadConfig(timeouts), r.Snapshot().Error()); err != nil {
			t.Fatal(err)
		}
	}
	for _, wiped := range []bool{false, true} {
		if wiped {
			old := directory(v.nodes[behind])
			v.stop(behind)
			v.wipe(behind)
			v.start(behind)
			dir := v.observer(id)
			if err := errors.Join(v.remove(id, old), v.add(id, dir, v.list[behind].Address)); err != nil {
				t.Fatal(err)
			}
		} else {
			v.start(behind)
		}
		v.agree()
		n := v.nodes[behind]
		if n.c.Image().Feature("f0") != 1 || n.c.Image().Feature("f49") != 1 {
			t.Errorf("wiped %v: an image without what the snapshot has", wiped)
		}
		if snapshots, err := n.c.quorum.(*raftQuorum).stores.snapshots.List(); err != nil || len(snapshots) == 0 {
			t.Errorf("wiped %v: no snapshot came (%v)", wiped, err)
		}
		v.commit(fmt.Sprint("after ", wiped))
		v.agree()
	}
}
