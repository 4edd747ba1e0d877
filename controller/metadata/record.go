package metadata

import (
	"encoding/binary"
	"fmt"

	"github.com/varve-io/varve/wire"
)

// Record is one change of the image: a row's new state, or the removal of a
// row. Records know no preconditions; replaying one twice does no harm.
type Record interface {
	fields(*coder)
	recordKind() uint64
	replay(*Image)
}

// Removals.
type (
	// RemoveTopic takes a topic with its partitions, segments and configuration.
	// Reservations stay until they expire: their objects may still appear.
	RemoveTopic struct{ ID wire.UUID }
	// RemoveSegment takes one committed row; its object is gone from the store.
	RemoveSegment struct {
		TopicID   wire.UUID
		Partition int32
		Base      int64
	}
	RemoveReservation struct{ Object wire.UUID }
	RemoveTask        struct{ ID uint64 }
	RemoveBroker      struct{ ID int32 }
)

func (r *RemoveTopic) fields(c *coder) { c.uuid(&r.ID) }
func (r *RemoveSegment) fields(c *coder) {
	c.uuid(&r.TopicID)
	num(c, &r.Partition)
	num(c, &r.Base)
}
func (r *RemoveReservation) fields(c *coder) { c.uuid(&r.Object) }
func (r *RemoveTask) fields(c *coder)        { c.uvarint(&r.ID) }
func (r *RemoveBroker) fields(c *coder)      { num(c, &r.ID) }

// The numbers on disk and on the wire; they never change meaning.
func (*Cluster) recordKind() uint64           { return 1 }
func (*Clock) recordKind() uint64             { return 2 }
func (*ProducerIDs) recordKind() uint64       { return 3 }
func (*Feature) recordKind() uint64           { return 4 }
func (*Broker) recordKind() uint64            { return 5 }
func (*RemoveBroker) recordKind() uint64      { return 6 }
func (*Topic) recordKind() uint64             { return 7 }
func (*RemoveTopic) recordKind() uint64       { return 8 }
func (*Partition) recordKind() uint64         { return 9 }
func (*Config) recordKind() uint64            { return 10 }
func (*Segment) recordKind() uint64           { return 11 }
func (*RemoveSegment) recordKind() uint64     { return 12 }
func (*Reservation) recordKind() uint64       { return 13 }
func (*RemoveReservation) recordKind() uint64 { return 14 }
func (*Task) recordKind() uint64              { return 15 }
func (*RemoveTask) recordKind() uint64        { return 16 }

func newRecord(kind uint64) Record {
	switch kind {
	case 1:
		return new(Cluster)
	case 2:
		return new(Clock)
	case 3:
		return new(ProducerIDs)
	case 4:
		return new(Feature)
	case 5:
		return new(Broker)
	case 6:
		return new(RemoveBroker)
	case 7:
		return new(Topic)
	case 8:
		return new(RemoveTopic)
	case 9:
		return new(Partition)
	case 10:
		return new(Config)
	case 11:
		return new(Segment)
	case 12:
		return new(RemoveSegment)
	case 13:
		return new(Reservation)
	case 14:
		return new(RemoveReservation)
	case 15:
		return new(Task)
	case 16:
		return new(RemoveTask)
	}
	return nil
}

func (r *Cluster) replay(m *Image)      { m.clusterID = r.ID }
func (r *Clock) replay(m *Image)        { m.timeMs = r.Ms }
func (r *ProducerIDs) replay(m *Image)  { m.nextProducerID = r.Next }
func (r *Feature) replay(m *Image)      { m.features.put([]byte(r.Name), r) }
func (r *Broker) replay(m *Image)       { m.brokers.put(brokerKey(r.ID), r) }
func (r *RemoveBroker) replay(m *Image) { m.brokers.remove(brokerKey(r.ID)) }
func (r *Partition) replay(m *Image)    { m.partitions.put(partitionKey(r.TopicID, r.Index), r) }
func (r *Segment) replay(m *Image)      { m.segments.put(segmentKey(r.TopicID, r.Partition, r.Base), r) }
func (r *RemoveSegment) replay(m *Image) {
	m.segments.remove(segmentKey(r.TopicID, r.Partition, r.Base))
}
func (r *Reservation) replay(m *Image)       { m.reservations.put(r.Object[:], r) }
func (r *RemoveReservation) replay(m *Image) { m.reservations.remove(r.Object[:]) }
func (r *Task) replay(m *Image)              { m.tasks.put(binary.BigEndian.AppendUint64(nil, r.ID), r) }
func (r *RemoveTask) replay(m *Image)        { m.tasks.remove(binary.BigEndian.AppendUint64(nil, r.ID)) }

