package interop

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{}

func (franz) name() string { return "franz-go" }
func (franz) text() bool   { return false }

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (franz) produce(ctx context.Context, topic, codec string, records []event) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(target.addr), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(franzCodecs[codec]), kgo.ProducerBatchMaxBytes(1_100_000))
	if err != nil {
		return err
	}
	defer c.Close()
	var out []*kgo.Record
	for _, r := range records {
		out = append(out, &kgo.Record{Key: r.key, Value: r.value})
	}
	return c.ProduceSync(ctx, out...).FirstErr()
}

func (franz) consume(ctx context.Context, topic string, partition int32, offset int64, n int) ([]event, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(target.addr),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}}))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var got []event
	for len(got) < n {
		f := c.PollFetches(ctx)
		for _, e := range f.Errors() {
			return got, fmt.Errorf("fetch: %w", e.Err)
		}
		f.EachRecord(func(r *kgo.Record) {
			got = append(got, event{offset: r.Offset, key: r.Key, value: r.Value})
		})
	}
	return got[:n], nil
}
