package system

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
)

type place struct {
	partition int32
	offset    int64
}

// acked is what was acknowledged, and where.
type acked struct {
	mu      sync.Mutex
	records map[place]string
	failed  int
}

func (a *acked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.records)
}

// produce sends records with acks=all until ctx ends, and waits for their fate.
func (a *acked) produce(ctx context.Context, c *kgo.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		r := &kgo.Record{Value: fmt.Appendf(nil, "%d:%0200d", i, i)}
		c.Produce(context.WithoutCancel(ctx), r, func(r *kgo.Record, err error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if err != nil {
				a.failed++
				return
			}
			a.records[place{r.Partition, r.Offset}] = string(r.Value)
		})
		time.Sleep(500 * time.Microsecond)
	}
}

// TestLeadersAreKilled: brokers are killed, one after the other, while records are produced with acks=all to partitions with three replicas.
// What was acknowledged is where it was acknowledged, and writing goes on while any one is away.
func TestLeadersAreKilled(t *testing.T) {
	const partitions, rounds = 6, 3
	cluster := startCluster(t, 3, "replica.lag.time.max.ms=3000", "broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500")
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.RecordDeliveryTimeout(40*time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	two := "2"
	if _, err := adm.CreateTopic(t.Context(), partitions, 3, map[string]*string{"min.insync.replicas": &two}, "t"); err != nil {
		t.Fatal(err)
	}
	a := &acked{records: map[place]string{}}
	ctx, stop := context.WithCancel(t.Context())
	var producing sync.WaitGroup
	producing.Go(func() { a.produce(ctx, c) })
	inSync := func() bool {
		topics, err := adm.ListTopics(t.Context(), "t")
		if err != nil {
			return false
		}
		n := 0
		for _, p := range topics["t"].Partitions {
			if len(p.ISR) == 3 && p.Leader >= 0 {
				n++
			}
		}
		return n == partitions
	}
	await(t, "all replicas in sync", inSync)
	for round := range rounds {
		victim := round % 3
		before := a.count()
		cluster.Node(victim).Kill()
		await(t, "records are acknowledged while one node is dead", func() bool { return a.count() > before+500 })
		if err := cluster.Start(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		await(t, "all replicas in sync again", inSync)
	}
	stop()
	producing.Wait()
	flushing, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Flush(flushing); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d records acknowledged, %d not", len(a.records), a.failed)
	found := readAll(t, cluster, "t")
	lost := 0
	for at, value := range a.records {
		if got := found[at]; got != value {
			if lost++; lost <= 5 {
				t.Errorf("partition %d offset %d holds %.20q, %.20q was acknowledged there", at.partition, at.offset, got, value)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d acknowledged records are not where they were", lost)
	}
}

// readAll reads a topic from its start to its present end.
func readAll(t *testing.T, cluster *node.Cluster, topic string) map[place]string {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	found := map[place]string{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(left) > 0 {
		fs := c.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			found[place{r.Partition, r.Offset}] = string(r.Value)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return found
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
