package controller

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

var errUnserved = errors.New("not served on this listener")

// createTopics, versions 2-7. 4: -1 for the cluster's defaults (KIP-464);
// 5: the configuration of what was made (KIP-525); 7: its id (KIP-516).
func (b *batch) createTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	named := twice(req.Topics, func(t kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	var asked []kmsg.CreateTopicsRequestTopic
	for _, t := range req.Topics {
		if named[t.Topic] == 0 {
			continue // answered once, at its first place
		}
		asked = append(asked, t)
		if named[t.Topic] > 1 {
			b.add(nil, metadata.Refuse(kerr.InvalidRequest, "Duplicate topic name."))
			named[t.Topic] = 0
			continue
		}
		b.add(b.planTopic(t))
	}
	planned := b.plans()
	resp := kmsg.NewPtrCreateTopicsResponse()
	for i, err := range b.commit(ctx, req.ValidateOnly) {
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic = asked[i].Topic
		t.ErrorCode, t.ErrorMessage = code(err), text(err)
		if cmd, ok := planned[i].(*metadata.CreateTopic); ok && err == nil {
			b.describe(&t, cmd, req.ValidateOnly)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// plans returns the command of each item.
func (b *batch) plans() map[int]metadata.Command {
	plans := make(map[int]metadata.Command, len(b.cmds))
	for i, item := range b.items {
		plans[item] = b.cmds[i]
	}
	return plans
}

func (b *batch) planTopic(t kmsg.CreateTopicsRequestTopic) (metadata.Command, error) {
	if b.refused != nil {
		return nil, b.refused
	}
	n := metadata.NewTopic{Name: t.Topic, NumPartitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor, Configs: map[string]string{}}
	for _, a := range t.ReplicaAssignment {
		if n.Assignments == nil {
			n.Assignments = map[int32][]int32{}
		}
		n.Assignments[a.Partition] = a.Replicas
	}
	if len(n.Assignments) != len(t.ReplicaAssignment) {
		return nil, metadata.Refuse(kerr.InvalidReplicaAssignment, "A partition is assigned twice.")
	}
	for _, c := range t.Configs {
		if c.Value == nil {
			return nil, metadata.Refuse(kerr.InvalidConfig, "Null value not supported for topic configs: %s", c.Name)
		}
		n.Configs[c.Name] = *c.Value
	}
	cmd, err := b.planner.CreateTopic(n)
	if err != nil {
		return nil, err
	}
	return cmd, nil
}

// describe fills in what was made, all of its configuration included.
func (b *batch) describe(t *kmsg.CreateTopicsResponseTopic, cmd *metadata.CreateTopic, dry bool) {
	t.NumPartitions, t.ReplicationFactor = int32(len(cmd.Assignments)), int16(len(cmd.Assignments[0]))
	if !dry {
		t.TopicID = cmd.ID
	}
	layers := b.image.BrokerLayers(b.c.cfg.NodeID, b.c.cfg.Properties)
	layers.Topic = cmd.Configs
	t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	made := metadata.Topic{Durability: cmd.Durability, MinInSync: cmd.MinInSync}
	for _, e := range made.AsCreated(config.Describe(config.TopicScope, layers)) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.ReadOnly, int8(e.Source), e.Sensitive
		if !e.Null {
			c.Value = kmsg.StringPtr(e.Value)
		}
		t.Configs = append(t.Configs, c)
	}
}

// topicKey is how DeleteTopics names a topic; an empty name is none.
type topicKey struct {
	name string
	id   wire.UUID
}

// deleteTopics, versions 1-6. 6: by id too (KIP-516).
func (b *batch) deleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	var asked []topicKey
	for _, name := range req.TopicNames {
		asked = append(asked, topicKey{name: name})
	}
	for _, t := range req.Topics {
		asked = append(asked, topicKey{name: deref(t.Topic), id: t.TopicID})
	}
	times := map[wire.UUID]int{} // several ways to name one topic
	for _, k := range asked {
		if t := b.topic(k); t != nil {
			times[t.ID]++
		}
	}
	topics := make([]*metadata.Topic, len(asked))
	for i, k := range asked {
		topics[i] = b.topic(k)
		b.add(b.planDeletion(k, topics[i], times))
	}
	resp := kmsg.NewPtrDeleteTopicsResponse()
	for i, err := range b.commit(ctx, false) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		if k := asked[i]; k.name != "" {
			t.Topic = &k.name
		} else {
			t.TopicID = k.id
		}
		if topics[i] != nil {
			t.Topic, t.TopicID = &topics[i].Name, topics[i].ID
		}
		t.ErrorCode, t.ErrorMessage = code(err), text(err)
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (b *batch) topic(k topicKey) *metadata.Topic {
	if k.name != "" {
		return b.image.Topic(k.name)
	}
	return b.image.TopicByID(k.id)
}

func (b *batch) planDeletion(k topicKey, t *metadata.Topic, times map[wire.UUID]int) (metadata.Command, error) {
	switch {
	case k.name != "" && !k.id.IsZero():
		return nil, metadata.Refuse(kerr.InvalidRequest, "Topic name and ID can not both be specified.")
	case k.name == "" && k.id.IsZero():
		return nil, metadata.Refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case t == nil && k.name != "":
		return nil, metadata.Refuse(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
	case t == nil:
		return nil, metadata.Refuse(kerr.UnknownTopicID, "This server does not host this topic ID.")
	case times[t.ID] > 1:
		return nil, metadata.Refuse(kerr.InvalidRequest, "Duplicate topic name.")
	case b.c.cfg.Properties["delete.topic.enable"] == "false":
		return nil, metadata.Refuse(kerr.TopicDeletionDisabled, "delete.topic.enable is false.")
	}
	return &metadata.DeleteTopic{ID: t.ID}, nil
}

// createPartitions, versions 0-3.
func (b *batch) createPartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	named := twice(req.Topics, func(t kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	var asked []string
	for _, t := range req.Topics {
		if named[t.Topic] == 0 {
			continue
		}
		asked = append(asked, t.Topic)
		if named[t.Topic] > 1 {
			named[t.Topic] = 0
			b.add(nil, metadata.Refuse(kerr.InvalidRequest, "Duplicate topic in request."))
			continue
		}
		b.add(b.planPartitions(t))
	}
	resp := kmsg.NewPtrCreatePartitionsResponse()
	for i, err := range b.commit(ctx, req.ValidateOnly) {
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic, t.ErrorCode, t.ErrorMessage = asked[i], code(err), text(err)
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (b *batch) planPartitions(t kmsg.CreatePartitionsRequestTopic) (metadata.Command, error) {
	if b.refused != nil {
		return nil, b.refused
	}
	var assignments [][]int32
	for _, a := range t.Assignment {
		assignments = append(assignments, a.Replicas)
	}
	cmd, err := b.planner.CreatePartitions(t.Topic, t.Count, assignments)
	if err != nil {
		return nil, err
	}
	return cmd, nil
}
