package metadata

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
)

// ledBy returns a partition if the broker, at this epoch of its own, leads it
// at this leader epoch.
func (m *Image) ledBy(broker int32, brokerEpoch int64, topicID wire.UUID, partition, leaderEpoch int32) (*Partition, error) {
	if _, err := m.brokerAt(broker, brokerEpoch); err != nil {
		return nil, err
	}
	if m.TopicByID(topicID) == nil {
		return nil, Refuse(kerr.UnknownTopicID, "topic %s", topicID)
	}
	p := m.Partition(topicID, partition)
	switch {
	case p == nil:
		return nil, Refuse(kerr.UnknownTopicOrPartition, "partition %d of topic %s", partition, topicID)
	case leaderEpoch < p.LeaderEpoch:
		return nil, Refuse(kerr.FencedLeaderEpoch, "the leader epoch is %d, the request's %d", p.LeaderEpoch, leaderEpoch)
	case leaderEpoch > p.LeaderEpoch:
		return nil, Refuse(kerr.UnknownLeaderEpoch, "the leader epoch is %d, the request's %d", p.LeaderEpoch, leaderEpoch)
	case p.Leader != broker:
		return nil, Refuse(kerr.NotLeaderForPartition, "the leader is broker %d", p.Leader)
	}
	return p, nil
}

// MaxReservationMs bounds the life of a reservation, and with it how long a
// deleted topic's purge may have to wait.
const MaxReservationMs = 24 * 60 * 60 * 1000

func (x *ReserveObject) apply(m *Image, at Meta) ([]Record, []byte, error) {
	p, err := m.ledBy(x.BrokerID, x.BrokerEpoch, x.TopicID, x.Partition, x.LeaderEpoch)
	switch {
	case err != nil:
		return nil, nil, err
	case !p.RemoteEnd.Known():
		return nil, nil, Refuse(kerr.OffsetNotAvailable, "the remote end of the partition is unknown")
	case x.Object.IsZero() || m.Reservation(x.Object) != nil:
		return nil, nil, Refuse(kerr.InvalidRequest, "object id %s is not new", x.Object)
	case x.LifetimeMs < 1 || x.LifetimeMs > MaxReservationMs:
		return nil, nil, Refuse(kerr.InvalidRequest, "a reservation for %d ms", x.LifetimeMs)
	}
	return []Record{&Reservation{Object: x.Object, TopicID: x.TopicID, Partition: x.Partition, BrokerID: x.BrokerID, ExpiresMs: at.TimeMs + x.LifetimeMs}}, nil, nil
}

func (x *CommitSegment) apply(m *Image, at Meta) ([]Record, []byte, error) {
	s := x.Segment
	if row, ok := m.SegmentAt(s.TopicID, s.Partition, s.Base); ok && *row == s {
		return nil, nil, nil // committed before; the answer was lost
	}
	p, err := m.ledBy(x.BrokerID, x.BrokerEpoch, s.TopicID, s.Partition, s.Epoch)
	if err != nil {
		return nil, nil, err
	}
	r := m.Reservation(s.Object)
	if r == nil || r.TopicID != s.TopicID || r.Partition != s.Partition || r.BrokerID != x.BrokerID || r.ExpiresMs <= at.TimeMs {
		return nil, nil, Refuse(kerr.ResourceNotFound, "object %s has no reservation that lives", s.Object)
	}
	next, known := p.Next()
	if !known {
		return nil, nil, Refuse(kerr.OffsetNotAvailable, "the remote end of the partition is unknown")
	}
	remoteEnd, _ := p.RemoteEnd.Offset()
	if s.Base < remoteEnd || s.Base > next || s.End <= next || s.Base < 0 {
		return nil, nil, Refuse(kerr.InvalidUpdateVersion, "segment [%d, %d) does not continue the remote end %d, log start %d", s.Base, s.End, remoteEnd, p.LogStart)
	}
	moved := *p
	moved.RemoteEnd = RemoteAt(s.End)
	return []Record{&s, &moved, &RemoveReservation{Object: s.Object}}, nil, nil
}

func (x *ReleaseReservation) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	if m.Reservation(x.Object) == nil {
		return nil, nil, nil
	}
	return []Record{&RemoveReservation{Object: x.Object}}, nil, nil
}

