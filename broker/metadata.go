package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// Operations that a principal may do, as bits (KIP-430). Without an authorizer: all.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// metadata answers Metadata.
func (h *handler) metadata(ctx context.Context, r *wire.Request, req *kmsg.MetadataRequest) {
	resp := kmsg.NewPtrMetadataResponse()
	if req.Topics != nil && !(r.Version == 0 && len(req.Topics) == 0) {
		h.createMissing(ctx, r, req)
	}
	view := h.view(r.Version)
	resp.Brokers = view.metadataBrokers()
	if id := view.img.ClusterID(); id != "" {
		resp.ClusterID = &id
	}
	resp.ControllerID = view.anyBroker()
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	operations := int32(-2147483648)
	if req.IncludeTopicAuthorizedOperations {
		operations = topicOperations
	}
	// Null is all topics; empty is none, but in version 0, which has no null, it is all.
	if req.Topics == nil || r.Version == 0 && len(req.Topics) == 0 {
		for t := range view.img.Topics() {
			resp.Topics = append(resp.Topics, view.topic(t, operations))
		}
	} else {
		resp.Topics = view.requested(req.Topics, r.Version, operations)
	}
	r.Reply(resp)
}

// createMissing creates the topics that a request names and that do not exist,
// if client and broker allow that. Versions below 4 cannot forbid it.
func (h *handler) createMissing(ctx context.Context, r *wire.Request, req *kmsg.MetadataRequest) {
	if !h.cfg.Settings.AutoCreateTopics || r.Version >= 4 && !req.AllowAutoTopicCreation {
		return
	}
	img := h.follower.Image()
	var missing []string
	for _, t := range req.Topics {
		if t.Topic == nil || img.Topic(*t.Topic) != nil || isInternal(*t.Topic) || metadata.CheckTopicName(*t.Topic) != nil {
			continue
		}
		if !slices.Contains(missing, *t.Topic) {
			missing = append(missing, *t.Topic)
		}
	}
	if len(missing) > 0 {
		h.creating.create(ctx, missing)
	}
}

// view is the metadata as clients of one listener see it, at one image.
type view struct {
	img      *metadata.Image
	listener string
	version  int16 // of Metadata
	self     int32
}

func (h *handler) view(version int16) *view {
	return &view{h.follower.Image(), h.listener, version, h.cfg.NodeID}
}

// alive reports whether a broker is in service and has an address for the listener.
func (v *view) alive(id int32) (registered, listening bool) {
	b := v.img.Broker(id)
	if b == nil || b.Fenced {
		return false, false
	}
	_, ok := b.Listener(v.listener)
	return true, ok
}

func (v *view) metadataBrokers() []kmsg.MetadataResponseBroker {
	var out []kmsg.MetadataResponseBroker
	for b := range v.img.Brokers() {
		if l, ok := b.Listener(v.listener); ok && !b.Fenced {
			out = append(out, kmsg.MetadataResponseBroker{NodeID: b.ID, Host: l.Host, Port: l.Port, Rack: rack(b)})
		}
	}
	return out
}

// anyBroker stands for the controller: every broker forwards what is the
// controller's, so this one does as well as any.
func (v *view) anyBroker() int32 {
	if _, ok := v.alive(v.self); ok {
		return v.self
	}
	for b := range v.img.Brokers() {
		if _, ok := v.alive(b.ID); ok {
			return b.ID
		}
	}
	return -1
}

// requested describes the topics that a request names, each once.
func (v *view) requested(names []kmsg.MetadataRequestTopic, version int16, operations int32) []kmsg.MetadataResponseTopic {
	type key struct {
		name string
		id   wire.UUID
	}
	seen := make(map[key]bool, len(names))
	out := make([]kmsg.MetadataResponseTopic, 0, len(names))
	for _, n := range names {
		k := key{id: n.TopicID}
		if n.Topic != nil {
			k.name = *n.Topic
		}
		if seen[k] {
			continue
		}
		seen[k] = true
		t, err := v.find(n, version)
		if err != nil {
			unknown := kmsg.NewMetadataResponseTopic()
			unknown.ErrorCode, unknown.Topic, unknown.TopicID = code(err), n.Topic, n.TopicID
			if version < 12 && unknown.Topic == nil {
				unknown.Topic = new(string) // not nullable before
			}
			out = append(out, unknown)
			continue
		}
		out = append(out, v.topic(t, operations))
	}
	return out
}

// find finds a topic by name, or by id, which is allowed from version 12.
func (v *view) find(n kmsg.MetadataRequestTopic, version int16) (*metadata.Topic, error) {
	byID := !wire.UUID(n.TopicID).IsZero()
	switch {
	case version < 12 && (n.Topic == nil || byID), n.Topic != nil && byID:
		return nil, kerr.InvalidRequest
	case byID:
		if t := v.img.TopicByID(n.TopicID); t != nil {
			return t, nil
		}
		return nil, kerr.UnknownTopicID
	case n.Topic == nil:
		return nil, kerr.InvalidRequest
	}
	if t := v.img.Topic(*n.Topic); t != nil {
		return t, nil
	}
	if err := metadata.CheckTopicName(*n.Topic); err != nil {
		return nil, errors.Join(err, kerr.InvalidTopicException)
	}
	return nil, kerr.UnknownTopicOrPartition
}

func (v *view) topic(t *metadata.Topic, operations int32) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal, out.AuthorizedOperations = &t.Name, t.ID, isInternal(t.Name), operations
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.NumPartitions)
	for p := range v.img.Partitions(t.ID) {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.LeaderEpoch, mp.Replicas, mp.ISR = p.Index, p.LeaderEpoch, p.Replicas, p.ISR
		mp.Leader, mp.ErrorCode = v.leader(p)
		mp.OfflineReplicas = v.offline(p)
		if v.version == 0 { // which has no way to say that a replica is away
			mp.Replicas = without(mp.Replicas, mp.OfflineReplicas)
			mp.ISR = without(mp.ISR, mp.OfflineReplicas)
		}
		out.Partitions = append(out.Partitions, mp)
	}
	return out
}

// leader returns who leads, or -1 and why clients cannot reach anyone.
func (v *view) leader(p *metadata.Partition) (int32, int16) {
	registered, listening := v.alive(p.Leader)
	switch {
	case p.Leader < 0 || !registered:
		return -1, kerr.LeaderNotAvailable.Code
	case !listening && v.version >= 6:
		return -1, kerr.ListenerNotFound.Code
	case !listening:
		return -1, kerr.LeaderNotAvailable.Code
	}
	return p.Leader, 0
}

// offline lists the replicas whose broker is not there.
func (v *view) offline(p *metadata.Partition) []int32 {
	var out []int32
	for _, id := range p.Replicas {
		if _, ok := v.alive(id); !ok {
			out = append(out, id)
		}
	}
	return out
}

func without(ids, drop []int32) []int32 {
	if len(drop) == 0 {
		return ids
	}
	var out []int32
	for _, id := range ids {
		if !slices.Contains(drop, id) {
			out = append(out, id)
		}
	}
	return out
}
