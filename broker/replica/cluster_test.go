package replica_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// lagTime is replica.lag.time.max.ms of the clusters here.
const lagTime = 10 * time.Second

// cluster is several brokers in one synctest bubble: the pure metadata machine in the place of a controller, and function calls with a
// little delay in the place of connections.
type cluster struct {
	t       *testing.T
	turn    chan struct{} // one command at a time
	img     *metadata.Image
	applied chan struct{}
	members map[int32]*member
	store   objstore.Store
	cut     map[[2]int32]bool            // requests from one broker to another are lost
	refuse  func(metadata.Command) error // not nil: what the controller answers
	tune    func(*replica.Config)
}

// member is a broker of a cluster. What it has in common with a node are the means to produce and to fetch.
type member struct {
	*node
	c      *cluster
	id     int32
	disk   *vfs.Mem
	epoch  int64
	deaf   bool // it hears nothing of the metadata
	halt   func(clean bool)
	tiered bool
}

// brokers runs fn in a bubble with a cluster of brokers 1, 2, 3, which has started.
func brokers(t *testing.T, withTier bool, fn func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, turn: make(chan struct{}, 1), img: metadata.New(), applied: make(chan struct{}), members: map[int32]*member{},
			store: mem.New(), cut: map[[2]int32]bool{}}
		c.must(&metadata.FormCluster{ClusterID: clusterID, Features: []metadata.Feature{{Name: metadata.MetadataFeature, Level: metadata.MetadataVersion}}})
		for id := int32(1); id <= 3; id++ {
			c.members[id] = &member{node: &node{t: t}, c: c, id: id, disk: vfs.NewMem(), tiered: withTier}
			c.members[id].start()
		}
		defer func() {
			for _, b := range c.members {
				if b.m != nil {
					b.stop(true)
				}
			}
		}()
		fn(t, c)
	})
}

// start registers the broker and runs it.
func (b *member) start() {
	b.t.Helper()
	dir, err := log.OpenDir(log.DirOptions{FS: b.disk, Path: "/data", ClusterID: clusterID, NodeID: b.id, Format: true, Reserve: 1, Logger: b.logger()})
	if err != nil {
		b.t.Fatal(err)
	}
	c := b.c
	if b.epoch > 0 {
		c.must(&metadata.FenceBroker{ID: b.id, Epoch: b.epoch})
	}
	b.incarnation++
	c.must(&metadata.RegisterBroker{ID: b.id, ClusterID: clusterID, Incarnation: wire.UUID{byte(b.id), b.incarnation}, LogDirs: []wire.UUID{dir.ID()},
		Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9090 + b.id}}, PreviousEpoch: -1})
	b.epoch = c.image().Broker(b.id).Epoch
	b.registry = prometheus.NewRegistry()
	cfg := replica.Config{NodeID: b.id, BrokerEpoch: func() int64 { return b.epoch }, Dirs: []*log.Dir{dir}, FS: b.disk,
		Static:    map[string]string{"log.segment.bytes": "1048576"},
		Committer: b, WaitImage: b.waitImage, CheckInterval: time.Second, Logger: b.logger(), Registerer: b.registry,
		Peer:        func(to int32) replica.Peer { return &link{c, b.id, to} },
		Replication: config.Replication{LagTime: lagTime}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	var m *replica.Manager
	if b.tiered {
		b.tier, err = tier.New(tier.Config{ClusterID: clusterID, NodeID: b.id, BrokerEpoch: cfg.BrokerEpoch, Store: c.store, FS: b.disk, CacheDir: "/cache",
			CacheBytes: 64 << 20, ChunkBytes: 1 << 20, ReadAheadBytes: 4 << 20, Image: func() *metadata.Image { return m.Image() },
			WaitImage: b.waitImage, Committer: b, DeleteGrace: time.Minute, Logger: b.logger()})
		if err != nil {
			b.t.Fatal(err)
		}
		cfg.Tier = b.tier
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	if m, err = replica.NewManager(cfg); err != nil {
		b.t.Fatal(err)
	}
	if err := m.Open(ctx); err != nil {
		b.t.Fatal(err)
	}
	go func() { done <- m.Run(ctx) }()
	if b.tiered {
		go func() { done <- b.tier.Run(ctx) }()
	} else {
		done <- nil
	}
	c.turn <- struct{}{}
	b.m = m
	m.Apply(metadata.Diff(metadata.New(), c.img))
	<-c.turn
	c.must(&metadata.UnfenceBroker{ID: b.id, Epoch: b.epoch})
	b.halt = func(clean bool) {
		cancel()
		for range 2 {
			if err := <-done; err != nil && clean {
				b.t.Error(err)
			}
		}
		if err := dir.Close(clean, b.epoch); err != nil && clean {
			b.t.Error(err)
		}
	}
}

// stop ends the broker in good order, as far as its disk is concerned; the controller is not told.
func (b *member) stop(clean bool) {
	c := b.c
	c.turn <- struct{}{}
	b.m = nil
	<-c.turn
	b.halt(clean)
}

// kill ends the broker as a crash does; a power loss takes what was not synced.
func (b *member) kill(powerLoss bool) {
	next := b.disk.KillClone()
	if powerLoss {
		next = b.disk.CrashClone(rand.New(rand.NewPCG(1, 1)), 0)
	}
	b.stop(false)
	b.disk = next
}

// fence has the controller take the broker for dead.
func (c *cluster) fence(id int32) {
	c.t.Helper()
	c.must(&metadata.FenceBroker{ID: id, Epoch: c.members[id].epoch})
}

func (b *member) logger() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(testWriter{b.t}, nil)).With("on", b.id)
	}
	return slog.New(slog.DiscardHandler)
}

