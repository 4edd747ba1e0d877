package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
)

// runAt runs the program's command against a node and returns what it said.
func runAt(t *testing.T, b *node.Broker, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, varve, append(args, "-b", b.Addr)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustRunAt(t *testing.T, b *node.Broker, args ...string) string {
	t.Helper()
	out, err := runAt(t, b, args...)
	if err != nil {
		t.Fatalf("varve %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// row is what varve topic describe says of a partition.
type row struct {
	Leader   int32   `json:"leader"`
	Replicas []int32 `json:"replicas"`
	ISR      []int32 `json:"isr"`
	Start    *int64  `json:"start"`
	End      *int64  `json:"end"`
}

func describe(t *testing.T, b *node.Broker, topic string) []row {
	t.Helper()
	out := mustRunAt(t, b, "topic", "describe", topic, "-o", "json")
	var topics []struct {
		Partitions []row `json:"partitions"`
	}
	if err := json.Unmarshal([]byte(out), &topics); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return topics[0].Partitions
}

// replicated makes a topic and moves it to the given replicas, one list a partition; it returns once they are there.
func replicated(t *testing.T, b *node.Broker, c *kgo.Client, topic string, configs []string, replicas ...[]int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	set := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		set[configs[i]] = &configs[i+1]
	}
	if _, err := kadm.NewClient(c).CreateTopic(ctx, int32(len(replicas)), -1, set, topic); err != nil {
		t.Fatal(err)
	}
	var req kadm.AlterPartitionAssignmentsReq
	for i, list := range replicas {
		req.Assign(topic, int32(i), list)
	}
	done, err := kadm.NewClient(c).AlterPartitionAssignments(ctx, req)
	if err = errors.Join(err, done.Error()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		for i, p := range describe(t, b, topic) {
			if !slices.Equal(p.Replicas, replicas[i]) || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("partition %d of %s: %+v", i, topic, p)
			}
		}
		return nil
	})
}

func fill(t *testing.T, c *kgo.Client, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Value: payload(i, 100)})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// count reads all of a topic.
func count(t *testing.T, b *node.Broker, topic string, want int) {
	t.Helper()
	c := client(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for got := 0; got < want; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%d of %d records of %s: %v", got, want, topic, err)
		}
		got += f.NumRecords()
	}
}

// TestLeadersMove: brokers die and come back, others lead meanwhile, nothing that was acknowledged is lost, and the
// operator brings the leaders back.
func TestLeadersMove(t *testing.T) {
	c := startCluster(t, 3, "auto.leader.rebalance.enable=false")
	cl := client(t, c.Node(0))
	replicated(t, c.Node(0), cl, "t", []string{"min.insync.replicas", "2"}, []int32{1, 2, 3}, []int32{2, 3, 1}, []int32{3, 1, 2})
	inSync := func(b *node.Broker, want int) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			for i, p := range describe(t, b, "t") {
				if len(p.ISR) != want {
					return fmt.Errorf("partition %d: %+v", i, p)
				}
			}
			return nil
		})
	}
	total := 0
	for i := range 3 {
		survivor := c.Node((i + 1) % 3)
		cl := client(t, survivor)
		fill(t, cl, "t", 1000)
		c.Node(i).Kill()
		fill(t, cl, "t", 1000)
		total += 2000
		for p, r := range describe(t, survivor, "t") {
			if r.Leader == int32(i+1) || r.Leader < 0 || slices.Contains(r.ISR, int32(i+1)) {
				t.Errorf("partition %d without node %d: %+v", p, i+1, r)
			}
		}
		if err := c.Start(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		inSync(survivor, 3)
	}
	count(t, c.Node(0), "t", total)
	mustRunAt(t, c.Node(0), "topic", "elect", "t")
	for p, r := range describe(t, c.Node(0), "t") {
		if r.Leader != r.Replicas[0] {
			t.Errorf("partition %d: %+v", p, r)
		}
	}
	for i := range 3 {
		if _, body := get(t, c.Node(i), "/metrics"); !strings.Contains(body, "varve_controller_unclean_elections_total 0") {
			t.Errorf("node %d tells of an unclean election", i+1)
		}
	}
}

