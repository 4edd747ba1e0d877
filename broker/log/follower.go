package log

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire/record"
)

// AppendAsFollower writes batches as the leader has them, offsets and epochs included, and returns the new end.
// They must follow the end of the log without overlap; only a compacted topic may have gaps. A batch of an
// epoch above maxEpoch, the one that was fetched in, ends the append before it, as does one that the bytes hold
// only in part. Bad batches are errors; what was good before them is appended.
func (l *Log) AppendAsFollower(batches []byte, maxEpoch int32) (end int64, err error) {
	if err := l.take(); err != nil {
		return l.EndOffset(), err
	}
	defer l.give()
	now := time.Now()
	for more := true; more && err == nil; {
		batches, more, err = l.stageFollower(batches, maxEpoch)
		if writeErr := l.write(now); writeErr != nil {
			return l.EndOffset(), writeErr
		}
		if err == nil && more {
			err = l.roll()
		}
	}
	return l.EndOffset(), err
}

// stageFollower stages what fits into the active segment. more tells that the segment is full before the rest.
func (l *Log) stageFollower(batches []byte, maxEpoch int32) (rest []byte, more bool, err error) {
	g, config := &l.group, l.config.Load()
	g.reset(l.end.Load(), l.producers)
	for {
		b, after, err := record.Next(batches)
		if err == io.EOF || errors.Is(err, record.ErrShort) {
			return nil, false, nil
		}
		if err == nil {
			err = l.checkFollower(b, g, config)
		}
		if err != nil {
			return batches, false, fmt.Errorf("replicate %s at %d: %w: %w", l.tp, g.next, err, kerr.CorruptMessage)
		}
		if b.LeaderEpoch() > maxEpoch {
			return batches, false, nil
		}
		if l.full(config, g, b, b.LastOffset()) {
			return batches, true, nil
		}
		var marker *record.Marker
		if b.IsControl() {
			m, err := record.ParseMarker(b)
			if err == nil && (m.Type == record.Abort || m.Type == record.Commit) {
				marker = &m
			}
		}
		g.add(b, marker, l.active().size)
		batches = after
	}
}

func (l *Log) checkFollower(b record.Batch, g *group, config *Config) error {
	if err := b.CheckStored(); err != nil {
		return err
	}
	if base, next := b.BaseOffset(), g.next; base < next || base > next && !config.Compact {
		return fmt.Errorf("%w: offset %d where %d should follow", record.ErrCorrupt, base, next)
	}
	if s := l.active(); s.size+g.size == 0 && b.LastOffset()-s.base > maxRelativeOffset {
		return fmt.Errorf("%w: offset %d in a segment that begins at %d: start the log there", record.ErrInvalid, b.LastOffset(), s.base)
	}
	return b.VerifyCRC()
}