// Submit is the controller: it applies commands and has the brokers follow that hear it.
func (b *member) Submit(ctx context.Context, cmds ...metadata.Command) ([]metadata.Result, uint64, error) {
	return b.c.submit(ctx, cmds...)
}

func (b *member) waitImage(ctx context.Context, index uint64) (*metadata.Image, error) {
	for {
		b.c.turn <- struct{}{}
		img, applied, deaf := b.c.img, b.c.applied, b.deaf
		<-b.c.turn
		if img.Index() >= index && !deaf {
			return img, nil
		}
		select {
		case <-applied:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *cluster) submit(_ context.Context, cmds ...metadata.Command) ([]metadata.Result, uint64, error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	var results []metadata.Result
	for _, cmd := range cmds {
		if c.refuse != nil {
			if err := c.refuse(cmd); err != nil {
				return nil, 0, err
			}
		}
		old := c.img
		next, recs, result := metadata.Apply(old, cmd, metadata.Meta{Index: old.Index() + 1, Term: 1, TimeMs: time.Now().UnixMilli()})
		results = append(results, result)
		c.img = next
		for _, b := range c.members {
			if b.m != nil && !b.deaf {
				b.m.Apply(metadata.NewDelta(old, next, recs))
			}
		}
		close(c.applied)
		c.applied = make(chan struct{})
	}
	return results, c.img.Index(), nil
}

// hear has a deaf broker learn what it missed.
func (b *member) hear() {
	b.c.turn <- struct{}{}
	b.deaf = false
	b.m.Apply(metadata.Diff(b.m.Image(), b.c.img))
	close(b.c.applied)
	b.c.applied = make(chan struct{})
	<-b.c.turn
}

func (b *member) becomeDeaf() {
	b.c.turn <- struct{}{}
	b.deaf = true
	<-b.c.turn
}

func (c *cluster) must(cmds ...metadata.Command) {
	c.t.Helper()
	results, _, err := c.submit(context.Background(), cmds...)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range results {
		if r.Err() != nil {
			c.t.Fatal(r.Err())
		}
	}
}

// topic makes a topic of one partition, led by the first of the replicas.
func (c *cluster) topic(name, durability string, config map[string]string, replicas ...int32) {
	c.t.Helper()
	c.must(&metadata.CreateTopic{ID: wire.NewUUID(), Name: name, Assignments: [][]int32{replicas}, Configs: config, Durability: durability})
}

func (c *cluster) image() *metadata.Image {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return c.img
}

func (c *cluster) row(topic string) *metadata.Partition {
	img := c.image()
	return img.Partition(img.Topic(topic).ID, 0)
}

// refuseWith makes the controller answer every command with what f returns, nil: none.
func (c *cluster) refuseWith(f func(metadata.Command) error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.refuse = f
}

// on is the replica of a broker.
func (c *cluster) on(id int32, topic string) *replica.Partition {
	c.t.Helper()
	p, err := c.members[id].m.PartitionByName(topic, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// leader is the broker that leads, and its replica.
func (c *cluster) leader(topic string) (*member, *replica.Partition) {
	c.t.Helper()
	c.eventually("a leader", 10*time.Second, func() bool {
		id := c.row(topic).Leader
		return id >= 0 && c.on(id, topic).IsLeader()
	})
	id := c.row(topic).Leader
	return c.members[id], c.on(id, topic)
}

// fill produces records to the leader with acks=all.
func (c *cluster) fill(topic string, first, count int) {
	c.t.Helper()
	b, p := c.leader(topic)
	b.node.fill(p, first, count)
}

// eventually waits, in virtual time.
func (c *cluster) eventually(what string, within time.Duration, cond func() bool) {
	c.t.Helper()
	(&node{t: c.t}).eventually(what, within, cond)
}

// settled waits until every replica has what the leader has, and knows it committed.
func (c *cluster) settled(topic string, ids ...int32) {
	c.t.Helper()
	_, lead := c.leader(topic)
	for _, id := range ids {
		c.eventually("replica reaches its leader", 20*time.Second, func() bool {
			p := c.on(id, topic)
			return p.EndOffset() == lead.EndOffset() && p.HighWatermark() == lead.EndOffset()
		})
	}
}

func (c *cluster) isr(topic string) []int32 {
	isr := slices.Clone(c.row(topic).ISR)
	slices.Sort(isr)
	return isr
}

func (c *cluster) awaitISR(topic string, within time.Duration, want ...int32) {
	c.t.Helper()
	c.eventually("in-sync replicas", within, func() bool { return slices.Equal(c.isr(topic), want) })
}

// disconnect cuts a broker off from the others, both ways.
func (c *cluster) disconnect(id int32, off bool) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	for other := range c.members {
		c.cut[[2]int32{id, other}], c.cut[[2]int32{other, id}] = off, off
	}
}

// link is the way from one broker to another.
type link struct {
	c        *cluster
	from, to int32
}

var errLost = errors.New("connection lost")

func (l *link) Close() error { return nil }

func (l *link) up() *replica.Manager {
	l.c.turn <- struct{}{}
	defer func() { <-l.c.turn }()
	if l.c.cut[[2]int32{l.from, l.to}] {
		return nil
	}
	return l.c.members[l.to].m
}

// Request has the other broker answer a Fetch, without a session.
func (l *link) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	time.Sleep(time.Millisecond)
	m := l.up()
	if m == nil {
		time.Sleep(100 * time.Millisecond)
		return nil, errLost
	}
	req := r.(*kmsg.FetchRequest)
	f := &replica.Fetch{MinBytes: int(req.MinBytes), MaxBytes: int(req.MaxBytes), MaxWait: time.Duration(req.MaxWaitMillis) * time.Millisecond, Version: 17,
		Replica: &replica.ReplicaState{ID: req.ReplicaState.ID, Epoch: req.ReplicaState.Epoch}}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			x := replica.FetchPartition{TopicID: t.TopicID, Index: p.Partition, Offset: p.FetchOffset, MaxBytes: int(p.PartitionMaxBytes),
				CurrentLeaderEpoch: p.CurrentLeaderEpoch, LastFetchedEpoch: p.LastFetchedEpoch, KnownHighWatermark: p.HighWatermark}
			x.Partition, x.Err = m.Partition(t.TopicID, p.Partition)
			f.Partitions = append(f.Partitions, x)
		}
	}
	done := make(chan struct{})
	f.Done = func(*replica.Fetch) { close(done) }
	m.Fetch(ctx, f)
	<-done
	resp, err := response(f)
	if err == nil && l.up() == nil {
		err = errLost
	}
	if err == nil {
		err = ctx.Err()
	}
	return resp, err
}

