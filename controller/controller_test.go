package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// TestRestartKeepsState: what was answered is there after a restart, and the
// node is who it was.
func TestRestartKeepsState(t *testing.T) {
	dir := t.TempDir()
	ln := listener(t)
	logDir := wire.NewUUID()
	n := startNode(t, Config{Dir: dir}).ready()
	n.broker(1, logDir, ln.Addr())
	cluster, hash := n.c.ClusterID(), uint64(0)
	for i := range 5 {
		if topic := n.createTopic(n.client(), fmt.Sprintf("t%d", i), 3); topic.ErrorCode != 0 {
			t.Fatalf("%+v", topic)
		}
	}
	hash = n.c.Image().Hash()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, Config{Dir: dir, ClusterID: cluster, Formatted: true}).ready()
	if n.c.Image().Hash() != hash || n.c.ClusterID() != cluster || n.c.Image().ClusterID() != cluster {
		t.Error("another image after the restart")
	}
	// The broker of this node's id ran in the process that is gone: a new life
	// of it is admitted at once, in its old directory, and leads again.
	n.broker(1, logDir, ln.Addr())
	for p := range n.c.Image().AllPartitions() {
		if p.Leader != 1 || p.LeaderEpoch < 2 {
			t.Errorf("%+v", p)
		}
	}
}

// TestSnapshotAndRestore: the state comes back from a snapshot and the log behind it.
func TestSnapshotAndRestore(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Dir: dir}).ready()
	b := n.broker(1, wire.NewUUID(), listener(t).Addr())
	n.createTopic(b.conn, "before", 10)
	if err := n.c.quorum.(*raftQuorum).raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	n.createTopic(b.conn, "after", 1)
	hash, index := n.c.Image().Hash(), n.c.Image().Index()
	n.stop()
	n = startNode(t, Config{Dir: dir}).ready()
	if n.c.Image().Hash() != hash {
		t.Error("another image")
	}
	// A broker that has nothing, or is from before the snapshot, gets one; one that is at the end follows.
	for _, at := range []uint64{0, 2} {
		resp := n.c.metadataAfter("", at, 1)
		img, err := metadata.DecodeSnapshot(bytes.NewReader(resp.Snapshot))
		if err != nil || img.Hash() != hash || img.Index() != resp.SnapshotIndex {
			t.Errorf("from %d: %v", at, err)
		}
	}
	if resp := n.c.metadataAfter("", index, n.c.Image().Term()); resp.Snapshot != nil || resp.Entries != nil {
		t.Errorf("at the end: %+v", resp)
	}
}

// TestFollow: a broker that replays what it fetches holds the controller's image.
func TestFollow(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir()}).ready()
	b := n.broker(1, wire.NewUUID(), listener(t).Addr())
	follower, conn := metadata.New(), n.client()
	follow := func(wait int32) int {
		resp := ask[*wire.FetchMetadataResponse](t, conn, &wire.FetchMetadataRequest{BrokerID: 1, ClusterID: n.c.ClusterID(),
			Index: follower.Index(), Term: follower.Term(), MaxWaitMillis: wait})
		if resp.ErrorCode != 0 || resp.Snapshot != nil || resp.ControllerID != 1 || resp.ControllerEpoch < 1 {
			t.Fatalf("%+v", resp)
		}
		for _, e := range resp.Entries {
			recs, err := metadata.DecodeRecords(e.Records)
			if err != nil || e.PrevIndex != follower.Index() {
				t.Fatalf("%v, after %d at %d", err, e.PrevIndex, follower.Index())
			}
			follower = follower.Replay(recs, e.Index, e.Term)
		}
		return len(resp.Entries)
	}
	follow(0)
	if follower.Hash() != n.c.Image().Hash() {
		t.Fatal("another image")
	}
	if begun := time.Now(); follow(100) != 0 || time.Since(begun) < 90*time.Millisecond {
		t.Error("did not wait for something new")
	}
	done := make(chan int)
	go func() { done <- follow(20_000) }()
	time.Sleep(20 * time.Millisecond)
	n.createTopic(b.conn, "t", 2)
	if got := <-done; got != 1 || follower.Topic("t") == nil || follower.Hash() != n.c.Image().Hash() {
		t.Errorf("woken with %d entries", got)
	}
	if resp := ask[*wire.FetchMetadataResponse](t, conn, &wire.FetchMetadataRequest{ClusterID: "another"}); resp.ErrorCode != kerr.InconsistentClusterID.Code {
		t.Errorf("another cluster: %+v", resp)
	}
}

// TestManyWaiters: brokers that wait cost no goroutine, and go when their
// connection does.
func TestManyWaiters(t *testing.T) {
	f := &feed{}
	f.append(1, 1, nil)
	var answers int
	type ending struct {
		wake func()
	}
	var ends []ending
	for range 1000 {
		ok := f.wait(1, 1, time.Minute, func(wake func()) func() bool { ends = append(ends, ending{wake}); return func() bool { return true } }, func() { answers++ })
		if !ok {
			t.Fatal("does not wait")
		}
	}
	for _, e := range ends[:300] {
		e.wake()
	}
	if answers != 300 || len(f.waiting) != 700 {
		t.Fatalf("%d answered, %d wait", answers, len(f.waiting))
	}
	f.append(2, 1, []byte("x"))
	if answers != 1000 || len(f.waiting) != 0 {
		t.Fatalf("%d answered, %d wait", answers, len(f.waiting))
	}
	ends[999].wake()
	if answers != 1000 {
		t.Fatal("answered twice")
	}
	f.close()
	if f.wait(2, 1, time.Minute, nil, nil) {
		t.Fatal("waits in a closed feed")
	}
}

