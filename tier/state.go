package tier

import (
	"context"
	"errors"

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
	f := &fetch{urgent: true}
	size := tailGuess(s.Size)
	for {
		err := m.download(ctx, f, s, s.Size-size, size, func(p []byte) error {
			end := tail{p: p, pos: s.Size - size}
			x, err := decodeIndex(end)
			if err != nil {
				return err
			}
			if err := x.belongs(s, m.cfg.ClusterID); err != nil {
				return err
			}
			st = State{End: x.End, Epochs: x.epochs}
			st.Producers, err = decodeProducers(end)
			return err
		})
		if more := (*needMore)(nil); errors.As(err, &more) && s.Size-more.pos > size && s.Size-more.pos <= maxTailSize {
			size = s.Size - more.pos
			continue
		}
		return st, err
	}
}
