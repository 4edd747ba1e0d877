package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire/config"
)

// Peer is a connection to another broker; *wire.Client is one. Requests of one peer are answered in order.
type Peer interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Close() error
}

// fetchers are the connections by which this broker follows others. Partitions whose topics want the disk before anything counts have
// connections of their own: a fetch waits for the disk of all that share it.
type fetchers struct {
	m *Manager

	mu      sync.Mutex
	running map[fetcherKey]*fetcher
	of      map[*Partition]fetcherKey
	closed  bool
	work    sync.WaitGroup
}

type fetcherKey struct {
	leader  int32
	durable bool
	turn    int // of num.replica.fetchers
}

// assign has a partition fetched from its leader in an epoch, and from nobody else.
func (c *fetchers) assign(p *Partition, lead *leadership) {
	key := fetcherKey{leader: lead.leader, durable: p.config.Load().Durability == config.Fsync,
		turn: (int(p.id[0]) + int(p.index)) % c.m.cfg.Replication.Fetchers}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || p.life.stopped.Load() {
		return
	}
	if old, ok := c.of[p]; ok && old != key {
		c.drop(p, old)
	}
	f := c.running[key]
	if f == nil {
		f = c.start(key)
	}
	c.of[p] = key
	f.add(p, lead.epoch)
}

// remove has a partition fetched no more. An answer that is being dealt with may still be appended.
func (c *fetchers) remove(p *Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key, ok := c.of[p]; ok {
		c.drop(p, key)
	}
}

func (c *fetchers) drop(p *Partition, key fetcherKey) {
	delete(c.of, p)
	if f := c.running[key]; f.forget(p) == 0 {
		delete(c.running, key)
		f.stop()
	}
}

func (c *fetchers) start(key fetcherKey) *fetcher {
	ctx, stop := context.WithCancel(c.m.life)
	f := &fetcher{m: c.m, leader: key.leader, stop: stop, parts: map[metadata.PartitionKey]*following{}, wake: make(chan struct{}, 1)}
	c.running[key] = f
	c.work.Go(func() { f.run(ctx) })
	return f
}

// close ends all fetching and waits for it.
func (c *fetchers) close() {
	c.mu.Lock()
	c.closed = true
	for _, f := range c.running {
		f.stop()
	}
	c.mu.Unlock()
	c.work.Wait()
}

// fetcher fetches what it is given from one leader, in one session (KIP-227), over one connection.
type fetcher struct {
	m       *Manager
	leader  int32
	stop    context.CancelFunc
	wake    chan struct{}
	session fetchSession // the loop's alone

	mu        sync.Mutex
	parts     map[metadata.PartitionKey]*following
	interrupt context.CancelFunc // ends the wait for an answer; nil: none is awaited
}

// following is a partition in a fetcher.
type following struct {
	p        *Partition
	epoch    int32 // of the leader
	retryAt  time.Time
	failures int // in a row
}

// coalesce is how long a fetcher waits for more when partitions come to it while an answer is awaited.
const coalesce = 2 * time.Millisecond

// add takes a partition in. An answer that is awaited is given up, for the leader may hold it while nothing happens to the others.
func (f *fetcher) add(p *Partition, epoch int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := metadata.PartitionKey{TopicID: p.id, Partition: p.index}
	if old := f.parts[key]; old != nil && old.p == p && old.epoch == epoch {
		return
	}
	f.parts[key] = &following{p: p, epoch: epoch}
	if f.interrupt != nil {
		f.interrupt()
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// forget returns how many are left.
func (f *fetcher) forget(p *Partition) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := metadata.PartitionKey{TopicID: p.id, Partition: p.index}
	if x := f.parts[key]; x != nil && x.p == p {
		delete(f.parts, key)
	}
	return len(f.parts)
}

func (f *fetcher) run(ctx context.Context) {
	peer := f.m.cfg.Peer(f.leader)
	defer func() {
		if err := peer.Close(); err != nil {
			f.m.logger.Debug("connection to a leader did not close", "leader", f.leader, "error", err)
		}
	}()
	failures := 0 // in a row
	for ctx.Err() == nil {
		ready, next := f.ready(time.Now())
		if len(ready) == 0 {
			f.idle(ctx, next)
			continue
		}
		asks := f.asks(ready)
		err := f.round(ctx, peer, asks)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errInterrupted):
			sleep(ctx, coalesce)
		case err != nil:
			if failures++; failures == 1 {
				f.m.logger.Warn("leader does not answer, fetching is tried again", "leader", f.leader, "partitions", len(asks), "error", err)
			}
			f.session.restart()
			sleep(ctx, f.m.backoff(failures))
		default:
			failures = 0
		}
	}
}

