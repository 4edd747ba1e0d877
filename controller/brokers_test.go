package controller

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

func TestRegistrationAndHeartbeat(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir()}).ready()
	ln := listener(t)
	b := &fakeBroker{n: n, conn: n.client(), id: 5, dir: wire.NewUUID(), addr: ln.Addr().(*net.TCPAddr)}
	if hb := b.heartbeat(0); hb.ErrorCode != kerr.BrokerIDNotRegistered.Code {
		t.Errorf("not registered: %+v", hb)
	}
	incarnation := wire.NewUUID()
	first := b.register(incarnation)
	b.epoch = first.BrokerEpoch
	if first.ErrorCode != 0 || first.BrokerEpoch != int64(n.c.Image().Index()) {
		t.Fatalf("%+v at %d", first, n.c.Image().Index())
	}
	if hb := b.heartbeat(b.epoch - 1); hb.ErrorCode != 0 || !hb.IsFenced || hb.IsCaughtUp {
		t.Errorf("has not applied its own registration: %+v", hb)
	}
	if hb := b.heartbeat(b.epoch); hb.ErrorCode != 0 || hb.IsFenced || !hb.IsCaughtUp {
		t.Errorf("caught up: %+v", hb)
	}
	b.epoch--
	if hb := b.heartbeat(b.epoch); hb.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("stale epoch: %+v", hb)
	}
	b.epoch++
	if again := b.register(wire.NewUUID()); again.ErrorCode != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("while the first one lives: %+v", again)
	}

	if same := b.register(incarnation); same.ErrorCode != 0 || same.BrokerEpoch != b.epoch || n.c.Image().Broker(5).Fenced {
		t.Errorf("the same one again: %+v", same)
	}

	topic := n.createTopic(b.conn, "t", 1)
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset, req.WantShutdown = b.id, b.epoch, int64(n.c.Image().Index()), true
	if hb := ask[*kmsg.BrokerHeartbeatResponse](t, b.conn, req); hb.ErrorCode != 0 || !hb.ShouldShutdown {
		t.Errorf("shutdown: %+v", hb)
	}
	if !n.c.Image().Broker(5).InControlledShutdown || n.c.Image().Partition(topic.TopicID, 0).Leader != 5 {
		t.Error("in a controlled shutdown, with nobody to take over")
	}
	req.WantShutdown, req.WantFence = false, true
	if hb := ask[*kmsg.BrokerHeartbeatResponse](t, b.conn, req); hb.ErrorCode != 0 || !hb.IsFenced {
		t.Errorf("wants to be fenced: %+v", hb)
	}
	if n.c.Image().Partition(topic.TopicID, 0).Leader != metadata.NoLeader {
		t.Error("fenced, and leads")
	}
	describe := kmsg.NewPtrDescribeClusterRequest()
	if resp := ask[*kmsg.DescribeClusterResponse](t, b.conn, describe); len(resp.Brokers) != 0 {
		t.Errorf("%+v", resp.Brokers)
	}
	describe.IncludeFencedBrokers = true
	if resp := ask[*kmsg.DescribeClusterResponse](t, b.conn, describe); len(resp.Brokers) != 1 || !resp.Brokers[0].IsFenced {
		t.Errorf("%+v", resp.Brokers)
	}
}

// TestDeadProcess: whose connection ends and whose port refuses is fenced at
// once, not after its session, and another life takes its place at once.
func TestDeadProcess(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir(), SessionTimeout: time.Hour}).ready()
	ln := listener(t)
	b := n.broker(2, wire.NewUUID(), ln.Addr())
	n.createTopic(b.conn, "t", 1)

	b.conn.Close() // but its port still accepts: it lives, until its session says otherwise
	time.Sleep(100 * time.Millisecond)
	if n.c.Image().Broker(2).Fenced {
		t.Fatal("fenced, although its port accepts")
	}
	b.conn = n.client()
	b.heartbeat(b.epoch)
	if n.c.sessions.gone(2, b.epoch) {
		t.Fatal("came back, and counts as gone")
	}

	ln.Close()
	b.conn.Close()
	eventually(t, func() error {
		if !n.c.Image().Broker(2).Fenced {
			return errors.New("not fenced")
		}
		return nil
	})
}

