package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
)

// Files of a log directory. All but mountFile are Kafka's.
const (
	lockFile          = ".lock"
	cleanShutdownFile = ".kafka_cleanshutdown"
	mountFile         = ".varve_mount"
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	deleteSuffix      = "-delete"
)

// What OpenDir refuses. The texts of the errors that wrap these tell the way out.
var (
	ErrUnformatted  = errors.New("log directory is not formatted")
	ErrKafkaDir     = errors.New("log directory belongs to Apache Kafka")
	ErrOtherCluster = errors.New("log directory belongs to another cluster")
	ErrOtherNode    = errors.New("log directory belongs to another node")
)

// DirOptions are what OpenDir needs.
type DirOptions struct {
	FS        vfs.FS
	Path      string
	ClusterID string
	NodeID    int32
	// Format makes an empty or missing directory one of this node. Without it such a directory is
	// ErrUnformatted: whether it is new or lost is for the caller to judge, who knows the others.
	Format bool
	// Reserve is how many bytes of the file system must stay free; writes that would go below are ErrNoSpace. 0
	// is a hundredth of it, at most 1 GiB.
	Reserve int64
	Logger  *slog.Logger
	Metrics *Metrics // nil: not measured
}

// Dir is one log directory: who may use it, what was known at the last shutdown, how much room there is, and
// whether it still works. It is open in one process at a time. Safe for concurrent use.
type Dir struct {
	fs      vfs.FS
	path    string
	logger  *slog.Logger
	metrics *Metrics
	meta    MetaProperties
	lock    io.Closer
	space   space

	clean      bool
	cleanEpoch int64
	survived   bool
	foundEpoch int64 // beside the mount that survived, -1: none
	mountID    string
	recovered  atomic.Bool // every log is known to be whole: Recovered was called

	failure atomic.Pointer[dirFailure]
	offline chan struct{} // closed by the first failure

	mu     sync.Mutex // memory only
	logs   map[TopicPartition]*Log
	points checkpoints // as far as known, also of logs that are not open

	writing    chan struct{} // one slot: who holds it writes checkpoints
	written    checkpoints   // what is in the files; owned by that slot
	notedEpoch int64         // broker epoch for mountFile, -1: none; owned by that slot
}

type dirFailure struct{ err error }

// checkpoints are the offsets that are kept per partition.
type checkpoints struct {
	recovery, logStart, highWatermark map[TopicPartition]int64
}

func (c checkpoints) clone() checkpoints {
	return checkpoints{maps.Clone(c.recovery), maps.Clone(c.logStart), maps.Clone(c.highWatermark)}
}

// InspectDir reads whose a directory is without locking or changing it. The error wraps ErrUnformatted if it is
// missing or has no data, ErrKafkaDir if it is Apache Kafka's, ErrFormat if it cannot be read.
func InspectDir(fsys vfs.FS, dir string) (MetaProperties, error) {
	data, err := vfs.ReadFile(fsys, path.Join(dir, metaPropertiesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return MetaProperties{}, inspectBare(fsys, dir)
	}
	if err != nil {
		return MetaProperties{}, fmt.Errorf("log directory %s: %w", dir, err)
	}
	meta, err := decodeMetaProperties(data)
	if err != nil {
		return meta, fmt.Errorf("log directory %s: %w", dir, err)
	}
	if meta.Kafka {
		return meta, kafkaDirError(dir)
	}
	return meta, nil
}

func kafkaDirError(dir string) error {
	return fmt.Errorf("%w: %s was formatted by Apache Kafka (its %s has no %s). A whole Kafka log.dirs is not taken over, because topics, "+
		"offsets and transactions of its cluster live in Kafka's own metadata. Point log.dirs at an empty directory and mirror the topics through the Kafka protocol",
		ErrKafkaDir, dir, metaPropertiesFile, formatVersionKey)
}

// inspectBare looks at a directory without meta.properties: it may be new, but not hold somebody's data.
func inspectBare(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("log directory %s: %w", dir, err)
	}
	for _, name := range names {
		_, isPartition := ParsePartitionDir(name)
		if isPartition {
			if _, err := fsys.Stat(path.Join(dir, name, partitionMetadataFile)); err != nil {
				isPartition = strings.HasPrefix(name, "__cluster_metadata")
			}
		}
		if isPartition || strings.HasSuffix(name, "-offset-checkpoint") {
			return fmt.Errorf("%w or lost its identity: %s holds %s but no %s. Restore that file, or move the data away if it is not needed",
				ErrKafkaDir, dir, name, metaPropertiesFile)
		}
	}
	return fmt.Errorf("%w: %s", ErrUnformatted, dir)
}

