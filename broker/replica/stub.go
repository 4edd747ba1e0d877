package replica

import (
	"context"
	"iter"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// Committer submits commands to the controller.
type Committer interface {
	Submit(ctx context.Context, cmds ...metadata.Command) (results []metadata.Result, index uint64, err error)
}

// Config is what a Manager is made of.
type Config struct {
	NodeID     int32
	FS         vfs.FS
	Static     map[string]string
	Committer  Committer
	WaitImage  func(ctx context.Context, index uint64) (*metadata.Image, error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Manager owns the partitions of this broker.
type Manager struct{}

// NewManager returns a manager without partitions.
func NewManager(Config) (*Manager, error) { return &Manager{}, nil }

func (m *Manager) Open(ctx context.Context) error { return nil }
func (m *Manager) Run(ctx context.Context) error  { <-ctx.Done(); return nil }
func (m *Manager) Apply(d *metadata.Delta)        {}
func (m *Manager) Image() *metadata.Image         { return metadata.New() }
func (m *Manager) Partition(id wire.UUID, index int32) (*Partition, error) {
	return nil, kerr.UnknownTopicID
}
func (m *Manager) PartitionByName(topic string, index int32) (*Partition, error) {
	return nil, kerr.UnknownTopicOrPartition
}
func (m *Manager) Partitions() iter.Seq[*Partition]    { return func(func(*Partition) bool) {} }
func (m *Manager) Fetch(ctx context.Context, f *Fetch) { f.Done(f) }
func (m *Manager) LogDirs() []LogDir                   { return nil }
func (m *Manager) ListOffsets(ctx context.Context, p *Partition, q OffsetQuery, done func(OffsetResult)) {
	done(OffsetResult{Err: kerr.UnknownServerError})
}
func (m *Manager) DeleteRecords(ctx context.Context, p *Partition, offset int64) (int64, error) {
	return -1, kerr.UnknownServerError
}

// LogDir is what DescribeLogDirs tells of one log directory.
type LogDir struct {
	Path          string
	ID            wire.UUID
	Err           error
	Total, Usable int64
	Partitions    []DirPartition
}

// DirPartition is one replica in a log directory.
type DirPartition struct {
	Topic     string
	Partition int32
	Size      int64 // bytes on the disk
	Lag       int64 // offsets behind the high watermark
}

// Partition is one partition of which this broker has a replica.
type Partition struct{}

func (p *Partition) Topic() string                              { return "" }
func (p *Partition) TopicID() wire.UUID                         { return wire.UUID{} }
func (p *Partition) Index() int32                               { return 0 }
func (p *Partition) LeaderEpoch() int32                         { return 0 }
func (p *Partition) IsLeader() bool                             { return false }
func (p *Partition) LogStart() int64                            { return 0 }
func (p *Partition) LocalStart() int64                          { return 0 }
func (p *Partition) HighWatermark() int64                       { return 0 }
func (p *Partition) LastStableOffset() int64                    { return 0 }
func (p *Partition) EndOffset() int64                           { return 0 }
func (p *Partition) Size() int64                                { return 0 }
func (p *Partition) CheckLeader(currentLeaderEpoch int32) error { return nil }
func (p *Partition) Append(items []*Produce)                    {}
func (p *Partition) EpochEndOffset(currentLeaderEpoch, epoch int32) (int32, int64, error) {
	return -1, -1, nil
}
func (p *Partition) TierStatus() TierStatus { return TierStatus{} }

// TierStatus tells where the records of a partition are, and why they are not elsewhere.
type TierStatus struct{}
