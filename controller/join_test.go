package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// voters is a quorum of several on real disks and loopback sockets.
type voters struct {
	t     *testing.T
	list  []Voter
	dirs  []string
	nodes []*node // nil: not running
	cut   []atomic.Bool
	base  Config
}

func newVoters(t *testing.T, n int) *voters {
	v := &voters{t: t, nodes: make([]*node, n), cut: make([]atomic.Bool, n)}
	for i := range n {
		ln := listener(t)
		v.list = append(v.list, Voter{ID: int32(i + 1), Address: ln.Addr().String()})
		v.dirs = append(v.dirs, t.TempDir())
		ln.Close()
	}
	return v
}

// start starts the i-th voter, on the address that it always has.
func (v *voters) start(i int) *node {
	v.t.Helper()
	cfg := v.base
	cfg.NodeID, cfg.Dir, cfg.Voters, cfg.Dial = int32(i+1), v.dirs[i], v.list, v.dial(i)
	if cfg.ElectionTimeout == 0 {
		cfg.ElectionTimeout = 500 * time.Millisecond // tests run beside each other
	}
	if os.Getenv("VARVE_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", i+1)
	}
	ln, err := net.Listen("tcp", v.list[i].Address)
	if err != nil {
		v.t.Fatal(err)
	}
	v.nodes[i] = startNodeOn(v.t, cfg, ln)
	return v.nodes[i]
}

func (v *voters) startAll() *voters {
	for i := range v.nodes {
		v.start(i)
	}
	return v
}

// stop stops the i-th voter.
func (v *voters) stop(i int) {
	v.nodes[i].stop()
	v.nodes[i] = nil
}

// wipe gives the i-th voter an empty disk.
func (v *voters) wipe(i int) { v.dirs[i] = v.t.TempDir() }

// dial is how the i-th voter reaches others: not at all while one of the two is cut off.
func (v *voters) dial(i int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		for j, other := range v.list {
			if other.Address == addr {
				return &cutConn{nc, &v.cut[i], &v.cut[j]}, nil
			}
		}
		return nc, nil
	}
}

// cutConn loses what is sent while one of its ends is cut off.
type cutConn struct {
	net.Conn
	a, b *atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cutConn) Write(p []byte) (int, error) {
	if c.a.Load() || c.b.Load() {
		return 0, errCut
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.a.Load() || c.b.Load() {
		return 0, errCut
	}
	return n, err
}

// leader waits until one of the running voters reigns, except those given.
func (v *voters) leader(except ...*node) *node {
	v.t.Helper()
	var leader *node
	eventually(v.t, func() error {
		var best uint64
		leader = nil
	nodes:
		for _, n := range v.nodes {
			if n == nil {
				continue
			}
			for _, x := range except {
				if x == n {
					continue nodes
				}
			}
			if r := n.c.reign.Load(); r != nil && r.term > best {
				leader, best = n, r.term
			}
		}
		if leader == nil {
			var why []string
			for _, n := range v.nodes {
				if n != nil {
					why = append(why, fmt.Sprint(n.c.Ready()))
				}
			}
			return fmt.Errorf("nobody leads: %s", strings.Join(why, " | "))
		}
		return nil
	})
	return leader
}

// agree waits until all running voters hold the leader's image.
func (v *voters) agree(except ...*node) {
	v.t.Helper()
	leader := v.leader(except...)
	eventually(v.t, func() error {
		want := leader.c.Image()
		for i, n := range v.nodes {
			if n == nil || len(except) > 0 && n == except[0] {
				continue
			}
			if img := n.c.Image(); img.Index() < want.Index() || img.Index() == want.Index() && img.Hash() != want.Hash() {
				return fmt.Errorf("node %d is at %d, the leader at %d", i+1, img.Index(), want.Index())
			}
			if err := n.c.Ready(); err != nil {
				return err
			}
		}
		return nil
	})
}

// mark makes some change of which one can see whether it is there.
func (v *voters) mark(n *node, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := n.c.propose(ctx, featureCommand(name))
	return err
}

// commit makes a change at whoever leads, and returns that node. On a busy
// machine leaders change; the change may be made twice.
func (v *voters) commit(name string, except ...*node) *node {
	v.t.Helper()
	var leader *node
	eventually(v.t, func() error {
		leader = v.leader(except...)
		return v.mark(leader, name)
	})
	return leader
}

// TestVotersForm: the voters of a list form one cluster, whoever starts first
// and however late the last one comes; nobody founds one without the last.
func TestVotersForm(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			v := newVoters(t, 3)
			v.start(order[0])
			v.start(order[1])
			time.Sleep(500 * time.Millisecond) // several rounds of asking
			for _, n := range v.nodes {
				if n == nil {
					continue
				}
				if err := n.c.Ready(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d (", order[2]+1)) {
					t.Errorf("before the last has come: %v", err)
				}
				if n.c.ClusterID() != "" {
					t.Error("of a cluster before there is one")
				}
				resp := ask[*kmsg.DescribeClusterResponse](t, n.client(), kmsg.NewPtrDescribeClusterRequest())
				if resp.ErrorCode == 0 || resp.ClusterID != "" {
					t.Errorf("answers as a cluster: %+v", resp)
				}
			}
			v.start(order[2])
			leader := v.commit("one")
			v.agree()
			cluster := leader.c.ClusterID()
			for _, n := range v.nodes {
				if n.c.ClusterID() != cluster || cluster == "" || len(n.c.quorum.Members()) != 3 {
					t.Errorf("cluster %q of %v, want %q", n.c.ClusterID(), n.c.quorum.Members(), cluster)
				}
			}
			for i := range v.nodes {
				v.stop(i)
			}
			v.startAll()
			v.agree()
			if n := v.leader(); n.c.ClusterID() != cluster || n.c.Image().Feature("one") != 1 {
				t.Error("another cluster after a restart")
			}
		})
	}
}

