package replica

import (
	"context"
	"errors"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/controller/metadata"
)

// Special timestamps of ListOffsets.
const (
	LatestTimestamp                int64 = -1
	EarliestTimestamp              int64 = -2
	MaxTimestamp                   int64 = -3 // KIP-734
	EarliestLocalTimestamp         int64 = -4 // KIP-405
	LatestTieredTimestamp          int64 = -5 // KIP-1005
	EarliestPendingUploadTimestamp int64 = -6 // KIP-1023
)

// OffsetQuery asks for the first offset at or after a time, or for a special one.
type OffsetQuery struct {
	Timestamp          int64
	Isolation          Isolation
	CurrentLeaderEpoch int32 // -1 not given
}

// OffsetResult answers an OffsetQuery; Offset is -1, without an error, if there is none.
type OffsetResult struct {
	Offset      int64
	Timestamp   int64 // of the record found; -1 for the special offsets
	LeaderEpoch int32 // of the offset; -1 unknown
	Err         error // nil, or wraps a kerr.Error
}

var noOffset = OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}

func offsetError(err error) OffsetResult {
	r := noOffset
	r.Err = err
	return r
}

// ListOffsets answers a query over both tiers. What is in memory is answered at once; what needs the disk or the store is by
// one of a few workers, so that neither the connection nor the store is flooded, until ctx ends (KIP-1075). done is called exactly
// once and must not block.
func (m *Manager) ListOffsets(ctx context.Context, p *Partition, q OffsetQuery, done func(OffsetResult)) {
	lead, l, err := p.leading(q.CurrentLeaderEpoch)
	switch {
	case err != nil:
		done(offsetError(err))
		return
	case q.Timestamp < 0 && q.Timestamp != MaxTimestamp:
		done(p.special(lead, l, q))
		return
	case m.lookups.waiting() >= maxLookups:
		done(offsetError(refuse(kerr.RequestTimedOut, "%d time lookups are waiting", maxLookups)))
		return
	}
	if !m.lookups.submit(func() { done(p.search(ctx, l, q)) }) {
		done(offsetError(refuse(kerr.NotLeaderForPartition, "the broker is shutting down")))
	}
}

// special answers what needs no look at records.
func (p *Partition) special(lead *leadership, l *log.Log, q OffsetQuery) OffsetResult {
	switch q.Timestamp {
	case LatestTimestamp:
		if p.HighWatermark() < lead.epochStart {
			// Until the high watermark is of this epoch it may lie below what the former leader told.
			return offsetError(refuse(kerr.OffsetNotAvailable, "the high watermark of %s-%d has not reached epoch %d", p.topic, p.index, lead.epoch))
		}
		return OffsetResult{Offset: p.readEnd(q.Isolation), Timestamp: -1, LeaderEpoch: lead.epoch}
	case EarliestTimestamp:
		return at(l, l.LogStart())
	case EarliestLocalTimestamp:
		return at(l, l.LocalStart())
	}
	row := p.row()
	if row == nil || !p.tiered(row) {
		return noOffset
	}
	end, any := row.RemoteEnd.Offset()
	switch {
	case q.Timestamp == LatestTieredTimestamp && any:
		return at(l, end-1)
	case q.Timestamp == EarliestPendingUploadTimestamp:
		if next, known := row.Next(); known {
			return at(l, max(next, l.LogStart()))
		}
	}
	return noOffset
}

func at(l *log.Log, offset int64) OffsetResult {
	return OffsetResult{Offset: offset, Timestamp: -1, LeaderEpoch: l.EpochForOffset(offset)}
}

// search answers by records of both tiers.
func (p *Partition) search(ctx context.Context, l *log.Log, q OffsetQuery) OffsetResult {
	find := p.firstAt
	if q.Timestamp == MaxTimestamp {
		find = p.latest
	}
	r, err := find(ctx, l, q.Timestamp, p.readEnd(q.Isolation))
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		err = refuse(kerr.RequestTimedOut, "%v", err)
	case err == nil:
		err = p.CheckLeader(q.CurrentLeaderEpoch) // it may have moved while the store was asked
	}
	if err != nil {
		if _, ok := errors.AsType[*kerr.Error](err); !ok {
			err = refuse(kerr.KafkaStorageError, "%v", err)
		}
		return offsetError(err)
	}
	return r
}

// firstAt finds the first record below bound with a timestamp of ts or later. The store is asked only if a segment that is
// not here may hold one; and if it has none the local log is searched, for timestamps need not ascend.
func (p *Partition) firstAt(ctx context.Context, l *log.Log, ts, bound int64) (OffsetResult, error) {
	for range maxMoves {
		if err := ctx.Err(); err != nil {
			return noOffset, err
		}
		start, local := l.LogStart(), l.LocalStart()
		if p.remoteMax(start, local) >= ts {
			offset, timestamp, epoch, found, err := p.m.tier.OffsetForTime(ctx, p.id, p.index, ts, start)
			if err != nil {
				return noOffset, err
			}
			if found && offset < local {
				return below(bound, OffsetResult{Offset: offset, Timestamp: timestamp, LeaderEpoch: epoch}), nil
			}
		}
		found, ok, err := l.OffsetForTime(ts, bound)
		if l.LocalStart() != local {
			continue // what was just searched for here may have moved
		}
		if err != nil || !ok {
			return noOffset, err
		}
		return below(bound, OffsetResult{Offset: found.Offset, Timestamp: found.Timestamp, LeaderEpoch: found.Epoch}), nil
	}
	return noOffset, refuse(kerr.OffsetNotAvailable, "the local start of %s-%d keeps moving", p.topic, p.index)
}

