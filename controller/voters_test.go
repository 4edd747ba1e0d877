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

// observer waits until a controller that waits to be added is known to n.
func (n *node) observer(id int32) [16]byte {
	n.t.Helper()
	var dir [16]byte
	eventually(n.t, func() error {
		for _, o := range n.quorum().Observers {
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
	leader := v.leader()
	for i := range 5 {
		if err := v.mark(leader, fmt.Sprintf("f%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	v.agree()
	lost := int(leader.c.cfg.NodeID) % 3 // a follower
	old := directory(v.nodes[lost])
	if q := leader.quorum(); q.LeaderID != leader.c.cfg.NodeID || len(q.CurrentVoters) != 3 || len(q.Observers) != 0 || q.LeaderEpoch == 0 {
		t.Errorf("%+v", q)
	}
	v.stop(lost)
	v.wipe(lost)
	n := v.start(lost)
	id := int32(lost + 1)
	dir := leader.observer(id)
	if dir != directory(n) || dir == old {
		t.Fatal("the one that waits has another directory")
	}
	for _, state := range leader.quorum().CurrentVoters {
		if alive := state.ReplicaID != id; alive != (state.LastFetchTimestamp > 0) {
			t.Errorf("alive %v: %+v", alive, state)
		}
	}
	if err := leader.add(id, dir, v.list[lost].Address); !errors.Is(err, kerr.DuplicateVoter) {
		t.Errorf("added while the old one is in: %v", err)
	}
	if err := leader.remove(id, dir); !errors.Is(err, kerr.VoterNotFound) {
		t.Errorf("removed what is not in: %v", err)
	}
	if err := leader.remove(id, old); err != nil {
		t.Fatal(err)
	}
	if err := leader.add(id, old, v.list[lost].Address); !errors.Is(err, kerr.InvalidVoterKey) {
		t.Errorf("added with a directory that is gone: %v", err)
	}
	if err := leader.add(id, dir, v.list[lost].Address); err != nil {
		t.Fatal(err)
	}
	v.agree()
	if len(n.c.quorum.Members()) != 3 || n.c.Image().Feature("f4") != 1 {
		t.Errorf("%v", n.c.quorum.Members())
	}
	// It counts: with another one gone it makes the majority.
	for i, other := range v.nodes {
		if other != n && other != leader {
			v.stop(i)
		}
	}
	if err := v.mark(v.leader(), "after"); err != nil {
		t.Fatal(err)
	}
	v.agree()
	v.stop(lost)
	v.start(lost)
	v.agree()
}

// TestNoLiveMajority: no change leaves a quorum of which no majority is alive.
func TestNoLiveMajority(t *testing.T) {
	v := newVoters(t, 3).startAll()
	leader := v.leader()
	v.agree()
	var dead, alive int
	for i, n := range v.nodes {
		if n != leader {
			alive, dead = dead, i
		}
	}
	keep := directory(v.nodes[alive])
	v.stop(dead)
	if err := leader.remove(int32(alive+1), keep); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("removed one of the last two that live: %v", err)
	}
	for _, n := range v.nodes {
		if n != nil && n != leader {
			if err := n.remove(int32(dead+1), keep); !errors.Is(err, kerr.NotController) {
				t.Errorf("a follower changes the quorum: %v", err)
			}
			if q := n.quorum(); q.ErrorCode != kerr.NotLeaderForPartition.Code {
				t.Errorf("a follower describes the quorum: %+v", q)
			}
		}
	}
	if err := v.mark(v.leader(), "still"); err != nil {
		t.Fatal(err)
	}
}

// TestGrowFromOne: a lone controller becomes one of three, and shrinks again,
// down to itself and not further.
func TestGrowFromOne(t *testing.T) {
	v := newVoters(t, 3)
	list := v.list
	v.list = list[:1]
	leader := v.start(0)
	v.leader()
	if err := v.mark(leader, "alone"); err != nil {
		t.Fatal(err)
	}
	v.list = list
	for i := 1; i < 3; i++ {
		n := v.start(i)
		if err := leader.add(int32(i+1), leader.observer(int32(i+1)), list[i].Address); err != nil {
			t.Fatal(err)
		}
		v.agree()
		if n.c.Image().Feature("alone") != 1 || n.c.ClusterID() != leader.c.ClusterID() {
			t.Errorf("node %d is of cluster %s", i+1, n.c.ClusterID())
		}
	}
	leader = v.leader()
	for i := range 3 {
		if n := v.nodes[i]; n != leader {
			if err := leader.remove(int32(i+1), directory(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := leader.remove(leader.c.cfg.NodeID, directory(leader)); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("removed the only one: %v", err)
	}
	if err := v.mark(leader, "alone again"); err != nil {
		t.Fatal(err)
	}
}

// TestRemoveLeader: the active controller can be taken out; another one leads.
func TestRemoveLeader(t *testing.T) {
	v := newVoters(t, 3).startAll()
	old := v.leader()
	v.agree()
	if err := old.remove(old.c.cfg.NodeID, directory(old)); err != nil {
		t.Fatal(err)
	}
	next := v.leader(old)
	if err := v.mark(next, "after"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := old.c.Ready(); !errors.Is(err, ErrNoQuorum) {
			return fmt.Errorf("the one that was taken out says %v", err)
		}
		return nil
	})
	if err := next.add(old.c.cfg.NodeID, next.observer(old.c.cfg.NodeID), old.addr); err != nil {
		t.Fatal(err)
	}
	v.agree()
}

// TestInstallSnapshot: a member that was away for longer than the log reaches
// back, and a new one, get a snapshot over the quorum's connections.
func TestInstallSnapshot(t *testing.T) {
	v := newVoters(t, 3).startAll()
	leader := v.leader()
	v.agree()
	behind := int(leader.c.cfg.NodeID) % 3
	v.stop(behind)
	for i := range 50 {
		if err := v.mark(leader, fmt.Sprintf("f%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	r := leader.c.quorum.(*raftQuorum).raft
	timeouts := r.ReloadableConfig()
	timeouts.TrailingLogs = 1
	if err := r.ReloadConfig(timeouts); err != nil {
		t.Fatal(err)
	}
	if err := r.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	for _, wiped := range []bool{false, true} {
		if wiped {
			old := directory(v.nodes[behind])
			v.stop(behind)
			v.wipe(behind)
			v.start(behind)
			id := int32(behind + 1)
			dir := leader.observer(id)
			if err := errors.Join(leader.remove(id, old), leader.add(id, dir, v.list[behind].Address)); err != nil {
				t.Fatal(err)
			}
		} else {
			v.start(behind)
		}
		v.agree()
		n := v.nodes[behind]
		first, err := n.c.quorum.(*raftQuorum).stores.log.FirstIndex()
		if err != nil || n.c.Image().Feature("f0") != 1 || n.c.Image().Feature("f49") != 1 {
			t.Errorf("wiped %v: an image without what the snapshot has: %v", wiped, err)
		}
		if snapshots, err := n.c.quorum.(*raftQuorum).stores.snapshots.List(); err != nil || len(snapshots) == 0 {
			t.Errorf("wiped %v: no snapshot came (%v), the log begins at %d", wiped, err, first)
		}
		if err := v.mark(leader, fmt.Sprint("after ", wiped)); err != nil {
			t.Fatal(err)
		}
		v.agree()
	}
}
