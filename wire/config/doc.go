// Package config is the vocabulary of configuration: every property once,
// with its name, type, default, range, documentation and scope.
//
// Names, types, defaults and ranges of Kafka's properties are Kafka's own,
// letter for letter (those of 4.4), so that a server.properties, a topic's
// configuration in Terraform or what Connect and Streams set when they create
// topics mean here what they mean there. A property that only Varve has begins
// with "varve."; DIVERGENCE.md tells where a default differs. Properties of Kafka that have no effect here are known and
// accepted all the same, and say so (Property.Ignored).
//
// The properties stand in three embedded files (topic.txt, broker.txt,
// varve.txt), one block each:
//
//	retention.ms: LONG = 604800000 in [-1,...]
//		@synonyms log.retention.ms log.retention.minutes log.retention.hours
//		Documentation, any number of lines.
//
// The first line gives name, type and default (null where there is none, ""
// where it is the empty string), and what values are allowed in Kafka's own
// notation. Then come attributes: @synonyms are the broker properties that a
// topic property defaults from, the first that is set wins; @dynamic says that
// the property can be changed while the broker runs, and for whom; @ignored
// says that it has no effect in Varve.
//
// Values are what Kafka takes: plain numbers, in the unit that the name ends
// in. There is no "7d" and no "1GiB".
//
// What a broker or a topic runs with comes from layers (Layers): what was set
// on the topic, on this broker, for all brokers, in server.properties, and the
// default. Describe shows the layers as DescribeConfigs does, ForTopic and
// ForBroker turn them into typed values.
package config
