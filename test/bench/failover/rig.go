package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/test/node"
)

const (
	nodes       = 3
	topic       = "failover"
	pollEvery   = 50 * time.Millisecond
	callTimeout = 5 * time.Second  // of one administrative request
	grace       = 20 * time.Second // of a node that is to end cleanly
)

// What may happen to a leader.
const (
	faultKill  = "kill"
	faultPause = "pause"
	faultStop  = "stop"
)

// equalSettings are what -equal gives each kind of cluster: the same timeouts under each one's names.
var equalSettings = map[string][]string{
	"kafka": {"broker.session.timeout.ms=1500", "broker.heartbeat.interval.ms=250",
		"controller.quorum.fetch.timeout.ms=500", "controller.quorum.election.timeout.ms=500", "controller.quorum.election.backoff.max.ms=500"},
	"varve": {"broker.session.timeout.ms=1500", "broker.heartbeat.interval.ms=250", "varve.controller.election.timeout.ms=500"},
}

// rig is one cluster under writes.
type rig struct {
	options
	cluster *node.Cluster
	client  *kgo.Client // for administration alone
	admin   *kadm.Client
	watch   *watch
	stop    context.CancelFunc // ends the writers
	writers sync.WaitGroup
}

// openRig starts a cluster below dir, makes the topic and begins to write.
func openRig(ctx context.Context, kind, dir string, o options) (*rig, error) {
	c, err := newCluster(ctx, kind, filepath.Join(dir, kind), o)
	if err != nil {
		return nil, err
	}
	if err := c.StartAll(ctx); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &rig{options: o, cluster: c, watch: newWatch(o.partitions), stop: stop}
	r.client, err = kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(pollEvery), kgo.DialTimeout(time.Second))
	if err == nil {
		r.admin = kadm.NewClient(r.client)
		err = r.create(ctx)
	}
	if err == nil {
		err = r.startWriters(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func newCluster(ctx context.Context, kind, dir string, o options) (*node.Cluster, error) {
	var settings []string
	if o.equal {
		settings = equalSettings[kind]
	}
	if kind == "kafka" {
		java, err := node.FindJava(ctx)
		if err != nil {
			return nil, err
		}
		return node.NewKafkaCluster(java, node.KafkaConfig{Dir: dir, Settings: settings}, nodes)
	}
	return node.NewCluster(node.VarveConfig{Binary: o.varve, Dir: dir, Settings: slices.Concat(settings, o.set)}, nodes)
}

// close ends the writers and the cluster.
func (r *rig) close() error {
	r.stop()
	r.writers.Wait()
	if r.client != nil {
		r.client.Close()
	}
	return r.cluster.Stop(grace)
}

// create makes the topic and waits until all nodes hold it.
func (r *rig) create(ctx context.Context) error {
	configs := map[string]*string{"min.insync.replicas": kadm.StringPtr("2")}
	err := r.within(ctx, func(ctx context.Context) error {
		// A new cluster may know fewer brokers than it has, for a moment.
		_, err := r.admin.CreateTopic(ctx, int32(r.partitions), nodes, configs, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create the topic: %w", err)
	}
	return r.awaitWhole(ctx)
}

// startWriters begins to write to every partition.
func (r *rig) startWriters(ctx context.Context) error {
	for p := range r.partitions {
		w, err := newWriter(r.options.client, r.cluster.Addrs(), int32(p))
		if err != nil {
			return err
		}
		r.writers.Go(func() {
			defer w.close()
			r.watch.write(ctx, w, p)
		})
	}
	return nil
}

// within calls step until it succeeds, for r.patience.
func (r *rig) within(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	for {
		one, done := context.WithTimeout(ctx, callTimeout)
		err := step(one)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollEvery):
		}
	}
}

// awaitWhole waits until all replicas are in sync and the preferred ones lead, which it asks for.
func (r *rig) awaitWhole(ctx context.Context) error {
	return r.within(ctx, func(ctx context.Context) error {
		rows, err := r.rows(ctx)
		if err != nil {
			return err
		}
		for _, p := range rows {
			if len(p.ISR) != nodes {
				return fmt.Errorf("partition %d has %d of %d replicas in sync", p.Partition, len(p.ISR), nodes)
			}
		}
		i := slices.IndexFunc(rows, func(p kadm.PartitionDetail) bool { return p.Leader != p.Replicas[0] })
		if i < 0 {
			return nil
		}
		if _, err := r.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil {
			return err
		}
		return fmt.Errorf("partition %d is led by %d, not by %d", rows[i].Partition, rows[i].Leader, rows[i].Replicas[0])
	})
}

// rows are the topic's partitions.
func (r *rig) rows(ctx context.Context) ([]kadm.PartitionDetail, error) {
	m, err := r.admin.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	t := m.Topics[topic]
	if t.Err != nil || len(t.Partitions) != r.partitions {
		return nil, fmt.Errorf("the topic has %d of %d partitions: %v", len(t.Partitions), r.partitions, t.Err)
	}
	return t.Partitions.Sorted(), nil
}

// controller is the id of the active controller.
func (r *rig) controller(ctx context.Context) (id int32, err error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	err = r.within(ctx, func(ctx context.Context) error {
		resp, err := req.RequestWith(ctx, r.client)
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return errors.New("DescribeQuorum has no answer about the metadata")
		}
		if id = resp.Topics[0].Partitions[0].LeaderID; id < 1 || id > nodes {
			return fmt.Errorf("the active controller is %d", id)
		}
		return nil
	})
	return id, err
}
