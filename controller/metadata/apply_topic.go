package metadata

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
)

// maxTopicName is Kafka's: the folder <topic>-<partition> must fit a file name.
const maxTopicName = 249

// CheckTopicName returns an error that wraps kerr.InvalidTopicException if
// name is not one that Kafka allows.
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return Refuse(kerr.InvalidTopicException, "the empty string is not allowed")
	case name == "." || name == "..":
		return Refuse(kerr.InvalidTopicException, "%q is not allowed", name)
	case len(name) > maxTopicName:
		return Refuse(kerr.InvalidTopicException, "the length of %q is longer than %d", name, maxTopicName)
	}
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return Refuse(kerr.InvalidTopicException, "%q contains a character other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

func (x *CreateTopic) apply(m *Image, at Meta) ([]Record, []byte, error) {
	if err := CheckTopicName(x.Name); err != nil {
		return nil, nil, err
	}
	if m.Topic(x.Name) != nil {
		return nil, nil, Refuse(kerr.TopicAlreadyExists, "topic %q already exists", x.Name)
	}
	if other := m.collision(x.Name); other != "" {
		return nil, nil, Refuse(kerr.InvalidTopicException, "%q collides with existing topic %q", x.Name, other)
	}
	if x.ID.IsZero() || m.TopicByID(x.ID) != nil || m.purging(x.ID) {
		return nil, nil, Refuse(kerr.InvalidRequest, "topic id %s is not new", x.ID)
	}
	recs := []Record{&Topic{ID: x.ID, Name: x.Name, NumPartitions: int32(len(x.Assignments)), Durability: x.Durability, MinInSync: x.MinInSync, CreatedMs: at.TimeMs}}
	if len(x.Configs) > 0 {
		recs = append(recs, &Config{Type: ResourceTopic, Name: x.Name, Entries: x.Configs, Modified: at.Index})
	}
	return m.addPartitions(recs, x.ID, 0, x.Assignments)
}

// collision finds a topic that differs from name in '.' and '_' alone: the
// two would share their metrics' names.
func (m *Image) collision(name string) string {
	if !strings.ContainsAny(name, "._") {
		return ""
	}
	plain := strings.ReplaceAll(name, ".", "_")
	for t := range m.Topics() {
		if strings.ReplaceAll(t.Name, ".", "_") == plain {
			return t.Name
		}
	}
	return ""
}

func (m *Image) purging(topicID wire.UUID) bool {
	for t := range m.Tasks() {
		if t.TopicID == topicID {
			return true
		}
	}
	return false
}

// maxPartitions bounds the partitions that one request makes, as in Kafka's controller, and so one command.
const maxPartitions = 10_000

// addPartitions appends the rows of new partitions to recs.
func (m *Image) addPartitions(recs []Record, topicID wire.UUID, first int32, assignments [][]int32) ([]Record, []byte, error) {
	if len(assignments) == 0 || len(assignments) > maxPartitions {
		return nil, nil, Refuse(kerr.InvalidPartitions, "%d new partitions; at least 1 and at most %d can be made at a time", len(assignments), maxPartitions)
	}
	for i, replicas := range assignments {
		p, err := m.newPartition(topicID, first+int32(i), replicas)
		if err != nil {
			return nil, nil, err
		}
		recs = append(recs, p)
	}
	return recs, nil, nil
}

// newPartition is led by its first replica that is alive; those that are not
// join the ISR when they come.
func (m *Image) newPartition(topicID wire.UUID, index int32, replicas []int32) (*Partition, error) {
	if len(replicas) == 0 || len(distinct(replicas)) != len(replicas) {
		return nil, Refuse(kerr.InvalidReplicaAssignment, "partition %d: replicas %v are none, or not distinct", index, replicas)
	}
	p := &Partition{TopicID: topicID, Index: index, Replicas: replicas, RemoteEnd: RemoteNone}
	for _, r := range replicas {
		b := m.Broker(r)
		if b == nil {
			return nil, Refuse(kerr.InvalidReplicaAssignment, "partition %d: broker %d is not registered", index, r)
		}
		p.Dirs = append(p.Dirs, b.onlyDir())
		if b.Active() {
			p.ISR = append(p.ISR, r)
		}
	}
	if len(p.ISR) == 0 {
		return nil, Refuse(kerr.InvalidReplicaAssignment, "partition %d: none of the brokers %v is alive", index, replicas)
	}
	p.Leader = p.ISR[0]
	return p, nil
}

// onlyDir is where a new replica of the broker surely lies; zero if it has a choice.
func (b *Broker) onlyDir() (dir wire.UUID) {
	if b != nil && len(b.LogDirs) == 1 {
		dir = b.LogDirs[0]
	}
	return dir
}

func (x *CreatePartitions) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	t := m.TopicByID(x.TopicID)
	if t == nil {
		return nil, nil, Refuse(kerr.UnknownTopicOrPartition, "topic %s", x.TopicID)
	}
	if t.NumPartitions != x.Existing {
		return nil, nil, Refuse(kerr.InvalidPartitions, "topic %q has %d partitions, not %d", t.Name, t.NumPartitions, x.Existing)
	}
	next := *t
	next.NumPartitions += int32(len(x.Assignments))
	return m.addPartitions([]Record{&next}, t.ID, t.NumPartitions, x.Assignments)
}

