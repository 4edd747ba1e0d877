package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Who may write.
const (
	clientLean  = "lean"
	clientFranz = "franz"
)

// writer writes to one partition.
type writer interface {
	// write returns once a small batch is acknowledged, or with an error that ends this attempt.
	write(context.Context) error
	close()
}

func newWriter(client string, addrs []string, partition int32) (writer, error) {
	switch client {
	case clientLean:
		return newLean(addrs, partition), nil
	case clientFranz:
		c, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		return &franz{c, partition}, err
	}
	return nil, fmt.Errorf("no client %q", client)
}

// franz is franz-go as it comes: acks=all, idempotent.
type franz struct {
	client    *kgo.Client
	partition int32
}

func (f *franz) write(ctx context.Context) error {
	return f.client.ProduceSync(ctx, &kgo.Record{Partition: f.partition, Value: value}).FirstErr()
}

func (f *franz) close() { f.client.Close() }
