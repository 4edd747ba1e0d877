package broker

import (
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// leaderHint tells who leads a partition now (KIP-951); nil if that is unknown.
func (h *handler) leaderHint(topic string, id wire.UUID, index int32) (*wire.LeaderIDEpoch, *metadata.Partition) {
	img := h.follower.Image()
	if id.IsZero() {
		t := img.Topic(topic)
		if t == nil {
			return nil, nil
		}
		id = t.ID
	}
	p := img.Partition(id, index)
	if p == nil {
		return nil, nil
	}
	return &wire.LeaderIDEpoch{LeaderID: p.Leader, LeaderEpoch: p.LeaderEpoch}, p
}

// addEndpoint adds where a leader listens, once.
func (h *handler) addEndpoint(nodes []wire.NodeEndpoint, id int32) []wire.NodeEndpoint {
	for i := range nodes {
		if nodes[i].NodeID == id {
			return nodes
		}
	}
	b := h.follower.Image().Broker(id)
	if b == nil {
		return nodes
	}
	l, ok := b.Listener(h.listener)
	if !ok {
		return nodes
	}
	return append(nodes, wire.NodeEndpoint{NodeID: id, Host: l.Host, Port: l.Port, Rack: rack(b)})
}

func rack(b *metadata.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}