func (x *DeleteTopic) apply(m *Image, at Meta) ([]Record, []byte, error) {
	t := m.TopicByID(x.ID)
	if t == nil {
		return nil, nil, Refuse(kerr.UnknownTopicID, "topic %s", x.ID)
	}
	recs := []Record{&RemoveTopic{ID: t.ID}}
	if m.mayHaveObjects(t) {
		recs = append(recs, &Task{ID: at.Index, Kind: PurgeTopic, Assignee: m.worker(at.Index, NoLeader), CreatedMs: at.TimeMs,
			TopicID: t.ID, Topic: t.Name, Partitions: t.NumPartitions})
	}
	return recs, nil, nil
}

func (m *Image) mayHaveObjects(t *Topic) bool {
	for p := range m.Partitions(t.ID) {
		if p.RemoteEnd != RemoteNone {
			return true
		}
	}
	return m.reserved(t.ID)
}

func (m *Image) reserved(topicID wire.UUID) bool {
	for r := range m.Reservations() {
		if r.TopicID == topicID {
			return true
		}
	}
	return false
}

func (x *AlterConfig) apply(m *Image, at Meta) ([]Record, []byte, error) {
	switch x.Type {
	case ResourceTopic:
		if m.Topic(x.Name) == nil {
			return nil, nil, Refuse(kerr.UnknownTopicOrPartition, "topic %q", x.Name)
		}
	case ResourceBroker:
	default:
		return nil, nil, Refuse(kerr.InvalidRequest, "resources of type %d have no configuration", x.Type)
	}
	if v := m.ConfigVersion(x.Type, x.Name); v != x.Version {
		return nil, nil, Refuse(kerr.InvalidUpdateVersion, "the configuration of %q is at version %d, not %d", x.Name, v, x.Version)
	}
	c := &Config{Type: x.Type, Name: x.Name, Entries: x.Entries, Modified: at.Index}
	return append([]Record{c}, m.eligibleUnder(c)...), nil, nil
}

// eligibleUnder returns the rows that change with a configuration: where min.insync.replicas is now as low as what is in
// sync, records are acknowledged again without those who were eligible, so they are no longer.
func (m *Image) eligibleUnder(c *Config) []Record {
	after := m.Replay([]Record{c}, m.index, m.term)
	var recs []Record
	for t := range m.Topics() {
		if c.Type == ResourceTopic && c.Name != t.Name || m.minInSync(t) == after.minInSync(t) {
			continue
		}
		for p := range m.Partitions(t.ID) {
			if row := after.change(p).settle(); row != nil {
				recs = append(recs, row)
			}
		}
	}
	return recs
}
