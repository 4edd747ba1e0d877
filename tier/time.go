package tier

import (
	"context"
	"errors"
	"sort"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// maxPlain bounds the decompressed records of a batch that a lookup looks into. What is larger is
// answered by its header.
const maxPlain = 64 << 20

// position is a record found by time.
type position struct {
	offset, timestamp int64
	epoch             int32
}

// OffsetForTime returns the first record at or after offset from whose timestamp is at least ts, in the
// order of offsets. It costs no GET if no segment can hold one; else that of an index, unless
// cached, and of the chunk (of two, if the batch lies across their border). Control batches count as in Kafka, and as in
// the local log.
func (m *Manager) OffsetForTime(ctx context.Context, topicID wire.UUID, partition int32, ts, from int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	var hit position
	err = m.withImage(ctx, func(img *metadata.Image) error {
		found = false
		for s := range img.Segments(topicID, partition, from) {
			if s.MaxTimestamp < ts {
				continue
			}
			// Timestamps may go backwards: that a segment has one does not mean it has one after from.
			if hit, found, err = m.searchTime(ctx, s, ts, from); found || err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !found {
		return -1, -1, -1, false, err
	}
	return hit.offset, hit.timestamp, hit.epoch, true, nil
}

// MaxTimestamp returns the record at or after offset from with the largest timestamp, the first of several.
func (m *Manager) MaxTimestamp(ctx context.Context, topicID wire.UUID, partition int32, from int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	var best position
	err = m.withImage(ctx, func(img *metadata.Image) error {
		found = false
		var rows []*metadata.Segment
		for s := range img.Segments(topicID, partition, from) {
			rows = append(rows, s)
		}
		sort.SliceStable(rows, func(i, j int) bool { return rows[i].MaxTimestamp > rows[j].MaxTimestamp })
		for _, s := range rows {
			if s.MaxTimestamp < 0 || found && s.MaxTimestamp <= best.timestamp {
				return nil
			}
			// What a row says may lie below from, so that the next may hold more.
			hit, ok, err := m.searchMax(ctx, s, from)
			if err != nil {
				return err
			}
			if ok && (!found || hit.timestamp > best.timestamp) {
				best, found = hit, true
			}
		}
		return nil
	})
	if err != nil || !found {
		return -1, -1, -1, false, err
	}
	return best.offset, best.timestamp, best.epoch, true, nil
}

// open returns the lease of a segment for a search by time.
func (m *Manager) open(ctx context.Context, s *metadata.Segment) (*lease, error) {
	x, err := m.index(ctx, s)
	if err != nil {
		return nil, err
	}
	return &lease{m: m, s: s, x: x}, nil
}

func (m *Manager) searchTime(ctx context.Context, s *metadata.Segment, ts, from int64) (hit position, found bool, err error) {
	l, err := m.open(ctx, s)
	if err != nil {
		return hit, false, err
	}
	defer l.release()
	for i := l.x.floor(max(from, l.x.Base)); i < len(l.x.times); i++ {
		if l.x.times[i] < ts {
			continue
		}
		err := l.records(ctx, i, ts, from, func(p position) bool {
			hit, found = p, true
			return false
		})
		if found || err != nil {
			return hit, found, err
		}
	}
	return hit, false, nil
}

func (m *Manager) searchMax(ctx context.Context, s *metadata.Segment, from int64) (best position, found bool, err error) {
	l, err := m.open(ctx, s)
	if err != nil {
		return best, false, err
	}
	defer l.release()
	first := l.x.floor(max(from, l.x.Base))
	order := make([]int, 0, len(l.x.times)-first)
	for i := first; i < len(l.x.times); i++ {
		order = append(order, i)
	}
	sort.SliceStable(order, func(a, b int) bool { return l.x.times[order[a]] > l.x.times[order[b]] })
	for _, i := range order {
		if l.x.times[i] < 0 || found && l.x.times[i] <= best.timestamp {
			break
		}
		err := l.records(ctx, i, max(best.timestamp, 0), from, func(p position) bool {
			if !found || p.timestamp > best.timestamp {
				best, found = p, true
			}
			return true
		})
		if err != nil {
			return best, false, err
		}
	}
	return best, found, nil
}

// records calls fn with the records at or after offset from, of at least the timestamp ts, in the batches from index
// entry i up to the next, until it returns false.
func (l *lease) records(ctx context.Context, i int, ts, from int64, fn func(position) bool) error {
	_, pos := l.x.at(i)
	_, end := l.x.at(i + 1)
	var inner error
	err := l.walk(ctx, pos, func(pos int64, h record.Batch, size int64) bool {
		if pos >= end {
			return false
		}
		if h.MaxTimestamp() < ts || h.LastOffset() < from {
			return true
		}
		more := true
		more, inner = l.batchRecords(ctx, pos, size, ts, from, fn)
		return more && inner == nil
	})
	return errors.Join(inner, err)
}

// batchRecords looks into one batch.
func (l *lease) batchRecords(ctx context.Context, pos, size, ts, from int64, fn func(position) bool) (more bool, err error) {
	buf := buffers.get(size)
	defer buffers.put(buf)
	if err := l.readAt(ctx, buf, pos); err != nil {
		return false, err
	}
	b := record.Batch(buf)
	if b.VerifyCRC() != nil {
		return false, l.notBatch(pos)
	}
	select { // decompression takes memory and processor time: a few at a time
	case l.m.lookups <- struct{}{}:
		defer func() { <-l.m.lookups }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	more = true
	err = b.Each(maxPlain, func(r record.Record) (bool, error) {
		if r.Offset >= from && r.Timestamp >= ts {
			more = fn(position{r.Offset, r.Timestamp, b.LeaderEpoch()})
		}
		return more, nil
	})
	if err != nil && more {
		// The batch is what the producer sent, and it cannot be looked into: it is too large, or was never
		// sound. Its header must do; an answer that is early is better than none.
		return fn(position{max(b.BaseOffset(), from), b.MaxTimestamp(), b.LeaderEpoch()}), nil
	}
	return more, nil
}

// AbortedTxns returns the aborted transactions that overlap offsets [from, to) of remote segments, in order of
// the segments, each once. Segments without any cost no GET.
func (m *Manager) AbortedTxns(ctx context.Context, topicID wire.UUID, partition int32, from, to int64) (txns []record.AbortedTxn, err error) {
	err = m.withImage(ctx, func(img *metadata.Image) error {
		txns = nil
		seen := map[[2]int64]bool{}
		for s := range img.Segments(topicID, partition, from) {
			if s.Base >= to {
				break
			}
			if !s.HasAborted {
				continue
			}
			x, err := m.index(ctx, s)
			if err != nil {
				return err
			}
			for _, t := range x.overlapping(from, to) {
				if key := [2]int64{t.ProducerID, t.FirstOffset}; !seen[key] {
					seen[key] = true
					txns = append(txns, t)
				}
			}
		}
		return nil
	})
	return txns, err
}