// TestDiedWithTheController: a broker that is not there when a controller takes
// office is fenced at once.
func TestDiedWithTheController(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, Config{Dir: dir, SessionTimeout: time.Hour}).ready()
	dead, alive := listener(t), listener(t)
	n.broker(2, wire.NewUUID(), dead.Addr())
	n.broker(3, wire.NewUUID(), alive.Addr())
	n.stop()
	dead.Close()
	n = startNode(t, Config{Dir: dir, SessionTimeout: time.Hour}).ready()
	eventually(t, func() error {
		if !n.c.Image().Broker(2).Fenced {
			return errors.New("not fenced")
		}
		return nil
	})
	if n.c.Image().Broker(3).Fenced {
		t.Error("fenced, although its port accepts")
	}
}

// TestReplacedProcess: a new life with the address of one whose connection
// ended need not wait for a session.
func TestReplacedProcess(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir(), SessionTimeout: time.Hour}).ready()
	ln := listener(t)
	b := n.broker(2, wire.NewUUID(), ln.Addr())
	b.conn.Close()
	eventually(t, func() error {
		if !n.c.sessions.gone(2, b.epoch) {
			return errors.New("not gone")
		}
		return nil
	})
	b.conn = n.client()
	other := *b
	other.addr = listener(t).Addr().(*net.TCPAddr)
	if resp := other.register(wire.NewUUID()); resp.ErrorCode != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("from another address: %+v", resp)
	}
	if resp := b.register(wire.NewUUID()); resp.ErrorCode != 0 {
		t.Errorf("from the same address: %+v", resp)
	}
}

func TestSessionExpires(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir(), SessionTimeout: 300 * time.Millisecond}).ready()
	b := n.broker(2, wire.NewUUID(), listener(t).Addr())
	for range 5 {
		time.Sleep(100 * time.Millisecond)
		b.heartbeat(int64(n.c.Image().Index()))
	}
	if n.c.Image().Broker(2).Fenced {
		t.Fatal("fenced in spite of heartbeats")
	}
	eventually(t, func() error {
		if !n.c.Image().Broker(2).Fenced {
			return errors.New("not fenced")
		}
		return nil
	})
	if hb := b.heartbeat(int64(n.c.Image().Index())); hb.IsFenced {
		t.Errorf("back in service: %+v", hb)
	}
}

// TestFarBehind: a broker that answers but does not apply is out of service.
func TestFarBehind(t *testing.T) {
	s := newSessions(time.Second)
	b := &metadata.Broker{ID: 1, Epoch: 3}
	now := time.Unix(1000, 0)
	for i, tt := range []struct {
		after          time.Duration
		applied, index uint64
		behind         bool
	}{
		{0, 3, 10, false},
		{900 * time.Millisecond, 3, 20, false},
		{900 * time.Millisecond, 3, 20, true},
		{10 * time.Millisecond, 10, 30, false}, // what was committed when it was last up to date
		{900 * time.Millisecond, 29, 30, false},
		{900 * time.Millisecond, 30, 30, false},
		{900 * time.Millisecond, 30, 30, false},
	} {
		now = now.Add(tt.after)
		if _, behind := s.heard(b, 1, now, tt.applied, tt.index); behind != tt.behind {
			t.Errorf("%d: behind %v", i, behind)
		}
	}
}

// TestReservationsExpire: by the controller's time, without anybody asking.
func TestReservationsExpire(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir()}).ready()
	b := n.broker(2, wire.NewUUID(), listener(t).Addr())
	topic := n.createTopic(b.conn, "t", 1)
	object := wire.NewUUID()
	resp := b.submit(&metadata.ReserveObject{BrokerID: 2, BrokerEpoch: b.epoch, TopicID: topic.TopicID, Object: object, LifetimeMs: 50})
	if resp.ErrorCode != 0 || resp.Results[0].ErrorCode != 0 || n.c.Image().Reservation(object) == nil {
		t.Fatalf("%+v", resp)
	}
	eventually(t, func() error {
		if n.c.Image().Reservation(object) != nil {
			return errors.New("still reserved")
		}
		return nil
	})
}

