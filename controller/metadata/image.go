package metadata

import (
	"encoding/binary"
	"hash/fnv"
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/varve-io/varve/wire"
)

// Image is the whole state at one index: immutable, so that whoever holds one
// may read it for as long as he likes. The next image shares all that did not
// change. What its methods return must not be modified.
type Image struct {
	index, term    uint64
	clusterID      string
	timeMs         int64
	nextProducerID int64

	features     table[*Feature]     // name
	brokers      table[*Broker]      // id
	topics       table[*Topic]       // topic id
	names        table[wire.UUID]    // topic name
	partitions   table[*Partition]   // topic id, partition
	segments     table[*Segment]     // topic id, partition, base
	configs      table[*Config]      // type, name
	reservations table[*Reservation] // object id
	tasks        table[*Task]        // task id
}

// New returns the image before the first entry.
func New() *Image {
	return &Image{
		features:     newTable[*Feature](),
		brokers:      newTable[*Broker](),
		topics:       newTable[*Topic](),
		names:        newTable[wire.UUID](),
		partitions:   newTable[*Partition](),
		segments:     newTable[*Segment](),
		configs:      newTable[*Config](),
		reservations: newTable[*Reservation](),
		tasks:        newTable[*Task](),
	}
}

// Index and Term are those of the last entry applied; 0 before the first.
func (m *Image) Index() uint64 { return m.index }
func (m *Image) Term() uint64  { return m.term }

// TimeMs is the controller's time of the last change, milliseconds since the epoch.
func (m *Image) TimeMs() int64 { return m.timeMs }

// ClusterID is "" before the cluster is formed.
func (m *Image) ClusterID() string { return m.clusterID }

// NextProducerID is where the next block of producer ids begins.
func (m *Image) NextProducerID() int64 { return m.nextProducerID }

// Feature returns the finalised level of a feature, 0 if it has none.
func (m *Image) Feature(name string) int16 {
	if f := m.features.get([]byte(name)); f != nil {
		return f.Level
	}
	return 0
}

// Features lists the finalised features by name.
func (m *Image) Features() iter.Seq[*Feature] { return m.features.under(nil) }

// Broker returns a registered broker, or nil.
func (m *Image) Broker(id int32) *Broker { return m.brokers.get(brokerKey(id)) }

// Brokers lists the registered brokers by id, fenced ones too.
func (m *Image) Brokers() iter.Seq[*Broker] { return m.brokers.under(nil) }

// Topic returns the topic of that name, or nil.
func (m *Image) Topic(name string) *Topic {
	id := m.names.get([]byte(name))
	if id.IsZero() {
		return nil
	}
	return m.TopicByID(id)
}

// TopicByID returns the topic of that id, or nil.
func (m *Image) TopicByID(id wire.UUID) *Topic { return m.topics.get(id[:]) }

// Topics lists the topics by name.
func (m *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for id := range m.names.under(nil) {
			if !yield(m.TopicByID(id)) {
				return
			}
		}
	}
}

// NumTopics and NumPartitions count those of the whole cluster.
func (m *Image) NumTopics() int     { return m.topics.len() }
func (m *Image) NumPartitions() int { return m.partitions.len() }

// NumSegments counts the remote segment rows of the whole cluster.
func (m *Image) NumSegments() int { return m.segments.len() }

// Partition returns a partition, or nil.
func (m *Image) Partition(topicID wire.UUID, partition int32) *Partition {
	return m.partitions.get(partitionKey(topicID, partition))
}

// Partitions lists the partitions of a topic in order.
func (m *Image) Partitions(topicID wire.UUID) iter.Seq[*Partition] {
	return m.partitions.under(topicID[:])
}

// AllPartitions lists every partition, by topic id and number.
func (m *Image) AllPartitions() iter.Seq[*Partition] { return m.partitions.under(nil) }

// Segments lists the remote segments of a partition that end after from, in
// the order of their offsets.
func (m *Image) Segments(topicID wire.UUID, partition int32, from int64) iter.Seq[*Segment] {
	return func(yield func(*Segment) bool) {
		if first, ok := m.SegmentAt(topicID, partition, from); ok {
			from = first.Base
		}
		for s := range m.segments.from(partitionKey(topicID, partition), segmentKey(topicID, partition, max(from, 0))) {
			if !yield(s) {
				return
			}
		}
	}
}

// SegmentAt returns the remote segment that holds offset.
func (m *Image) SegmentAt(topicID wire.UUID, partition int32, offset int64) (*Segment, bool) {
	if offset < 0 {
		return nil, false
	}
	s := m.segments.atOrBefore(partitionKey(topicID, partition), segmentKey(topicID, partition, offset))
	return s, s != nil && offset < s.End
}

// LastSegment returns the remote segment with the highest offsets, or nil.
func (m *Image) LastSegment(topicID wire.UUID, partition int32) *Segment {
	key := partitionKey(topicID, partition)
	return m.segments.atOrBefore(key, segmentKey(topicID, partition, 1<<63-1))
}