func (x *AdvanceLogStart) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	p, err := m.ledBy(x.BrokerID, x.BrokerEpoch, x.TopicID, x.Partition, x.LeaderEpoch)
	if err != nil || x.LogStart <= p.LogStart {
		return nil, nil, err
	}
	next := *p
	next.LogStart = x.LogStart
	return []Record{&next}, nil, nil
}

func (x *DeleteSegmentsUpTo) apply(m *Image, at Meta) ([]Record, []byte, error) {
	p, err := m.ledBy(x.BrokerID, x.BrokerEpoch, x.TopicID, x.Partition, x.LeaderEpoch)
	switch {
	case err != nil || x.UpTo <= p.DeleteUpTo:
		return nil, nil, err
	case !p.RemoteEnd.Known():
		return nil, nil, Refuse(kerr.OffsetNotAvailable, "the remote end of the partition is unknown")
	case x.UpTo > p.LogStart:
		return nil, nil, Refuse(kerr.OffsetOutOfRange, "offset %d is above the log start %d", x.UpTo, p.LogStart)
	}
	for s := range m.Segments(x.TopicID, x.Partition, 0) {
		if s.End <= p.DeleteUpTo {
			return nil, nil, Refuse(kerr.OperationNotAttempted, "objects up to %d are still being deleted", p.DeleteUpTo)
		}
		break
	}
	next := *p
	next.DeleteUpTo, next.DeleteUpToMs = x.UpTo, at.TimeMs
	return []Record{&next}, nil, nil
}

func (x *ForgetSegments) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	p, err := m.ledBy(x.BrokerID, x.BrokerEpoch, x.TopicID, x.Partition, x.LeaderEpoch)
	if err != nil {
		return nil, nil, err
	}
	wanted := distinct(x.Objects)
	var recs []Record
	for s := range m.Segments(x.TopicID, x.Partition, 0) {
		if s.End > p.DeleteUpTo {
			break
		}
		if wanted[s.Object] {
			recs = append(recs, &RemoveSegment{TopicID: s.TopicID, Partition: s.Partition, Base: s.Base})
			delete(wanted, s.Object)
		}
	}
	for s := range m.Segments(x.TopicID, x.Partition, p.DeleteUpTo) {
		if len(wanted) == 0 {
			break
		}
		if wanted[s.Object] {
			return nil, nil, Refuse(kerr.InvalidRequest, "object %s ends at %d, above %d: it may not be deleted", s.Object, s.End, p.DeleteUpTo)
		}
	}
	return recs, nil, nil
}

func (x *ExpireReservations) apply(m *Image, at Meta) ([]Record, []byte, error) {
	var recs []Record
	for r := range m.Reservations() {
		if r.ExpiresMs <= at.TimeMs {
			recs = append(recs, &RemoveReservation{Object: r.Object})
		}
	}
	return recs, nil, nil
}

func (x *CompleteTask) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	if _, err := m.brokerAt(x.BrokerID, x.BrokerEpoch); err != nil {
		return nil, nil, err
	}
	t := m.Task(x.ID)
	switch {
	case t == nil:
		return nil, nil, nil // completed before
	case t.Assignee != x.BrokerID || t.Epoch != x.Epoch:
		return nil, nil, Refuse(kerr.InvalidUpdateVersion, "task %d belongs to broker %d at epoch %d", t.ID, t.Assignee, t.Epoch)
	case t.Kind == PurgeTopic && m.reserved(t.TopicID):
		return nil, nil, Refuse(kerr.OperationNotAttempted, "uploads of topic %q may still appear", t.Topic)
	}
	return []Record{&RemoveTask{ID: t.ID}}, nil, nil
}

// DeletableSegments lists the rows whose objects may be deleted at nowMs,
// graceMs after that was committed, oldest first.
func (m *Image) DeletableSegments(topicID wire.UUID, partition int32, nowMs, graceMs int64) []*Segment {
	p := m.Partition(topicID, partition)
	if p == nil || nowMs < p.DeleteUpToMs+graceMs {
		return nil
	}
	var due []*Segment
	for s := range m.Segments(topicID, partition, 0) {
		if s.End > p.DeleteUpTo {
			break
		}
		due = append(due, s)
	}
	return slices.Clip(due)
}
