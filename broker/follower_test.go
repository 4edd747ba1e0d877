package broker

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// fakeController answers as a test says.
type fakeController struct {
	mu       sync.Mutex
	img      *metadata.Image
	epoch    int64 // what registrations get; -1: they are refused
	gap      bool  // answer an entry that does not follow
	beats    int
	register int
	silent   atomic.Bool // heartbeats get no answer
}

func (c *fakeController) Handle(_ context.Context, group []*wire.Request) {
	for _, r := range group {
		c.mu.Lock()
		resp := c.answer(r)
		c.mu.Unlock()
		if resp != nil {
			r.Reply(resp)
		}
	}
}

func (c *fakeController) answer(r *wire.Request) wire.Response {
	switch req := r.Body.(type) {
	case *wire.FetchMetadataRequest:
		resp := &wire.FetchMetadataResponse{ControllerID: 1, ControllerEpoch: 1, CommittedIndex: c.img.Index()}
		switch {
		case c.gap && req.Index > 0:
			resp.Entries = []wire.MetadataEntry{{PrevIndex: req.Index + 5, Index: req.Index + 6, Term: 1}}
		case req.Index < c.img.Index():
			resp.Snapshot, resp.SnapshotIndex, resp.SnapshotTerm = snapshotOf(c.img), c.img.Index(), c.img.Term()
		default:
			time.Sleep(time.Millisecond)
		}
		return resp
	case *kmsg.BrokerRegistrationRequest:
		c.register++
		resp := kmsg.NewPtrBrokerRegistrationResponse()
		resp.BrokerEpoch = c.epoch
		if c.epoch < 0 {
			resp.ErrorCode = 41
		}
		return resp
	case *kmsg.BrokerHeartbeatRequest:
		c.beats++
		if c.silent.Load() {
			return nil
		}
		resp := kmsg.NewPtrBrokerHeartbeatResponse()
		resp.IsFenced = req.CurrentMetadataOffset < c.epoch
		return resp
	}
	return r.Body.ResponseKind()
}

func (c *fakeController) set(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

func snapshotOf(img *metadata.Image) []byte {
	var b bytes.Buffer
	if err := metadata.EncodeSnapshot(&b, img); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// at is an image at an index.
func at(index uint64) *metadata.Image {
	return metadata.New().Replay([]metadata.Record{&metadata.Cluster{ID: "c"}}, index, 1)
}

func startFollower(t *testing.T, c *fakeController, apply func(*metadata.Delta)) *Follower {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := NewFollower(FollowerConfig{NodeID: 1, ClusterID: "c", PreviousEpoch: -1, Controllers: func() []string { return []string{ln.Addr().String()} },
		HeartbeatInterval: 50 * time.Millisecond, RequestTimeout: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		wire.NewServer(wire.ServerConfig{Role: wire.Controller, Handler: c, ShutdownGrace: time.Millisecond}).Serve(ctx, ln)
	})
	wg.Go(func() { f.follow(ctx, apply) })
	wg.Go(func() { f.stayRegistered(ctx) })
	t.Cleanup(func() {
		cancel()
		f.close()
		wg.Wait()
	})
	return f
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("not %s in time", what)
		}
	}
}

// Nothing is applied before an image knows of this life's registration, and
// no image ever goes back.
func TestFirstImageKnowsRegistration(t *testing.T) {
	c := &fakeController{img: at(5), epoch: -1}
	var applied atomic.Uint64
	f := startFollower(t, c, func(d *metadata.Delta) {
		if old := applied.Swap(d.New.Index()); old > d.New.Index() {
			t.Errorf("image %d after %d", d.New.Index(), old)
		}
	})
	time.Sleep(100 * time.Millisecond)
	c.set(func() { c.epoch = 20 })
	within(t, "registered", func() bool { return f.BrokerEpoch() == 20 })
	c.set(func() { c.img = at(19) })
	time.Sleep(100 * time.Millisecond)
	if n := applied.Load(); n != 0 || f.Image().Index() != 0 {
		t.Fatalf("image %d is applied before the registration at 20", n)
	}
	c.set(func() { c.img = at(21) })
	within(t, "applied", func() bool { return applied.Load() == 21 && f.Image().Index() == 21 })
	within(t, "unfenced", func() bool { return !f.fenced.Load() })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.WaitImage(ctx, 22); err == nil {
		t.Error("an image of the future")
	}
	c.set(func() { c.img = at(22) })
	if img, err := f.WaitImage(t.Context(), 22); err != nil || img.Index() != 22 {
		t.Error(err)
	}
}

// Entries that do not follow what is applied change nothing.
func TestMetadataGap(t *testing.T) {
	c := &fakeController{img: at(5), epoch: 5}
	f := startFollower(t, c, func(*metadata.Delta) {})
	within(t, "applied", func() bool { return f.Image().Index() == 5 })
	c.set(func() { c.gap = true })
	time.Sleep(100 * time.Millisecond)
	if f.Image().Index() != 5 {
		t.Errorf("image %d", f.Image().Index())
	}
	c.set(func() { c.gap, c.img = false, at(6) })
	within(t, "going on", func() bool { return f.Image().Index() == 6 })
}

// A heartbeat without an answer is sent again; the registration stands.
func TestSilentHeartbeats(t *testing.T) {
	c := &fakeController{img: at(5), epoch: 5}
	f := startFollower(t, c, func(*metadata.Delta) {})
	within(t, "unfenced", func() bool { return !f.fenced.Load() })
	c.silent.Store(true)
	time.Sleep(300 * time.Millisecond)
	c.silent.Store(false)
	var before int
	c.set(func() { before = c.beats })
	within(t, "beating again", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.beats > before+2 })
	c.set(func() {
		if c.register != 1 {
			t.Errorf("registered %d times", c.register)
		}
	})
	if f.BrokerEpoch() != 5 {
		t.Errorf("epoch %d", f.BrokerEpoch())
	}
}
