package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// Tier is what the partitions need of the store; *tier.Manager is one.
type Tier interface {
	Upload(ctx context.Context, run tier.Run) (*metadata.Segment, uint64, error)
	TryRead(req tier.ReadRequest) (tier.ReadResult, bool)
	Read(ctx context.Context, req tier.ReadRequest, done func(tier.ReadResult))
	OffsetForTime(ctx context.Context, topicID wire.UUID, partition int32, ts, from int64) (offset, timestamp int64, epoch int32, found bool, err error)
	MaxTimestamp(ctx context.Context, topicID wire.UUID, partition int32, from int64) (offset, timestamp int64, epoch int32, found bool, err error)
	LoadState(ctx context.Context, topicID wire.UUID, partition int32) (tier.State, error)
	Retain(ctx context.Context, topicID wire.UUID, partition int32) (deleted int, err error)
}

// Committer submits commands to the controller. index is the one at which they were applied. An error means that the
// outcome is unknown, unless it says otherwise.
type Committer interface {
	Submit(ctx context.Context, cmds ...metadata.Command) (results []metadata.Result, index uint64, err error)
}

// Config is what a Manager is made of.
type Config struct {
	NodeID      int32
	BrokerEpoch func() int64 // of this broker's current registration
	Dirs        []*log.Dir   // log.dirs; opened and closed by the caller
	FS          vfs.FS
	Static      map[string]string // server.properties: the lowest layer of topic configuration
	LogMetrics  *log.Metrics      // nil: not measured

	Tier      Tier // nil: no store
	Committer Committer
	// WaitImage returns an image at index or later that Manager.Apply has been given.
	WaitImage func(ctx context.Context, index uint64) (*metadata.Image, error)

	// Peer makes a connection to another broker; nil: this one follows nobody.
	Peer        func(node int32) Peer
	Replication config.Replication // zero values: Kafka's defaults

	ProducerIDExpiration time.Duration // producer.id.expiration.ms; 0: DefaultProducerIDExpiration

	TierMaxLag      time.Duration // varve.tier.max.lag.ms; 0: DefaultTierMaxLag
	WriteTimeout    time.Duration // varve.log.dir.write.timeout.ms; 0: DefaultWriteTimeout
	CheckInterval   time.Duration // between looks at retention, age and lag; 0: DefaultCheckInterval
	Uploads         int           // partitions that upload at a time; 0: DefaultUploads
	RecoveryThreads int           // logs of one directory opened at a time; 0: one a core

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Defaults of Config.
const (
	DefaultTierMaxLag    = time.Hour
	DefaultWriteTimeout  = 30 * time.Second
	DefaultCheckInterval = 5 * time.Second
	DefaultUploads       = 4

	DefaultProducerIDExpiration = 24 * time.Hour
)

// Bounds of the manager's workers.
const (
	syncsPerDir      = 8    // fdatasyncs under way at a time
	lookupWorkers    = 4    // time lookups under way at a time
	maxLookups       = 1024 // time lookups waiting: beyond, they are refused
	checkpointPeriod = time.Second
	// openWait bounds how long Apply waits for the logs of new partitions to open. Those that take longer are served
	// later; metadata does not wait for a slow disk.
	openWait = 2 * time.Second
	// closeGrace bounds how long Run waits for logs to close.
	closeGrace = 20 * time.Second
)

// Manager owns the partitions of one broker. Lock order: Manager, Partition, Log; none is held across the disk or the store.
type Manager struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	tier    Tier
	timers  timers
	image   atomic.Pointer[metadata.Image]

	readers pool // fetches that were woken
	lookups pool // ListOffsets by time
	opener  pool // opening, following, deleting
	disks   []*disk

	life context.Context // ends with Run: downloads and uploads live in it
	end  context.CancelFunc

	uploads  offloader
	cold     coldReads
	assigner assigner
	reporter reporter
	fetchers fetchers
	isr      isrKeeper

	mu         sync.RWMutex
	partitions map[metadata.PartitionKey]*Partition
	found      map[metadata.PartitionKey]foundLog // on the disks at start, not open yet
	opened     bool
}

