package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
)

// deleteBatch is how many objects go, and are forgotten, at a time.
const deleteBatch = 100

// Retain deletes the objects of a partition that the image allows to be deleted and whose grace is over, oldest first,
// and then has their rows forgotten. It is the leader's to call, now and then; it may be stopped anywhere and called again. In
// an outage it does nothing. It returns how many objects it deleted.
func (m *Manager) Retain(ctx context.Context, topicID wire.UUID, partition int32) (deleted int, err error) {
	ctx, cancel := m.during(ctx)
	defer cancel()
	for {
		img := m.cfg.Image()
		due := img.DeletableSegments(topicID, partition, time.Now().UnixMilli(), m.cfg.DeleteGrace.Milliseconds())
		if len(due) == 0 {
			return deleted, nil
		}
		if err := m.answers(ctx); err != nil {
			return deleted, err
		}
		due = due[:min(len(due), deleteBatch)]
		index, err := m.retire(ctx, due, img.Partition(topicID, partition).LeaderEpoch)
		if err != nil {
			return deleted, fmt.Errorf("delete expired objects of %s-%d: %w", topicID, partition, err)
		}
		deleted += len(due)
		if _, err := m.imageAt(ctx, index, true); err != nil {
			return deleted, err
		}
	}
}

// retire deletes objects and forgets their rows. A row goes only after its object: an object without a row would be lost from
// sight, a row without an object is deleted again.
func (m *Manager) retire(ctx context.Context, due []*metadata.Segment, leaderEpoch int32) (index uint64, err error) {
	names := make([]string, 0, len(due))
	forget := &metadata.ForgetSegments{
		BrokerID: m.cfg.NodeID, BrokerEpoch: m.cfg.BrokerEpoch(), TopicID: due[0].TopicID, Partition: due[0].Partition, LeaderEpoch: leaderEpoch,
	}
	for _, s := range due {
		names = append(names, m.name(s))
		forget.Objects = append(forget.Objects, s.Object)
	}
	if err := m.deleteObjects(ctx, names); err != nil {
		return 0, err
	}
	results, index, err := m.cfg.Committer.Submit(ctx, forget)
	return index, outcome(results, err)
}

func (m *Manager) deleteObjects(ctx context.Context, names []string) error {
	err := m.cfg.Store.DeleteMany(ctx, names)
	m.health.note(err)
	if err != nil {
		return m.storeTrouble(ctx, err)
	}
	m.metrics.deletes.Add(float64(len(names)))
	return nil
}

// PurgeTopic carries out a task of kind metadata.PurgeTopic: it deletes everything that lies under the prefixes of the
// deleted topic's partitions, orphans included, and completes the task. The controller refuses that while uploads may still
// appear; the error then wraps kerr.OperationNotAttempted, and the task is to be tried again later. Whatever dies
// meanwhile, another call, by any broker, begins anew.
func (m *Manager) PurgeTopic(ctx context.Context, task *metadata.Task) error {
	ctx, cancel := m.during(ctx)
	defer cancel()
	if err := m.answers(ctx); err != nil {
		return err
	}
	for partition := range task.Partitions {
		if err := m.purge(ctx, metadata.PartitionPrefix(m.cfg.ClusterID, task.TopicID, partition)); err != nil {
			return fmt.Errorf("purge topic %s, partition %d: %w", task.Topic, partition, err)
		}
	}
	results, _, err := m.cfg.Committer.Submit(ctx, &metadata.CompleteTask{
		ID: task.ID, Epoch: task.Epoch, BrokerID: m.cfg.NodeID, BrokerEpoch: m.cfg.BrokerEpoch(),
	})
	if err := outcome(results, err); err != nil {
		return fmt.Errorf("purge topic %s: complete: %w", task.Topic, err)
	}
	return nil
}

// purge deletes every object under a prefix.
func (m *Manager) purge(ctx context.Context, prefix string) error {
	var names []string
	flush := func() error {
		if len(names) == 0 {
			return nil
		}
		err := m.deleteObjects(ctx, names)
		names = names[:0]
		return err
	}
	err := m.cfg.Store.List(ctx, prefix, "", func(info objstore.Info) error {
		names = append(names, info.Name)
		if len(names) < objstore.DeleteBatch {
			return nil
		}
		return flush()
	})
	if err != nil {
		if errors.Is(err, ErrStoreUnavailable) {
			return err
		}
		m.health.note(err)
		return m.storeTrouble(ctx, err)
	}
	return flush()
}
