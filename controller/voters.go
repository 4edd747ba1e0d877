package controller

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// Names of Kafka's in what administrators see of the quorum.
const (
	quorumTopic    = "__cluster_metadata"
	quorumListener = "CONTROLLER"
)

// catchUpPoll is how often a new member is asked how far it has got.
const catchUpPoll = 20 * time.Millisecond

// errChanging: the members change one at a time.
var errChanging = metadata.Refuse(kerr.RequestTimedOut, "another change of the controllers is under way: ask again once it has ended")

// addRaftVoter, versions 0-1 (KIP-853). It answers once the new member votes,
// whatever AckWhenCommitted says.
func (c *Controller) addRaftVoter(r *wire.Request, req *kmsg.AddRaftVoterRequest) {
	v := wire.Voter{NodeID: req.VoterID, MemberID: wire.UUID(req.VoterDirectoryID).String(), Address: voterAddress(req.Listeners)}
	c.changeVoters(deref(req.ClusterID), timeoutOf(req.TimeoutMillis), func(ctx context.Context) error { return c.addVoter(ctx, v) }, func(err error) {
		resp := kmsg.NewPtrAddRaftVoterResponse()
		resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		r.Reply(resp)
	})
}

// removeRaftVoter, version 0 (KIP-853).
func (c *Controller) removeRaftVoter(r *wire.Request, req *kmsg.RemoveRaftVoterRequest) {
	v := wire.Voter{NodeID: req.VoterID, MemberID: wire.UUID(req.VoterDirectoryID).String()}
	c.changeVoters(deref(req.ClusterID), requestTimeout, func(ctx context.Context) error { return c.removeVoter(ctx, v) }, func(err error) {
		resp := kmsg.NewPtrRemoveRaftVoterResponse()
		resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		r.Reply(resp)
	})
}

// voterAddress is where a controller says that others reach it.
func voterAddress(listeners []kmsg.AddRaftVoterRequestListener) string {
	address := ""
	for _, l := range listeners {
		if address == "" || l.Name == quorumListener {
			address = net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
		}
	}
	return address
}

// changeVoters makes one change of the members, if this node is active and no
// other change is under way, and hands done what came of it.
func (c *Controller) changeVoters(cluster string, timeout time.Duration, change func(context.Context) error, done func(error)) {
	err := c.wrongCluster(cluster)
	switch {
	case err != nil:
	case c.reign.Load() == nil:
		err = ErrNotLeader
	case !c.changing.CompareAndSwap(false, true):
		err = errChanging
	}
	if err != nil {
		done(err)
		return
	}
	c.answer(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		err := change(ctx)
		c.changing.Store(false)
		done(err)
	})
}

// addVoter takes in a controller that waits for it: it gets the log first, and
// its vote when it has that, so that nobody waits for one that is behind.
func (c *Controller) addVoter(ctx context.Context, v wire.Voter) error {
	members := c.quorum.Members()
	for _, m := range members {
		switch {
		case m.NodeID == v.NodeID && m.MemberID == v.MemberID:
			return metadata.Refuse(kerr.DuplicateVoter, "node %d with this directory is a controller already", v.NodeID)
		case m.NodeID == v.NodeID:
			return metadata.Refuse(kerr.DuplicateVoter, "node %d is a controller with the directory %s: take that out first (varve cluster controllers replace %d does both)", v.NodeID, m.MemberID, v.NodeID)
		}
	}
	if err := c.waits(ctx, v); err != nil {
		return err
	}
	if live := c.live(ctx, members) + 1; live <= (len(members)+1)/2 {
		return metadata.Refuse(kerr.InvalidRequest, "only %d of %d controllers would be alive, no majority: start the others first", live, len(members)+1)
	}
	if err := c.quorum.Teach(ctx, v); err != nil {
		return err
	}
	if err := c.caughtUp(ctx, v, c.quorum.LogEnd()); err != nil {
		return err
	}
	if err := c.quorum.AddMember(ctx, v); err != nil {
		return err
	}
	c.logger.Info("controller added", "controller", v.NodeID, "member", v.MemberID, "address", v.Address)
	return nil
}

