package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/wire"
)

// How controllers meet.
const (
	meetPause     = 100 * time.Millisecond // between rounds while a cluster forms
	announcePause = time.Second            // between rounds of one that waits to be added
	meetTimeout   = 2 * time.Second        // of one answer
	meetTell      = 10 * time.Second       // how often it is told what is waited for
)

// join makes this node one that takes part in a quorum's log: it founds one, or
// finds out of which it is a member or is to be one.
//
// The voters of controller.quorum.voters that hold nothing ask each other who
// they are. Once the one with the lowest id has heard from all the others, and
// all hold nothing and have the same list, it decides on a cluster id and on the
// voters with the directories that they have now, writes that down, and begins
// the log. The others find it in its answers and get the log from it. Every step
// is on disk before it is told to anybody, so that whoever dies in between goes on
// where it was.
func (c *Controller) join(ctx context.Context) error {
	m := *c.member.Load()
	if m.clusterID == "" {
		found, err := c.agree(ctx)
		if err != nil {
			return err
		}
		m.clusterID, m.voters = found.clusterID, found.voters
		if len(m.voters) > 0 {
			if err := c.become(m); err != nil {
				return err
			}
			c.logger.Info("founding a cluster with the other voters", "cluster", m.clusterID, "voters", describe(m.voters))
		}
	}
	if m.formed {
		return nil
	}
	if len(m.voters) > 0 {
		if err := c.found(m.voters); err != nil {
			return err
		}
	}
	m.formed, m.voters = true, nil
	return c.become(m)
}

// become writes down who this node is from now on.
func (c *Controller) become(m member) error {
	if err := m.write(c.cfg.Dir); err != nil {
		return fmt.Errorf("write %s: %w", memberFile, err)
	}
	c.member.Store(&m)
	return nil
}

