package tier

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// controller applies commands to an image, as the quorum does, and publishes it at once. Its hooks play the network.
type controller struct {
	mu     sync.Mutex
	img    *metadata.Image
	moved  chan struct{} // closed and replaced with every image
	counts map[string]int

	// before may refuse to deliver a command; after may lose the answer.
	before, after func(cmd metadata.Command) error
}

const (
	testCluster = "cluster"
	testBroker  = int32(1)
)

func newController(t testing.TB) *controller {
	t.Helper()
	c := &controller{img: metadata.New(), moved: make(chan struct{}), counts: map[string]int{}}
	c.must(t, &metadata.FormCluster{ClusterID: testCluster, Features: []metadata.Feature{{Name: metadata.MetadataFeature, Level: metadata.MetadataVersion}}})
	c.must(t, &metadata.RegisterBroker{ID: testBroker, ClusterID: testCluster, Incarnation: wire.NewUUID(), LogDirs: []wire.UUID{wire.NewUUID()},
		Listeners: []metadata.Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092}}})
	c.must(t, &metadata.UnfenceBroker{ID: testBroker, Epoch: c.brokerEpoch()})
	return c
}

func (c *controller) apply(cmd metadata.Command) (metadata.Result, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	img, _, result := metadata.Apply(c.img, cmd, metadata.Meta{Index: c.img.Index() + 1, Term: 1, TimeMs: time.Now().UnixMilli()})
	c.img = img
	close(c.moved)
	c.moved = make(chan struct{})
	return result, img.Index()
}

func (c *controller) must(t testing.TB, cmd metadata.Command) {
	t.Helper()
	if r, _ := c.apply(cmd); r.Err() != nil {
		t.Fatalf("%T: %v", cmd, r.Err())
	}
}

func (c *controller) brokerEpoch() int64 { return c.image().Broker(testBroker).Epoch }

func (c *controller) image() *metadata.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.img
}

