package tier

import (
	"context"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// State is what the last object of a partition knows of the log up to its end: what a replica needs that drops its
// local log and starts there.
type State struct {
	End       int64 // the remote end
	Epochs    []record.EpochStart
	Producers []record.ProducerEntry
}

// LoadState reads the state from the object with the highest offsets. The error wraps ErrNotTiered if
// there is none.
func (m *Manager) LoadState(ctx context.Context, topicID wire.UUID, partition int32) (st State, err error) {
	ctx, cancel := m.during(ctx)
	defer cancel()
	err = m.withImage(ctx, func(img *metadata.Image) error {
		s := img.LastSegment(topicID, partition)
		if s == nil {
			return ErrNotTiered
		}
		st, err = m.loadState(ctx, s)
		return err
	})
	return st, err
}

func (m *Manager) loadState(ctx context.Context, s *metadata.Segment) (st State, err error) {
	size := tailGuess(s.Size)
	f := &fetch{urgent: true, ticket: m.indexGate.enter(size, lane{s.TopicID, s.Partition}, true)}
	defer f.leave()
	if err := f.admitted(ctx); err != nil {
		return st, err
	}
	err = m.downloadTail(ctx, f, s, size, func(t tail, _ *loan) error {
		x, err := decodeIndex(t)
		if err != nil {
			return err
		}
		if err := x.belongs(s, m.cfg.ClusterID); err != nil {
			return err
		}
		st = State{End: x.End, Epochs: x.epochs}
		st.Producers, err = decodeProducers(t)
		return err
	})
	return st, err
}
