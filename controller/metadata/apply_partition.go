package metadata

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
)

// apply follows ReplicationControlManager.alterPartition (KIP-497, 841, 903).
// An accepted one always has a row of a higher partition epoch.
func (x *AlterPartition) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	p, err := m.ledBy(x.BrokerID, x.BrokerEpoch, x.TopicID, x.Partition, x.LeaderEpoch)
	if err != nil {
		return nil, nil, err
	}
	if x.PartitionEpoch != p.PartitionEpoch {
		return nil, nil, Refuse(kerr.InvalidUpdateVersion, "the partition epoch is %d, not %d", p.PartitionEpoch, x.PartitionEpoch)
	}
	isr := make([]int32, 0, len(x.ISR))
	for _, member := range x.ISR {
		if slices.Contains(isr, member.BrokerID) || !slices.Contains(p.Replicas, member.BrokerID) {
			return nil, nil, Refuse(kerr.InvalidRequest, "broker %d is no replica, or named twice", member.BrokerID)
		}
		b := m.Broker(member.BrokerID)
		if !b.Active() || m.offline(p, member.BrokerID) || member.BrokerEpoch != -1 && member.BrokerEpoch != b.Epoch {
			return nil, nil, Refuse(kerr.IneligibleReplica, "broker %d is fenced, shutting down, without its log directory or no longer at epoch %d", member.BrokerID, member.BrokerEpoch)
		}
		isr = append(isr, member.BrokerID)
	}
	if !slices.Contains(isr, p.Leader) {
		return nil, nil, Refuse(kerr.InvalidRequest, "the leader %d must be in sync", p.Leader)
	}
	c := m.change(p)
	c.next.ISR = isr
	if row := c.settle(); row != nil {
		return []Record{row}, nil, nil
	}
	c.next.PartitionEpoch++
	return []Record{&c.next}, nil, nil
}

func (m *Image) partition(topicID wire.UUID, index int32) (*Partition, error) {
	if p := m.Partition(topicID, index); p != nil {
		return p, nil
	}
	return nil, Refuse(kerr.UnknownTopicOrPartition, "partition %d of topic %s", index, topicID)
}

func (x *ReportEnd) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	b, err := m.brokerAt(x.BrokerID, x.BrokerEpoch)
	if err != nil {
		return nil, nil, err
	}
	p, err := m.partition(x.TopicID, x.Partition)
	switch {
	case err != nil || !p.Undecided():
		return nil, nil, err
	case !b.Active():
		return nil, nil, Refuse(kerr.IneligibleReplica, "broker %d is fenced or shutting down", b.ID)
	case !slices.Contains(p.Replicas, b.ID) || x.End < 0:
		return nil, nil, Refuse(kerr.InvalidRequest, "broker %d is no replica, or its log ends at %d", b.ID, x.End)
	}
	c := m.change(p)
	c.next.Ends = slices.DeleteFunc(slices.Clone(p.Ends), func(e ReplicaEnd) bool { return e.BrokerID == b.ID })
	c.next.Ends = append(c.next.Ends, ReplicaEnd{BrokerID: b.ID, BrokerEpoch: b.Epoch, LastEpoch: x.LastEpoch, End: x.End})
	if row := c.settle(); row != nil {
		return []Record{row}, nil, nil
	}
	return nil, nil, nil
}

func (x *ElectLeader) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	p, err := m.partition(x.TopicID, x.Partition)
	if err != nil {
		return nil, nil, err
	}
	c := m.change(p)
	preferred := p.Replicas[0]
	switch {
	case x.Unclean && p.Leader != NoLeader:
		return nil, nil, Refuse(kerr.ElectionNotNeeded, "broker %d leads", p.Leader)
	case x.Unclean:
		if c.forced = c.leastBad(); c.forced == NoLeader {
			return nil, nil, Refuse(kerr.EligibleLeadersNotAvailable, "none of the brokers %v is alive", p.Replicas)
		}
	case p.Leader == preferred:
		return nil, nil, Refuse(kerr.ElectionNotNeeded, "broker %d leads already", preferred)
	case !slices.Contains(p.ISR, preferred) || !c.active(preferred):
		return nil, nil, Refuse(kerr.PreferredLeaderNotAvailable, "broker %d is not in sync", preferred)
	default:
		c.lead(preferred)
	}
	return []Record{c.settle()}, nil, nil
}

// leastBad is whom to elect if records may be lost: the replica that reported
// most, else one that was eligible before, else any that lives.
func (c *change) leastBad() int32 {
	if id := c.best(); id != NoLeader {
		return id
	}
	if id := c.first(c.old.LastKnownELR); id != NoLeader {
		return id
	}
	return c.first(c.old.Replicas)
}

// PrefersOther reports whether the preferred replica of p could lead and does
// not: one that does not go with a reassignment.
func (m *Image) PrefersOther(p *Partition) bool {
	preferred := p.Replicas[0]
	return p.Leader != preferred && slices.Contains(p.ISR, preferred) && m.Broker(preferred).Active() && !m.offline(p, preferred) && !slices.Contains(p.Removing, preferred)
}

