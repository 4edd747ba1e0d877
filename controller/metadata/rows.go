package metadata

import (
	"github.com/varve-io/varve/wire"
)

// Row types. A row is immutable once it is in an image: whoever changes one
// clones it, and its slices and maps, first. Every row is also the record
// that sets it.

// Topic is a topic by its id; its partitions and its configuration are rows
// of their own (Image.Partition, Image.Config).
type Topic struct {
	ID            wire.UUID
	Name          string
	NumPartitions int32
	// Durability is what the broker's varve.log.durability came to when the
	// topic was created, "replicated" or "fsync"; the topic's own property
	// varve.durability goes before it.
	Durability string
	CreatedMs  int64
	// MinInSync is what the static min.insync.replicas, or its default, came to when the topic was created; the
	// topic's own property and the one set for all brokers go before it (Image.TopicConfig).
	MinInSync int32
}

func (t *Topic) fields(c *coder) {
	c.uuid(&t.ID)
	c.string(&t.Name)
	num(c, &t.NumPartitions)
	c.string(&t.Durability)
	num(c, &t.CreatedMs)
	num(c, &t.MinInSync)
}

// NoLeader stands for "none" where a broker id is expected.
const NoLeader int32 = -1

// Partition is the replicated state of one partition.
type Partition struct {
	TopicID  wire.UUID
	Index    int32
	Replicas []int32 // in order of preference
	// Dirs is the log directory of each replica, beside Replicas; zero where
	// the broker has not said yet. A directory that its broker no longer
	// lists is a lost one.
	Dirs []wire.UUID
	ISR  []int32
	// ELR and LastKnownELR are those of KIP-966. While fewer than min.insync.replicas are in sync nothing is
	// acknowledged to all, so who was in sync remains eligible as a leader (ELR), until it may have lost records:
	// then it is one of those who are asked what they still have (LastKnownELR).
	ELR, LastKnownELR []int32
	Leader            int32 // NoLeader: offline
	LeaderEpoch       int32 // rises with every change of Leader
	PartitionEpoch    int32 // rises with every change of this row but of LogStart, RemoteEnd and DeleteUpTo
	LogStart          int64
	RemoteEnd         RemoteEnd
	// Objects that end at or below DeleteUpTo may be deleted from the store
	// once the grace has passed since DeleteUpToMs (the controller's time).
	DeleteUpTo   int64
	DeleteUpToMs int64
	// A reassignment under way (KIP-455): Adding and Removing are parts of
	// Replicas, which begins with the target.
	Adding, Removing []int32
	// Ends is what the replicas of a partition have that nobody is eligible to
	// lead; empty otherwise.
	Ends []ReplicaEnd
	// LossEpoch is the leader epoch of the last election of a replica that may
	// lack acknowledged records; 0: there was none.
	LossEpoch int32
}

// ReplicaEnd is where a replica's log ends, as its broker reported it in one
// of its lives.
type ReplicaEnd struct {
	BrokerID    int32
	BrokerEpoch int64
	LastEpoch   int32 // leader epoch of its last batch, -1 if it has none
	End         int64
}

func (e *ReplicaEnd) fields(c *coder) {
	num(c, &e.BrokerID)
	num(c, &e.BrokerEpoch)
	num(c, &e.LastEpoch)
	num(c, &e.End)
}

func (p *Partition) fields(c *coder) {
	c.uuid(&p.TopicID)
	num(c, &p.Index)
	list(c, &p.Replicas, number32)
	list(c, &p.Dirs, uuid)
	list(c, &p.ISR, number32)
	list(c, &p.ELR, number32)
	list(c, &p.LastKnownELR, number32)
	num(c, &p.Leader)
	num(c, &p.LeaderEpoch)
	num(c, &p.PartitionEpoch)
	num(c, &p.LogStart)
	num(c, &p.RemoteEnd)
	num(c, &p.DeleteUpTo)
	num(c, &p.DeleteUpToMs)
	list(c, &p.Adding, number32)
	list(c, &p.Removing, number32)
	list(c, &p.Ends, func(c *coder, e *ReplicaEnd) { c.nested(e.fields) })
	num(c, &p.LossEpoch)
}

// RemoteEnd is where a partition's committed remote segments end. Its zero
// value is RemoteUnknown, which forbids upload, retention by size and local
// deletion: what has not been read is never taken for "nothing there".
type RemoteEnd int64

const (
	RemoteUnknown RemoteEnd = iota
	RemoteNone              // nothing was ever committed
	remoteBase              // remoteBase+n: ends at offset n
)

// RemoteAt is the end at offset, which is exclusive.
func RemoteAt(offset int64) RemoteEnd { return remoteBase + RemoteEnd(offset) }

// Known reports whether the end is known, be it that there is none.
func (e RemoteEnd) Known() bool { return e >= RemoteNone }

// Offset returns the end, exclusive; false if it is unknown or none.
func (e RemoteEnd) Offset() (int64, bool) {
	if e < remoteBase {
		return 0, false
	}
	return int64(e - remoteBase), true
}

// Next returns where the next upload of a partition must continue: the
// greater of its remote end and its log start; false if the end is unknown.
func (p *Partition) Next() (int64, bool) {
	if !p.RemoteEnd.Known() {
		return 0, false
	}
	end, _ := p.RemoteEnd.Offset()
	return max(end, p.LogStart), true
}