// TestFormAfterCrash: whatever the moment at which voters died while a cluster
// formed, their directories still come to one cluster.
func TestFormAfterCrash(t *testing.T) {
	// What a crash leaves is what was on disk at that moment: a copy of the directory.
	for name, damage := range map[string]func(t *testing.T, dirs []string){
		"identities written": func(t *testing.T, dirs []string) {
			for i, dir := range dirs {
				open(t, dir, int32(i+1))
			}
		},
		"decided, not begun": func(t *testing.T, dirs []string) { decide(t, dirs, false) },
		"log begun":          func(t *testing.T, dirs []string) { decide(t, dirs, true) },
		"log half begun": func(t *testing.T, dirs []string) {
			decide(t, dirs, false)
			log, _, err := openStores(dirs[0], raftLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(log.SetUint64([]byte("CurrentTerm"), 1), log.Close()); err != nil {
				t.Fatal(err)
			}
		},
		"an unfinished file": func(t *testing.T, dirs []string) {
			decide(t, dirs, false)
			if err := os.WriteFile(filepath.Join(dirs[0], memberFile+".tmp"), []byte("version=1\nclus"), 0o644); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoters(t, 3)
			damage(t, v.dirs)
			v.startAll()
			v.commit("one")
			v.agree()
		})
	}
}