func (r *Topic) replay(m *Image) {
	m.topics.put(r.ID[:], r)
	m.names.put([]byte(r.Name), r.ID)
}

func (r *RemoveTopic) replay(m *Image) {
	t := m.topics.get(r.ID[:])
	if t == nil {
		return
	}
	m.topics.remove(r.ID[:])
	m.names.remove([]byte(t.Name))
	m.partitions.removeAll(r.ID[:])
	m.segments.removeAll(r.ID[:])
	m.configs.remove(configKey(ResourceTopic, t.Name))
}

func (r *Config) replay(m *Image) {
	if len(r.Entries) == 0 {
		m.configs.remove(configKey(r.Type, r.Name))
		return
	}
	m.configs.put(configKey(r.Type, r.Name), r)
}

// Replay returns the image after records, which came from the entry at index
// and term. It is how brokers follow the controller.
func (m *Image) Replay(recs []Record, index, term uint64) *Image {
	next := *m
	for _, r := range recs {
		r.replay(&next)
	}
	next.index, next.term = index, term
	next.features.seal()
	next.brokers.seal()
	next.topics.seal()
	next.names.seal()
	next.partitions.seal()
	next.segments.seal()
	next.configs.seal()
	next.reservations.seal()
	next.tasks.seal()
	return &next
}

// EncodeRecords frames records one after the other.
func EncodeRecords(recs []Record) []byte {
	var b []byte
	for _, r := range recs {
		b = appendRecord(b, r)
	}
	return b
}

// DecodeRecords reads what EncodeRecords wrote. The records own their memory.
func DecodeRecords(b []byte) ([]Record, error) {
	var recs []Record
	for len(b) > 0 {
		r, rest, err := cutRecord(b)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(recs), err)
		}
		recs, b = append(recs, r), rest
	}
	return recs, nil
}

// formatVersion is the version of every kind so far.
const formatVersion = 1

func appendRecord(dst []byte, r Record) []byte { return appendFramed(dst, r.recordKind(), r.fields) }

func cutRecord(b []byte) (Record, []byte, error) {
	kind, body, rest, err := cutFramed(b)
	if err != nil {
		return nil, nil, err
	}
	r := newRecord(kind)
	if r == nil {
		return nil, nil, unknownKind("record", kind)
	}
	c := coder{reading: true, b: body}
	if r.fields(&c); c.err != nil {
		return nil, nil, fmt.Errorf("%T: %w", r, c.err)
	}
	return r, rest, nil
}

func appendFramed(dst []byte, kind uint64, fields func(*coder)) []byte {
	c := coder{}
	fields(&c)
	dst = binary.AppendUvarint(dst, kind)
	dst = binary.AppendUvarint(dst, formatVersion)
	dst = binary.AppendUvarint(dst, uint64(len(c.b)))
	return append(dst, c.b...)
}

func cutFramed(b []byte) (kind uint64, body, rest []byte, err error) {
	c := coder{reading: true, b: b}
	var version uint64
	c.present().uvarint(&kind)
	c.present().uvarint(&version)
	body = c.take(uint64(c.present().length(0, maxBody)))
	if c.err == nil && version != formatVersion {
		return 0, nil, nil, fmt.Errorf("%w: kind %d has version %d, this binary reads %d: finalise no metadata.version above %d before every node is upgraded",
			ErrUnsupported, kind, version, formatVersion, MetadataVersion)
	}
	return kind, body, c.b, c.err
}

func unknownKind(what string, kind uint64) error {
	return fmt.Errorf("%w: %s of kind %d: finalise no metadata.version above %d before every node is upgraded", ErrUnsupported, what, kind, MetadataVersion)
}
