package replica_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

const (
	nodeID    = 1
	clusterID = "cluster"

	recordSize = 640
)

// node is one broker with its disks, its store and, in place of a controller, the pure metadata machine. All of it lives
// in a synctest bubble, so time is virtual.
type node struct {
	t     *testing.T
	fs    vfs.FS
	store objstore.Store
	dirs  []string

	turn        chan struct{} // one command, or one Apply, at a time
	img         *metadata.Image
	applied     chan struct{} // closed and replaced when img moves
	incarnation byte
	refuse      func(metadata.Command) error // not nil: the controller does not answer

	unclean     bool // the broker cannot tell that it lost nothing
	brokerEpoch int64
	logDirs     []*log.Dir
	m           *replica.Manager
	tier        *tier.Manager
	registry    *prometheus.Registry
	stop        func(clean bool)

	noTier  bool
	crashed bool // errors of the end do not count
	tune    func(*replica.Config)
	wrap    func(replica.Tier) replica.Tier // what stands between the partitions and the tier
}

func newNode(t *testing.T) *node {
	n := &node{t: t, fs: vfs.NewMem(), store: mem.New(), dirs: []string{"/data"}, turn: make(chan struct{}, 1), applied: make(chan struct{}), img: metadata.New()}
	n.must(&metadata.FormCluster{ClusterID: clusterID, Features: []metadata.Feature{{Name: metadata.MetadataFeature, Level: metadata.MetadataVersion}}})
	return n
}

// bubble runs fn in a synctest bubble on a node that has started.
func bubble(t *testing.T, fn func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		defer func() { n.stop(true) }()
		fn(t, n)
	})
}

// previousEpoch is that of the life before, if no directory lost anything.
func (n *node) previousEpoch() int64 {
	if n.unclean {
		return -1
	}
	return n.brokerEpoch
}

// start opens the directories, registers the broker and runs a manager.
func (n *node) start() {
	n.t.Helper()
	n.logDirs = nil
	var ids []wire.UUID
	for _, dir := range n.dirs {
		d, err := log.OpenDir(log.DirOptions{FS: n.fs, Path: dir, ClusterID: clusterID, NodeID: nodeID, Format: true, Reserve: 1, Logger: n.logger()})
		if err != nil {
			n.t.Fatal(err)
		}
		n.logDirs = append(n.logDirs, d)
		ids = append(ids, d.ID())
	}
	if n.brokerEpoch > 0 {
		n.must(&metadata.FenceBroker{ID: nodeID, Epoch: n.brokerEpoch})
	}
	n.incarnation++
	n.must(&metadata.RegisterBroker{ID: nodeID, ClusterID: clusterID, Incarnation: wire.UUID{n.incarnation}, Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092}}, LogDirs: ids, PreviousEpoch: n.previousEpoch()})
	n.brokerEpoch = n.img.Broker(nodeID).Epoch
	n.must(&metadata.UnfenceBroker{ID: nodeID, Epoch: n.brokerEpoch})

	n.registry = prometheus.NewRegistry()
	config := replica.Config{
		NodeID: nodeID, BrokerEpoch: func() int64 { return n.brokerEpoch }, Dirs: n.logDirs, FS: n.fs,
		Static:    map[string]string{"log.segment.bytes": "1048576"},
		Committer: n, WaitImage: n.waitImage, CheckInterval: time.Second, Logger: n.logger(), Registerer: n.registry,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	if !n.noTier {
		var err error
		n.tier, err = tier.New(tier.Config{
			ClusterID: clusterID, NodeID: nodeID, BrokerEpoch: config.BrokerEpoch, Store: n.store, FS: n.fs, CacheDir: n.dirs[0] + "-cache",
			CacheBytes: 64 << 20, ChunkBytes: 1 << 20, ReadAheadBytes: 4 << 20, Image: func() *metadata.Image { return n.m.Image() },
			WaitImage: n.waitImage, Committer: n, DeleteGrace: time.Minute, Logger: n.logger(),
		})
		if err != nil {
			n.t.Fatal(err)
		}
		config.Tier = n.tier
		if n.wrap != nil {
			config.Tier = n.wrap(n.tier)
		}
	}
	if n.tune != nil {
		n.tune(&config)
	}
	m, err := replica.NewManager(config)
	if err != nil {
		n.t.Fatal(err)
	}
	n.m = m
	if err := m.Open(ctx); err != nil {
		n.t.Fatal(err)
	}
	go func() { done <- m.Run(ctx) }()
	if !n.noTier {
		go func() { done <- n.tier.Run(ctx) }()
	} else {
		done <- nil
	}
	m.Apply(metadata.Diff(metadata.New(), n.img))
	n.stop = func(clean bool) {
		cancel()
		for range 2 {
			if err := <-done; err != nil && !n.crashed {
				n.t.Error(err)
			}
		}
		for _, d := range n.logDirs {
			if err := d.Close(clean, n.brokerEpoch); err != nil && !n.crashed {
				n.t.Error(err)
			}
		}
		n.m = nil
	}
}

