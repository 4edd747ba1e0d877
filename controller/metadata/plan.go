package metadata

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// Planning turns what a client asked for into a command: it fills in the
// defaults, checks values against this binary's table of properties and
// places replicas. Its errors are those that the client gets, wrapping kerr's
// values; what may have changed until the command is applied, Apply checks
// again.

// NewTopic is what a client asks for.
type NewTopic struct {
	Name              string
	NumPartitions     int32             // -1: num.partitions
	ReplicationFactor int16             // -1: default.replication.factor
	Assignments       map[int32][]int32 // by partition; if there are any, the two above must be -1
	Configs           map[string]string
}

// Planner plans under the static configuration of the controller's node. Its
// two sources of chance are arguments, so that plans can be tested.
type Planner struct {
	Image  *Image
	Static map[string]string
	NewID  func() wire.UUID
	Seed   uint64 // where the placement of the next topic begins

	partitions int // planned so far
}

// CreateTopic plans a topic.
func (p *Planner) CreateTopic(n NewTopic) (*CreateTopic, error) {
	if err := CheckTopicName(n.Name); err != nil {
		return nil, err
	}
	if p.Image.Topic(n.Name) != nil {
		return nil, Refuse(kerr.TopicAlreadyExists, "Topic '%s' already exists.", n.Name)
	}
	layers := p.layers()
	layers.Topic = n.Configs
	if err := config.CheckTopic(layers); err != nil {
		return nil, Refuse(kerr.InvalidConfig, "%s", err)
	}
	assignments, err := p.assign(n, layers)
	if err != nil {
		return nil, err
	}
	p.partitions += len(assignments)
	return &CreateTopic{
		ID:          p.NewID(),
		Name:        n.Name,
		Assignments: assignments,
		Configs:     n.Configs,
		Durability:  config.DurabilityFor(layers, len(assignments[0])),
		MinInSync:   config.MinInSyncFor(config.Layers{Static: p.Static}, len(assignments[0])),
	}, nil
}

func (p *Planner) layers() config.Layers {
	return config.Layers{DynamicDefault: p.Image.Config(ResourceBroker, ""), Static: p.Static}
}