// open gives a directory its identity and returns it.
func open(t *testing.T, dir string, id int32) member {
	t.Helper()
	m, err := openMember(dir, identity{nodeID: id})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// decide leaves the directories as they are when node 1 has decided on the
// founders, and begun the log or not.
func decide(t *testing.T, dirs []string, begun bool) {
	t.Helper()
	var founders []wire.Voter
	var first member
	for i, dir := range dirs {
		m := open(t, dir, int32(i+1))
		if i == 0 {
			first = m
		}
		founders = append(founders, wire.Voter{NodeID: m.nodeID, MemberID: m.memberID, Address: fmt.Sprintf("127.0.0.1:%d", i+1)})
	}
	first.clusterID, first.voters = "c", founders
	if err := first.write(dirs[0]); err != nil {
		t.Fatal(err)
	}
	if !begun {
		return
	}
	log, snapshots, err := openStores(dirs[0], raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	q := newRaftQuorum(serverID(1, first.memberID), defaultElectionTimeout, nil, raftStores{log: log, stable: log, snapshots: snapshots}, nil, raftLogger(slog.New(slog.DiscardHandler)))
	if err := errors.Join(q.found(founders), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestWipedVoter: a voter with an empty disk takes no part in the quorum that
// knows it with another one, says what to do, and alone founds nothing.
func TestWipedVoter(t *testing.T) {
	for _, wiped := range []int{0, 2} {
		t.Run(fmt.Sprintf("node %d", wiped+1), func(t *testing.T) {
			t.Parallel()
			v := newVoters(t, 3).startAll()
			v.commit("one")
			v.agree()
			for i := range v.nodes {
				v.stop(i)
			}
			v.wipe(wiped)
			n := v.start(wiped)
			refuses := func(want string) {
				t.Helper()
				eventually(t, func() error {
					if err := n.c.Ready(); !errors.Is(err, ErrNoQuorum) || !strings.Contains(err.Error(), want) {
						return err
					}
					return nil
				})
				resp := ask[*kmsg.DescribeClusterResponse](t, n.client(), kmsg.NewPtrDescribeClusterRequest())
				fed := ask[*wire.FetchMetadataResponse](t, n.client(), &wire.FetchMetadataRequest{})
				if resp.ErrorCode == 0 || resp.ClusterID != "" || fed.ErrorCode == 0 {
					t.Errorf("answers as a cluster: %+v, %+v", resp, fed)
				}
			}
			refuses(fmt.Sprintf("varve cluster controllers replace %d", wiped+1))
			time.Sleep(300 * time.Millisecond)
			if n.c.ClusterID() != "" {
				t.Error("alone, it is of a cluster")
			}
			v.start((wiped + 1) % 3)
			v.start((wiped + 2) % 3)
			v.leader()
			refuses("its disk was lost or replaced")
			refuses(fmt.Sprintf("varve cluster controllers replace %d", wiped+1))
			if n.c.reign.Load() != nil || n.c.Image().Index() != 0 {
				t.Error("it has part in the quorum")
			}
			// With one of the two others gone there is no majority: an empty disk has no vote.
			for i := range v.nodes {
				if i != wiped {
					v.stop(i)
					break
				}
			}
			time.Sleep(2 * time.Second)
			for i, other := range v.nodes {
				if other != nil && other.c.reign.Load() != nil {
					t.Errorf("node %d leads with the vote of an empty disk", i+1)
				}
			}
		})
	}
}

// TestLeaderDies: another one leads soon, and what was committed is there.
func TestLeaderDies(t *testing.T) {
	v := newVoters(t, 3).startAll()
	var old *node
	for i := range 20 {
		old = v.commit(fmt.Sprintf("f%d", i))
	}
	for i, n := range v.nodes {
		if n == old {
			v.cut[i].Store(true) // it says goodbye to nobody
			v.stop(i)
		}
	}
	next := v.commit("after")
	for i := range 20 {
		if next.c.Image().Feature(fmt.Sprintf("f%d", i)) != 1 {
			t.Errorf("f%d is lost", i)
		}
	}
}

// TestPartitionedLeader: a leader that is cut off leaves office; what it was
// asked meanwhile is never told as done, and never is where another leads.
func TestPartitionedLeader(t *testing.T) {
	v := newVoters(t, 3).startAll()
	old := v.commit("before")
	cut := &v.cut[old.c.cfg.NodeID-1]
	cut.Store(true)
	var mu sync.Mutex
	told := map[string]error{}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			name := fmt.Sprintf("cut%d", i)
			err := v.mark(old, name)
			mu.Lock()
			defer mu.Unlock()
			told[name] = err
		})
	}
	for i := range 15 { // at least as many as were asked of the other
		v.commit(fmt.Sprintf("after%d", i), old)
	}
	eventually(t, func() error {
		if old.c.reign.Load() != nil {
			return errors.New("still in office")
		}
		return nil
	})
	cut.Store(false)
	wg.Wait()
	v.agree()
	for name, err := range told {
		if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		for _, n := range v.nodes {
			if n.c.Image().Feature(name) != 0 {
				t.Errorf("%s was applied", name)
			}
		}
	}
	if img := old.c.Image(); img.Feature("before") != 1 || img.Feature("after14") != 1 {
		t.Error("the healed one has not what was committed")
	}
}

// TestJudge: what a node without a cluster makes of the answers of others.
func TestJudge(t *testing.T) {
	list := []wire.Voter{{NodeID: 1, Address: "a"}, {NodeID: 2, Address: "b"}, {NodeID: 3, Address: "c"}}
	fresh := func(id int32) wire.Introduction {
		return wire.Introduction{NodeID: id, MemberID: fmt.Sprintf("m%d", id), Voters: list}
	}
	wanting := func(id int32, cluster string) wire.Introduction {
		in := fresh(id)
		in.ClusterID = cluster
		return in
	}
	in := func(id int32, state wire.VoterState, cluster string, voters ...wire.Voter) wire.Introduction {
		return wire.Introduction{NodeID: id, MemberID: fmt.Sprintf("m%d", id), State: state, ClusterID: cluster, Voters: voters}
	}
	other := fresh(3)
	other.Voters = list[1:]
	for name, tt := range map[string]struct {
		self    wire.Introduction
		answers []wire.Introduction // of 2 and 3, or 1 and 3
		cluster string              // "": none; "*": any
		founds  bool
		says    string
	}{
		"all fresh, lowest":        {fresh(1), []wire.Introduction{fresh(2), fresh(3)}, "*", true, ""},
		"all fresh, not lowest":    {fresh(2), []wire.Introduction{fresh(1), fresh(3)}, "", false, "waiting for node 1"},
		"one missing":              {fresh(1), []wire.Introduction{fresh(2)}, "", false, "3 (no answer)"},
		"another list":             {fresh(1), []wire.Introduction{fresh(2), other}, "", false, "node 3 has another controller.quorum.voters"},
		"one wants an id":          {fresh(1), []wire.Introduction{fresh(2), wanting(3, "c")}, "c", true, ""},
		"two want different ids":   {fresh(1), []wire.Introduction{wanting(2, "b"), wanting(3, "c")}, "", false, "on one node and"},
		"this wants another":       {wanting(1, "a"), []wire.Introduction{fresh(2), wanting(3, "c")}, "", false, "this one is to be of a"},
		"a member":                 {fresh(1), []wire.Introduction{fresh(2), in(3, wire.VoterMember, "c", list...)}, "c", false, ""},
		"a member, one missing":    {fresh(1), []wire.Introduction{in(2, wire.VoterMember, "c", list...)}, "c", false, ""},
		"a member of another":      {wanting(1, "a"), []wire.Introduction{fresh(2), in(3, wire.VoterMember, "c", list...)}, "", false, "node 3 is of cluster c"},
		"members of two clusters":  {fresh(1), []wire.Introduction{in(2, wire.VoterMember, "b"), in(3, wire.VoterMember, "c")}, "", false, "2 different clusters"},
		"one waits":                {fresh(1), []wire.Introduction{fresh(2), in(3, wire.VoterWaiting, "c")}, "", false, "node 3 belongs to cluster c"},
		"a member and one waits":   {fresh(1), []wire.Introduction{in(2, wire.VoterMember, "c"), in(3, wire.VoterWaiting, "c")}, "c", false, ""},
		"not in its own list":      {wire.Introduction{NodeID: 4, MemberID: "m4", Voters: list}, []wire.Introduction{fresh(1), fresh(2), fresh(3)}, "", false, "does not list node 4"},
		"all but one, the founder": {fresh(3), []wire.Introduction{fresh(2)}, "", false, "1 (no answer)"},
	} {
		answers := map[int32]meeting{}
		for _, v := range list {
			if v.NodeID != tt.self.NodeID {
				answers[v.NodeID] = meeting{err: errors.New("no answer")}
			}
		}
		for _, a := range tt.answers {
			answers[a.NodeID] = meeting{from: a}
		}
		got := judge(tt.self, answers)
		if (got.clusterID != "") != (tt.cluster != "") || tt.cluster != "*" && got.clusterID != tt.cluster || (len(got.voters) > 0) != tt.founds || !strings.Contains(got.why, tt.says) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, v := range got.voters {
			if v.MemberID != fmt.Sprintf("m%d", v.NodeID) || v.Address == "" {
				t.Errorf("%s: founder %+v", name, v)
			}
		}
	}
}

// TestStreamsAreForOne: a connection that is meant for another member, or
// another cluster, is not taken, nor one that comes before anybody listens.
func TestStreamsAreForOne(t *testing.T) {
	offered := func(s *streams, name []byte) bool {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go theirs.Write(name)
		took := make(chan bool, 1)
		go func() { took <- s.offer(ours) }()
		select {
		case nc := <-s.offers:
			nc.Close()
			return <-took
		case ok := <-took:
			ours.Close()
			return ok
		}
	}
	s := newStreams("a:1", nil, nil)
	mine := streamName("cluster", serverID(1, "new"))
	if offered(s, mine) {
		t.Error("taken before anybody listens")
	}
	s.listen("cluster", serverID(1, "new"))
	if !offered(s, mine) {
		t.Error("ours is refused")
	}
	for _, name := range [][]byte{streamName("cluster", serverID(1, "old")), streamName("other", serverID(1, "new")), streamName("cluster", serverID(2, "new"))} {
		if offered(s, name) {
			t.Errorf("took one for %q", name)
		}
	}
}
