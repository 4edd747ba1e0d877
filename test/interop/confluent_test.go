package interop

import (
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// confluent is confluent-kafka-go with the librdkafka that it brings along.
type confluent struct{}

func (confluent) name() string { return "confluent" }
func (confluent) text() bool   { return false }

func (confluent) produce(ctx context.Context, topic, codec string, records []event) error {
	p, err := kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers": target.addr,
		"compression.type":  codec,
		"message.max.bytes": 1_100_000,
		"batch.size":        200_000,
		"linger.ms":         50,
		"partitioner":       "murmur2_random",
	})
	if err != nil {
		return err
	}
	defer p.Close()
	reports := make(chan kafka.Event, len(records))
	for _, r := range records {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Key: r.key, Value: r.value}
		if err := p.Produce(m, reports); err != nil {
			return err
		}
	}
	for range records {
		select {
		case e := <-reports:
			if err := e.(*kafka.Message).TopicPartition.Error; err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d records not acknowledged: %w", p.Len(), len(records), ctx.Err())
		}
	}
	return nil
}

func (confluent) consume(ctx context.Context, topic string, partition int32, offset int64, n int) ([]event, error) {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers":  target.addr,
		"group.id":           "interop-" + topic,
		"enable.auto.commit": false,
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Assign([]kafka.TopicPartition{{Topic: &topic, Partition: partition, Offset: kafka.Offset(offset)}}); err != nil {
		return nil, err
	}
	var got []event
	for len(got) < n {
		m, err := c.ReadMessage(time.Second)
		if e, ok := err.(kafka.Error); ok && e.IsTimeout() && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return got, err
		}
		got = append(got, event{offset: int64(m.TopicPartition.Offset), key: m.Key, value: m.Value})
	}
	return got, nil
}