func (n *node) logger() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(testWriter{n.t}, nil))
	}
	return slog.New(slog.DiscardHandler)
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s %s", time.Now().Format("15:04:05.000"), bytes.TrimSpace(p))
	return len(p), nil
}

// restart stops the node and starts it again.
func (n *node) restart(clean bool) {
	n.t.Helper()
	n.stop(clean)
	n.start()
}

// refuseWith makes the controller answer every command with what f returns, nil: none.
func (n *node) refuseWith(f func(metadata.Command) error) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	n.refuse = f
}

// Submit is the controller: it applies commands and has the broker follow.
func (n *node) Submit(ctx context.Context, cmds ...metadata.Command) ([]metadata.Result, uint64, error) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	var results []metadata.Result
	for _, cmd := range cmds {
		if n.refuse != nil {
			if err := n.refuse(cmd); err != nil {
				return nil, 0, err
			}
		}
		old := n.img
		next, recs, result := metadata.Apply(old, cmd, metadata.Meta{Index: old.Index() + 1, Term: 1, TimeMs: time.Now().UnixMilli()})
		results = append(results, result)
		n.img = next
		if n.m != nil {
			n.m.Apply(metadata.NewDelta(old, next, recs))
		}
		close(n.applied)
		n.applied = make(chan struct{})
	}
	return results, n.img.Index(), nil
}