// disk is a log directory and what works on it.
type disk struct {
	*log.Dir
	syncs pool
	count atomic.Int32 // partitions that lie here
}

// foundLog is a partition directory that was there at start.
type foundLog struct {
	disk *disk
	dir  log.PartitionDir
}

// NewManager returns a manager without partitions.
func NewManager(cfg Config) (*Manager, error) {
	if len(cfg.Dirs) == 0 || cfg.FS == nil || cfg.Committer == nil || cfg.WaitImage == nil || cfg.BrokerEpoch == nil {
		return nil, errors.New("replica manager needs log directories, a file system, a committer, the image and the broker epoch")
	}
	orDefault(&cfg.ProducerIDExpiration, DefaultProducerIDExpiration)
	orDefault(&cfg.TierMaxLag, DefaultTierMaxLag)
	orDefault(&cfg.WriteTimeout, DefaultWriteTimeout)
	orDefault(&cfg.CheckInterval, DefaultCheckInterval)
	orDefault(&cfg.Uploads, DefaultUploads)
	orDefault(&cfg.RecoveryThreads, runtime.GOMAXPROCS(0))
	replicationDefaults(&cfg.Replication)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		cfg: cfg, logger: cfg.Logger, tier: cfg.Tier,
		readers: pool{limit: max(2, runtime.GOMAXPROCS(0))}, lookups: pool{limit: lookupWorkers},
		opener:     pool{limit: cfg.RecoveryThreads * len(cfg.Dirs)},
		partitions: map[metadata.PartitionKey]*Partition{}, found: map[metadata.PartitionKey]foundLog{},
	}
	m.life, m.end = context.WithCancel(context.Background())
	m.uploads.init(m)
	m.cold = coldReads{m: m, of: map[coldKey]*coldRead{}}
	m.fetchers = fetchers{m: m, running: map[fetcherKey]*fetcher{}, of: map[*Partition]fetcherKey{}}
	m.isr = isrKeeper{m: m, wake: make(chan struct{}, 1), due: map[*Partition]bool{}}
	m.image.Store(metadata.New())
	for _, d := range cfg.Dirs {
		m.disks = append(m.disks, &disk{Dir: d, syncs: pool{limit: syncsPerDir}})
	}
	m.metrics = newMetrics(m)
	if cfg.Registerer != nil {
		if err := m.metrics.register(cfg.Registerer); err != nil {
			return nil, fmt.Errorf("register metrics of the partitions: %w", err)
		}
	}
	return m, nil
}

// replicationDefaults are those of Kafka's properties.
func replicationDefaults(r *config.Replication) {
	orDefault(&r.LagTime, 30*time.Second)
	orDefault(&r.Fetchers, 1)
	orDefault(&r.FetchBytes, 1<<20)
	orDefault(&r.ResponseBytes, 10<<20)
	orDefault(&r.MinBytes, 1)
	orDefault(&r.FetchWait, 500*time.Millisecond)
	orDefault(&r.Backoff, time.Second)
	orDefault(&r.SocketTimeout, 30*time.Second)
}

