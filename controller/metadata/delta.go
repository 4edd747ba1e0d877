package metadata

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/varve-io/varve/wire"
)

// Delta names the rows in which two images differ, each once and in order;
// what became of them is read from the images. A row that was made, changed or
// removed is named alike.
type Delta struct {
	Old, New   *Image
	Features   []string
	Brokers    []int32
	Topics     []wire.UUID
	Partitions []PartitionKey // without those of removed topics: these are named in Topics
	Segments   []PartitionKey // partitions whose remote segments changed
	Configs    []ConfigKey
	Tasks      []uint64
}

// PartitionKey names a partition.
type PartitionKey struct {
	TopicID   wire.UUID
	Partition int32
}

// ConfigKey names a resource.
type ConfigKey struct {
	Type ResourceType
	Name string
}

// NewDelta is the difference that records make, at the cost of the records
// alone: next must be old.Replay(recs, ...).
func NewDelta(old, next *Image, recs []Record) *Delta {
	d := &Delta{Old: old, New: next}
	for _, r := range recs {
		d.add(r)
	}
	return d.sorted()
}

// Diff compares any two images row by row, at the cost of both: for a
// follower that had to load a snapshot.
func Diff(old, next *Image) *Delta {
	d := &Delta{Old: old, New: next}
	diff(old.features, next.features, sameRow, func(r *Feature) { d.add(r) })
	diff(old.brokers, next.brokers, sameRow, func(r *Broker) { d.add(r) })
	diff(old.topics, next.topics, sameRow, func(r *Topic) { d.add(r) })
	diff(old.partitions, next.partitions, sameRow, func(r *Partition) { d.add(r) })
	diff(old.segments, next.segments, sameRow, func(r *Segment) { d.add(r) })
	diff(old.configs, next.configs, sameRow, func(r *Config) { d.add(r) })
	diff(old.tasks, next.tasks, sameRow, func(r *Task) { d.add(r) })
	d.Partitions = slices.DeleteFunc(d.Partitions, func(k PartitionKey) bool { return next.TopicByID(k.TopicID) == nil })
	d.Segments = slices.DeleteFunc(d.Segments, func(k PartitionKey) bool { return next.TopicByID(k.TopicID) == nil })
	return d.sorted()
}

// Empty reports whether the images have the same rows.
func (d *Delta) Empty() bool {
	return len(d.Features)+len(d.Brokers)+len(d.Topics)+len(d.Partitions)+len(d.Segments)+len(d.Configs)+len(d.Tasks) == 0
}

func (d *Delta) add(r Record) {
	switch r := r.(type) {
	case *Feature:
		d.Features = append(d.Features, r.Name)
	case *Broker:
		d.Brokers = append(d.Brokers, r.ID)
	case *RemoveBroker:
		d.Brokers = append(d.Brokers, r.ID)
	case *Topic:
		d.Topics = append(d.Topics, r.ID)
	case *RemoveTopic:
		d.Topics = append(d.Topics, r.ID)
		if t := d.Old.TopicByID(r.ID); t != nil && d.Old.Config(ResourceTopic, t.Name) != nil {
			d.Configs = append(d.Configs, ConfigKey{ResourceTopic, t.Name})
		}
	case *Partition:
		d.Partitions = append(d.Partitions, PartitionKey{r.TopicID, r.Index})
	case *Segment:
		d.Segments = append(d.Segments, PartitionKey{r.TopicID, r.Partition})
	case *RemoveSegment:
		d.Segments = append(d.Segments, PartitionKey{r.TopicID, r.Partition})
	case *Config:
		d.Configs = append(d.Configs, ConfigKey{r.Type, r.Name})
	case *Task:
		d.Tasks = append(d.Tasks, r.ID)
	case *RemoveTask:
		d.Tasks = append(d.Tasks, r.ID)
	}
}

func (d *Delta) sorted() *Delta {
	d.Features = unique(d.Features, cmp.Compare[string])
	d.Brokers = unique(d.Brokers, cmp.Compare[int32])
	d.Topics = unique(d.Topics, func(a, b wire.UUID) int { return bytes.Compare(a[:], b[:]) })
	d.Partitions = unique(d.Partitions, comparePartitions)
	d.Segments = unique(d.Segments, comparePartitions)
	d.Configs = unique(d.Configs, func(a, b ConfigKey) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	d.Tasks = unique(d.Tasks, cmp.Compare[uint64])
	return d
}

func comparePartitions(a, b PartitionKey) int {
	return cmp.Or(bytes.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition))
}

func unique[T comparable](s []T, compare func(a, b T) int) []T {
	slices.SortFunc(s, compare)
	return slices.Compact(s)
}

// sameRow compares two rows by what they encode to; nearly always they are
// one and the same pointer, or differ.
func sameRow(a, b Record) bool {
	return bytes.Equal(appendRecord(nil, a), appendRecord(nil, b))
}

// diff calls changed with every row that only one table has, or both have
// differently, walking the two in step.
func diff[T interface {
	comparable
	Record
}](old, next table[T], same func(a, b Record) bool, changed func(T)) {
	a, b := old.root().Iterator(), next.root().Iterator()
	ka, ra, oka := a.Next()
	kb, rb, okb := b.Next()
	for oka || okb {
		order := 0
		switch {
		case !okb:
			order = -1
		case !oka:
			order = 1
		default:
			order = bytes.Compare(ka, kb)
		}
		switch {
		case order < 0:
			changed(ra)
		case order > 0 || ra != rb && !same(ra, rb):
			changed(rb)
		}
		if order <= 0 {
			ka, ra, oka = a.Next()
		}
		if order >= 0 {
			kb, rb, okb = b.Next()
		}
	}
}