// Target is the replicas that p is to have once its reassignment, if there is one, is complete.
func (p *Partition) Target() []int32 { return without(p.Replicas, p.Removing) }

// Original is the replicas that p had before its reassignment, if there is one.
func (p *Partition) Original() []int32 { return without(p.Replicas, p.Adding) }

// Reassigning reports whether a reassignment is under way.
func (p *Partition) Reassigning() bool { return len(p.Adding)+len(p.Removing) > 0 }

// Reassignments lists the partitions that are being reassigned.
func (m *Image) Reassignments() []*Partition {
	var all []*Partition
	for p := range m.AllPartitions() {
		if p.Reassigning() {
			all = append(all, p)
		}
	}
	return all
}

func (x *AlterReassignment) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	p, err := m.partition(x.TopicID, x.Partition)
	if err != nil {
		return nil, nil, err
	}
	original, target := p.Original(), x.Target
	if x.Cancel {
		if !p.Reassigning() {
			return nil, nil, Refuse(kerr.NoReassignmentInProgress, "nothing is being reassigned")
		}
		target = original
	}
	if err := m.checkTarget(x, original, target); err != nil {
		return nil, nil, err
	}
	c := m.change(p)
	removing := without(original, target)
	c.setReplicas(append(slices.Clone(target), removing...))
	c.next.Adding, c.next.Removing = without(target, original), removing
	c.next.ISR = without(p.ISR, without(p.Replicas, c.next.Replicas))
	if err := c.checkDropped(); err != nil {
		return nil, nil, err
	}
	if row := c.settle(); row != nil {
		return []Record{row}, nil, nil
	}
	return nil, nil, nil
}

func (m *Image) checkTarget(x *AlterReassignment, original, target []int32) error {
	switch {
	case len(target) == 0 || len(distinct(target)) != len(target):
		return Refuse(kerr.InvalidReplicaAssignment, "replicas %v are none, or not distinct", target)
	case len(target) > maxReplicas:
		return Refuse(kerr.InvalidReplicaAssignment, "%d replicas; at most %d", len(target), maxReplicas)
	case x.KeepFactor && len(target) != len(original):
		return Refuse(kerr.InvalidReplicationFactor, "%d replicas would become %d", len(original), len(target))
	}
	for _, r := range target {
		if m.Broker(r) == nil {
			return Refuse(kerr.InvalidReplicaAssignment, "broker %d is not registered", r)
		}
	}
	return nil
}

// maxReplicas bounds the replicas of one partition; a reassignment may have twice as many meanwhile.
const maxReplicas = 1000

// checkDropped refuses to forget replicas at once, those of a former target, if too few would be left of those who
// have all that was acknowledged.
func (c *change) checkDropped() error {
	dropped := without(c.old.Replicas, c.next.Replicas)
	safe := append(slices.Clone(c.old.ISR), c.old.ELR...)
	kept := without(safe, dropped)
	if len(safe) == 0 {
		safe, kept = c.old.LastKnownELR, without(c.old.LastKnownELR, dropped)
	}
	if need := min(c.m.MinInSync(&c.next), len(safe)); len(kept) != len(safe) && len(kept) < need {
		return Refuse(kerr.InvalidReplicaAssignment, "of the replicas that have all records, %v, only %v would remain", safe, kept)
	}
	return nil
}

// setReplicas replaces the replicas; each keeps its directory.
func (c *change) setReplicas(replicas []int32) {
	p := &c.next
	dirs := make([]wire.UUID, len(replicas))
	for i, r := range replicas {
		if had := slices.Index(p.Replicas, r); had >= 0 {
			dirs[i] = p.dir(had)
		} else {
			dirs[i] = c.m.Broker(r).onlyDir()
		}
	}
	p.Replicas, p.Dirs = replicas, dirs
}

// completeReassignment forgets the replicas that are to go once all that are
// to come are in sync, and enough of the target are to stand a loss as before.
func (c *change) completeReassignment() {
	p := &c.next
	if !p.Reassigning() || len(without(p.Adding, p.ISR)) > 0 {
		return
	}
	isr := without(p.ISR, p.Removing)
	target := Partition{TopicID: p.TopicID, Replicas: p.Target()}
	if len(isr) < c.m.MinInSync(&target) {
		return
	}
	c.setReplicas(target.Replicas)
	p.ISR, p.Adding, p.Removing = isr, nil, nil
	p.ELR, p.LastKnownELR = intersect(p.ELR, p.Replicas), intersect(p.LastKnownELR, p.Replicas)
}

// without returns the ids that are not among others, in their order.
func without(ids, others []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return slices.Contains(others, id) })
}

// intersect returns the ids that are among others too, in their order.
func intersect(ids, others []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return !slices.Contains(others, id) })
}
