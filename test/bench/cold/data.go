package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

const (
	topic        = "history"
	valueSize    = 1 << 10
	offloadLimit = 10 * time.Minute
	readLimit    = 5 * time.Minute
)

// castagnoli is hardware-fast, so that checking does not slow the reader down.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sums[i] is the checksum of the first (i+1)*sumEvery values.
type sums []uint32

const sumEvery = 1024

// checker sums values in order.
type checker struct {
	count int64
	crc   uint32
}

// add sums one more value and reports whether a checksum is due.
func (c *checker) add(value []byte) bool {
	c.crc = crc32.Update(c.crc, castagnoli, value)
	c.count++
	return c.count%sumEvery == 0
}

// fill writes random records and waits until all but the last segments are in the store alone.
func (r *rig) fill(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(1000<<10), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := r.create(ctx, client); err != nil {
		return err
	}
	rng := rand.NewChaCha8([32]byte{1})
	var c checker
	failed := make(chan error, 1)
	for written := int64(0); written < r.bytes && len(failed) == 0; written += valueSize {
		value := make([]byte, valueSize)
		rng.Read(value)
		binary.BigEndian.PutUint64(value, uint64(c.count))
		if c.add(value) {
			r.sums = append(r.sums, c.crc)
		}
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return r.awaitOffload(ctx, client, c.count)
	}
}

func (r *rig) create(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, 1
	for name, value := range map[string]string{
		"remote.storage.enable": "true", "segment.bytes": fmt.Sprint(r.segment), "local.retention.bytes": "1", "retention.ms": "-1",
		"file.delete.delay.ms": "100", "varve.durability": "replicated",
	} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// awaitOffload sets end to the first local offset once that stands still near the end.
func (r *rig) awaitOffload(ctx context.Context, client *kgo.Client, count int64) error {
	const earliestLocal = -4
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = earliestLocal
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.ReplicaID, req.Topics = -1, append(req.Topics, t)
	for limit := time.Now().Add(offloadLimit); time.Now().Before(limit); time.Sleep(200 * time.Millisecond) {
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		r.end = resp.Topics[0].Partitions[0].Offset
		if (count-r.end)*valueSize < 2*r.segment {
			return nil
		}
	}
	return fmt.Errorf("%d records are still local after %v", count-r.end, offloadLimit)
}

// replay reads from the start to where the local bytes begin and compares every checksum.
func (r *rig) replay(ctx context.Context) (bytes int64, first, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	reader, err := dialReader(ctx, r.broker.Addr, r.fetch)
	if err != nil {
		return 0, 0, 0, err
	}
	defer reader.conn.Close()
	var c checker
	begin := time.Now()
	first, err = reader.run(ctx, r.end, func(batches []byte) error { return r.check(&c, batches, &bytes) })
	return bytes, first, time.Since(begin), err
}

// check looks at every record of some batches.
func (r *rig) check(c *checker, batches []byte, bytes *int64) error {
	for len(batches) > 0 {
		batch, rest, err := record.Next(batches)
		if errors.Is(err, record.ErrShort) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := batch.VerifyCRC(); err != nil {
			return fmt.Errorf("batch at offset %d: %w", batch.BaseOffset(), err)
		}
		err = batch.Each(maxFrame, func(rec record.Record) (bool, error) {
			if rec.Offset != c.count {
				return false, fmt.Errorf("offset %d, want %d", rec.Offset, c.count)
			}
			*bytes += int64(len(rec.Value))
			if due := c.add(rec.Value); due && c.crc != r.sums[c.count/sumEvery-1] {
				return false, fmt.Errorf("wrong bytes at or before offset %d", rec.Offset)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		batches = rest
	}
	return nil
}
