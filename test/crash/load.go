package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
)

// topic is one that the load writes to.
type topic struct {
	name       string
	partitions int32
	start      startRule
	configs    map[string]string
}

const (
	segmentBytes  = 1 << 20
	retainedBytes = 6 << 20
)

// topics all offload and keep next to nothing locally. They differ in what moves the log start.
var topics = []topic{
	{"kept", 3, startFixed, map[string]string{}},
	{"trimmed", 2, startTrimmed, map[string]string{}},
	{"retained", 2, startRetained, map[string]string{"retention.bytes": fmt.Sprint(retainedBytes)}},
}

func (t topic) config() map[string]*string {
	all := map[string]*string{
		"segment.bytes": kadm.StringPtr(fmt.Sprint(segmentBytes)), "remote.storage.enable": kadm.StringPtr("true"),
		"local.retention.bytes": kadm.StringPtr("1"), "retention.ms": kadm.StringPtr("-1"),
	}
	for k, v := range t.configs {
		all[k] = &v
	}
	return all
}

const (
	producers    = 2
	loadRate     = 6 << 20 // bytes a second of all producers
	paceBytes    = 64 << 10
	maxPayload   = 15  // 2^15 bytes at most
	inFlight     = 400 // records a producer has sent and not heard of
	trimInterval = 700 * time.Millisecond
	callTimeout  = 5 * time.Second
)

// load writes with idempotent producers that go on over every crash, trims, and notes what it is told.
type load struct {
	*history
	clients []*kgo.Client
	admin   *kadm.Client
	paused  sync.RWMutex // read-held while a record is sent or a partition trimmed
}

func newLoad(addr string) (*load, error) {
	l := &load{history: newHistory()}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RetryTimeout(callTimeout))
	if err != nil {
		return nil, err
	}
	l.admin = kadm.NewClient(client)
	codecs := [producers]kgo.CompressionCodec{kgo.NoCompression(), kgo.ZstdCompression()}
	for i := range producers {
		c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(codecs[i]), kgo.ProducerLinger(2*time.Millisecond), kgo.ProducerBatchMaxBytes(256<<10),
			kgo.StopProducerOnDataLossDetected(), kgo.UnknownTopicRetries(-1),
			kgo.MetadataMinAge(50*time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
		if err != nil {
			l.close()
			return nil, err
		}
		l.clients = append(l.clients, c)
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.clients {
		c.Close()
	}
	l.admin.Close()
}

func (l *load) createTopics(ctx context.Context) error {
	for _, t := range topics {
		if _, err := l.admin.CreateTopic(ctx, t.partitions, 1, t.config(), t.name); err != nil {
			return fmt.Errorf("create topic %s: %w", t.name, err)
		}
	}
	return nil
}

// run writes until ctx ends.
func (l *load) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i, c := range l.clients {
		wg.Go(func() { l.produce(ctx, i, c) })
	}
	wg.Go(func() { l.trimming(ctx) })
	wg.Wait()
}

func (l *load) produce(ctx context.Context, producer int, c *kgo.Client) {
	slots := make(chan struct{}, inFlight)
	rng := rand.New(rand.NewPCG(uint64(producer), 7))
	var places []place
	for _, t := range topics {
		for p := range t.partitions {
			places = append(places, place{t.name, p})
		}
	}
	sent := 0
	for n := uint32(1); ctx.Err() == nil; n++ {
		v := check.Of(0, uint16(producer), n)
		payload := check.Payload(v, 1+rng.IntN(1<<rng.IntN(maxPayload+1)))
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		l.paused.RLock()
		l.send(c, producer, places[rng.IntN(len(places))], v, payload, slots)
		l.paused.RUnlock()
		if sent += len(payload); sent >= paceBytes {
			time.Sleep(time.Duration(sent) * time.Second / (loadRate / producers))
			sent = 0
		}
	}
}

// keys that compress, unlike payloads.
var keys = [producers][]byte{nil, bytes.Repeat([]byte("key "), 64)}

// send sends a record. The client has no deadline: it tries again until it is told. An idempotent producer that lives has no
// reason to fail.
func (l *load) send(c *kgo.Client, producer int, to place, v check.Value, payload []byte, slots chan struct{}) {
	r := &kgo.Record{Topic: to.topic, Partition: to.partition, Key: keys[producer], Value: payload}
	c.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		<-slots
		if err != nil {
			l.fault(fmt.Errorf("record %v to %v: %w", v, to, err))
			return
		}
		l.ack(producer, to, v, r.Offset)
	})
}

// trimming deletes records now and then, and asks for log starts.
func (l *load) trimming(ctx context.Context) {
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.paused.RLock()
		l.trimOne(ctx, n)
		l.paused.RUnlock()
	}
}

// trimOne moves the log start of a partition to the middle, and notes all log starts. While the node is down it has no
// effect; if its answer is lost, the effect is unknown.
func (l *load) trimOne(ctx context.Context, n int) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, t := range topics {
		starts, err := l.offsets(ctx, t, l.admin.ListStartOffsets)
		if err != nil {
			return
		}
		for p, start := range starts {
			l.told(place{t.name, p}, start)
		}
		if t.start != startTrimmed {
			continue
		}
		ends, err := l.offsets(ctx, t, l.admin.ListEndOffsets)
		if err != nil {
			return
		}
		p := int32(n) % t.partitions
		at, to := place{t.name, p}, starts[p]+(ends[p]-starts[p])/3
		l.trim(at, to)
		var want kadm.Offsets
		want.AddOffset(t.name, p, to, -1)
		answers, err := l.admin.DeleteRecords(ctx, want)
		if err == nil && answers.Error() == nil {
			l.told(at, to)
		}
	}
}

// offsets are those of one kind of all partitions of a topic.
func (l *load) offsets(ctx context.Context, t topic, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	listed, err := ask(ctx, t.name)
	if err := errors.Join(err, listed.Error()); err != nil {
		return nil, err
	}
	all := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { all[o.Partition] = o.Offset })
	if len(all) != int(t.partitions) {
		return nil, fmt.Errorf("%d partitions of %s, want %d", len(all), t.name, t.partitions)
	}
	return all, nil
}

// pause holds the load until resume is called, and waits until all that was sent is acknowledged.
func (l *load) pause(ctx context.Context) (resume func(), err error) {
	l.paused.Lock()
	for _, c := range l.clients {
		if err := c.Flush(ctx); err != nil {
			l.paused.Unlock()
			return nil, fmt.Errorf("wait for acknowledgements: %w", err)
		}
	}
	return l.paused.Unlock, nil
}