func response(f *replica.Fetch) (*kmsg.FetchResponse, error) {
	resp := kmsg.NewPtrFetchResponse()
	for i := range f.Partitions {
		x := &f.Partitions[i]
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.ErrorCode, p.HighWatermark, p.LogStartOffset = x.Index, replica.Code(x.Err), x.HighWatermark, x.LogStart
		if x.Diverging != nil {
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = x.Diverging.Epoch, x.Diverging.EndOffset
		}
		for _, r := range x.Records {
			data := make([]byte, r.Size)
			if _, err := io.ReadFull(io.NewSectionReader(r.ReaderAt, r.Off, r.Size), data); err != nil {
				return nil, err
			}
			p.RecordBatches = append(p.RecordBatches, data...)
		}
		wire.ReleaseRanges(x.Records)
		t := kmsg.NewFetchResponseTopic()
		t.TopicID, t.Partitions = x.TopicID, []kmsg.FetchResponseTopicPartition{p}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

// impose puts a row into the image, as an operator's decision does.
func (c *cluster) impose(row *metadata.Partition) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	old := c.img
	recs := []metadata.Record{row}
	c.img = old.Replay(recs, old.Index()+1, old.Term())
	for _, b := range c.members {
		if b.m != nil && !b.deaf {
			b.m.Apply(metadata.NewDelta(old, c.img, recs))
		}
	}
}
