package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// connect makes a client and checks at once that a broker answers.
func (a *app) connect(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(a.bootstrap...),
		kgo.ClientID("varve"),
		kgo.RetryTimeout(a.timeout),
		kgo.DialTimeout(min(a.timeout, 5*time.Second)),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, a.explain("broker", err)
	}
	return client, nil
}

// admin runs do with an admin client and a deadline.
func (a *app) admin(ctx context.Context, do func(ctx context.Context, adm *kadm.Client) error) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return do(ctx, kadm.NewClient(client))
}

// topicDetail finds one topic and what the brokers say of its partitions.
func (a *app) topicDetail(ctx context.Context, adm *kadm.Client, name string) (kadm.TopicDetail, error) {
	topics, err := adm.ListTopicsWithInternal(ctx, name)
	if err == nil {
		err = topics[name].Err
	}
	if err != nil {
		return kadm.TopicDetail{}, a.explain("topic "+name, err)
	}
	return topics[name], nil
}

// offsetsOf turns listed offsets into a map by partition. A partition that
// failed fails all.
func (a *app) offsetsOf(topic string, listed kadm.ListedOffsets, err error) (map[int32]kadm.ListedOffset, error) {
	if err != nil {
		return nil, a.explain("topic "+topic, err)
	}
	for _, o := range listed[topic] {
		if o.Err != nil {
			return nil, a.explain(fmt.Sprintf("topic %s partition %d", topic, o.Partition), o.Err)
		}
	}
	return listed[topic], nil
}

// orNone treats an API version that the brokers do not have, such as offsets
// of tiers that Apache Kafka knows only lately, as no answer.
func orNone(listed kadm.ListedOffsets, err error) map[int32]kadm.ListedOffset {
	known := map[int32]kadm.ListedOffset{}
	var shards *kadm.ShardErrors
	if err != nil && !errors.As(err, &shards) {
		return known
	}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Offset >= 0 {
			known[o.Partition] = o
		}
	})
	return known
}

func sortedKeys[K interface{ ~string | ~int32 }, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