// OpenDir locks a log directory and checks that it is this node's, or makes it so (Format). It wraps
// vfs.ErrLocked, ErrUnformatted, ErrKafkaDir, ErrOtherCluster, ErrOtherNode or ErrFormat.
func OpenDir(o DirOptions) (*Dir, error) {
	if o.Format {
		if err := makeDir(o.FS, o.Path); err != nil {
			return nil, fmt.Errorf("log directory %s: %w", o.Path, err)
		}
	} else if _, err := o.FS.Stat(o.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s does not exist", ErrUnformatted, o.Path)
	}
	lock, err := o.FS.Lock(path.Join(o.Path, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("log directory %s: %w: stop the other process first, or give this one another log.dirs", o.Path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", o.Path, err)
	}
	d, err := openLockedDir(o, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

func openLockedDir(o DirOptions, lock io.Closer) (*Dir, error) {
	meta, err := InspectDir(o.FS, o.Path)
	fresh := errors.Is(err, ErrUnformatted) && o.Format
	if fresh {
		meta = MetaProperties{ClusterID: o.ClusterID, NodeID: o.NodeID, DirectoryID: wire.NewUUID()}
		err = vfs.WriteFileAtomic(o.FS, path.Join(o.Path, metaPropertiesFile), encodeMetaProperties(meta))
	}
	switch {
	case err != nil:
		return nil, err
	case meta.ClusterID != o.ClusterID:
		return nil, fmt.Errorf("%w: %s is of cluster %s, this is cluster %s. Point log.dirs at this cluster's directory, or empty the other one",
			ErrOtherCluster, o.Path, meta.ClusterID, o.ClusterID)
	case meta.NodeID != o.NodeID:
		return nil, fmt.Errorf("%w: %s is of node %d, this is node %d. Set node.id=%d, or point log.dirs at this node's directory",
			ErrOtherNode, o.Path, meta.NodeID, o.NodeID, meta.NodeID)
	}
	d := newDir(o, meta)
	d.lock = lock
	d.recovered.Store(fresh) // there is nothing to recover
	if err := errors.Join(d.readShutdown(), d.readCheckpoints(), d.removeDeleted()); err != nil {
		return nil, fmt.Errorf("log directory %s: %w", o.Path, err)
	}
	return d, nil
}

func newDir(o DirOptions, meta MetaProperties) *Dir {
	d := &Dir{fs: o.FS, path: o.Path, logger: o.Logger, metrics: o.Metrics, meta: meta, cleanEpoch: -1, foundEpoch: -1, notedEpoch: -1,
		offline: make(chan struct{}), logs: map[TopicPartition]*Log{}, writing: make(chan struct{}, 1)}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	if d.metrics == nil {
		d.metrics = NewMetrics(nil)
	}
	d.space = space{fs: o.FS, path: o.Path, reserve: o.Reserve, logger: d.logger}
	d.points = checkpoints{map[TopicPartition]int64{}, map[TopicPartition]int64{}, map[TopicPartition]int64{}}
	return d
}

// ID is the directory's UUID (KIP-858).
func (d *Dir) ID() wire.UUID { return d.meta.DirectoryID }

// Path is where it lies.
func (d *Dir) Path() string { return d.path }

// removeDeleted finishes deletions that a crash interrupted.
func (d *Dir) removeDeleted() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, deleteSuffix) && strings.Contains(name, ".") {
			if err := d.fs.RemoveAll(path.Join(d.path, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// PartitionDir is one partition directory found on the disk.
type PartitionDir struct {
	TopicPartition
	TopicID wire.UUID // zero if partition.metadata is missing
	Path    string
}

// Partitions lists the partition directories.
func (d *Dir) Partitions() ([]PartitionDir, error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", d.path, err)
	}
	var list []PartitionDir
	for _, name := range names {
		tp, ok := ParsePartitionDir(name)
		if !ok {
			continue
		}
		p := PartitionDir{TopicPartition: tp, Path: path.Join(d.path, name)}
		if info, err := d.fs.Stat(p.Path); err != nil || !info.IsDir() {
			continue
		}
		if p.TopicID, err = readPartitionMetadata(d.fs, p.Path); err != nil {
			return nil, fmt.Errorf("log directory %s: %s: %w", d.path, name, err)
		}
		list = append(list, p)
	}
	return list, nil
}

// readPartitionMetadata returns the zero UUID if there is no file.
func readPartitionMetadata(fsys vfs.FS, dir string) (wire.UUID, error) {
	data, err := vfs.ReadFile(fsys, path.Join(dir, partitionMetadataFile))
	if errors.Is(err, fs.ErrNotExist) {
		return wire.UUID{}, nil
	}
	if err != nil {
		return wire.UUID{}, err
	}
	id, err := decodePartitionMetadata(data)
	if err != nil {
		err = fmt.Errorf("%w; if %s is this cluster's, remove the file: it is written anew", err, dir)
	}
	return id, err
}

// Fail gives the directory up: nothing that it was asked to make durable can be believed any more. Only the
// first error counts.
func (d *Dir) Fail(err error) error {
	f := &dirFailure{fmt.Errorf("%w: %s: %w", ErrOffline, d.path, err)}
	if d.failure.CompareAndSwap(nil, f) {
		d.logger.Error("log directory is offline", "path", d.path, "error", err)
		d.metrics.offline.Inc()
		close(d.offline)
	}
	return d.Err()
}

// Err is nil, or the failure that wraps ErrOffline.
func (d *Dir) Err() error {
	if f := d.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// Offline is closed by the first failure.
func (d *Dir) Offline() <-chan struct{} { return d.offline }

// Busy is how long the oldest unfinished write or sync of the directory has been waiting for the disk, 0 if
// none has. It never waits itself.
func (d *Dir) Busy() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var oldest int64
	for _, l := range d.logs {
		for _, at := range []*atomic.Int64{&l.writeSince, &l.syncSince} {
			if since := at.Load(); since > 0 && (oldest == 0 || since < oldest) {
				oldest = since
			}
		}
	}
	if oldest == 0 {
		return 0
	}
	return time.Since(time.Unix(0, oldest))
}

func (d *Dir) register(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logs[l.tp] = l
}

// unregister takes a log out; its offsets stay in the checkpoints unless it was deleted.
func (d *Dir) unregister(l *Log, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs[l.tp] != l {
		return
	}
	d.note(l)
	delete(d.logs, l.tp)
	if deleted {
		d.drop(l.tp)
	}
}