// removeVoter takes out a member, unless too few of the rest are alive.
func (c *Controller) removeVoter(ctx context.Context, v wire.Voter) error {
	members := c.quorum.Members()
	var rest []wire.Voter
	for _, m := range members {
		if m.NodeID != v.NodeID || m.MemberID != v.MemberID {
			rest = append(rest, m)
		}
	}
	switch {
	case len(rest) == len(members):
		return metadata.Refuse(kerr.VoterNotFound, "no controller is node %d with the directory %s", v.NodeID, v.MemberID)
	case len(rest) == 0:
		return metadata.Refuse(kerr.InvalidRequest, "node %d is the only controller", v.NodeID)
	}
	if live := c.live(ctx, rest); live <= len(rest)/2 {
		return metadata.Refuse(kerr.InvalidRequest, "only %d of the remaining %d controllers are alive, no majority: start the others first", live, len(rest))
	}
	if err := c.quorum.RemoveMember(ctx, v); err != nil {
		return err
	}
	c.logger.Info("controller removed", "controller", v.NodeID, "member", v.MemberID)
	return nil
}

// waits checks that a controller is there, is who it is said to be, and waits to
// be added to this cluster.
func (c *Controller) waits(ctx context.Context, v wire.Voter) error {
	from, err := c.introduce(ctx, v.Address)
	switch {
	case err != nil:
		return metadata.Refuse(kerr.InvalidRequest, "node %d does not answer at %s: %v", v.NodeID, v.Address, err)
	case from.NodeID != v.NodeID || from.MemberID != v.MemberID:
		return metadata.Refuse(kerr.InvalidVoterKey, "at %s is node %d with the directory %s", v.Address, from.NodeID, from.MemberID)
	case from.State != wire.VoterWaiting || from.ClusterID != c.ClusterID():
		return metadata.Refuse(kerr.InvalidRequest, "node %d does not wait to be added to the controllers of this cluster", v.NodeID)
	}
	return nil
}

// caughtUp waits until a new member has the log up to an index.
func (c *Controller) caughtUp(ctx context.Context, v wire.Voter, index uint64) error {
	for {
		from, err := c.introduce(ctx, v.Address)
		switch {
		case err == nil && from.MemberID != v.MemberID:
			return metadata.Refuse(kerr.InvalidVoterKey, "at %s is node %d with the directory %s by now", v.Address, from.NodeID, from.MemberID)
		case err == nil && from.LogEnd >= index:
			return nil
		}
		select {
		case <-time.After(catchUpPoll):
		case <-ctx.Done():
			return metadata.Refuse(kerr.RequestTimedOut, "node %d has the log up to index %d of %d, and no vote yet: ask again", v.NodeID, from.LogEnd, index)
		}
	}
}

// live counts the members that answer as such.
func (c *Controller) live(ctx context.Context, members []wire.Voter) int {
	count := 0
	for _, s := range c.states(ctx, members) {
		if s.alive {
			count++
		}
	}
	return count
}

// memberState is what a member of the quorum says of itself.
type memberState struct {
	wire.Voter
	alive  bool
	logEnd uint64 // of a live one
}

// states asks all members.
func (c *Controller) states(ctx context.Context, members []wire.Voter) []memberState {
	addresses := map[int32]string{}
	for _, m := range members {
		if m.NodeID != c.cfg.NodeID {
			addresses[m.NodeID] = net.JoinHostPort(c.hostPort(m))
		}
	}
	answers := c.meet(ctx, addresses)
	var out []memberState
	for _, m := range members {
		from, err := c.introduction(), error(nil)
		if m.NodeID != c.cfg.NodeID {
			from, err = answers[m.NodeID].from, answers[m.NodeID].err
		}
		alive := err == nil && from.MemberID == m.MemberID && from.State == wire.VoterMember
		out = append(out, memberState{m, alive, from.LogEnd})
	}
	return out
}

