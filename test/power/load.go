package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
)

const (
	inFlight   = 64   // records of one producer
	maxPayload = 2000 // bytes, but of some
	maxLarge   = 200_000
	largeShare = 50 // one of so many
	retryAfter = 50 * time.Millisecond
)

// partition is one that is written and read.
type partition struct {
	topic string
	id    int32
}

func (p partition) key() check.Key { return check.KeyOf(p.topic, p.id) }

// producer is one process of the history. It writes to all partitions in turn.
type producer struct {
	run, proc  int
	addr       string
	partitions []partition
	history    *check.History
	rng        *rand.Rand

	client *kgo.Client
	seq    uint32
	slots  chan struct{} // a record in flight holds one
}

// dial gives the producer a new client, and with it a new producer id.
func (p *producer) dial() error {
	if p.client != nil {
		p.client.Close() // what was in flight has an unknown outcome
	}
	var err error
	p.client, err = kgo.NewClient(clientOptions(p.addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.UnknownTopicRetries(-1))...)
	return err
}

// clientOptions are those of a client that notices soon that its node is back.
func clientOptions(addr string, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.DialTimeout(time.Second), kgo.MetadataMinAge(retryAfter),
		kgo.RetryBackoffFn(func(int) time.Duration { return retryAfter }),
	}, more...)
}

// load sends until ctx ends, at most rate records a second.
func (p *producer) load(ctx context.Context, rate int) {
	pace := time.NewTicker(time.Second / time.Duration(rate))
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		select {
		case <-ctx.Done():
			return
		case p.slots <- struct{}{}:
		}
		p.send()
	}
}

func (p *producer) send() {
	p.seq++
	at := p.partitions[p.rng.IntN(len(p.partitions))]
	v := check.Of(uint16(p.run), uint16(p.proc), p.seq)
	size := p.rng.IntN(maxPayload)
	if p.rng.IntN(largeShare) == 0 {
		size = p.rng.IntN(maxLarge)
	}
	r := &kgo.Record{Topic: at.topic, Partition: at.id, Value: check.Payload(v, size)}
	start := p.history.Now()
	p.client.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		op := check.Op{Proc: p.proc, Type: check.OK, F: check.FSend, Start: start, End: p.history.Now(),
			Sends: []check.Send{{Key: at.key(), Value: v, Offset: r.Offset}}}
		if err != nil {
			// A retry may have been refused of what an earlier try had written.
			op.Type, op.Error, op.Sends[0].Offset = check.Info, err.Error(), -1
		}
		p.history.Add(op)
		<-p.slots
	})
}

// settle waits until nothing is in flight.
func (p *producer) settle(ctx context.Context) error {
	if err := p.client.Flush(ctx); err != nil {
		return fmt.Errorf("producer %d: records unanswered: %w", p.proc, err)
	}
	return nil
}

// follower reads along all the time, over every power loss.
type follower struct {
	client *kgo.Client
	done   sync.WaitGroup

	mu  sync.Mutex
	err error // the first data loss that the client saw
}

// follow starts one; stop ends it.
func follow(proc int, addr string, partitions []partition, h *check.History) (*follower, error) {
	client, err := kgo.NewClient(clientOptions(addr, kgo.ConsumePartitions(offsets(partitions, func(partition) int64 { return 0 })))...)
	if err != nil {
		return nil, err
	}
	f := &follower{client: client}
	f.done.Go(func() {
		for {
			start := h.Now()
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachError(f.note)
			addPolls(h, check.Op{Proc: proc, Start: start}, fetches)
		}
	})
	return f, nil
}

// note keeps data loss; that a node is away is no news here.
func (f *follower) note(topic string, partition int32, err error) {
	if loss := (*kgo.ErrDataLoss)(nil); asDataLoss(err, &loss) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err == nil {
			f.err = fmt.Errorf("consumer of %s-%d: %w", topic, partition, err)
		}
	}
}

// lossSeen is the first data loss that the client reported.
func (f *follower) lossSeen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *follower) stop() {
	f.client.Close()
	f.done.Wait()
}
