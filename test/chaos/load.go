package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
)

const (
	producers  = 4
	followers  = 2
	inFlight   = 256  // records of one producer
	maxPayload = 2000 // bytes
	retryAfter = 100 * time.Millisecond
	// replayPause is between two reads of a whole partition.
	replayPause = time.Second
)

// The processes of the history after the producers.
const (
	followProc = producers + 1
	replayProc = followProc + followers
	rereadProc = replayProc + 1
)

// partition is one that is written and read.
type partition struct {
	topic string
	id    int32
}

func (p partition) key() check.Key { return check.KeyOf(p.topic, p.id) }

// allPartitions are those of all topics.
func allPartitions() (all []partition) {
	for _, t := range topics {
		for id := range t.partitions {
			all = append(all, partition{t.name, id})
		}
	}
	return all
}

// clientOptions are those of a client that notices soon that something has moved, and never gives up by itself.
func clientOptions(addrs []string, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.DialTimeout(2 * time.Second), kgo.MetadataMinAge(retryAfter), kgo.MetadataMaxAge(5 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return retryAfter }), kgo.RequestTimeoutOverhead(5 * time.Second),
	}, more...)
}

// load are the clients that write and read while the cluster is broken.
type load struct {
	history   *check.History
	producers []*producer
	readers   []*kgo.Client
	stopSend  context.CancelFunc
	stopRead  context.CancelFunc
	sending   sync.WaitGroup
	reading   sync.WaitGroup

	mu   sync.Mutex
	loss error // the first loss that a client noticed by itself
}

// startLoad starts producers, consumers that follow the ends, and one that reads whole partitions again and again.
func startLoad(addrs []string, rate int, seed uint64, h *check.History) (*load, error) {
	l := &load{history: h}
	sendCtx, stopSend := context.WithCancel(context.Background())
	readCtx, stopRead := context.WithCancel(context.Background())
	l.stopSend, l.stopRead = stopSend, stopRead
	for i := range producers {
		p := &producer{proc: i + 1, partitions: allPartitions(), history: h,
			rng: rand.New(rand.NewPCG(seed, uint64(i)+1)), slots: make(chan struct{}, inFlight)}
		var err error
		p.client, err = kgo.NewClient(clientOptions(addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond),
			kgo.RequiredAcks(kgo.AllISRAcks()), kgo.UnknownTopicRetries(-1))...)
		if err != nil {
			return l, err
		}
		l.producers = append(l.producers, p)
		l.sending.Go(func() { p.load(sendCtx, max(1, rate/producers)) })
	}
	for i := range followers {
		client, err := kgo.NewClient(clientOptions(addrs, kgo.ConsumePartitions(offsets(allPartitions(), func(partition) int64 { return 0 })))...)
		if err != nil {
			return l, err
		}
		l.readers = append(l.readers, client)
		l.reading.Go(func() { l.follow(client, followProc+i) })
	}
	rng := rand.New(rand.NewPCG(seed, producers+1))
	l.reading.Go(func() { l.replay(readCtx, addrs, rng) })
	return l, nil
}

// follow reads along until the client is closed.
func (l *load) follow(client *kgo.Client, proc int) {
	for {
		start := l.history.Now()
		fetches := client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(l.note)
		addPolls(l.history, check.Op{Proc: proc, Start: start}, fetches)
	}
}

// note keeps data loss; that a node is away is no news here.
func (l *load) note(topic string, partition int32, err error) {
	if loss := (*kgo.ErrDataLoss)(nil); errors.As(err, &loss) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.loss == nil {
			l.loss = fmt.Errorf("consumer of %s-%d: %w", topic, partition, err)
		}
	}
}

// replay reads whole partitions, one after the other, each by a new client: cold reads across failovers.
func (l *load) replay(ctx context.Context, addrs []string, rng *rand.Rand) {
	all := allPartitions()
	for sleep(ctx, replayPause) == nil {
		p := all[rng.IntN(len(all))]
		l.history.Add(check.Op{Proc: replayProc, Type: check.OK, F: check.FAssign, Start: l.history.Now(), End: l.history.Now(),
			Assigned: []check.Position{{Key: p.key(), Offset: 0}}})
		client, err := kgo.NewClient(clientOptions(addrs, kgo.ConsumePartitions(offsets([]partition{p}, func(partition) int64 { return 0 })))...)
		if err != nil {
			l.note(p.topic, p.id, err)
			continue
		}
		for {
			start := l.history.Now()
			polling, cancel := context.WithTimeout(ctx, replayPause)
			fetches := client.PollFetches(polling)
			cancel()
			fetches.EachError(l.note)
			addPolls(l.history, check.Op{Proc: replayProc, Start: start}, fetches)
			if fetches.NumRecords() < 20 { // at the end, or stuck: somebody else's turn
				break
			}
		}
		client.Close()
	}
}

// finish ends the load: sending stops, and within patience every record that was sent has an answer. Records without one
// stay unknown.
func (l *load) finish(ctx context.Context, patience time.Duration) error {
	l.stopSend()
	l.sending.Wait()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	for _, p := range l.producers {
		if err := p.client.Flush(ctx); err != nil {
			errs = append(errs, fmt.Errorf("producer %d has %d records unanswered after %v: %w", p.proc, p.client.BufferedProduceRecords(), patience, err))
		}
	}
	l.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(append(errs, l.loss)...)
}

// close ends all clients. It may be called again.
func (l *load) close() {
	l.stopSend()
	l.stopRead()
	for _, p := range l.producers {
		p.client.Close()
	}
	for _, c := range l.readers {
		c.Close()
	}
	l.sending.Wait()
	l.reading.Wait()
}

// producer is one process of the history. It writes to all partitions.
type producer struct {
	proc       int
	partitions []partition
	history    *check.History
	rng        *rand.Rand
	client     *kgo.Client
	seq        uint32
	slots      chan struct{} // a record in flight holds one
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
	const run = 1
	p.seq++
	at := p.partitions[p.rng.IntN(len(p.partitions))]
	v := check.Of(run, uint16(p.proc), p.seq)
	record := &kgo.Record{Topic: at.topic, Partition: at.id, Value: check.Payload(v, p.rng.IntN(maxPayload))}
	start := p.history.Now()
	p.client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
		op := check.Op{Proc: p.proc, Type: check.OK, F: check.FSend, Start: start, End: p.history.Now(),
			Sends: []check.Send{{Key: at.key(), Value: v, Offset: record.Offset}}}
		if err != nil {
			// What refused it may be the answer to a retry of what was written.
			op.Type, op.Error, op.Sends[0].Offset = check.Info, err.Error(), -1
		}
		p.history.Add(op)
		<-p.slots
	})
}