// TestDecommission: a broker is emptied while clients go on, stopped and forgotten.
func TestDecommission(t *testing.T) {
	c := startCluster(t, 4)
	cl := client(t, c.Node(0))
	replicated(t, c.Node(0), cl, "t", []string{"min.insync.replicas", "2"}, []int32{4, 1, 2}, []int32{1, 4, 3}, []int32{2, 3, 4}, []int32{1, 2, 3})
	fill(t, cl, "t", 4000)
	mustRunAt(t, c.Node(0), "cluster", "decommission", "4")
	for p, r := range describe(t, c.Node(0), "t") {
		if slices.Contains(r.Replicas, 4) || len(r.Replicas) != 3 || len(r.ISR) < 2 {
			t.Errorf("partition %d: %+v", p, r)
		}
	}
	if out, err := runAt(t, c.Node(0), "cluster", "unregister", "4"); err == nil {
		t.Errorf("a broker that lives is forgotten: %s", out)
	}
	if err := c.Node(3).Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error {
		out, err := runAt(t, c.Node(0), "cluster", "unregister", "4")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if out := mustRunAt(t, c.Node(0), "cluster", "brokers"); strings.Count(out, "active") != 3 || strings.Contains(out, "fenced") {
		t.Error(out)
	}
	fill(t, cl, "t", 1000)
	count(t, c.Node(1), "t", 5000)
}

// TestAcceptLoss: the only replica of a partition loses its disk. Nobody leads it until the operator accepts the loss; then it
// goes on, a tiered one with all that is in the store.
func TestAcceptLoss(t *testing.T) {
	c := startCluster(t, 3, "remote.log.manager.task.interval.ms=200")
	cl := client(t, c.Node(0))
	replicated(t, c.Node(0), cl, "local", nil, []int32{3})
	replicated(t, c.Node(0), cl, "tiered", []string{"remote.storage.enable", "true", "segment.bytes", "1048576"}, []int32{3})
	fill(t, cl, "local", 1000)
	fill(t, cl, "tiered", 30_000)
	eventually(t, time.Minute, func() error {
		out := mustRunAt(t, c.Node(0), "topic", "describe", "tiered", "-o", "json")
		if !strings.Contains(out, "remoteEnd") || strings.Contains(out, `"remoteEnd": null`) {
			return errors.New("nothing is in the store: " + out)
		}
		return nil
	})
	if err := c.Node(2).Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(c.Dir(2), "data")
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "controller" {
			if err := os.RemoveAll(filepath.Join(data, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.Launch(2); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error {
		out := mustRunAt(t, c.Node(0), "cluster", "brokers")
		if strings.Count(out, "active") != 3 {
			return errors.New(out)
		}
		return nil
	})
	if out := mustRunAt(t, c.Node(0), "cluster", "accept-loss"); !strings.Contains(out, "local") || !strings.Contains(out, "tiered") {
		t.Errorf("nobody can lead them, yet: %s", out)
	}
	if out, err := runAt(t, c.Node(0), "cluster", "accept-loss", "local", "tiered"); err == nil || !strings.Contains(out, "--yes") {
		t.Errorf("accepted without being told: %s", out)
	}
	mustRunAt(t, c.Node(0), "cluster", "accept-loss", "local", "tiered", "--yes")
	eventually(t, 30*time.Second, func() error {
		l, r := describe(t, c.Node(0), "local")[0], describe(t, c.Node(0), "tiered")[0]
		if l.Leader != 3 || r.Leader != 3 || l.End == nil || r.End == nil {
			return fmt.Errorf("%+v, %+v", l, r)
		}
		if *l.End != 0 || *r.Start != 0 || *r.End == 0 {
			t.Fatalf("local to %d, tiered [%d, %d)", *l.End, *r.Start, *r.End)
		}
		return nil
	})
	fill(t, cl, "local", 10)
	kept := *describe(t, c.Node(0), "tiered")[0].End
	fill(t, cl, "tiered", 10)
	count(t, c.Node(0), "tiered", int(kept)+10)
	told := 0
	for i := range 3 {
		if _, body := get(t, c.Node(i), "/metrics"); strings.Contains(body, "varve_controller_unclean_elections_total 2") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d nodes tell of two unclean elections, the active controller should", told)
	}
}
