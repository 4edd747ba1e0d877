package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// trio is a quorum of three controllers in memory.
type trio struct {
	t     *testing.T
	nodes []*trioNode
}

type trioNode struct {
	c      *Controller
	disk   *hangingLog
	trans  *lossyTransport
	cancel context.CancelFunc
	ended  chan error
	failed chan error
}

func startTrio(t *testing.T) *trio {
	q := &trio{t: t}
	var servers []wire.Voter
	for i := range int32(3) {
		id := serverID(i+1, "m")
		addr, inmem := raft.NewInmemTransport(raft.ServerAddress(id))
		servers = append(servers, wire.Voter{NodeID: i + 1, MemberID: "m", Address: string(addr)})
		q.nodes = append(q.nodes, &trioNode{trans: &lossyTransport{InmemTransport: inmem}, ended: make(chan error, 1), failed: make(chan error, 1)})
	}
	for i, n := range q.nodes {
		for j, peer := range q.nodes {
			if i != j {
				n.trans.Connect(raft.ServerAddress(servers[j].Address), peer.trans.InmemTransport)
			}
		}
		n.start(int32(i+1), servers)
	}
	t.Cleanup(q.stop)
	return q
}

func (n *trioNode) start(id int32, servers []wire.Voter) {
	store := raft.NewInmemStore()
	n.disk = &hangingLog{LogStore: store, free: make(chan struct{})}
	n.c = newController(Config{NodeID: id, OnFailure: func(err error) { n.failed <- err }}, member{clusterID: "c", nodeID: id, memberID: "m", formed: true})
	guarded := &failClosed{log: n.disk, stable: store, deadline: 2 * time.Second, failed: n.c.fail, seconds: n.c.metrics.storeSeconds}
	q := newRaftQuorum(serverID(id, "m"), defaultElectionTimeout, n.c.machine, raftStores{log: guarded, stable: guarded, snapshots: raft.NewInmemSnapshotStore()},
		func() raft.Transport { return n.trans }, raftLogger(n.c.logger))
	guarded.halt = func() { q.stop() }
	n.c.quorum = q
	if err := q.found(servers); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() { n.ended <- n.c.Run(ctx) }()
}

func (q *trio) stop() {
	for _, n := range q.nodes {
		n.disk.release()
		n.cancel()
	}
	for _, n := range q.nodes {
		<-n.ended
	}
}

// leader waits until one node reigns, except those given.
func (q *trio) leader(except ...*trioNode) *trioNode {
	q.t.Helper()
	var leader *trioNode
	for range 4000 {
		for _, n := range q.nodes {
			skip := false
			for _, x := range except {
				skip = skip || x == n
			}
			if r := n.c.reign.Load(); r != nil && !skip && (leader == nil || r.term >= leader.c.reign.Load().term) {
				leader = n
			}
		}
		if leader != nil {
			return leader
		}
		time.Sleep(5 * time.Millisecond)
	}
	q.t.Fatal("nobody leads")
	return nil
}

func (q *trio) isolate(n *trioNode) {
	n.trans.DisconnectAll()
	for _, other := range q.nodes {
		if other != n {
			other.trans.Disconnect(n.trans.LocalAddr())
		}
	}
}

func (q *trio) heal() {
	for _, a := range q.nodes {
		a.trans.mute.Store(false)
		for _, b := range q.nodes {
			if a != b {
				a.trans.Connect(b.trans.LocalAddr(), b.trans.InmemTransport)
			}
		}
	}
}

// agree waits until all nodes but those given hold one image at index or later.
func (q *trio) agree(index uint64, except ...*trioNode) {
	q.t.Helper()
	var why string
check:
	for range 4000 {
		time.Sleep(5 * time.Millisecond)
		hashes := map[uint64]bool{}
		for _, n := range q.nodes {
			if len(except) > 0 && n == except[0] {
				continue
			}
			img := n.c.Image()
			if img.Index() < index {
				why = fmt.Sprintf("node %d is at %d", n.c.cfg.NodeID, img.Index())
				continue check
			}
			hashes[img.Hash()] = true
		}
		if len(hashes) == 1 {
			return
		}
		why = fmt.Sprintf("%d different images", len(hashes))
	}
	q.t.Fatalf("no agreement at %d: %s", index, why)
}

