package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/node"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cold replay: one consumer reads a partition whose local bytes are gone and
// whose chunk cache is empty, beside a program that gets the same objects with
// plain ranged GETs, several at a time.
const (
	coldBytes    = 1 << 30
	coldSegment  = 64 << 20
	coldBucket   = "bench"
	plainRange   = 8 << 20 // of one GET
	plainAtOnce  = 4
	offloadLimit = 5 * time.Minute
)

var coldWorkload = workload{name: "cold-replay", partitions: 1, connections: 1, depth: 1, records: 16, recordSize: 1 << 10, fetch: 63}

// coldSample is one replay and one plain read of the same objects.
type coldSample struct {
	Bytes       int64 // of records that were replayed
	Replay      time.Duration
	CPU         time.Duration // of the broker during the replay
	StoreCPU    time.Duration // of the store meanwhile
	PeakRSS     int64
	ObjectBytes int64
	Plain       time.Duration
}

// ReplayRate is in 10^6 bytes a second, as PlainRate.
func (c coldSample) ReplayRate() float64 { return float64(c.Bytes) / 1e6 / c.Replay.Seconds() }
func (c coldSample) PlainRate() float64  { return float64(c.ObjectBytes) / 1e6 / c.Plain.Seconds() }

// measureCold writes a partition, waits until its sealed segments lie in the
// store alone, and replays them runs times.
func measureCold(ctx context.Context, dir string, o options) (out []coldSample, err error) {
	store, err := minio.Start(ctx, minio.Config{Dir: filepath.Join(dir, "minio")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.CreateBucket(ctx, coldBucket); err != nil {
		return nil, err
	}
	cache := filepath.Join(dir, "cold-cache")
	s := &side{kind: "varve", start: func(ctx context.Context, dir string) (*node.Broker, error) {
		return node.StartVarve(ctx, node.VarveConfig{Binary: o.varve, Dir: dir, StoreURL: "s3://" + coldBucket + "/cold", Env: store.Env(),
			Settings: append([]string{
				"varve.store.s3.endpoint=" + store.Endpoint, "varve.store.s3.region=us-east-1", "varve.store.s3.path.style=true",
				"varve.tier.cache.dir=" + cache, "log.retention.check.interval.ms=500",
			}, o.set...)})
	}}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx, dir); err != nil {
		return nil, err
	}
	batch := newBatch(coldWorkload.records, coldWorkload.recordSize, time.Now().UnixMilli())
	t, end, err := offload(ctx, s, batch)
	if err != nil {
		return nil, err
	}
	objects, err := s3.New(ctx, store.Options(coldBucket))
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	for i := range o.runs {
		c := coldSample{}
		if c.ObjectBytes, c.Plain, err = plainGet(ctx, objects); err != nil {
			return nil, err
		}
		if err := s.restart(ctx, cache); err != nil {
			return nil, err
		}
		if err := c.replay(s, store, newFetchLoad(t.id, 0, []int64{0}, end, batch, coldWorkload.fetch*len(batch), coldWorkload.fetch*len(batch))); err != nil {
			return nil, fmt.Errorf("cold replay: %w", err)
		}
		progress("cold replay run %d of %d: %.0f MB/s, plain GETs %.0f MB/s", i+1, o.runs, c.ReplayRate(), c.PlainRate())
		out = append(out, c)
	}
	return out, nil
}

// offload fills a partition and waits until only its last segment is local; it
// returns the first offset that is.
func offload(ctx context.Context, s *side, batch []byte) (topic, int64, error) {
	t, err := s.createWith(ctx, 1, map[string]string{
		"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.bytes": fmt.Sprint(coldSegment), "varve.durability": "replicated"})
	if err != nil {
		return topic{}, 0, err
	}
	progress("writing and offloading %d MB", coldBytes/1e6)
	end, err := coldWorkload.fill(s, t, batch)
	if err != nil {
		return topic{}, 0, err
	}
	limit := time.Now().Add(offloadLimit)
	for {
		local, err := s.localStart(ctx, t)
		if err != nil {
			return topic{}, 0, err
		}
		if (end-local)/int64(coldWorkload.records)*int64(len(batch)) < 2*coldSegment {
			return t, local, nil
		}
		if time.Now().After(limit) {
			return topic{}, 0, fmt.Errorf("%d records are still local after %v", end-local, offloadLimit)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// localStart is the first offset that is on the local disk.
func (s *side) localStart(ctx context.Context, t topic) (int64, error) {
	const earliestLocal = -4
	r := kmsg.NewPtrListOffsetsRequest()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = earliestLocal
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic, rt.Partitions = t.name, append(rt.Partitions, p)
	r.ReplicaID, r.Topics = -1, append(r.Topics, rt)
	resp, err := r.RequestWith(ctx, s.client)
	if err != nil {
		return 0, err
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}

// restart ends the broker, empties the cache and starts it again in its folder.
func (s *side) restart(ctx context.Context, cache string) error {
	dir := s.broker.Dir
	s.client.Close()
	if err := s.broker.Stop(30 * time.Second); err != nil {
		return fmt.Errorf("stop %s: %w", s.kind, err)
	}
	if err := os.RemoveAll(cache); err != nil {
		return err
	}
	return s.openIn(ctx, dir)
}

// replay reads the partition once, from its start to the end of what is cold.
func (c *coldSample) replay(s *side, store *minio.Server, l *fetchLoad) error {
	cpu, err := s.broker.CPU()
	if err != nil {
		return err
	}
	storeCPU, err := node.CPU(store.Pid())
	if err != nil {
		return err
	}
	began := time.Now()
	if c.Bytes, err = readOnce(s.broker.Addr, l); err != nil {
		return err
	}
	c.Replay = time.Since(began)
	after, err1 := s.broker.CPU()
	storeAfter, err2 := node.CPU(store.Pid())
	m, err3 := s.broker.Memory()
	c.CPU, c.StoreCPU, c.PeakRSS = after-cpu, storeAfter-storeCPU, m.Peak
	return errors.Join(err1, err2, err3)
}

// plainGet reads every object of the store with ranged GETs and drops the bytes.
func plainGet(ctx context.Context, store objstore.Store) (bytes int64, took time.Duration, err error) {
	type part struct {
		name string
		off  int64
		size int
	}
	parts := make(chan part, 1<<16)
	if err := store.List(ctx, "", "", func(i objstore.Info) error {
		for off := int64(0); off < i.Size; off += plainRange {
			parts <- part{i.Name, off, int(min(plainRange, i.Size-off))}
		}
		bytes += i.Size
		return nil
	}); err != nil {
		return 0, 0, err
	}
	close(parts)
	began := time.Now()
	var wg sync.WaitGroup
	fails := make(chan error, plainAtOnce)
	for range plainAtOnce {
		wg.Go(func() {
			buf := make([]byte, plainRange)
			for p := range parts {
				if _, err := store.Get(ctx, p.name, p.off, buf[:p.size]); err != nil {
					fails <- fmt.Errorf("get %s: %w", p.name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-fails:
		return 0, 0, err
	default:
		return bytes, time.Since(began), nil
	}
}
