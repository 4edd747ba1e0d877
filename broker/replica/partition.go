package replica

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// Partition is one partition of which this broker has a replica.
//
// What fencing, status and metadata look at (leadership, log, configuration, high watermark) are values published
// atomically, so that they never wait for a disk. The mutex guards memory only: the lists of parked requests
// and what is known of the bytes between high watermark and end. Whatever changes the log takes the log's turn.
type Partition struct {
	m     *Manager
	topic string
	id    wire.UUID
	index int32

	lead   atomic.Pointer[leadership]
	log    atomic.Pointer[log.Log] // nil until it is open, and if it cannot be
	config atomic.Pointer[config.Topic]
	broken atomic.Pointer[brokenLog]
	failed atomic.Bool // its directory was given up
	hw     atomic.Int64

	// turn is a slot, not a mutex: it is held across the disk, by whoever changes what the partition is or does to the log what
	// a leader says.
	turn     chan struct{}
	rejoins  atomic.Bool  // the log must begin anew at the remote end before it can follow
	leaderHW atomic.Int64 // of a follower: the leader's high watermark, as it was told last

	life lifecycle
	tier tierWork
	sync syncWork

	mu struct {
		sync.Mutex
		acks    waitList  // produces until the high watermark reaches them
		syncs   waitList  // produces until the disk has them
		fetches fetchList // of consumers: until the high watermark moves
		marks   byteMarks

		// Of a leader.
		replicas  fetchList // fetches of replicas: until the log grows, or the high watermark is news to them
		followers map[int32]*follower
		isr       isrWork
	}
}

// brokenLog says why a partition has no log.
type brokenLog struct{ err error }

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.topic }

// TopicID is the topic's id.
func (p *Partition) TopicID() wire.UUID { return p.id }

// Index is the partition's number.
func (p *Partition) Index() int32 { return p.index }

// Config is the topic's configuration. Read only.
func (p *Partition) Config() *config.Topic { return p.config.Load() }

// LeaderEpoch is the current epoch, -1 while none is known.
func (p *Partition) LeaderEpoch() int32 {
	if l := p.lead.Load(); l != nil {
		return l.epoch
	}
	return -1
}

// epochStart is where the log was when this broker became leader.
func (p *Partition) epochStart() int64 {
	if l := p.lead.Load(); l != nil {
		return l.epochStart
	}
	return -1
}

// IsLeader tells whether this broker leads the partition.
func (p *Partition) IsLeader() bool {
	l := p.lead.Load()
	return l != nil && l.here
}

// LogStart is the first offset over both tiers.
func (p *Partition) LogStart() int64 { return p.fromLog((*log.Log).LogStart) }

// LocalStart is the first offset on the local disk.
func (p *Partition) LocalStart() int64 { return p.fromLog((*log.Log).LocalStart) }

// EndOffset is the offset that the next record will get.
func (p *Partition) EndOffset() int64 { return p.fromLog((*log.Log).EndOffset) }

// Size is the size of the local segments in bytes.
func (p *Partition) Size() int64 { return p.fromLog((*log.Log).Size) }

func (p *Partition) fromLog(get func(*log.Log) int64) int64 {
	if l := p.log.Load(); l != nil {
		return get(l)
	}
	return 0
}

// HighWatermark is the offset below which records are committed.
func (p *Partition) HighWatermark() int64 { return p.hw.Load() }

// LastStableOffset is the offset below which no transaction is open.
func (p *Partition) LastStableOffset() int64 {
	l := p.log.Load()
	if l == nil {
		return 0
	}
	return min(p.hw.Load(), l.FirstUnstable())
}

// readEnd is the bound of what a reader may see.
func (p *Partition) readEnd(isolation Isolation) int64 {
	if isolation == ReadCommitted {
		return p.LastStableOffset()
	}
	return p.HighWatermark()
}

// CheckLeader tells whether this broker may serve the partition for a client that believes in the given leader
// epoch (-1: none given, KIP-320).
func (p *Partition) CheckLeader(currentEpoch int32) error {
	_, _, err := p.leading(currentEpoch)
	return err
}

// leading is CheckLeader that returns what it looked at.
func (p *Partition) leading(currentEpoch int32) (*leadership, *log.Log, error) {
	lead, l := p.lead.Load(), p.log.Load()
	switch {
	case l == nil:
		return nil, nil, p.noLog()
	case lead == nil:
		return nil, nil, refuse(kerr.NotLeaderForPartition, "%s-%d is not ready", p.topic, p.index)
	case currentEpoch >= 0 && currentEpoch < lead.epoch:
		return nil, nil, refuse(kerr.FencedLeaderEpoch, "leader epoch %d of %s-%d, now %d", currentEpoch, p.topic, p.index, lead.epoch)
	case currentEpoch > lead.epoch:
		return nil, nil, refuse(kerr.UnknownLeaderEpoch, "leader epoch %d of %s-%d, here %d", currentEpoch, p.topic, p.index, lead.epoch)
	case !lead.here:
		return nil, nil, refuse(kerr.NotLeaderForPartition, "the leader of %s-%d is broker %d", p.topic, p.index, lead.leader)
	}
	return lead, l, nil
}

// reading is leading for a consumer that may read from any replica (KIP-392).
func (p *Partition) reading(currentEpoch int32, anyReplica bool) (*log.Log, error) {
	lead, l, err := p.leading(currentEpoch)
	if err == nil || !anyReplica || !errors.Is(err, kerr.NotLeaderForPartition) {
		return l, err
	}
	if lead, l = p.lead.Load(), p.log.Load(); lead == nil || l == nil || lead.here || lead.leader < 0 {
		return nil, err
	}
	return l, nil
}

func (p *Partition) noLog() error {
	if b := p.broken.Load(); b != nil {
		return refuse(kerr.KafkaStorageError, "%s-%d: %v", p.topic, p.index, b.err)
	}
	return refuse(kerr.NotLeaderForPartition, "%s-%d is not open yet", p.topic, p.index)
}

// release ends every parked request: produces with the error, fetches by looking again.
func (p *Partition) release(err error) {
	p.mu.Lock()
	waits := p.mu.syncs.takeAll(p.mu.acks.takeAll(nil))
	for _, w := range waits {
		p.m.timers.remove(&w.deadline)
	}
	woken := p.mu.replicas.all(p.mu.fetches.all(nil))
	p.mu.Unlock()
	for _, w := range waits {
		w.finish(err)
	}
	for _, w := range woken {
		w.wake()
	}
}

// fail takes note of a log that cannot be written any more.
func (p *Partition) fail(err error) {
	if !p.failed.Swap(true) {
		p.m.logger.Error("partition has lost its log directory", "topic", p.topic, "partition", p.index, "error", err)
	}
	p.release(refuse(kerr.KafkaStorageError, "%s-%d: %v", p.topic, p.index, err))
}

// lazySync is how long the end of a topic that nobody waits for may stay above what the disk has.
const lazySync = 10 * time.Millisecond

// owner is the row of the image that this replica follows last.
func (p *Partition) row() *metadata.Partition { return p.m.Image().Partition(p.id, p.index) }
