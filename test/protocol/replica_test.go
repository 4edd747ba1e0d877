package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

func replicated(t *testing.T, n *node, topic string, partitions int32, replicas int16) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(n.addr))
	must(t, err)
	defer c.Close()
	_, err = kadm.NewClient(c).CreateTopic(context.Background(), partitions, replicas, nil, topic)
	must(t, err)
}

// Followers replicate over sockets, in incremental sessions and, where the leader has no room for one, without: what is acknowledged
// with acks=all is everywhere.
func TestReplicas(t *testing.T) {
	t.Run("sessions", func(t *testing.T) { replicate(t, startBrokers(t)) })
	t.Run("one session", func(t *testing.T) { replicate(t, startBrokers(t, "max.incremental.fetch.session.cache.slots", "1")) })
	t.Run("fsync", func(t *testing.T) { replicate(t, startBrokers(t, "varve.log.durability", "fsync")) })
}

func replicate(t *testing.T, nodes [3]*node) {
	const partitions, records = 12, 3000
	replicated(t, nodes[0], "t", partitions, 3)
	c, err := kgo.NewClient(kgo.SeedBrokers(nodes[0].addr), kgo.DefaultProduceTopic("t"), kgo.ConsumeTopics("t"))
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// One by one, each waits for the fetch that carries it and for the one that says so.
	for i := range 50 {
		must(t, c.ProduceSync(ctx, &kgo.Record{Value: fmt.Append(nil, i)}).FirstErr())
	}
	for i := 50; i < records; i++ {
		c.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	must(t, c.Flush(ctx))
	for _, n := range nodes {
		total := int64(0)
		for p := range n.replicas.Partitions() {
			total += p.EndOffset()
			eventually(t, "the high watermark is everywhere", func() bool { return p.HighWatermark() == p.EndOffset() })
		}
		if total != records {
			t.Errorf("%d of %d records", total, records)
		}
	}
	seen := map[string]bool{}
	for len(seen) < records {
		fs := c.PollFetches(ctx)
		must(t, fs.Err())
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}
}

// KIP-392: a consumer that says where it is reads there; the leader sends it, and the follower serves up to its high watermark.
func TestReadFromTheRack(t *testing.T) {
	nodes := startBrokers(t, "replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector")
	replicated(t, nodes[0], "t", 1, 3)
	id := nodes[0].follower.Image().Topic("t").ID
	row := nodes[0].follower.Image().Partition(id, 0)
	lead := nodes[row.Leader-1]
	follower := (int(row.Leader) % 3)
	rack := string(rune('a' + follower))
	c := lead.dial()
	if p := c.produce(9, "t", id, -1, values(t, record.None, "x", "y")); p.ErrorCode != 0 {
		t.Fatal(p.ErrorCode)
	}
	ask := func(n *node, v int16, rack string, offset int64) kmsg.FetchResponseTopicPartition {
		req := fetchRequest("t", id, offset)
		req.Rack = rack
		return partitionsOf(do[*kmsg.FetchResponse](n.dial(), v, req))[0]
	}
	eventually(t, "the consumer is sent to its rack", func() bool {
		p := ask(lead, 11, rack, 0)
		return p.ErrorCode == 0 && p.PreferredReadReplica == int32(follower+1) && len(p.RecordBatches) == 0
	})
	for _, where := range []string{"", "elsewhere", string(rune('a' + row.Leader - 1))} {
		if p := ask(lead, 11, where, 0); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
			t.Errorf("rack %q: %+v", where, p)
		}
	}
	eventually(t, "the follower serves what is committed", func() bool {
		vs, _ := read(t, ask(nodes[follower], 11, rack, 0).RecordBatches)
		return slices.Equal(vs, []string{"x", "y"})
	})
	if p := ask(nodes[follower], 10, "", 0); p.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("a client that knows nothing of it: error %d", p.ErrorCode)
	}
	if p := nodes[follower].dial().produce(10, "t", id, -1, values(t, record.None, "z")); p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != row.Leader {
		t.Errorf("produce to a follower: %+v", p)
	}
}

// A leader that leaves in good order hands over first: nothing that a client has in flight fails for good.
func TestReplicaLeaves(t *testing.T) {
	nodes := startBrokers(t)
	replicated(t, nodes[0], "t", 6, 3)
	c, err := kgo.NewClient(kgo.SeedBrokers(nodes[0].addr), kgo.DefaultProduceTopic("t"))
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := range 200 {
		if i == 100 {
			leaves, stop := context.WithTimeout(ctx, 5*time.Second)
			nodes[2].broker.Leave(leaves)
			stop()
			for p := range nodes[2].replicas.Partitions() {
				if p.IsLeader() {
					t.Errorf("%s-%d is still led by the broker that left", p.Topic(), p.Index())
				}
			}
		}
		if err := c.ProduceSync(ctx, &kgo.Record{Value: fmt.Append(nil, i)}).FirstErr(); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(i, err)
		}
	}
}
