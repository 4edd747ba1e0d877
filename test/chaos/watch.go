package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	watchEvery   = 200 * time.Millisecond
	watchTimeout = 2 * time.Second
)

// leadership is what was last seen of one partition.
type leadership struct {
	leader int32 // node id of the last one, which may have died since
	epoch  int32
	insync int
}

// watch sees who leads.
type watch struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	rows      map[partition]leadership
	failovers int
}

func startWatch(addrs []string) (*watch, error) {
	client, err := kgo.NewClient(clientOptions(addrs)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{client: client, cancel: cancel, rows: map[partition]leadership{}}
	w.done.Go(func() {
		for sleep(ctx, watchEvery) == nil {
			w.look(ctx) // who cannot be asked now is asked again
		}
	})
	return w, nil
}

func (w *watch) stop() {
	w.cancel()
	w.done.Wait()
	w.client.Close()
}

// look asks some node. What one that is behind says of an older epoch does not count.
func (w *watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	m, err := kadm.NewClient(w.client).Metadata(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.Topics.EachPartition(func(d kadm.PartitionDetail) {
		p := partition{d.Topic, d.Partition}
		last, seen := w.rows[p]
		if d.LeaderEpoch < last.epoch {
			return
		}
		now := leadership{d.Leader, d.LeaderEpoch, len(d.ISR)}
		if d.Leader < 0 {
			now.leader, now.insync = last.leader, 0
		} else if seen && d.Leader != last.leader {
			w.failovers++
		}
		w.rows[p] = now
	})
	return nil
}

// leads gives how many partitions each node leads, by its index.
func (w *watch) leads() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := make([]int, nodes)
	for _, row := range w.rows {
		if i := int(row.leader) - 1; i >= 0 && i < nodes {
			counts[i]++
		}
	}
	return counts
}

// failoverCount is how often a partition was seen with another leader than before.
func (w *watch) failoverCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failovers
}

// awaitWhole waits until every replica is in sync.
func (w *watch) awaitWhole(ctx context.Context, patience time.Duration) error {
	return within(ctx, patience, func(ctx context.Context) error {
		if err := w.look(ctx); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range allPartitions() {
			if row := w.rows[p]; row.insync != nodes {
				return fmt.Errorf("%s has %d of %d replicas in sync, leader %d in epoch %d", p.key(), row.insync, nodes, row.leader, row.epoch)
			}
		}
		return nil
	})
}

// elect makes the preferred replica of every partition its leader.
func (w *watch) elect(ctx context.Context, patience time.Duration) error {
	return within(ctx, patience, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		results, err := kadm.NewClient(w.client).ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
		if err != nil {
			return fmt.Errorf("elect preferred leaders: %w", err)
		}
		for _, partitions := range results {
			for _, p := range partitions {
				if p.Err != nil && !errors.Is(p.Err, kerr.ElectionNotNeeded) {
					return fmt.Errorf("elect the preferred leader of %s-%d: %w", p.Topic, p.Partition, p.Err)
				}
			}
		}
		return nil
	})
}

// controller is the index of the node that is the active controller.
func (w *watch) controller(ctx context.Context, patience time.Duration) (int, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	found := -1
	err := within(ctx, patience, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		resp, err := req.RequestWith(ctx, w.client)
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return errors.New("DescribeQuorum has no answer about the metadata")
		}
		id := resp.Topics[0].Partitions[0].LeaderID
		if id < 1 || id > nodes {
			return fmt.Errorf("the active controller is %d", id)
		}
		found = int(id) - 1
		return nil
	})
	return found, err
}