func orDefault[T int | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Image is the last one applied, never nil.
func (m *Manager) Image() *metadata.Image { return m.image.Load() }

// Partition finds a replica by topic id. The error wraps UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
// NOT_LEADER_OR_FOLLOWER (it exists, on other brokers) or KAFKA_STORAGE_ERROR.
func (m *Manager) Partition(id wire.UUID, index int32) (*Partition, error) {
	if p := m.lookup(id, index); p != nil {
		return p, nil
	}
	img := m.Image()
	switch {
	case img.TopicByID(id) == nil:
		return nil, refuse(kerr.UnknownTopicID, "topic id %s", id)
	case img.Partition(id, index) == nil:
		return nil, refuse(kerr.UnknownTopicOrPartition, "partition %d of topic id %s", index, id)
	}
	return nil, refuse(kerr.NotLeaderForPartition, "partition %d of topic id %s is on other brokers", index, id)
}

// PartitionByName finds a replica by topic name, with the same errors.
func (m *Manager) PartitionByName(topic string, index int32) (*Partition, error) {
	t := m.Image().Topic(topic)
	if t == nil {
		return nil, refuse(kerr.UnknownTopicOrPartition, "topic %q", topic)
	}
	return m.Partition(t.ID, index)
}

func (m *Manager) lookup(id wire.UUID, index int32) *Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.partitions[metadata.PartitionKey{TopicID: id, Partition: index}]
}

// Partitions are the replicas of this broker, in no order.
func (m *Manager) Partitions() iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		for _, p := range m.list() {
			if !yield(p) {
				return
			}
		}
	}
}

func (m *Manager) list() []*Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := make([]*Partition, 0, len(m.partitions))
	for _, p := range m.partitions {
		list = append(list, p)
	}
	return list
}

// Run does the work of the background until ctx ends; then everything parked is answered, every log is closed, and it returns.
func (m *Manager) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { m.every(ctx, checkpointPeriod, m.checkpoint) })
	loops.Go(func() { m.every(ctx, m.cfg.CheckInterval, m.maintain) })
	loops.Go(func() { m.uploads.run(ctx) })
	loops.Go(func() { m.isr.run(ctx) })
	for _, d := range m.disks {
		loops.Go(func() { m.watch(ctx, d) })
	}
	<-ctx.Done()
	m.end()
	loops.Wait()
	return m.close()
}

// every calls fn at an interval until ctx ends.
func (m *Manager) every(ctx context.Context, interval time.Duration, fn func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			fn(ctx)
		}
	}
}

// checkpoint notes recovery points, log starts and high watermarks, so that an fsync topic has little to look at after a crash.
func (m *Manager) checkpoint(context.Context) {
	for _, d := range m.disks {
		if d.Err() != nil {
			continue
		}
		if err := d.Checkpoint(); err != nil {
			m.logger.Warn("checkpoint of a log directory failed", "path", d.Path(), "error", err)
		}
		if err := d.NoteEpoch(m.cfg.BrokerEpoch()); err != nil {
			m.logger.Warn("broker epoch cannot be noted", "path", d.Path(), "error", err)
		}
	}
}

// watch ends the partitions of a directory that was given up.
func (m *Manager) watch(ctx context.Context, d *disk) {
	select {
	case <-ctx.Done():
		return
	case <-d.Offline():
	}
	for _, p := range m.list() {
		if p.life.disk.Load() == d {
			p.fail(d.Err())
		}
	}
}

// close answers what is parked and closes the logs.
func (m *Manager) close() error {
	m.fetchers.close()
	m.opener.close()
	m.lookups.close()
	list := m.list()
	stopping := refuse(kerr.NotLeaderForPartition, "the broker is shutting down")
	for _, p := range list {
		p.life.stopped.Store(true)
		p.setLead(nil)
		p.release(stopping)
	}
	m.cold.abandon()
	m.readers.close()
	m.cold.close()
	for _, d := range m.disks {
		d.syncs.close()
	}
	m.timers.stop()
	return m.closeLogs(list)
}

func (m *Manager) closeLogs(list []*Partition) error {
	closers := pool{limit: 4 * len(m.disks)}
	var mu sync.Mutex
	var errs []error
	for _, p := range list {
		l := p.log.Load()
		if l == nil {
			continue
		}
		offline := p.offline()
		closers.submit(func() {
			if err := l.Close(!offline); err != nil && !offline { // what an offline directory says was said before
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { closers.close(); close(done) }()
	select {
	case <-done:
	case <-time.After(closeGrace):
		return fmt.Errorf("logs did not close within %v", closeGrace)
	}
	return errors.Join(errs...)
}