func TestSubmitCommands(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir()}).ready()
	b := n.broker(2, wire.NewUUID(), listener(t).Addr())
	topic := n.createTopic(b.conn, "t", 2)
	object := wire.NewUUID()
	reserve := &metadata.ReserveObject{BrokerID: 2, BrokerEpoch: b.epoch, TopicID: topic.TopicID, Object: object, LifetimeMs: 60_000}
	commit := &metadata.CommitSegment{BrokerID: 2, BrokerEpoch: b.epoch, Segment: metadata.Segment{TopicID: topic.TopicID, Base: 0, End: 10, Object: object, Size: 5}}
	gap := &metadata.AdvanceLogStart{BrokerID: 2, BrokerEpoch: b.epoch - 1, TopicID: topic.TopicID, LogStart: 5}

	resp := b.submit(reserve, commit, gap) // one entry; each has its own fate
	if resp.ErrorCode != 0 || len(resp.Results) != 3 || resp.Index != n.c.Image().Index() || resp.ControllerEpoch < 1 {
		t.Fatalf("%+v", resp)
	}
	for i, want := range []*kerr.Error{nil, nil, kerr.StaleBrokerEpoch} {
		if got := kerr.TypedErrorForCode(resp.Results[i].ErrorCode); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if resp.Results[2].ErrorMessage == nil {
		t.Error("no reason")
	}
	if s, ok := n.c.Image().SegmentAt(topic.TopicID, 0, 9); !ok || s.Object != object {
		t.Errorf("%+v", s)
	}
	for name, tt := range map[string]struct {
		req  wire.SubmitCommandsRequest
		want *kerr.Error
	}{
		"none":            {wire.SubmitCommandsRequest{}, kerr.InvalidRequest},
		"another cluster": {wire.SubmitCommandsRequest{ClusterID: "x", Commands: [][]byte{metadata.EncodeCommand(gap)}}, kerr.InconsistentClusterID},
		"damaged":         {wire.SubmitCommandsRequest{Commands: [][]byte{{1, 2, 3}}}, kerr.InvalidRequest},
		"cut":             {wire.SubmitCommandsRequest{Commands: [][]byte{metadata.EncodeCommand(gap)[:9]}}, kerr.InvalidRequest},
		"of the future":   {wire.SubmitCommandsRequest{Commands: [][]byte{{0xe7, 7, 1, 0}}}, kerr.UnsupportedVersion},
		"not theirs":      {wire.SubmitCommandsRequest{Commands: [][]byte{metadata.EncodeCommand(&metadata.FenceBroker{ID: 2})}}, kerr.ClusterAuthorizationFailed},
		"too many":        {wire.SubmitCommandsRequest{Commands: make([][]byte, maxCommands+1)}, kerr.InvalidRequest},
	} {
		resp := ask[*wire.SubmitCommandsResponse](t, b.conn, &tt.req)
		if got := kerr.TypedErrorForCode(resp.ErrorCode); got != tt.want || len(resp.Results) != 0 {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestAllocateProducerIDs(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir()}).ready()
	b := n.broker(2, wire.NewUUID(), listener(t).Addr())
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = 2, b.epoch
	for want := range int64(3) {
		resp := ask[*kmsg.AllocateProducerIDsResponse](t, b.conn, req)
		if resp.ErrorCode != 0 || resp.ProducerIDStart != want*producerIDBlock || resp.ProducerIDLen != producerIDBlock {
			t.Errorf("%+v", resp)
		}
	}
	req.BrokerEpoch++
	if resp := ask[*kmsg.AllocateProducerIDsResponse](t, b.conn, req); resp.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("%+v", resp)
	}
}

// TestOrder: what one connection submits without waiting is applied in that order.
func TestOrder(t *testing.T) {
	n := startNode(t, Config{Dir: t.TempDir()}).ready()
	b := n.broker(2, wire.NewUUID(), listener(t).Addr())
	topic := n.createTopic(b.conn, "t", 1)
	const count = 100
	indexes := make(chan string, count)
	for i := range count {
		go func() {
			resp := b.submit(&metadata.AdvanceLogStart{BrokerID: 2, BrokerEpoch: b.epoch, TopicID: topic.TopicID, LogStart: int64(i)})
			indexes <- fmt.Sprint(resp.ErrorCode, resp.Results[0].ErrorCode)
		}()
	}
	for range count {
		if got := <-indexes; got != "0 0" {
			t.Fatal(got)
		}
	}
	if p := n.c.Image().Partition(topic.TopicID, 0); p.LogStart != count-1 {
		t.Errorf("log start %d", p.LogStart)
	}
}
