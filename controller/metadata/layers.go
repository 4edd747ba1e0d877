package metadata

import (
	"strconv"
	"strings"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// TopicLayers returns what bears on a topic's configuration on one broker;
// static is that broker's server.properties.
func (m *Image) TopicLayers(topic string, broker int32, static map[string]string) config.Layers {
	layers := m.BrokerLayers(broker, static)
	layers.Topic = m.Config(ResourceTopic, topic)
	return layers
}

// BrokerLayers returns what bears on the configuration of a broker.
func (m *Image) BrokerLayers(broker int32, static map[string]string) config.Layers {
	return config.Layers{
		DynamicBroker:  m.Config(ResourceBroker, strconv.Itoa(int(broker))),
		DynamicDefault: m.Config(ResourceBroker, ""),
		Static:         static,
	}
}

// TopicConfig returns what a topic runs with on one broker. What Apply decides
// by (min.insync.replicas, durability) is that of the image, the same
// everywhere.
func (m *Image) TopicConfig(t *Topic, broker int32, static map[string]string) (config.Topic, error) {
	layers := m.TopicLayers(t.Name, broker, static)
	c, err := config.ForTopic(layers)
	if layers.Topic["varve.durability"] == "" && t.Durability != "" {
		c.Durability = t.Durability
	}
	c.MinInsyncReplicas = m.minInSync(t)
	return c, err
}

// minInSync is the min.insync.replicas that the image knows of a topic: set on
// it, set for all brokers, or recorded when it was created. At least 1.
func (m *Image) minInSync(t *Topic) int {
	for _, entries := range []map[string]string{m.Config(ResourceTopic, t.Name), m.Config(ResourceBroker, "")} {
		if n, err := strconv.ParseInt(strings.TrimSpace(entries["min.insync.replicas"]), 10, 32); err == nil {
			return max(int(n), 1)
		}
	}
	return max(int(t.MinInSync), 1)
}

// MinInSync is how many members the ISR of p must have for its high watermark
// to move: no more than it has replicas.
func (m *Image) MinInSync(p *Partition) int {
	if t := m.TopicByID(p.TopicID); t != nil {
		return min(m.minInSync(t), len(p.Replicas))
	}
	return 1
}

// fsynced reports whether what the replicas of a topic acknowledged is on
// their disks, so that no crash takes it.
func (m *Image) fsynced(topicID wire.UUID) bool {
	t := m.TopicByID(topicID)
	if t == nil {
		return false
	}
	if d := m.Config(ResourceTopic, t.Name)["varve.durability"]; d != "" {
		return d == config.Fsync
	}
	return t.Durability == config.Fsync
}

// AsCreated shows what was decided when the topic was created, where neither
// the topic nor what is set for all brokers says otherwise.
func (t *Topic) AsCreated(entries []config.Entry) []config.Entry {
	for i := range entries {
		switch e := &entries[i]; {
		case e.Name == "varve.durability" && e.Source != config.DynamicTopic && t.Durability != "":
			e.Value, e.Null = t.Durability, false
		case e.Name == "min.insync.replicas" && e.Source != config.DynamicTopic && e.Source != config.DynamicDefaultBroker && t.MinInSync > 0:
			e.Value, e.Null = strconv.Itoa(int(t.MinInSync)), false
		}
	}
	return entries
}