// Segment is one committed object of a partition: offsets [Base, End).
type Segment struct {
	TopicID                    wire.UUID
	Partition                  int32
	Base, End                  int64
	Epoch                      int32     // leader epoch of the upload, part of the object's name
	Object                     wire.UUID // unique, part of the object's name
	Size                       int64     // bytes of the whole object
	MinTimestamp, MaxTimestamp int64     // of its records; -1 if it has none
	HasAborted                 bool      // the object holds aborted transactions (KIP-1058)
}

func (s *Segment) fields(c *coder) {
	c.uuid(&s.TopicID)
	num(c, &s.Partition)
	num(c, &s.Base)
	num(c, &s.End)
	num(c, &s.Epoch)
	c.uuid(&s.Object)
	num(c, &s.Size)
	num(c, &s.MinTimestamp)
	num(c, &s.MaxTimestamp)
	c.bool(&s.HasAborted)
}

// Reservation announces an object that may appear in the store until it
// expires: what lies there unreserved and uncommitted is an orphan.
type Reservation struct {
	Object    wire.UUID
	TopicID   wire.UUID
	Partition int32
	BrokerID  int32
	ExpiresMs int64 // controller's time
}

func (r *Reservation) fields(c *coder) {
	c.uuid(&r.Object)
	c.uuid(&r.TopicID)
	num(c, &r.Partition)
	num(c, &r.BrokerID)
	num(c, &r.ExpiresMs)
}

// TaskKind is what a task asks for.
type TaskKind int8

// PurgeTopic deletes every object of a deleted topic.
const PurgeTopic TaskKind = 1

// Task is cluster work that one live broker does. Apply assigns it, and
// assigns it anew when that broker is fenced; Epoch fences the former one.
// A task of kind PurgeTopic is the tombstone of its topic.
type Task struct {
	ID         uint64 // index of the entry that made it
	Kind       TaskKind
	Assignee   int32 // NoLeader: nobody is alive
	Epoch      int32
	CreatedMs  int64
	TopicID    wire.UUID
	Topic      string
	Partitions int32
}

func (t *Task) fields(c *coder) {
	c.uvarint(&t.ID)
	num(c, &t.Kind)
	num(c, &t.Assignee)
	num(c, &t.Epoch)
	num(c, &t.CreatedMs)
	c.uuid(&t.TopicID)
	c.string(&t.Topic)
	num(c, &t.Partitions)
}

// Listener is an address of a broker under a name.
type Listener struct {
	Name     string
	Host     string
	Port     int32
	Security int16 // Kafka's number of the security protocol; 0 is PLAINTEXT
}

func listener(c *coder, l *Listener) {
	c.nested(func(c *coder) {
		c.string(&l.Name)
		c.string(&l.Host)
		num(c, &l.Port)
		num(c, &l.Security)
	})
}

// Broker is a registration.
type Broker struct {
	ID                   int32
	Epoch                int64     // index of the entry that registered it
	Incarnation          wire.UUID // one life of the process
	Rack                 string
	Listeners            []Listener
	LogDirs              []wire.UUID
	Fenced               bool
	InControlledShutdown bool
	// OfflineDirs are those of LogDirs that failed in this life of the broker:
	// a replica there neither leads nor is in sync.
	OfflineDirs []wire.UUID
}

func (b *Broker) fields(c *coder) {
	num(c, &b.ID)
	num(c, &b.Epoch)
	c.uuid(&b.Incarnation)
	c.string(&b.Rack)
	list(c, &b.Listeners, listener)
	list(c, &b.LogDirs, uuid)
	c.bool(&b.Fenced)
	c.bool(&b.InControlledShutdown)
	list(c, &b.OfflineDirs, uuid)
}

// Active reports whether b may lead and be in sync, with what lies in a log
// directory that works.
func (b *Broker) Active() bool {
	return b != nil && !b.Fenced && !b.InControlledShutdown && (len(b.OfflineDirs) == 0 || len(b.OfflineDirs) < len(b.LogDirs))
}

// Listener returns the address under name.
func (b *Broker) Listener(name string) (Listener, bool) {
	for _, l := range b.Listeners {
		if l.Name == name {
			return l, true
		}
	}
	return Listener{}, false
}

// ResourceType says whose configuration a Config is; the numbers are Kafka's.
type ResourceType int8

const (
	ResourceTopic  ResourceType = 2
	ResourceBroker ResourceType = 4 // name "" is the default of all brokers
)

// Config is the whole dynamic configuration of one resource. One without
// entries does not exist.
type Config struct {
	Type     ResourceType
	Name     string
	Entries  map[string]string
	Modified uint64 // index of the entry that last changed it: the version that AlterConfig expects
}

func (r *Config) fields(c *coder) {
	num(c, &r.Type)
	c.string(&r.Name)
	c.strings(&r.Entries)
	c.uvarint(&r.Modified)
}

// Feature is a finalised level.
type Feature struct {
	Name  string
	Level int16
}

func (f *Feature) fields(c *coder) {
	c.string(&f.Name)
	num(c, &f.Level)
}

// Cluster names the cluster.
type Cluster struct{ ID string }

func (r *Cluster) fields(c *coder) { c.string(&r.ID) }

// ProducerIDs is where the next block of producer ids begins.
type ProducerIDs struct{ Next int64 }

func (r *ProducerIDs) fields(c *coder) { num(c, &r.Next) }

// Clock is the controller's time of the last change; it never goes back.
type Clock struct{ Ms int64 }

func (r *Clock) fields(c *coder) { num(c, &r.Ms) }
