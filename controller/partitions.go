package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
)

// Kinds of elections in ElectLeaders (KIP-460).
const (
	preferredElection = 0
	uncleanElection   = 1
)

// partitionItem is one partition of a request.
type partitionItem struct {
	topic     string
	partition int32
}

// electLeaders, versions 0-2. 1: unclean elections (KIP-460). With null for
// topics, every partition that needs it.
func (b *batch) electLeaders(ctx context.Context, req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := kmsg.NewPtrElectLeadersResponse()
	if b.refused == nil && req.ElectionType != preferredElection && req.ElectionType != uncleanElection {
		b.refused = metadata.Refuse(kerr.InvalidRequest, "Unknown election type %d", req.ElectionType)
	}
	if b.refused != nil {
		resp.ErrorCode = code(b.refused)
	}
	unclean := req.ElectionType == uncleanElection
	var asked []partitionItem
	if req.Topics == nil {
		asked = b.leaderless(unclean)
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			asked = append(asked, partitionItem{t.Topic, p})
		}
	}
	for _, item := range asked {
		topic, err := b.named(item.topic)
		if err != nil {
			b.add(nil, err)
			continue
		}
		b.add(&metadata.ElectLeader{TopicID: topic.ID, Partition: item.partition, Unclean: unclean}, nil)
	}
	for i, err := range b.commit(ctx, false) {
		if req.Topics == nil && errors.Is(err, kerr.ElectionNotNeeded) {
			continue // somebody was faster
		}
		if t := len(resp.Topics) - 1; t < 0 || resp.Topics[t].Topic != asked[i].topic {
			topic := kmsg.NewElectLeadersResponseTopic()
			topic.Topic = asked[i].topic
			resp.Topics = append(resp.Topics, topic)
		}
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition, p.ErrorCode, p.ErrorMessage = asked[i].partition, code(err), text(err)
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return resp
}

func (b *batch) named(topic string) (*metadata.Topic, error) {
	if t := b.image.Topic(topic); t != nil {
		return t, nil
	}
	return nil, metadata.Refuse(kerr.UnknownTopicOrPartition, "No such topic as %s", topic)
}

// leaderless lists the partitions that another leader could be elected for: an
// unclean one where there is none, the preferred one where it does not lead.
// What does not fit one entry is elected when it is asked for again.
func (b *batch) leaderless(unclean bool) []partitionItem {
	var all []partitionItem
	if b.refused != nil {
		return nil
	}
	for t := range b.image.Topics() {
		for p := range b.image.Partitions(t.ID) {
			wanted := p.Leader == metadata.NoLeader
			if !unclean {
				wanted = b.image.PrefersOther(p)
			}
			if wanted && len(all) < metadata.MaxCommands {
				all = append(all, partitionItem{t.Name, p.Index})
			}
		}
	}
	return all
}

// alterReassignments, versions 0-1 (KIP-455). 1: whether the number of replicas may change (KIP-860).
func (b *batch) alterReassignments(ctx context.Context, req *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	if b.refused != nil {
		resp.ErrorCode, resp.ErrorMessage = code(b.refused), text(b.refused)
	}
	for _, t := range req.Topics {
		topic, err := b.named(t.Topic)
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			if err != nil {
				b.add(nil, err)
			} else {
				b.add(&metadata.AlterReassignment{TopicID: topic.ID, Partition: p.Partition, Target: p.Replicas, Cancel: p.Replicas == nil,
					KeepFactor: !req.AllowReplicationFactorChange}, nil)
			}
			op := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			op.Partition = p.Partition
			out.Partitions = append(out.Partitions, op)
		}
		resp.Topics = append(resp.Topics, out)
	}
	errs := b.commit(ctx, false)
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			p.ErrorCode, p.ErrorMessage = code(errs[0]), text(errs[0])
			errs = errs[1:]
		}
	}
	return resp
}

// listReassignments, version 0 (KIP-455).
func (b *batch) listReassignments(req *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	if b.refused != nil {
		resp.ErrorCode, resp.ErrorMessage = code(b.refused), text(b.refused)
		return resp
	}
	wanted := map[string][]int32{}
	for _, t := range req.Topics {
		wanted[t.Topic] = append(wanted[t.Topic], t.Partitions...)
	}
	for _, row := range b.image.Reassignments() {
		name := b.image.TopicByID(row.TopicID).Name
		if req.Topics != nil && !slices.Contains(wanted[name], row.Index) {
			continue
		}
		if t := len(resp.Topics) - 1; t < 0 || resp.Topics[t].Topic != name {
			topic := kmsg.NewListPartitionReassignmentsResponseTopic()
			topic.Topic = name
			resp.Topics = append(resp.Topics, topic)
		}
		p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas = row.Index, row.Replicas, row.Adding, row.Removing
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	slices.SortFunc(resp.Topics, func(x, y kmsg.ListPartitionReassignmentsResponseTopic) int { return cmp.Compare(x.Topic, y.Topic) })
	return resp
}

// unregisterBroker, version 0.
func (b *batch) unregisterBroker(ctx context.Context, req *kmsg.UnregisterBrokerRequest) *kmsg.UnregisterBrokerResponse {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	b.add(&metadata.UnregisterBroker{ID: req.BrokerID}, nil)
	err := b.commit(ctx, false)[0]
	resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
	if err == nil {
		b.c.logger.Info("broker unregistered", "broker", req.BrokerID)
	}
	return resp
}
