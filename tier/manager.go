package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
)

// Committer submits commands to the controller. index is the one at which they were applied: an image at
// index or later shows their effect. An error means that the outcome is unknown, unless it says otherwise.
type Committer interface {
	Submit(ctx context.Context, cmds ...metadata.Command) (results []metadata.Result, index uint64, err error)
}

// Config is what a Manager is made of. Zero values of sizes and times mean the defaults.
type Config struct {
	ClusterID   string
	NodeID      int32
	BrokerEpoch func() int64 // of this broker's current registration

	Store    objstore.Store
	FS       vfs.FS
	CacheDir string // New removes the chunks that lie there, and nothing else

	CacheBytes     int64 // room of the chunk cache on disk
	ChunkBytes     int64 // of one ranged GET and one cache file; rounded up to 1 MiB
	ReadAheadBytes int64 // how far a sequential reader is read ahead of
	MaxReadMemory  int64 // bytes of downloads in flight and of chunks that have no file yet
	IndexBytes     int64 // memory for indexes of objects
	ReadRate       int64 // bytes a second of downloads, 0 = no limit

	ReservationMs     int64 // varve.tier.reservation.ms: how long an upload may take, beside what UploadRate costs it
	UploadConcurrency int   // uploads under way at a time
	UploadRate        int64 // bytes a second of uploads, 0 = no limit

	// DeleteGrace is how long an object lives on after its deletion was allowed: longer than a broker may lag
	// behind the controller plus the longest fetch.
	DeleteGrace time.Duration

	Image     func() *metadata.Image                                           // the newest, never nil
	WaitImage func(ctx context.Context, index uint64) (*metadata.Image, error) // at index or later
	Committer Committer

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Defaults of Config.
const (
	DefaultCacheBytes        = 1 << 30
	DefaultChunkBytes        = 8 << 20
	DefaultReadAheadBytes    = 64 << 20
	DefaultMaxReadMemory     = 128 << 20
	DefaultIndexBytes        = 64 << 20
	DefaultReservationMs     = 15 * 60 * 1000
	DefaultUploadConcurrency = 2
	DefaultDeleteGrace       = 5 * time.Minute
)

func (c *Config) setDefaults() {
	orDefault(&c.CacheBytes, DefaultCacheBytes)
	orDefault(&c.ChunkBytes, DefaultChunkBytes)
	orDefault(&c.ReadAheadBytes, DefaultReadAheadBytes)
	orDefault(&c.MaxReadMemory, DefaultMaxReadMemory)
	orDefault(&c.IndexBytes, DefaultIndexBytes)
	orDefault(&c.ReservationMs, DefaultReservationMs)
	orDefault(&c.UploadConcurrency, DefaultUploadConcurrency)
	orDefault(&c.DeleteGrace, DefaultDeleteGrace)
	c.ChunkBytes = (c.ChunkBytes + blockSize - 1) / blockSize * blockSize
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func orDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

func (c *Config) check() error {
	switch {
	case c.Store == nil || c.FS == nil || c.CacheDir == "" || c.Committer == nil:
		return errors.New("tier needs a store, a file system, a cache directory and a committer")
	case c.Image == nil || c.WaitImage == nil || c.BrokerEpoch == nil:
		return errors.New("tier needs the metadata image and the broker epoch")
	case c.ClusterID == "":
		return errors.New("tier needs the cluster id")
	case c.CacheBytes < 2*c.ChunkBytes:
		return fmt.Errorf("a chunk cache of %d bytes does not hold two chunks of %d", c.CacheBytes, c.ChunkBytes)
	}
	return nil
}

// Manager is the tier of one broker. All methods are safe for concurrent use; those that
// touch the store take as long as the store does.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	cache   *cache
	indexes indexCache
	gate    *gate // of downloads of data
	// indexGate is of downloads of indexes alone: those of data may hold their memory while they wait for one.
	indexGate *gate
	reads     pacer
	uploads   pacer
	slots     chan struct{} // one for each upload under way
	lookups   chan struct{} // one for each time lookup that decompresses
	holder    chan struct{} // the reader that holds a chunk while it waits for another, see lease.need
	health    health
	fetches   fetches
	streams   streams
	suspects  suspects

	life context.Context // ends with Run; downloads live in it, not in the request that wanted them
	end  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // goroutines of spawn
}

// maxLookups bounds the time lookups that decompress at a time.
const maxLookups = 4

// indexMemory bounds the bytes of indexes being downloaded.
const indexMemory = 32 << 20

// shutdownGrace bounds how long Run waits for downloads and uploads it has cancelled.
const shutdownGrace = 5 * time.Second

// New returns a manager with an empty chunk cache. Run must be called for it to be of use.
func New(cfg Config) (*Manager, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cache, err := openCache(cfg.FS, cfg.CacheDir, cfg.CacheBytes)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, log: cfg.Logger, cache: cache,
		gate: newGate(cfg.MaxReadMemory), indexGate: newGate(indexMemory),
		reads:   pacer{rate: cfg.ReadRate},
		uploads: pacer{rate: cfg.UploadRate},
		slots:   make(chan struct{}, cfg.UploadConcurrency),
		lookups: make(chan struct{}, maxLookups),
		holder:  make(chan struct{}, 1),
	}
	m.life, m.end = context.WithCancelCause(context.Background())
	m.metrics = newMetrics(m)
	if cfg.Registerer != nil {
		if err := m.metrics.register(cfg.Registerer); err != nil {
			return nil, fmt.Errorf("register metrics of the tier: %w", err)
		}
	}
	return m, nil
}

// Run serves until ctx ends, then cancels all work under way, waits for it (at most 5 s) and empties the cache.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.indexes.start(m.cfg.IndexBytes); err != nil {
		return err
	}
	m.spawn(m.settle)
	m.spawn(m.watchStore)
	m.spawn(m.serveTasks)
	m.spawn(m.sweepOrphans)
	<-ctx.Done()
	return m.close()
}

func (m *Manager) close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end(ErrClosed)
	done := make(chan struct{})
	go func() { m.work.Wait(); close(done) }()
	timer := time.NewTimer(shutdownGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		return fmt.Errorf("tier: work still under way %s after it was cancelled", shutdownGrace)
	}
	m.indexes.stop()
	if m.cfg.Registerer != nil {
		m.metrics.unregister(m.cfg.Registerer)
	}
	return m.cache.close()
}

// spawn starts a goroutine that close waits for; it returns false after close.
func (m *Manager) spawn(fn func(ctx context.Context)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.work.Add(1)
	go func() {
		defer m.work.Done()
		fn(m.life)
	}()
	return true
}

// during returns a context that ends with ctx or with the manager.
func (m *Manager) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.life, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// name is where a segment's object lies.
func (m *Manager) name(s *metadata.Segment) string { return metadata.ObjectName(m.cfg.ClusterID, s) }
