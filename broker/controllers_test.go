package broker

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// fakeQuorum is several controllers of which one is active.
type fakeQuorum struct {
	addrs  []net.Addr
	active atomic.Int32
	epoch  atomic.Int32
	nodes  []*fakeMember
}

type fakeMember struct {
	q      *fakeQuorum
	id     int32
	img    atomic.Pointer[metadata.Image]
	silent atomic.Int32 // ms since it heard from the active one
	hangs  atomic.Bool
	beats  atomic.Int32
	writes atomic.Int32
}

func (m *fakeMember) Handle(_ context.Context, group []*wire.Request) {
	for _, r := range group {
		if !m.hangs.Load() {
			r.Reply(m.answer(r))
		}
	}
}

func (m *fakeMember) answer(r *wire.Request) wire.Response {
	active := m.q.active.Load() == m.id
	switch req := r.Body.(type) {
	case *wire.FetchMetadataRequest:
		img := m.img.Load()
		resp := &wire.FetchMetadataResponse{ControllerID: m.q.active.Load(), ControllerEpoch: m.q.epoch.Load(), CommittedIndex: img.Index(), LeaderMillis: m.silent.Load()}
		if img.Index() > req.Index {
			resp.Snapshot, resp.SnapshotIndex, resp.SnapshotTerm = snapshotOf(img), img.Index(), img.Term()
		} else {
			time.Sleep(5 * time.Millisecond)
		}
		return resp
	case *kmsg.DescribeClusterRequest:
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ClusterID, resp.ControllerID = "c", m.q.active.Load()
		for i, addr := range m.q.addrs {
			b := kmsg.NewDescribeClusterResponseBroker()
			b.NodeID, b.Host, b.Port = int32(i), "127.0.0.1", int32(addr.(*net.TCPAddr).Port)
			resp.Brokers = append(resp.Brokers, b)
		}
		return resp
	case *kmsg.BrokerRegistrationRequest:
		resp := kmsg.NewPtrBrokerRegistrationResponse()
		if resp.BrokerEpoch = 5; !active {
			resp.ErrorCode = kerr.NotController.Code
		}
		return resp
	case *kmsg.BrokerHeartbeatRequest:
		resp := kmsg.NewPtrBrokerHeartbeatResponse()
		if !active {
			resp.ErrorCode = kerr.NotController.Code
			return resp
		}
		m.beats.Add(1)
		resp.IsFenced = false
		return resp
	case *wire.SubmitCommandsRequest:
		if !active {
			return &wire.SubmitCommandsResponse{ErrorCode: kerr.NotController.Code}
		}
		m.writes.Add(1)
		return &wire.SubmitCommandsResponse{Index: m.img.Load().Index(), Results: make([]wire.CommandResult, len(req.Commands))}
	}
	return r.Body.ResponseKind()
}

// startQuorum starts n controllers, the first active, and a broker that follows them.
func startQuorum(t *testing.T, n int) (*fakeQuorum, *Follower) {
	t.Helper()
	q := &fakeQuorum{}
	q.epoch.Store(1)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var addrs []string
	for i := range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m := &fakeMember{q: q, id: int32(i)}
		m.img.Store(at(5))
		q.nodes, q.addrs, addrs = append(q.nodes, m), append(q.addrs, ln.Addr()), append(addrs, ln.Addr().String())
		wg.Go(func() {
			wire.NewServer(wire.ServerConfig{Role: wire.Controller, Handler: m, ShutdownGrace: time.Millisecond}).Serve(ctx, ln)
		})
	}
	// The configuration names the first alone: the others are told.
	f := NewFollower(FollowerConfig{NodeID: 1, ClusterID: "c", PreviousEpoch: -1, Controllers: func() []string { return addrs[:1] },
		HeartbeatInterval: 50 * time.Millisecond, RequestTimeout: 2 * time.Second})
	wg.Go(func() { f.follow(ctx, func(*metadata.Delta) {}) })
	wg.Go(func() { f.stayRegistered(ctx) })
	t.Cleanup(func() {
		cancel()
		f.close()
		wg.Wait()
	})
	within(t, "unfenced", func() bool { return !f.fenced.Load() })
	return q, f
}

// Writes and heartbeats go to the controller that is active, and after a change
// to the next one, though the configuration does not name it.
func TestActiveControllerChanges(t *testing.T) {
	q, f := startQuorum(t, 3)
	for term := range int32(4) {
		active := (term + 2) % 3
		q.active.Store(active)
		q.epoch.Add(1)
		before := q.nodes[active].beats.Load()
		if _, _, err := f.Submit(t.Context(), &metadata.ExpireReservations{}); err != nil {
			t.Fatal(err)
		}
		if q.nodes[active].writes.Load() == 0 {
			t.Errorf("a write went elsewhere than to %d", active)
		}
		within(t, "beating at the active one", func() bool { return q.nodes[active].beats.Load() > before })
	}
	if f.BrokerEpoch() != 5 {
		t.Errorf("epoch %d", f.BrokerEpoch())
	}
}

// An active controller that hangs is left for the next one.
func TestActiveControllerHangs(t *testing.T) {
	q, f := startQuorum(t, 3)
	if _, _, err := f.Submit(t.Context(), &metadata.ExpireReservations{}); err != nil {
		t.Fatal(err)
	}
	q.nodes[0].hangs.Store(true)
	q.active.Store(1)
	q.epoch.Add(1)
	within(t, "writing to the next one", func() bool {
		_, _, err := f.Submit(t.Context(), &metadata.ExpireReservations{})
		return err == nil && q.nodes[1].writes.Load() > 0
	})
	within(t, "beating there", func() bool { return q.nodes[1].beats.Load() > 0 })
}

// A source of metadata that may lag behind is left for one that does not.
func TestStaleSource(t *testing.T) {
	q, f := startQuorum(t, 2)
	q.nodes[0].silent.Store(int32(maxSourceLag.Milliseconds()) + 1)
	q.active.Store(1)
	q.nodes[1].img.Store(at(9))
	within(t, "following the other", func() bool { return f.Image().Index() == 9 })
	// Alone it is better than none.
	lone := &Follower{controllers: controllers{configured: func() []string { return []string{"a"} }}}
	if err := lone.fresh(&wire.FetchMetadataResponse{LeaderMillis: -1}); err != nil {
		t.Error(err)
	}
	if err := f.fresh(&wire.FetchMetadataResponse{LeaderMillis: -1}); !errors.Is(err, errStale) {
		t.Errorf("%v", err)
	}
}
