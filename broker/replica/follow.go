package replica

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/broker/log"
)

// errNotFollowing says that an answer came too late: the partition has another leader or epoch, or its log has moved.
var errNotFollowing = errors.New("no longer followed")

// take does to the log what the leader's answer says. It holds the partition's turn, as does whoever changes what the partition is,
// so that no answer of one epoch reaches the log in another.
func (p *Partition) take(leader int32, a *ask, x *kmsg.FetchResponseTopicPartition) error {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	lead, l := p.lead.Load(), p.log.Load()
	if l == nil || lead == nil || lead.here || lead.leader != leader || lead.epoch != a.epoch || p.life.stopped.Load() || l.EndOffset() != a.offset {
		return errNotFollowing
	}
	err := kerr.ErrorForCode(x.ErrorCode)
	switch {
	case errors.Is(err, kerr.OffsetMovedToTieredStorage):
		return p.rejoin(l, l.EndOffset())
	case errors.Is(err, kerr.OffsetOutOfRange) && x.LogStartOffset > l.EndOffset():
		p.m.logger.Warn("log ends below the leader's log start and begins anew there", "topic", p.topic, "partition", p.index,
			"end", l.EndOffset(), "logStart", x.LogStartOffset)
		return p.restart(l, x.LogStartOffset, nil, nil)
	case err != nil:
		return fmt.Errorf("fetch from broker %d: %w", leader, err)
	case x.DivergingEpoch.EndOffset >= 0:
		return p.converge(l, x.DivergingEpoch.Epoch, x.DivergingEpoch.EndOffset)
	}
	if err := p.appendFetched(l, lead, x.RecordBatches); err != nil {
		return err
	}
	return p.adopt(l, x.HighWatermark, x.LogStartOffset)
}

// appendFetched appends whole batches as the leader has them.
func (p *Partition) appendFetched(l *log.Log, lead *leadership, batches []byte) error {
	if len(batches) == 0 {
		return nil
	}
	before := l.EndOffset()
	end, err := l.AppendAsFollower(batches, lead.epoch)
	p.m.metrics.bytesIn.Add(float64(len(batches)))
	if end > before {
		p.mu.Lock()
		p.mu.marks.appendedTo(end, int64(len(batches)))
		p.mu.Unlock()
	}
	switch {
	case errors.Is(err, log.ErrOffline):
		p.fail(err)
	case err == nil && end == before:
		err = fmt.Errorf("%w: %d bytes at offset %d hold no batch of epoch %d or before", kerr.CorruptMessage, len(batches), before, lead.epoch)
	}
	return err
}

// adopt follows the leader's high watermark and log start, as far as the log reaches.
func (p *Partition) adopt(l *log.Log, hw, logStart int64) error {
	p.leaderHW.Store(hw)
	p.mu.Lock()
	p.raise(l, min(hw, l.EndOffset()))
	done := p.completed(p.hw.Load(), l.SyncedEnd())
	p.mu.Unlock()
	done.finish()
	if logStart = min(logStart, p.hw.Load()); logStart > l.LogStart() {
		return l.SetLogStart(logStart)
	}
	return nil
}

// converge truncates to where the log is the leader's: the leader's largest epoch not above the last one here ends at an offset, and so
// does, here, the largest that is not above that (KIP-101, KIP-279). It may take several answers. Nothing that the store has goes: then the log
// begins anew at the remote end.
func (p *Partition) converge(l *log.Log, epoch int32, end int64) error {
	to := min(end, l.EndOffset())
	if _, own := l.EndOffsetForEpoch(epoch); own >= 0 {
		to = min(to, own)
	}
	if row := p.row(); row == nil {
		return errNotFollowing
	} else if remoteEnd, any := row.RemoteEnd.Offset(); any && to < remoteEnd {
		return p.rejoin(l, to)
	}
	if hw := p.hw.Load(); to < hw {
		p.m.logger.Warn("log is truncated below its high watermark: the leader was elected without all that was committed",
			"topic", p.topic, "partition", p.index, "highWatermark", hw, "to", to, "end", l.EndOffset())
	}
	var err error
	if to < l.LocalStart() {
		err = l.TruncateFullyAndStartAt(to, l.Epochs(0, to), nil)
	} else {
		err = l.Truncate(to)
	}
	p.lowered(l)
	if errors.Is(err, log.ErrOffline) {
		p.fail(err)
	}
	return err
}

// rejoin has the log begin anew at the remote end, beside the fetches of others: the store may take its time. Where that would change
// nothing, the metadata of either side is behind, and time will tell.
func (p *Partition) rejoin(l *log.Log, offset int64) error {
	row := p.row()
	if row == nil {
		return errNotFollowing
	}
	if remoteEnd, any := row.RemoteEnd.Offset(); !any || offset >= remoteEnd || l.Size() == 0 && l.EndOffset() >= remoteEnd {
		return fmt.Errorf("%w: the leader sends to the store at %d, which reaches %d here", kerr.OffsetMovedToTieredStorage, offset, remoteEnd)
	}
	p.rejoins.Store(true)
	p.m.fetchers.remove(p)
	p.retarget()
	return nil
}

// lowered brings what is known of the log in memory to its new end.
func (p *Partition) lowered(l *log.Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hw.Store(min(p.hw.Load(), l.EndOffset()))
	p.mu.marks.marks = p.mu.marks.marks[:0]
}

// syncLog makes the log durable that a replica is about to tell of.
func (p *Partition) syncLog() {
	l := p.log.Load()
	if l == nil {
		return
	}
	if _, err := l.Sync(); err != nil && !errors.Is(err, log.ErrClosed) {
		p.fail(err)
	}
}