// agree asks the other controllers until it is clear what cluster this node is
// of. The verdict has voters if this node is to found it.
func (c *Controller) agree(ctx context.Context) (verdict, error) {
	told := ""
	var at time.Time
	for {
		v := judge(c.introduction(), c.meet(ctx, c.others(nil)))
		if v.clusterID != "" {
			return v, nil
		}
		if now := time.Now(); v.why != told || now.Sub(at) > meetTell {
			told, at = v.why, now
			c.logger.Info("no cluster yet", "reason", v.why)
		}
		c.waiting.Store(&v.why)
		select {
		case <-time.After(meetPause):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// announce makes a node that no quorum has among its members known to the
// controllers, until one has: an administrator can then add it.
func (c *Controller) announce(ctx context.Context) {
	told := ""
	pause := meetPause // a quorum that has just formed is about to speak up
	for first := true; ; first = false {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		members := c.quorum.Members()
		if isMember(members, c.introduction()) {
			c.waiting.Store(nil)
			continue
		}
		if c.member.Load().clusterID == "" || first {
			continue
		}
		pause = announcePause
		why := standing(c.introduction(), c.meet(ctx, c.others(members)))
		c.waiting.Store(&why)
		if why != told {
			told = why
			c.logger.Warn("this controller takes no part in the quorum", "reason", why)
		}
	}
}

// others are the addresses of the controllers that this node knows of, by node id.
func (c *Controller) others(members []wire.Voter) map[int32]string {
	out := map[int32]string{}
	for _, v := range members {
		out[v.NodeID] = v.Address
	}
	for _, v := range c.cfg.Voters {
		out[v.ID] = v.Address
	}
	delete(out, c.cfg.NodeID)
	return out
}

// meeting is what another controller said of itself, or why it said nothing.
type meeting struct {
	from wire.Introduction
	err  error
}

// meet asks controllers who they are, all at once.
func (c *Controller) meet(ctx context.Context, addresses map[int32]string) map[int32]meeting {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[int32]meeting, len(addresses))
	for id, address := range addresses {
		wg.Go(func() {
			from, err := c.introduce(ctx, address)
			if err == nil && from.NodeID != id {
				err = fmt.Errorf("is node %d", from.NodeID)
			}
			mu.Lock()
			defer mu.Unlock()
			out[id] = meeting{from, err}
		})
	}
	wg.Wait()
	return out
}

// introduce asks one controller who it is.
func (c *Controller) introduce(ctx context.Context, address string) (wire.Introduction, error) {
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	r, err := c.peers.to(address).Request(ctx, &wire.IntroduceRequest{From: c.introduction()})
	if err != nil {
		return wire.Introduction{}, err
	}
	return r.(*wire.IntroduceResponse).From, nil
}

// introduction says who this node is.
func (c *Controller) introduction() wire.Introduction {
	m, members := c.member.Load(), c.quorum.Members()
	in := wire.Introduction{NodeID: m.nodeID, MemberID: m.memberID, ClusterID: m.clusterID, Address: c.cfg.Address, LogEnd: c.quorum.LogEnd()}
	switch {
	case m.clusterID == "":
		in.State, in.ClusterID = wire.VoterFresh, c.cfg.ClusterID
		for _, v := range c.cfg.Voters {
			in.Voters = append(in.Voters, wire.Voter{NodeID: v.ID, Address: v.Address})
		}
	case len(m.voters) > 0:
		in.State, in.Voters = wire.VoterMember, m.voters
	case isMember(members, in):
		in.State, in.Voters = wire.VoterMember, members
	default:
		in.State, in.Voters = wire.VoterWaiting, members
	}
	return in
}

func isMember(members []wire.Voter, in wire.Introduction) bool {
	return slices.ContainsFunc(members, func(v wire.Voter) bool { return v.NodeID == in.NodeID && v.MemberID == in.MemberID })
}

// verdict is what came of a meeting: a cluster, or why there is none.
type verdict struct {
	clusterID string
	voters    []wire.Voter // founding ones, if this node founds it
	why       string
}

// judge decides what a node without a cluster makes of the others' answers.
func judge(self wire.Introduction, answers map[int32]meeting) verdict {
	clusters := map[string]bool{}
	var missing, why []string
	for _, id := range sorted(answers) {
		from, err := answers[id].from, answers[id].err
		switch {
		case err != nil:
			missing = append(missing, fmt.Sprintf("%d (%v)", id, err))
		case self.ClusterID != "" && from.ClusterID != "" && from.ClusterID != self.ClusterID:
			why = append(why, fmt.Sprintf("node %d is of cluster %s, this one is to be of %s", id, from.ClusterID, self.ClusterID))
		case from.State == wire.VoterMember:
			clusters[from.ClusterID] = true
		case from.State == wire.VoterWaiting:
			why = append(why, fmt.Sprintf("node %d belongs to cluster %s and waits to be added to its controllers", id, from.ClusterID))
		case !sameList(self.Voters, from.Voters):
			why = append(why, fmt.Sprintf("node %d has another controller.quorum.voters: %s", id, describe(from.Voters)))
		}
	}
	switch founder := lowest(self.Voters); {
	case len(clusters) == 1:
		return verdict{clusterID: only(clusters)}
	case len(clusters) > 1:
		why = append(why, fmt.Sprintf("the other controllers are of %d different clusters", len(clusters)))
	case len(missing) > 0:
		why = append(why, fmt.Sprintf("waiting for the controllers %s: a cluster forms once all of controller.quorum.voters have answered; if one exists already, start its controllers first, and if this node's disk was replaced then run: varve cluster controllers replace %d",
			strings.Join(missing, ", "), self.NodeID))
	case !slices.ContainsFunc(self.Voters, func(v wire.Voter) bool { return v.NodeID == self.NodeID }):
		why = append(why, fmt.Sprintf("controller.quorum.voters does not list node %d: it founds no cluster", self.NodeID))
	case len(why) == 0 && founder != self.NodeID:
		why = append(why, fmt.Sprintf("waiting for node %d to found the cluster", founder))
	case len(why) == 0:
		return found(self, answers)
	}
	return verdict{why: strings.Join(why, "; ")}
}

// found is the verdict of the node that founds a cluster with those it met.
func found(self wire.Introduction, answers map[int32]meeting) verdict {
	v := verdict{clusterID: self.ClusterID}
	for _, listed := range self.Voters {
		if listed.MemberID = self.MemberID; listed.NodeID != self.NodeID {
			from := answers[listed.NodeID].from
			listed.MemberID = from.MemberID
			v.clusterID = cmp.Or(v.clusterID, from.ClusterID)
		}
		v.voters = append(v.voters, listed)
	}
	for _, a := range answers { // two may want different ones, where this node wants none
		if want := a.from.ClusterID; want != "" && want != v.clusterID {
			return verdict{why: fmt.Sprintf("varve.cluster.id is %s on one node and %s on another", v.clusterID, want)}
		}
	}
	v.clusterID = cmp.Or(v.clusterID, wire.NewUUID().String())
	return v
}

// standing says why a node of a cluster is not in its quorum.
func standing(self wire.Introduction, answers map[int32]meeting) string {
	for _, id := range sorted(answers) {
		from := answers[id].from
		if answers[id].err != nil || from.State != wire.VoterMember {
			continue
		}
		for _, v := range from.Voters {
			switch {
			case v.NodeID == self.NodeID && v.MemberID == self.MemberID:
				return "waiting for the metadata log from the active controller"
			case v.NodeID == self.NodeID:
				return fmt.Sprintf("node %d is a controller of cluster %s with another directory (member %s; this one is %s): its disk was lost or replaced. Take this one in its place: varve cluster controllers replace %d",
					v.NodeID, from.ClusterID, v.MemberID, self.MemberID, v.NodeID)
			}
		}
		return fmt.Sprintf("node %d is no controller of cluster %s yet: varve cluster controllers add %d", self.NodeID, from.ClusterID, self.NodeID)
	}
	return fmt.Sprintf("node %d waits to be added to the controllers of cluster %s, and none of them answers: start them, then run varve cluster controllers add %d, or replace %d if it was one before",
		self.NodeID, self.ClusterID, self.NodeID, self.NodeID)
}

func sameList(a, b []wire.Voter) bool {
	ids := func(vs []wire.Voter) []int32 {
		var out []int32
		for _, v := range vs {
			out = append(out, v.NodeID)
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(ids(a), ids(b))
}

func lowest(vs []wire.Voter) int32 {
	id := int32(-1)
	for _, v := range vs {
		if id < 0 || v.NodeID < id {
			id = v.NodeID
		}
	}
	return id
}

func sorted(answers map[int32]meeting) []int32 {
	var ids []int32
	for id := range answers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func only(set map[string]bool) string {
	for s := range set {
		return s
	}
	return ""
}

func describe(vs []wire.Voter) string {
	var out []string
	for _, v := range vs {
		out = append(out, fmt.Sprintf("%d@%s", v.NodeID, v.Address))
	}
	return strings.Join(out, ",")
}