func TestFeedIsBounded(t *testing.T) {
	f := &feed{}
	for i := range uint64(3 * maxFeedEntries) {
		f.append(i+1, 1, []byte("r"))
	}
	if len(f.entries) != maxFeedEntries {
		t.Errorf("%d entries", len(f.entries))
	}
	if _, p := f.after(5, 1); p != lost {
		t.Errorf("position %d: index 5 is gone", p)
	}
	at := uint64(3*maxFeedEntries - 10)
	if got, p := f.after(at, 1); p != follows || len(got) != 10 || got[0].PrevIndex != at {
		t.Errorf("%d entries after %d", len(got), at)
	}
	if _, p := f.after(at, 7); p != lost {
		t.Errorf("position %d: the term is another's", p)
	}
	if _, p := f.after(at+100, 1); p != upToDate {
		t.Errorf("position %d: ahead of a node that catches up", p)
	}
	f = &feed{}
	for i := range uint64(40) {
		f.append(i+1, 1, make([]byte, 1<<20))
	}
	if f.bytes > maxFeedBytes || len(f.entries) != 16 {
		t.Errorf("%d bytes in %d entries", f.bytes, len(f.entries))
	}
	if got, _ := f.after(39, 1); len(got) != 1 {
		t.Errorf("%d entries in one answer", len(got))
	}
	f.reset(100, 2)
	if _, p := f.after(40, 1); p != lost {
		t.Errorf("position %d after a restore", p)
	}
}

// TestRefusedDirectories: each of them says the way out.
func TestRefusedDirectories(t *testing.T) {
	formed := t.TempDir()
	n := startNode(t, Config{Dir: formed}).ready()
	_, err := New(Config{NodeID: 1, Dir: formed})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "metadata.log.dir") {
		t.Errorf("in use: %v", err)
	}
	n.stop()
	for name, tt := range map[string]struct {
		cfg  Config
		want error
		says string
	}{
		"another node":    {Config{NodeID: 2, Dir: formed}, ErrForeign, "node.id=1"},
		"another cluster": {Config{NodeID: 1, Dir: formed, ClusterID: "x"}, ErrForeign, "cluster x"},
		"wiped":           {Config{NodeID: 1, Dir: t.TempDir(), ClusterID: "x", Formatted: true}, ErrWiped, "varve recover"},
	} {
		if _, err := New(tt.cfg); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(filepath.Join(formed, raftFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{NodeID: 1, Dir: formed}); !errors.Is(err, ErrWiped) || !strings.Contains(err.Error(), "varve recover") {
		t.Errorf("log gone: %v", err)
	}
	if err := os.WriteFile(filepath.Join(formed, memberFile), []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{NodeID: 1, Dir: formed}); err == nil {
		t.Error("nonsense accepted")
	}
	wanted := startNode(t, Config{Dir: t.TempDir(), ClusterID: "my-cluster"}).ready()
	if got := wanted.c.Image().ClusterID(); got != "my-cluster" {
		t.Errorf("cluster %q", got)
	}
}

// TestBeforeAndAfter: without leadership, and after Run, every request is
// answered, none of them hangs.
func TestBeforeAndAfter(t *testing.T) {
	c, err := New(Config{NodeID: 1, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(); err == nil {
		t.Error("ready before it runs")
	}
	if _, err := c.propose(context.Background(), &metadata.ExpireReservations{}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	eventually(t, c.Ready)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if c.reign.Load() != nil {
		t.Error("reigns after its end")
	}
	pctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.propose(pctx, &metadata.ExpireReservations{}); err == nil {
		t.Error("proposed after the end")
	}
}

func TestFeatures(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir()}).ready()
	f := n.c.Features()
	if len(f.Finalized) != 1 || f.Finalized[0] != (wire.FeatureRange{Name: metadata.MetadataFeature, Min: metadata.MetadataVersion, Max: metadata.MetadataVersion}) {
		t.Errorf("%+v", f)
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = controllerEndpoints
	resp := ask[*kmsg.DescribeClusterResponse](t, n.client(), req)
	if resp.ClusterID != n.c.ClusterID() || resp.ControllerID != 1 || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 {
		t.Errorf("%+v", resp)
	}
}

func FuzzParseMember(f *testing.F) {
	f.Add("version=1\ncluster.id=c\nnode.id=1\nmember.id=m\nformed=true\n")
	f.Add("version=1\ncluster.id=c\nnode.id=1\nmember.id=m\nformed=false\nvoters=1@m@host:1,2@n@host:2\n")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseMember(text); err == nil && (m.memberID == "" || m.formed && m.clusterID == "") {
			t.Fatalf("%q is read as %+v", text, m)
		}
	})
}