// latest finds the record with the largest timestamp below bound, the first of several (KIP-734). Control batches do not count.
func (p *Partition) latest(ctx context.Context, l *log.Log, _, bound int64) (OffsetResult, error) {
	start, local := l.LogStart(), l.LocalStart()
	here, ok, err := l.MaxTimestamp(bound)
	if err != nil {
		return noOffset, err
	}
	best := noOffset
	if ok {
		best = OffsetResult{Offset: here.Offset, Timestamp: here.Timestamp, LeaderEpoch: here.Epoch}
	}
	if remote := p.remoteMax(start, local); remote < 0 || remote < best.Timestamp {
		return best, nil
	}
	offset, timestamp, epoch, found, err := p.m.tier.MaxTimestamp(ctx, p.id, p.index, start)
	if err != nil {
		return noOffset, err
	}
	if found && offset < bound && (timestamp > best.Timestamp || timestamp == best.Timestamp && offset < best.Offset) {
		best = OffsetResult{Offset: offset, Timestamp: timestamp, LeaderEpoch: epoch}
	}
	return best, nil
}

func below(bound int64, r OffsetResult) OffsetResult {
	if r.Offset >= bound {
		return noOffset
	}
	return r
}

// remoteMax is the largest timestamp in remote segments that hold offsets of [start, local), which are not here;
// math.MinInt64 if there are none.
func (p *Partition) remoteMax(start, local int64) int64 {
	newest := int64(math.MinInt64)
	if p.m.tier == nil || start >= local {
		return newest
	}
	for s := range p.m.Image().Segments(p.id, p.index, start) {
		if s.Base >= local {
			break
		}
		newest = max(newest, s.MaxTimestamp)
	}
	return newest
}

// EpochEndOffset answers OffsetForLeaderEpoch (KIP-320): the largest epoch not above the one asked for, and where it ends; -1, -1
// if the history of neither tier reaches so far.
func (p *Partition) EpochEndOffset(currentLeaderEpoch, epoch int32) (int32, int64, error) {
	lead, l, err := p.leading(currentLeaderEpoch)
	if err != nil {
		return -1, -1, err
	}
	if epoch == lead.epoch {
		return epoch, l.EndOffset(), nil
	}
	found, end := l.EndOffsetForEpoch(epoch)
	return found, end, nil
}

// DeleteRecords raises the log start of both tiers to offset, or to the high watermark if offset is -1, and returns the log start
// then. The controller decides first, so that no broker and no restart can bring the records back. It takes a
// round trip to the controller.
func (m *Manager) DeleteRecords(ctx context.Context, p *Partition, offset int64) (int64, error) {
	_, l, err := p.leading(-1)
	if err != nil {
		return -1, err
	}
	hw := p.HighWatermark()
	if offset == -1 {
		offset = hw
	}
	if c := p.config.Load(); c.CleanupCompact && !c.CleanupDelete {
		return -1, refuse(kerr.PolicyViolation, "topic %q is compacted: its records are deleted by tombstones", p.topic)
	}
	if offset < 0 || offset > hw {
		return -1, refuse(kerr.OffsetOutOfRange, "offset %d is above the high watermark %d of %s-%d", offset, hw, p.topic, p.index)
	}
	if err := p.advanceLogStart(ctx, l, offset); err != nil {
		return -1, err
	}
	p.kick()
	return l.LogStart(), nil
}

// advanceLogStart has the controller commit a log start, and then obeys.
func (p *Partition) advanceLogStart(ctx context.Context, l *log.Log, offset int64) error {
	if row := p.row(); offset <= l.LogStart() && (row == nil || offset <= row.LogStart) {
		return nil
	}
	err := p.m.commit(ctx, &metadata.AdvanceLogStart{BrokerID: p.m.cfg.NodeID, BrokerEpoch: p.m.cfg.BrokerEpoch(),
		TopicID: p.id, Partition: p.index, LeaderEpoch: p.LeaderEpoch(), LogStart: offset})
	if err != nil {
		return err
	}
	return l.SetLogStart(min(offset, l.EndOffset()))
}

// commit submits one command and waits until its effect has been applied here.
func (m *Manager) commit(ctx context.Context, cmd metadata.Command) error {
	results, index, err := m.cfg.Committer.Submit(ctx, cmd)
	if err != nil {
		if _, ok := errors.AsType[*kerr.Error](err); !ok {
			err = refuse(kerr.RequestTimedOut, "the controller did not answer: %v", err)
		}
		return err
	}
	if len(results) != 1 {
		return refuse(kerr.UnknownServerError, "%d results of one command", len(results))
	}
	if err := results[0].Err(); err != nil {
		return err
	}
	if _, err := m.cfg.WaitImage(ctx, index); err != nil {
		return refuse(kerr.RequestTimedOut, "the metadata did not catch up: %v", err)
	}
	return nil
}