// Config returns the dynamic configuration of a resource; nil if it has none.
func (m *Image) Config(t ResourceType, name string) map[string]string {
	if c := m.configs.get(configKey(t, name)); c != nil {
		return c.Entries
	}
	return nil
}

// ConfigVersion is what an AlterConfig of the resource must expect.
func (m *Image) ConfigVersion(t ResourceType, name string) uint64 {
	if c := m.configs.get(configKey(t, name)); c != nil {
		return c.Modified
	}
	return 0
}

// Configs lists every dynamic configuration, by type and name.
func (m *Image) Configs() iter.Seq[*Config] { return m.configs.under(nil) }

// Reservation returns the reservation of an object, or nil.
func (m *Image) Reservation(object wire.UUID) *Reservation { return m.reservations.get(object[:]) }

// Reservations lists the reservations, expired ones that are not yet removed too.
func (m *Image) Reservations() iter.Seq[*Reservation] { return m.reservations.under(nil) }

// Task returns a cluster task, or nil once it is complete.
func (m *Image) Task(id uint64) *Task { return m.tasks.get(binary.BigEndian.AppendUint64(nil, id)) }

// Tasks lists the cluster tasks, oldest first.
func (m *Image) Tasks() iter.Seq[*Task] { return m.tasks.under(nil) }

// Hash is one of the whole state but index and term: equal images, equal
// hashes, on every node. It costs a walk over the image.
func (m *Image) Hash() uint64 {
	h := fnv.New64a()
	for rec := range m.records() {
		h.Write(appendRecord(nil, rec))
	}
	return h.Sum64()
}

// records lists the shortest sequence of records that yields the image from
// an empty one, in an order that depends on the state alone.
func (m *Image) records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		_ = yield(&Cluster{ID: m.clusterID}) && yield(&Clock{Ms: m.timeMs}) && yield(&ProducerIDs{Next: m.nextProducerID}) &&
			each(m.features, yield) && each(m.brokers, yield) && each(m.topics, yield) && each(m.partitions, yield) &&
			each(m.configs, yield) && each(m.segments, yield) && each(m.reservations, yield) && each(m.tasks, yield)
	}
}

func each[T Record](t table[T], yield func(Record) bool) bool {
	for row := range t.under(nil) {
		if !yield(row) {
			return false
		}
	}
	return true
}

// table is one copy-on-write tree. Only an image that is being made has a
// transaction open.
type table[T any] struct {
	tree *iradix.Tree[T]
	txn  *iradix.Txn[T]
}

func newTable[T any]() table[T] { return table[T]{tree: iradix.New[T]()} }

func (t *table[T]) root() *iradix.Node[T] {
	if t.txn != nil {
		return t.txn.Root()
	}
	return t.tree.Root()
}

func (t *table[T]) open() *iradix.Txn[T] {
	if t.txn == nil {
		t.txn = t.tree.Txn()
	}
	return t.txn
}

func (t *table[T]) seal() {
	if t.txn != nil {
		t.tree, t.txn = t.txn.Commit(), nil
	}
}

func (t *table[T]) get(key []byte) T       { v, _ := t.root().Get(key); return v }
func (t *table[T]) put(key []byte, row T)  { t.open().Insert(key, row) }
func (t *table[T]) remove(key []byte)      { t.open().Delete(key) }
func (t *table[T]) removeAll(under []byte) { t.open().DeletePrefix(under) }
func (t *table[T]) len() int               { return t.tree.Len() }

// under lists the rows whose keys begin with prefix, in order.
func (t *table[T]) under(prefix []byte) iter.Seq[T] {
	return func(yield func(T) bool) {
		it := t.root().Iterator()
		it.SeekPrefix(prefix)
		for _, row, ok := it.Next(); ok; _, row, ok = it.Next() {
			if !yield(row) {
				return
			}
		}
	}
}

// from lists the rows under prefix whose keys are at least key, in order.
func (t *table[T]) from(prefix, key []byte) iter.Seq[T] {
	return func(yield func(T) bool) {
		it := t.root().Iterator()
		it.SeekLowerBound(key)
		for k, row, ok := it.Next(); ok && hasPrefix(k, prefix); k, row, ok = it.Next() {
			if !yield(row) {
				return
			}
		}
	}
}

// atOrBefore returns the row under prefix with the greatest key up to key.
func (t *table[T]) atOrBefore(prefix, key []byte) (row T) {
	it := t.root().ReverseIterator()
	it.SeekReverseLowerBound(key)
	if k, v, ok := it.Previous(); ok && hasPrefix(k, prefix) {
		row = v
	}
	return row
}

func hasPrefix(key, prefix []byte) bool {
	return len(key) >= len(prefix) && string(key[:len(prefix)]) == string(prefix)
}

func brokerKey(id int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(id)) }

func partitionKey(topicID wire.UUID, partition int32) []byte {
	return binary.BigEndian.AppendUint32(topicID[:len(topicID):len(topicID)], uint32(partition))
}

func segmentKey(topicID wire.UUID, partition int32, base int64) []byte {
	return binary.BigEndian.AppendUint64(partitionKey(topicID, partition), uint64(base))
}

func configKey(t ResourceType, name string) []byte { return append([]byte{byte(t)}, name...) }