// lossyTransport can lose the answers to what it sends: the others act, and
// this node does not know.
type lossyTransport struct {
	*raft.InmemTransport
	mute atomic.Bool
}

func (l *lossyTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := l.InmemTransport.AppendEntries(id, target, args, resp)
	if l.mute.Load() {
		return errors.New("answer lost")
	}
	return err
}

func (l *lossyTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// hangingLog is a disk whose writes can hang, or fail.
type hangingLog struct {
	raft.LogStore
	free chan struct{}
	hang atomic.Bool
	err  atomic.Pointer[error]
	once sync.Once
}

func (h *hangingLog) StoreLogs(logs []*raft.Log) error {
	if h.hang.Load() {
		<-h.free
	}
	if err := h.err.Load(); err != nil {
		return *err
	}
	return h.LogStore.StoreLogs(logs)
}

func (h *hangingLog) release() { h.once.Do(func() { close(h.free) }) }

// topicCommand is some command whose effect can be seen.
func featureCommand(name string) metadata.Command {
	return &metadata.SetFeature{Feature: metadata.Feature{Name: name, Level: 1}}
}

func (n *trioNode) propose(t *testing.T, cmd metadata.Command) (applied, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return n.c.propose(ctx, cmd)
}

func TestThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := startTrio(t)
		first := q.leader()
		done, err := first.propose(t, featureCommand("one"))
		if err != nil || done.results[0].Err() != nil {
			t.Fatal(err)
		}
		q.agree(done.index)
		for _, n := range q.nodes {
			if n != first {
				if err := n.c.Ready(); err != nil {
					t.Errorf("a follower that knows its leader is not ready: %v", err)
				}
				if _, err := n.propose(t, featureCommand("x")); !errors.Is(err, ErrNotLeader) {
					t.Errorf("a follower proposed: %v", err)
				}
				resp := n.c.metadataAfter("c", 0, 0)
				if resp.ControllerID != first.c.cfg.NodeID || len(resp.Entries) != 2 {
					t.Errorf("a follower feeds brokers too: %+v", resp)
				}
			}
		}
		q.isolate(first)
		second := q.leader(first)
		if second.c.reign.Load().term <= 1 {
			t.Error("the term did not rise")
		}
		if done, err = second.propose(t, featureCommand("two")); err != nil {
			t.Fatal(err)
		}
		q.agree(done.index, first)
		q.heal()
		q.agree(done.index)
		time.Sleep(time.Second)
		if first.c.reign.Load() != nil && second.c.reign.Load() != nil {
			t.Error("two reign")
		}
	})
}

// TestHungDisk: a leader whose disk hangs leaves office within the deadline,
// and another serves (hashicorp/raft#503: by itself it would stay for ever).
func TestHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := startTrio(t)
		old := q.leader()
		old.disk.hang.Store(true)
		begun := time.Now()
		if _, err := old.propose(t, featureCommand("hung")); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v, want unknown: the others may have it", err)
		}
		if err := <-old.failed; !errors.Is(err, ErrStoreFailed) {
			t.Errorf("failure %v", err)
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("in office for %v with a hung disk", took)
		}
		next := q.leader(old)
		done, err := next.propose(t, featureCommand("after"))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("out of service for %v", took)
		}
		q.agree(done.index, old)
		if err := old.c.Ready(); err == nil {
			t.Error("ready with a hung disk")
		}
		if err := <-old.ended; !errors.Is(err, ErrStoreFailed) {
			t.Errorf("Run ended with %v", err)
		}
		old.ended <- nil
	})
}

