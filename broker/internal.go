package broker

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/config"
)

// Internal topics belong to coordinators: clients see them and do not create them.
const (
	offsetsTopic      = "__consumer_offsets"
	transactionsTopic = "__transaction_state"
)

func isInternal(topic string) bool { return topic == offsetsTopic || topic == transactionsTopic }

// newTopic is how a topic is created that nobody described.
func (b *Broker) newTopic(name string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	if name != offsetsTopic {
		return t
	}
	t.NumPartitions = int32(b.number("offsets.topic.num.partitions"))
	// As many replicas as there are brokers, if those are fewer than configured.
	brokers := 0
	for other := range b.follower.Image().Brokers() {
		if other.Active() {
			brokers++
		}
	}
	t.ReplicationFactor = int16(max(min(b.number("offsets.topic.replication.factor"), brokers), 1))
	for name, value := range map[string]string{
		"cleanup.policy":   "compact",
		"compression.type": "producer",
		"segment.bytes":    strconv.Itoa(b.number("offsets.topic.segment.bytes")),
	} {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
	return t
}

// number is the value of a numeric property of the broker, set or default.
func (b *Broker) number(name string) int {
	p, ok := config.Lookup(config.BrokerScope, name)
	if !ok {
		return 0
	}
	if n, err := strconv.Atoi(b.cfg.Static[name]); err == nil {
		return n
	}
	if p.Default == nil {
		return 0
	}
	n, _ := strconv.Atoi(*p.Default)
	return n
}
