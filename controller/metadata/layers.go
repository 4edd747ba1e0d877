package metadata

import (
	"strconv"

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

// TopicConfig returns what a topic runs with on one broker.
func (m *Image) TopicConfig(t *Topic, broker int32, static map[string]string) (config.Topic, error) {
	layers := m.TopicLayers(t.Name, broker, static)
	c, err := config.ForTopic(layers)
	if layers.Topic["varve.durability"] == "" && t.Durability != "" {
		c.Durability = t.Durability
	}
	return c, err
}