func (n *node) waitImage(ctx context.Context, index uint64) (*metadata.Image, error) {
	for {
		n.turn <- struct{}{}
		img, applied := n.img, n.applied
		<-n.turn
		if img.Index() >= index {
			return img, nil
		}
		select {
		case <-applied:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (n *node) must(cmds ...metadata.Command) {
	n.t.Helper()
	results, _, err := n.Submit(context.Background(), cmds...)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, r := range results {
		if r.Err() != nil {
			n.t.Fatal(r.Err())
		}
	}
}

// topic makes a topic of one partition and returns it.
func (n *node) topic(name string, config map[string]string) *replica.Partition {
	n.t.Helper()
	n.must(&metadata.CreateTopic{ID: wire.NewUUID(), Name: name, Assignments: [][]int32{{nodeID}}, Configs: config, Durability: "fsync"})
	return n.partition(name)
}

func (n *node) partition(name string) *replica.Partition {
	n.t.Helper()
	p, err := n.m.PartitionByName(name, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := p.CheckLeader(-1); err != nil {
		n.t.Fatal(err)
	}
	return p
}

func (n *node) configure(topic string, entries map[string]string) {
	n.t.Helper()
	n.must(&metadata.AlterConfig{Type: metadata.ResourceTopic, Name: topic, Version: n.m.Image().ConfigVersion(metadata.ResourceTopic, topic), Entries: entries})
}

// tiered is the configuration of a topic whose segments go to the store as soon as they are sealed.
func tiered(more ...string) map[string]string {
	c := map[string]string{"remote.storage.enable": "true", "internal.segment.bytes": "65536"}
	for i := 0; i < len(more); i += 2 {
		c[more[i]] = more[i+1]
	}
	return c
}

// batch encodes records "<first>".."<first+n-1>", each of about size bytes, with the present time.
func batch(first, n, size int) record.Batch {
	return batchAt(time.Now(), first, n, size)
}

func batchAt(at time.Time, first, n, size int) record.Batch {
	b := record.NewBuilder(record.Options{})
	for i := first; i < first+n; i++ {
		b.Append(at.UnixMilli(), nil, value(i, size))
	}
	out, err := b.Build()
	if err != nil {
		panic(err)
	}
	return out
}

func value(i, size int) []byte {
	v := fmt.Appendf(make([]byte, 0, max(size, 20)), "%d:", i)
	for len(v) < size {
		v = append(v, byte('a'+(i+len(v))%26))
	}
	return v
}

// send appends a record set and returns a channel with the result.
func send(p *replica.Partition, records []byte, acks int16, timeout time.Duration) chan *replica.Produce {
	done := make(chan *replica.Produce, 1)
	p.Append([]*replica.Produce{{Records: records, Acks: acks, Deadline: time.Now().Add(timeout), Version: 9, Done: func(x *replica.Produce) { done <- x }}})
	return done
}

// produce appends and waits for the acknowledgement.
func (n *node) produce(p *replica.Partition, records record.Batch) int64 {
	n.t.Helper()
	r := <-send(p, records, -1, 10*time.Second)
	if r.Err != nil {
		n.t.Fatal(r.Err)
	}
	return r.BaseOffset
}

// fill produces records first..first+count-1 of recordSize, ten in a batch, so that some ten batches make a segment.
func (n *node) fill(p *replica.Partition, first, count int) {
	n.t.Helper()
	for i := first; i < first+count; i += 10 {
		n.produce(p, batch(i, min(10, first+count-i), recordSize))
	}
}

// fetched is the outcome of one fetch, its records copied.
type fetched struct {
	*replica.Fetch
	data [][]byte // by partition
	at   time.Time
}

func newFetch(maxWait time.Duration, parts ...replica.FetchPartition) *replica.Fetch {
	for i := range parts {
		p := parts[i].Partition
		parts[i].Topic, parts[i].TopicID, parts[i].Index = p.Topic(), p.TopicID(), p.Index()
		parts[i].CurrentLeaderEpoch, parts[i].LastFetchedEpoch = -1, -1
		if parts[i].MaxBytes == 0 {
			parts[i].MaxBytes = 1 << 20
		}
	}
	return &replica.Fetch{Partitions: parts, MinBytes: 1, MaxBytes: 50 << 20, MaxWait: maxWait, Version: 12}
}

func (n *node) fetchAsync(ctx context.Context, f *replica.Fetch) chan fetched {
	done := make(chan fetched, 2)
	f.Done = func(f *replica.Fetch) {
		out := fetched{Fetch: f, at: time.Now()}
		for i := range f.Partitions {
			x := &f.Partitions[i]
			var data []byte
			for _, r := range x.Records {
				p := make([]byte, r.Size)
				if _, err := io.ReadFull(io.NewSectionReader(r.ReaderAt, r.Off, r.Size), p); err != nil {
					n.t.Error(err)
				}
				data = append(data, p...)
			}
			wire.ReleaseRanges(x.Records)
			out.data = append(out.data, data)
		}
		done <- out
	}
	n.m.Fetch(ctx, f)
	return done
}

func (n *node) fetch(f *replica.Fetch) fetched {
	return <-n.fetchAsync(context.Background(), f)
}

// consume reads every record from offset to the end, checks that none is missing or changed, and returns the next offset. Values
// are those of fill: the number is the offset plus shift.
func (n *node) consume(p *replica.Partition, offset, end int64) int64 {
	n.t.Helper()
	for tries := 0; offset < end; {
		r := n.fetch(newFetch(time.Second, replica.FetchPartition{Partition: p, Offset: offset}))
		if err := r.Partitions[0].Err; err != nil {
			n.t.Fatalf("offset %d: %v", offset, err)
		}
		before := offset
		for b, err := range record.All(r.data[0]) {
			if err != nil {
				n.t.Fatal(err)
			}
			if err := b.VerifyCRC(); err != nil {
				n.t.Fatal(err)
			}
			err = b.Each(1<<30, func(r record.Record) (bool, error) {
				if r.Offset < offset {
					return true, nil
				}
				if r.Offset != offset || !bytes.HasPrefix(r.Value, fmt.Appendf(nil, "%d:", offset)) {
					return false, fmt.Errorf("offset %d holds %.20q, wanted %d", r.Offset, r.Value, offset)
				}
				offset++
				return true, nil
			})
			if err != nil {
				n.t.Fatal(err)
			}
		}
		if offset == before {
			if tries++; tries > 20 {
				n.t.Fatalf("no progress at offset %d of [%d, %d), local from %d", offset, p.LogStart(), p.EndOffset(), p.LocalStart())
			}
		}
	}
	return offset
}

// eventually waits, in virtual time, until cond holds.
func (n *node) eventually(what string, within time.Duration, cond func() bool) {
	n.t.Helper()
	for end := time.Now().Add(within); !cond(); {
		if time.Now().After(end) {
			n.t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (n *node) row(p *replica.Partition) *metadata.Partition {
	return n.m.Image().Partition(p.TopicID(), p.Index())
}

func (n *node) remoteEnd(p *replica.Partition) int64 {
	end, ok := n.row(p).RemoteEnd.Offset()
	if !ok {
		return -1
	}
	return end
}

// synctestNode is bubble with something set up before the node starts.
func synctestNode[T any](t *testing.T, prepare func(*node) T, fn func(*testing.T, *node, T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		x := prepare(n)
		n.start()
		defer func() { n.stop(true) }()
		fn(t, n, x)
	})
}

// keyedBatch is batch with a key in every record.
func keyedBatch(first, n int) record.Batch {
	b := record.NewBuilder(record.Options{})
	for i := first; i < first+n; i++ {
		b.Append(time.Now().UnixMilli(), fmt.Appendf(nil, "key-%d", i), value(i, recordSize))
	}
	out, err := b.Build()
	if err != nil {
		panic(err)
	}
	return out
}