// idle waits until a partition comes, or one may be tried again at next.
func (f *fetcher) idle(ctx context.Context, next time.Time) {
	var due <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-f.wake:
	case <-due:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// ready lists the partitions that may be fetched now, and when the next of the others may.
func (f *fetcher) ready(now time.Time) (list []*following, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.wake:
	default:
	}
	for _, x := range f.parts {
		switch {
		case !x.retryAt.After(now):
			list = append(list, x)
		case next.IsZero() || x.retryAt.Before(next):
			next = x.retryAt
		}
	}
	return list, next
}

// ask is what one request wants of one partition.
type ask struct {
	*following
	offset, logStart, hw int64
	lastEpoch            int32
}

// asks readies the partitions: those of fsync topics are made durable, for what a replica asks for says what it has.
func (f *fetcher) asks(ready []*following) []ask {
	var syncs sync.WaitGroup
	for _, x := range ready {
		l := x.p.log.Load()
		if l == nil || x.p.config.Load().Durability != config.Fsync || l.SyncedEnd() >= l.EndOffset() {
			continue
		}
		syncs.Add(1)
		if !x.p.life.syncs().submit(func() { defer syncs.Done(); x.p.syncLog() }) {
			syncs.Done()
		}
	}
	syncs.Wait()
	list := make([]ask, 0, len(ready))
	for _, x := range ready {
		l := x.p.log.Load()
		if l == nil || x.p.offline() {
			f.delay(x)
			continue
		}
		a := ask{following: x, offset: l.EndOffset(), logStart: l.LogStart(), hw: x.p.HighWatermark(), lastEpoch: l.LastEpoch()}
		if x.p.config.Load().Durability == config.Fsync && l.SyncedEnd() < a.offset {
			f.delay(x)
			continue
		}
		list = append(list, a)
	}
	return list
}

var errInterrupted = errors.New("interrupted")

// round asks once and takes in the answer.
func (f *fetcher) round(ctx context.Context, peer Peer, asks []ask) error {
	if len(asks) == 0 {
		return nil
	}
	req := f.session.request(asks, &f.m.cfg)
	resp, err := f.request(ctx, peer, req)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		f.session.refused(err)
		if errors.Is(err, kerr.FetchSessionIDNotFound) || errors.Is(err, kerr.InvalidFetchSessionEpoch) || errors.Is(err, kerr.FetchSessionTopicIDError) {
			return nil
		}
		return err
	}
	f.session.answered(resp)
	byKey := make(map[metadata.PartitionKey]*ask, len(asks))
	for i := range asks {
		byKey[metadata.PartitionKey{TopicID: asks[i].p.id, Partition: asks[i].p.index}] = &asks[i]
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			if a := byKey[metadata.PartitionKey{TopicID: t.TopicID, Partition: t.Partitions[j].Partition}]; a != nil {
				f.take(a, &t.Partitions[j])
			}
		}
	}
	return nil
}

func (f *fetcher) request(ctx context.Context, peer Peer, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, f.m.cfg.Replication.SocketTimeout)
	defer cancel()
	waiting, interrupt := context.WithCancel(ctx)
	defer interrupt()
	f.mu.Lock()
	late := len(f.wake) > 0 // a partition has come that is not in the request
	f.interrupt = interrupt
	f.mu.Unlock()
	if late {
		interrupt()
	}
	r, err := peer.Request(waiting, req)
	f.mu.Lock()
	f.interrupt = nil
	f.mu.Unlock()
	if err != nil {
		if waiting.Err() != nil && ctx.Err() == nil {
			f.session.restart()
			return nil, errInterrupted
		}
		return nil, err
	}
	return r.(*kmsg.FetchResponse), nil
}

// take deals with the answer for one partition.
func (f *fetcher) take(a *ask, x *kmsg.FetchResponseTopicPartition) {
	err := a.p.take(f.leader, a, x)
	switch {
	case err == nil:
		f.mu.Lock()
		a.failures, a.retryAt = 0, time.Time{}
		f.mu.Unlock()
	case errors.Is(err, errNotFollowing):
	default:
		if f.delay(a.following) == 1 {
			a.p.m.logger.Info("replica is not fetched for a while", "topic", a.p.topic, "partition", a.p.index, "leader", f.leader, "error", err)
		}
	}
}

// firstDelay is how long a partition waits after its first failure, which mostly says that the metadata of either
// side is a moment behind; it doubles up to replica.fetch.backoff.ms.
const firstDelay = 20 * time.Millisecond

// delay has a partition wait, and returns the failures in a row.
func (f *fetcher) delay(x *following) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.failures++
	x.retryAt = time.Now().Add(f.m.backoff(x.failures))
	return x.failures
}

func (m *Manager) backoff(failures int) time.Duration {
	return min(firstDelay<<min(failures-1, 10), m.cfg.Replication.Backoff)
}