func (p *Planner) assign(n NewTopic, layers config.Layers) ([][]int32, error) {
	if count := len(n.Assignments); count > 0 {
		if err := p.admit(int64(count)); err != nil {
			return nil, err
		}
		return manual(n)
	}
	partitions, factor := n.NumPartitions, int32(n.ReplicationFactor)
	if partitions == -1 {
		partitions = brokerInt(layers, "num.partitions")
	}
	if factor == -1 {
		factor = brokerInt(layers, "default.replication.factor")
	}
	if partitions < 1 {
		return nil, Refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	if err := p.admit(int64(partitions)); err != nil {
		return nil, err
	}
	if factor < 1 {
		return nil, Refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	}
	return p.place(0, int(partitions), int(factor))
}

// admit refuses partitions beyond what one plan may make: it all goes into one entry of the quorum's log.
func (p *Planner) admit(count int64) error {
	if int64(p.partitions)+count > maxPartitions {
		return Refuse(kerr.PolicyViolation, "%d new partitions after %d others of this request exceed %d, the most that can be made at a time; ask for them in several requests.", count, p.partitions, maxPartitions)
	}
	return nil
}

// brokerInt is the effective value of a broker property that is a number.
func brokerInt(layers config.Layers, name string) int32 {
	for _, layer := range []map[string]string{layers.DynamicDefault, layers.Static} {
		if n, err := strconv.ParseInt(strings.TrimSpace(layer[name]), 10, 32); err == nil {
			return int32(n)
		}
	}
	if property, ok := config.Lookup(config.BrokerScope, name); ok && property.Default != nil {
		if n, err := strconv.ParseInt(*property.Default, 10, 32); err == nil {
			return int32(n)
		}
	}
	return 1
}

func manual(n NewTopic) ([][]int32, error) {
	if n.NumPartitions != -1 {
		return nil, Refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	if n.ReplicationFactor != -1 {
		return nil, Refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	assignments := make([][]int32, len(n.Assignments))
	for i := range assignments {
		replicas, ok := n.Assignments[int32(i)]
		if !ok || len(replicas) != len(n.Assignments[0]) {
			return nil, Refuse(kerr.InvalidReplicaAssignment, "Partitions should be a consecutive 0-based integer sequence, all with the same number of replicas.")
		}
		assignments[i] = replicas
	}
	return assignments, nil
}

// CreatePartitions plans more partitions for a topic, up to count;
// assignments, if any, are those of the new ones.
func (p *Planner) CreatePartitions(topic string, count int32, assignments [][]int32) (*CreatePartitions, error) {
	t := p.Image.Topic(topic)
	if t == nil {
		return nil, Refuse(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
	}
	switch grow := int64(count) - int64(t.NumPartitions); {
	case grow == 0:
		return nil, Refuse(kerr.InvalidPartitions, "Topic already has %d partition(s).", t.NumPartitions)
	case grow < 0:
		return nil, Refuse(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", topic, t.NumPartitions, count)
	case p.admit(grow) != nil:
		return nil, p.admit(grow)
	case len(assignments) > 0 && int64(len(assignments)) != grow:
		return nil, Refuse(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", grow, len(assignments))
	}
	factor := len(p.Image.Partition(t.ID, 0).Target())
	for _, replicas := range assignments {
		if len(replicas) != factor {
			return nil, Refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with %d replica(s), but this is not consistent with the topic's replication factor of %d.", len(replicas), factor)
		}
	}
	if len(assignments) == 0 {
		var err error
		if assignments, err = p.place(int(t.NumPartitions), int(count-t.NumPartitions), factor); err != nil {
			return nil, err
		}
	}
	p.partitions += len(assignments)
	return &CreatePartitions{TopicID: t.ID, Existing: t.NumPartitions, Assignments: assignments}, nil
}

// ConfigOp is how a ConfigChange changes a property; the numbers are those of
// IncrementalAlterConfigs.
type ConfigOp int8

const (
	OpSet ConfigOp = iota
	OpDelete
	OpAppend
	OpSubtract
)

// ConfigChange is one change of one property. A nil Value is null.
type ConfigChange struct {
	Name  string
	Op    ConfigOp
	Value *string
}

// AlterConfig plans the change of a resource's configuration: on top of what
// it has, or, if replace, from nothing (the old AlterConfigs).
func (p *Planner) AlterConfig(t ResourceType, name string, changes []ConfigChange, replace bool) (*AlterConfig, error) {
	if err := p.resource(t, name); err != nil {
		return nil, err
	}
	old := p.Image.Config(t, name)
	entries := map[string]string{}
	if !replace {
		maps.Copy(entries, old)
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if seen[c.Name] {
			return nil, Refuse(kerr.InvalidRequest, "Error due to duplicate config keys: %s", c.Name)
		}
		seen[c.Name] = true
		if err := p.change(entries, t, c); err != nil {
			return nil, err
		}
	}
	if err := p.checkConfig(t, name, old, entries); err != nil {
		return nil, Refuse(kerr.InvalidConfig, "%s", err)
	}
	return &AlterConfig{Type: t, Name: name, Version: p.Image.ConfigVersion(t, name), Entries: entries}, nil
}

func (p *Planner) resource(t ResourceType, name string) error {
	switch t {
	case ResourceTopic:
		if p.Image.Topic(name) == nil {
			return Refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
		}
	case ResourceBroker:
		if name == "" {
			return nil
		}
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return Refuse(kerr.InvalidRequest, "Unable to parse broker name as a base 10 number: %q", name)
		}
		if p.Image.Broker(int32(id)) == nil {
			return Refuse(kerr.BrokerIDNotRegistered, "No broker with id %d found.", id)
		}
	default:
		return Refuse(kerr.InvalidRequest, "Unsupported resource type %d", t)
	}
	return nil
}

// change applies one change to entries.
func (p *Planner) change(entries map[string]string, t ResourceType, c ConfigChange) error {
	if c.Op == OpDelete {
		delete(entries, c.Name)
		return nil
	}
	if c.Value == nil {
		return Refuse(kerr.InvalidRequest, "Null value not supported for : %s", c.Name)
	}
	switch c.Op {
	case OpSet:
		entries[c.Name] = *c.Value
	case OpAppend, OpSubtract:
		list, err := p.list(entries, t, c)
		if err != nil {
			return err
		}
		for _, item := range split(*c.Value) {
			list = slices.DeleteFunc(list, func(have string) bool { return have == item && c.Op == OpSubtract })
			if c.Op == OpAppend && !slices.Contains(list, item) {
				list = append(list, item)
			}
		}
		entries[c.Name] = strings.Join(list, ",")
	default:
		return Refuse(kerr.InvalidRequest, "Unknown operation %d on %s", c.Op, c.Name)
	}
	return nil
}

// list is the present value of a property of type list: what is set, else
// what is in force.
func (p *Planner) list(entries map[string]string, t ResourceType, c ConfigChange) ([]string, error) {
	scope := config.TopicScope
	if t == ResourceBroker {
		scope = config.BrokerScope
	}
	property, ok := config.Lookup(scope, c.Name)
	if !ok || property.Type != config.List {
		return nil, Refuse(kerr.InvalidConfig, "Can't change key %s by appending or subtracting because its type is not LIST.", c.Name)
	}
	if value, ok := entries[c.Name]; ok {
		return split(value), nil
	}
	for _, e := range config.Describe(scope, p.layers()) {
		if e.Name == c.Name {
			return split(e.Value), nil
		}
	}
	return nil, nil
}

func split(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func (p *Planner) checkConfig(t ResourceType, name string, old, entries map[string]string) error {
	if t == ResourceBroker {
		if _, set := entries["min.insync.replicas"]; set && name != "" {
			return errors.New("min.insync.replicas of a single broker is not possible: who may lead is decided by it, so set it for all brokers or on topics")
		}
		return config.CheckDynamic(entries, name == "")
	}
	before, after := p.layers(), p.layers()
	before.Topic, after.Topic = old, entries
	return config.CheckTopicChange(before, after)
}