// describeQuorum, versions 0-2 (KIP-595, KIP-853). Offsets are indexes of the
// quorum's log; observers are controllers that wait to be added.
func (c *Controller) describeQuorum(r *wire.Request, req *kmsg.DescribeQuorumRequest) {
	c.answer(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, meetTimeout)
		defer cancel()
		resp := kmsg.NewPtrDescribeQuorumResponse()
		err := c.wrongCluster("")
		if err == nil && c.reign.Load() == nil {
			err = ErrNotLeader
		}
		for _, t := range req.Topics {
			topic := kmsg.NewDescribeQuorumResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				part := kmsg.NewDescribeQuorumResponseTopicPartition()
				part.Partition = p.Partition
				switch {
				case err != nil:
					part.ErrorCode, part.ErrorMessage = quorumCode(err), text(err)
				case t.Topic != quorumTopic || p.Partition != 0:
					part.ErrorCode = kerr.UnknownTopicOrPartition.Code
				default:
					resp.Nodes = c.describePartition(ctx, &part)
				}
				topic.Partitions = append(topic.Partitions, part)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		if resp.ErrorCode = 0; err != nil && len(req.Topics) == 0 {
			resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		}
		r.Reply(resp)
	})
}

// quorumCode is Kafka's code for one who is asked for the quorum and does not lead it.
func quorumCode(err error) int16 {
	if errors.Is(err, ErrNotLeader) {
		return kerr.NotLeaderForPartition.Code
	}
	return code(err)
}

// describePartition fills in what is known of the quorum, and returns where its
// nodes are.
func (c *Controller) describePartition(ctx context.Context, part *kmsg.DescribeQuorumResponseTopicPartition) []kmsg.DescribeQuorumResponseNode {
	now, img := time.Now().UnixMilli(), c.Image()
	part.LeaderID, part.LeaderEpoch, part.HighWatermark = c.quorum.Leader(), c.controllerEpoch(), int64(img.Index())
	var nodes []kmsg.DescribeQuorumResponseNode
	for _, s := range c.states(ctx, c.quorum.Members()) {
		state := replicaState(s.NodeID, s.MemberID)
		if s.alive {
			state.LogEndOffset, state.LastFetchTimestamp = int64(s.logEnd), now
			if s.logEnd >= img.Index() {
				state.LastCaughtUpTimestamp = now
			}
		}
		part.CurrentVoters = append(part.CurrentVoters, state)
		host, port := c.hostPort(s.Voter)
		nodes = append(nodes, quorumNode(s.NodeID, host, port))
	}
	for _, o := range c.observers.of(c.ClusterID(), time.Now()) {
		if isMember(c.quorum.Members(), o.Introduction) {
			continue // it was added since
		}
		state := replicaState(o.NodeID, o.MemberID)
		state.LogEndOffset, state.LastFetchTimestamp = int64(o.LogEnd), o.seen.UnixMilli()
		part.Observers = append(part.Observers, state)
		if host, port, err := net.SplitHostPort(o.Address); err == nil {
			nodes = append(nodes, quorumNode(o.NodeID, host, port))
		}
	}
	return nodes
}

func replicaState(node int32, member string) kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	state := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	state.ReplicaID, state.LogEndOffset = node, -1
	if id, err := wire.ParseUUID(member); err == nil {
		state.ReplicaDirectoryID = id
	}
	return state
}

func quorumNode(id int32, host, port string) kmsg.DescribeQuorumResponseNode {
	node := kmsg.NewDescribeQuorumResponseNode()
	node.NodeID = id
	l := kmsg.NewDescribeQuorumResponseNodeListener()
	n, _ := strconv.ParseUint(port, 10, 16)
	l.Name, l.Host, l.Port = quorumListener, host, uint16(n)
	node.Listeners = append(node.Listeners, l)
	return node
}

// hostPort is where a member can be reached: where this node's configuration
// says, else where the member itself said.
func (c *Controller) hostPort(v wire.Voter) (host, port string) {
	address := v.Address
	for _, listed := range c.cfg.Voters {
		if listed.ID == v.NodeID {
			address = listed.Address
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, "0"
	}
	return host, port
}