func (c *controller) wait(ctx context.Context, index uint64) (*metadata.Image, error) {
	for {
		c.mu.Lock()
		img, moved := c.img, c.moved
		c.mu.Unlock()
		if img.Index() >= index {
			return img, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *controller) Submit(_ context.Context, cmds ...metadata.Command) ([]metadata.Result, uint64, error) {
	var results []metadata.Result
	var index uint64
	for _, cmd := range cmds {
		c.mu.Lock()
		before, after := c.before, c.after
		c.mu.Unlock()
		if before != nil {
			if err := before(cmd); err != nil {
				return nil, 0, err
			}
		}
		var r metadata.Result
		r, index = c.apply(cmd)
		results = append(results, r)
		if after != nil {
			if err := after(cmd); err != nil {
				return nil, 0, err
			}
		}
	}
	return results, index, nil
}

// topic creates a topic of one partition per broker list.
func (c *controller) topic(t testing.TB, name string, partitions int) wire.UUID {
	t.Helper()
	id := wire.NewUUID()
	assignments := make([][]int32, partitions)
	for i := range assignments {
		assignments[i] = []int32{testBroker}
	}
	c.must(t, &metadata.CreateTopic{ID: id, Name: name, Assignments: assignments, Configs: map[string]string{"remote.storage.enable": "true"}})
	return id
}

func (c *controller) advance(t testing.TB, id wire.UUID, logStart int64) {
	t.Helper()
	p := c.image().Partition(id, 0)
	c.must(t, &metadata.AdvanceLogStart{BrokerID: testBroker, BrokerEpoch: c.brokerEpoch(), TopicID: id, LeaderEpoch: p.LeaderEpoch, LogStart: logStart})
}

func (c *controller) deleteUpTo(t testing.TB, id wire.UUID, upTo int64) {
	t.Helper()
	p := c.image().Partition(id, 0)
	c.must(t, &metadata.DeleteSegmentsUpTo{BrokerID: testBroker, BrokerEpoch: c.brokerEpoch(), TopicID: id, LeaderEpoch: p.LeaderEpoch, UpTo: upTo})
}

// hookStore counts calls and lets a test interfere.
type hookStore struct {
	objstore.Store
	mu   sync.Mutex
	gets int
	size int64 // bytes of gets

	onGet  getHook
	onPut  putHook
	onHead func(name string) (objstore.Info, error)
}

type (
	getHook func(ctx context.Context, name string, off int64, p []byte) (int, error)
	putHook func(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error
)

func (s *hookStore) set(fn func(s *hookStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(s)
}

func (s *hookStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

func (s *hookStore) Get(ctx context.Context, name string, off int64, p []byte) (int, error) {
	s.mu.Lock()
	s.gets++
	s.size += int64(len(p))
	hook := s.onGet
	s.mu.Unlock()
	if hook != nil {
		return hook(ctx, name, off, p)
	}
	return s.Store.Get(ctx, name, off, p)
}

func (s *hookStore) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	s.mu.Lock()
	hook := s.onPut
	s.mu.Unlock()
	if hook != nil {
		return hook(ctx, name, r, size, opts)
	}
	return s.Store.Put(ctx, name, r, size, opts)
}

func (s *hookStore) Head(ctx context.Context, name string) (objstore.Info, error) {
	s.mu.Lock()
	hook := s.onHead
	s.mu.Unlock()
	if hook != nil {
		return hook(name)
	}
	return s.Store.Head(ctx, name)
}

func names(t testing.TB, s objstore.Store) []string {
	t.Helper()
	var all []string
	if err := s.List(context.Background(), "", "", func(info objstore.Info) error { all = append(all, info.Name); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// rig is a manager with a controller and a store, running.
type rig struct {
	*Manager
	t     testing.TB
	ctl   *controller
	store *hookStore
	fs    vfs.FS
	rng   *rand.Rand
	stop  func() error
}

// newRig starts a manager over a store in memory; small chunks make borders frequent.
func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, ctl: newController(t), store: &hookStore{Store: mem.New()}, fs: vfs.NewMem(), rng: newRand()}
	r.start(change...)
	return r
}

func (r *rig) start(change ...func(*Config)) {
	r.t.Helper()
	cfg := Config{
		ClusterID: testCluster, NodeID: testBroker, BrokerEpoch: r.ctl.brokerEpoch, Store: r.store, FS: r.fs, CacheDir: "cache",
		CacheBytes: 64 << 20, ChunkBytes: 1 << 20, ReadAheadBytes: 8 << 20, MaxReadMemory: 16 << 20, DeleteGrace: time.Minute,
		Image: r.ctl.image, WaitImage: r.ctl.wait, Committer: r.ctl, Logger: slog.New(slog.DiscardHandler),
	}
	for _, fn := range change {
		fn(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Manager = m
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for m.indexes.c.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	r.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			r.t.Error(err)
		}
	})
}

// wrote is what a test put into one partition, batch by batch.
type wrote struct {
	id      wire.UUID
	data    []byte // of all runs
	batches []record.Batch
	runs    []Run
}

// fill uploads runs of about the given sizes to partition 0 of a new topic.
func (r *rig) fill(name string, records, valueSize int, sizes ...int) *wrote {
	r.t.Helper()
	w := &wrote{id: r.ctl.topic(r.t, name, 1)}
	base := int64(0)
	for _, size := range sizes {
		run := r.run(w, base, size, records, valueSize)
		if _, _, err := r.Upload(context.Background(), run); err != nil {
			r.t.Fatal(err)
		}
		w.add(r.t, run)
		base = run.End
	}
	return w
}

// run makes the next run for a partition.
func (r *rig) run(w *wrote, base int64, size, records, valueSize int) Run {
	run := testRun(r.rng, base, size, records, valueSize)
	run.TopicID, run.Partition, run.Aborted = w.id, 0, nil
	run.LeaderEpoch = r.ctl.image().Partition(w.id, 0).LeaderEpoch
	return run
}

func (w *wrote) add(t testing.TB, run Run) {
	data := dataOf(t, run)
	w.data = append(w.data, data...)
	for b, err := range record.All(data) {
		if err != nil {
			t.Fatal(err)
		}
		w.batches = append(w.batches, b)
	}
	w.runs = append(w.runs, run)
}

func (w *wrote) end() int64 { return w.batches[len(w.batches)-1].NextOffset() }

// get reads at an offset and waits.
func (r *rig) get(ctx context.Context, req ReadRequest) ReadResult {
	if res, ok := r.TryRead(req); ok {
		return res
	}
	done := make(chan ReadResult, 1)
	r.Read(ctx, req, func(res ReadResult) { done <- res })
	return <-done
}

// bytesOfRanges reads and releases ranges.
func bytesOfRanges(t testing.TB, ranges []wire.FileRange) []byte {
	t.Helper()
	var all []byte
	for _, rg := range ranges {
		p := make([]byte, rg.Size)
		if n, err := rg.ReaderAt.ReadAt(p, rg.Off); n < len(p) {
			t.Fatalf("range of %d bytes at %d: read %d, %v", rg.Size, rg.Off, n, err)
		}
		all = append(all, p...)
	}
	wire.ReleaseRanges(ranges)
	return all
}

// readAll reads [from, end) in sequence and returns what came.
func (r *rig) readAll(w *wrote, from int64, maxBytes int) []byte {
	r.t.Helper()
	var all []byte
	for offset := from; offset < w.end(); {
		res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: offset, MaxBytes: maxBytes, EndOffset: w.end(), MinOneBatch: true})
		if res.Err != nil {
			r.t.Fatalf("read at %d: %v", offset, res.Err)
		}
		if res.NextOffset <= offset {
			r.t.Fatalf("read at %d goes on at %d", offset, res.NextOffset)
		}
		all = append(all, bytesOfRanges(r.t, res.Ranges)...)
		offset = res.NextOffset
	}
	return all
}

// quiet waits until nothing is under way.
func (r *rig) quiet() {
	r.t.Helper()
	for range 5000 {
		if err := settleAll(r.cache); err != nil {
			r.t.Error(err)
		}
		used, waiting := r.gate.used()
		if used == 0 && waiting == 0 && r.fetches.count() == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	used, waiting := r.gate.used()
	r.t.Fatalf("%d bytes used, %d wait, %d downloads", used, waiting, r.fetches.count())
}

// pinned tells whether any chunk is.
func (r *rig) pinned() bool {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	for _, ch := range r.cache.chunks {
		if ch.pins != 0 {
			return true
		}
	}
	return false
}

// balanced checks that nothing is pinned or leaked once all is quiet.
func (r *rig) balanced() {
	r.t.Helper()
	r.quiet()
	for range 5000 { // a download leaves the list a moment before it lets go of its chunk
		if !r.pinned() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	var bytes int64
	for _, ch := range r.cache.chunks {
		if ch.pins != 0 {
			r.t.Errorf("chunk %v has %d pins", ch.key, ch.pins)
		}
		bytes += ch.size
	}
	if bytes != r.cache.bytes || len(r.cache.chunks) != r.cache.files {
		r.t.Errorf("cache counts %d bytes in %d files, holds %d in %d", r.cache.bytes, r.cache.files, bytes, len(r.cache.chunks))
	}
	onDisk, err := r.fs.List(r.cache.dir)
	if err != nil || len(onDisk) != r.cache.files {
		r.t.Errorf("%d files on disk, %d counted (%v)", len(onDisk), r.cache.files, err)
	}
}

func same(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes (%x), want %d (%x)", len(got), sha256.Sum256(got), len(want), sha256.Sum256(want))
	}
}

var errLost = errors.New("connection lost")

func newRand() *rand.Rand { return rand.New(rand.NewPCG(11, 12)) }
