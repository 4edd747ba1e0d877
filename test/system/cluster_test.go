package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
)

// newCluster prepares n nodes that end with the test.
func newCluster(t *testing.T, n int, settings ...string) *node.Cluster {
	t.Helper()
	c, err := node.NewCluster(node.VarveConfig{Binary: varve, Dir: t.TempDir(), Settings: settings}, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop(20 * time.Second)
		if !t.Failed() {
			return
		}
		for i := range n {
			if b := c.Node(i); b != nil {
				out, _ := os.ReadFile(b.LogPath())
				t.Logf("the end of node %d's output:\n%s", i+1, out[max(0, len(out)-4<<10):])
			}
		}
	})
	return c
}

// startCluster starts n nodes that end with the test.
func startCluster(t *testing.T, n int, settings ...string) *node.Cluster {
	t.Helper()
	c := newCluster(t, n, settings...)
	for i := range n {
		if _, err := c.Launch(i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if err := c.Await(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// clusterOf is what a node says of its cluster.
func clusterOf(t *testing.T, b *node.Broker) kadm.Metadata {
	t.Helper()
	c := client(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m, err := kadm.NewClient(c).BrokerMetadata(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wipe empties the folder of a node that is down.
func wipe(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "ports.json" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThreeEmptyDirectories: three nodes started in any order, the last one late, are
// one cluster of three brokers. The first one, wiped and started alone, is none, and
// says what to do.
func TestThreeEmptyDirectories(t *testing.T) {
	c := newCluster(t, 3)
	for _, i := range []int{2, 0} {
		if _, err := c.Launch(i); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
	for _, i := range []int{2, 0} {
		if nc, err := net.Dial("tcp", c.Node(i).Addr); err == nil {
			nc.Close()
			t.Fatalf("node %d takes clients before there is a cluster", i+1)
		}
	}
	if status, body := get(t, c.Node(0), "/readyz"); status == 200 || !strings.Contains(body, "join the controllers") {
		t.Errorf("readiness of a node that waits: %d %s", status, body)
	}
	if err := c.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		if err := c.Await(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	id := clusterOf(t, c.Node(0)).Cluster
	for i := range 3 {
		eventually(t, 10*time.Second, func() error {
			if m := clusterOf(t, c.Node(i)); m.Cluster != id || id == "" || len(m.Brokers) != 3 {
				return fmt.Errorf("node %d is of cluster %q with %d brokers, the first of %q", i+1, m.Cluster, len(m.Brokers), id)
			}
			return nil
		})
	}

	// Whoever is asked, a topic can be created, and any node's leader serves it.
	for i := range 3 {
		cl := client(t, c.Node(i), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		topic := fmt.Sprintf("t%d", i)
		createTopic(t, cl, topic, nil)
		produce(t, cl, topic, 0, 100, 100)
		consume(t, c.Node((i+1)%3), topic, 100, 100)
	}

	if err := c.Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	wipe(t, c.Dir(0))
	b, err := c.Launch(0)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() error {
		out, err := os.ReadFile(b.LogPath())
		if err == nil && !strings.Contains(string(out), "varve cluster controllers replace 1") {
			err = fmt.Errorf("it does not say what to do: %s", out)
		}
		return err
	})
	time.Sleep(2 * time.Second)
	if nc, err := net.Dial("tcp", b.Addr); err == nil {
		nc.Close()
		t.Error("a wiped node takes clients")
	}
	for _, i := range []int{1, 2} {
		if _, err := c.Launch(i); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{1, 2} {
		if err := c.Await(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	if got := clusterOf(t, c.Node(1)).Cluster; got != id {
		t.Errorf("cluster %s after the restart, was %s", got, id)
	}
	eventually(t, 10*time.Second, func() error {
		out, err := os.ReadFile(b.LogPath())
		if err == nil && !strings.Contains(string(out), "its disk was lost or replaced") {
			err = fmt.Errorf("it does not say why: %s", out)
		}
		return err
	})
	if nc, err := net.Dial("tcp", b.Addr); err == nil {
		nc.Close()
		t.Error("a wiped node takes clients")
	}

	// The operator does what it says.
	brokers := c.Node(1).Addr + "," + c.Node(2).Addr
	states := func() map[int]string {
		var rows []struct {
			ID    int    `json:"nodeId"`
			State string `json:"state"`
			Lag   int64  `json:"lag"`
		}
		if err := json.Unmarshal([]byte(command(t, "cluster", "controllers", "list", "-o", "json", "-b", brokers)), &rows); err != nil {
			t.Fatal(err)
		}
		all := map[int]string{}
		for _, r := range rows {
			all[r.ID] += r.State
		}
		return all
	}
	eventually(t, 10*time.Second, func() error {
		if all := states(); all[1] != "awaywaiting" {
			return fmt.Errorf("controllers %v", all)
		}
		return nil
	})
	command(t, "cluster", "controllers", "replace", "1", "-b", brokers)
	if err := c.Await(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if all := states(); len(all) != 3 || all[1] != "follower" {
		t.Errorf("controllers %v", all)
	}
	eventually(t, 10*time.Second, func() error {
		if m := clusterOf(t, c.Node(0)); m.Cluster != id || len(m.Brokers) != 3 {
			return fmt.Errorf("the replaced node is of cluster %s with %d brokers", m.Cluster, len(m.Brokers))
		}
		return nil
	})
	if d := clusterSays(t, brokers); d.ID != id || len(d.Controllers) != 3 || len(d.Brokers) != 3 {
		t.Errorf("cluster describe: %+v", d)
	}
}

// described is what varve cluster describe says.
type described struct {
	ID          string  `json:"clusterId"`
	Active      int32   `json:"activeController"`
	Epoch       int32   `json:"controllerEpoch"`
	Controllers []int32 `json:"controllers"`
	Brokers     []int32 `json:"brokers"`
}

func clusterSays(t *testing.T, brokers string) described {
	t.Helper()
	var d described
	if err := json.Unmarshal([]byte(command(t, "cluster", "describe", "-o", "json", "-b", brokers)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestActiveControllerKilled: with separate roles, topics are created and records kept
// while the active controller is killed, then frozen; every write that was acknowledged is there.
func TestActiveControllerKilled(t *testing.T) {
	c := newCluster(t, 4)
	c.Roles = []string{node.OnlyController, node.OnlyController, node.OnlyController, node.OnlyBroker}
	for i := range 4 {
		if _, err := c.Launch(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Await(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	b := c.Node(3)
	cl := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, cl, "first", nil)
	was := clusterSays(t, b.Addr)
	if len(was.Controllers) != 3 || len(was.Brokers) != 1 || was.Brokers[0] != 4 {
		t.Fatalf("%+v", was)
	}
	again := func(topic string, began time.Time) time.Duration {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, topic)
			if errors.Is(err, kerr.TopicAlreadyExists) {
				err = nil // the outcome of an attempt before was unknown
			}
			return err
		})
		return time.Since(began)
	}

	killed := time.Now()
	c.Node(int(was.Active) - 1).Kill()
	t.Logf("a topic is created %v after the active controller was killed", again("second", killed))
	produce(t, cl, "first", 0, 100, 100)
	now := clusterSays(t, b.Addr)
	if now.Active == was.Active || now.Epoch <= was.Epoch || now.ID != was.ID {
		t.Errorf("%+v after %+v", now, was)
	}
	if err := c.Start(t.Context(), int(was.Active)-1); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		if out := command(t, "cluster", "controllers", "list", "-b", b.Addr); strings.Contains(out, "away") {
			return errors.New(out)
		}
		return nil
	})

	froze := time.Now()
	frozen := c.Node(int(now.Active) - 1)
	if err := syscall.Kill(frozen.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Logf("a topic is created %v after the active controller was frozen", again("third", froze))
	if err := syscall.Kill(frozen.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if then := clusterSays(t, b.Addr); then.Active == now.Active || then.Epoch <= now.Epoch {
		t.Errorf("%+v after %+v", then, now)
	}
	topics, err := kadm.NewClient(cl).ListTopics(t.Context())
	if err != nil || !topics.Has("first") || !topics.Has("second") || !topics.Has("third") {
		t.Errorf("topics %v, %v", topics.Names(), err)
	}
	consume(t, b, "first", 100, 100)
}

// command runs varve with arguments and returns what it prints.
func command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), varve, args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("varve %s: %v\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return string(out)
}