// TestFailedWrite: a failed write is final. The next one on the same file
// would seem to succeed.
func TestFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := startTrio(t)
		old := q.leader()
		broken := errors.New("EIO")
		old.disk.err.Store(&broken)
		if _, err := old.propose(t, featureCommand("lost")); err == nil {
			t.Error("acknowledged, though it was not stored")
		}
		old.disk.err.Store(nil)
		if err := <-old.failed; !errors.Is(err, ErrStoreFailed) || !errors.Is(err, broken) {
			t.Errorf("failure %v", err)
		}
		if err := <-old.ended; !errors.Is(err, broken) {
			t.Errorf("Run ended with %v", err)
		}
		old.ended <- nil
		next := q.leader(old)
		if _, err := next.propose(t, featureCommand("after")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUnknownOutcome: an entry whose leader lost its office in between is
// looked for where the log is committed, and the answer is the truth.
func TestUnknownOutcome(t *testing.T) {
	t.Run("committed by the next leader", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := startTrio(t)
			old := q.leader()
			old.trans.mute.Store(true) // the others store it; this node cannot know
			time.AfterFunc(2*time.Second, q.heal)
			done, err := old.propose(t, featureCommand("kept"))
			if err != nil || done.results[0].Err() != nil {
				t.Fatalf("%v", err)
			}
			if old.c.Image().Feature("kept") != 1 {
				t.Error("told as done, and is not")
			}
			q.agree(done.index)
		})
	})
	t.Run("overwritten by the next leader", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := startTrio(t)
			old := q.leader()
			q.isolate(old)
			go func() {
				next := q.leader(old)
				next.propose(t, featureCommand("other"))
				q.heal()
			}()
			if _, err := old.propose(t, featureCommand("gone")); !errors.Is(err, ErrNotLeader) {
				t.Errorf("%v, want surely not done", err)
			}
			q.agree(4)
			if old.c.Image().Feature("gone") != 0 || old.c.Image().Feature("other") != 1 {
				t.Error("told as not done, and it is")
			}
		})
	})
	t.Run("nobody knows in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := startTrio(t)
			old := q.leader()
			q.isolate(old)
			begun := time.Now()
			if _, err := old.propose(t, featureCommand("who knows")); !errors.Is(err, ErrUnknown) {
				t.Errorf("%v, want unknown", err)
			}
			if took := time.Since(begun); took > 11*time.Second {
				t.Errorf("it took %v to say so", took)
			}
		})
	})
}

// stuckQuorum is one whose goroutines hang with the disk.
type stuckQuorum struct {
	Quorum
	free chan struct{}
}

func (q *stuckQuorum) Run(context.Context) error {
	<-q.free
	return nil
}
func (q *stuckQuorum) Leading() (bool, uint64)  { return false, 0 }
func (q *stuckQuorum) Changed() <-chan struct{} { return nil }
func (q *stuckQuorum) Members() []wire.Voter    { return []wire.Voter{{NodeID: 1}} }

// TestFailureEndsRun: whoever waits for Run learns of a failure in time, though
// the disk keeps hanging.
func TestFailureEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(Config{NodeID: 1}, member{clusterID: "c", nodeID: 1, formed: true})
		q := &stuckQuorum{free: make(chan struct{})}
		c.quorum = q
		ended := make(chan error)
		go func() { ended <- c.Run(t.Context()) }()
		begun := time.Now()
		c.fail(ErrStoreFailed)
		if err := <-ended; !errors.Is(err, ErrStoreFailed) || time.Since(begun) > failedGrace {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		close(q.free)
	})
}

// TestUnreadableEntry: who cannot read an entry stops, rather than to hold
// another image than the rest.
func TestUnreadableEntry(t *testing.T) {
	failed := make(chan error, 1)
	m := newMachine(func(err error) { failed <- err })
	m.Apply(1, 1, metadata.EncodeEntry(metadata.Entry{Commands: []metadata.Command{&metadata.FormCluster{ClusterID: "c"}}}))
	m.Apply(2, 1, []byte{1, 0, 1, 0xe7, 7, 1, 0})
	if err := <-failed; !errors.Is(err, metadata.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	m.Apply(3, 1, metadata.EncodeEntry(metadata.Entry{}))
	if m.image.Load().Index() != 1 {
		t.Errorf("went on to %d", m.image.Load().Index())
	}
	if err := m.Snapshot()(nil); err == nil {
		t.Error("writes a snapshot of what it does not know")
	}
}
