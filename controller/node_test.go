package controller

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// node is a controller with its listener, on a real disk and a real socket.
type node struct {
	t    *testing.T
	c    *Controller
	addr string
	stop func() error // as often as one likes
}

func startNode(t *testing.T, cfg Config) *node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startNodeOn(t, cfg, ln)
}

func startNodeOn(t *testing.T, cfg Config, ln net.Listener) *node {
	t.Helper()
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if cfg.NodeID == 0 {
		cfg.NodeID = 1
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran, served := make(chan error, 1), make(chan error, 1)
	srv := wire.NewServer(wire.ServerConfig{Listener: "CONTROLLER", Role: wire.Controller, Handler: c.Handler(), Preface: c.Preface,
		Identity: c.Identity, Features: c.Features, ShutdownGrace: time.Second})
	go func() { ran <- c.Run(ctx) }()
	go func() { served <- srv.Serve(ctx, ln) }()
	n := &node{t: t, c: c, addr: ln.Addr().String()}
	var result error
	stopped := false
	n.stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			<-served
			result = <-ran
		}
		return result
	}
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) ready() *node {
	n.t.Helper()
	eventually(n.t, func() error {
		if n.c.reign.Load() == nil {
			return errors.New("does not lead")
		}
		return n.c.Ready()
	})
	return n
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not in time: %v", err)
}

// client returns a connection of its own.
func (n *node) client() *wire.Client {
	c := wire.NewClient(wire.ClientConfig{Addrs: func() []string { return []string{n.addr} }})
	n.t.Cleanup(func() { c.Close() })
	return c
}

func ask[R kmsg.Response](t *testing.T, c *wire.Client, req kmsg.Request) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp.(R)
}

// fakeBroker is the wire's side of a broker.
type fakeBroker struct {
	n     *node
	conn  *wire.Client
	id    int32
	epoch int64
	dir   wire.UUID
	addr  *net.TCPAddr
}

func (n *node) broker(id int32, dir wire.UUID, addr net.Addr) *fakeBroker {
	n.t.Helper()
	b := &fakeBroker{n: n, conn: n.client(), id: id, dir: dir, addr: addr.(*net.TCPAddr)}
	resp := b.register(wire.NewUUID())
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		n.t.Fatal(err)
	}
	b.epoch = resp.BrokerEpoch
	if hb := b.heartbeat(b.epoch); hb.ErrorCode != 0 || hb.IsFenced {
		n.t.Fatalf("%+v", hb)
	}
	return b
}

func (b *fakeBroker) register(incarnation wire.UUID) *kmsg.BrokerRegistrationResponse {
	b.n.t.Helper()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID, req.LogDirs = b.id, b.n.c.ClusterID(), incarnation, [][16]byte{b.dir}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", b.addr.IP.String(), uint16(b.addr.Port)
	req.Listeners = append(req.Listeners, l)
	return ask[*kmsg.BrokerRegistrationResponse](b.n.t, b.conn, req)
}

func (b *fakeBroker) heartbeat(applied int64) *kmsg.BrokerHeartbeatResponse {
	b.n.t.Helper()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = b.id, b.epoch, applied
	return ask[*kmsg.BrokerHeartbeatResponse](b.n.t, b.conn, req)
}

func (b *fakeBroker) submit(cmds ...metadata.Command) *wire.SubmitCommandsResponse {
	b.n.t.Helper()
	req := &wire.SubmitCommandsRequest{BrokerID: b.id, BrokerEpoch: b.epoch, ClusterID: b.n.c.ClusterID(), TimeoutMillis: 5000}
	for _, cmd := range cmds {
		req.Commands = append(req.Commands, metadata.EncodeCommand(cmd))
	}
	return ask[*wire.SubmitCommandsResponse](b.n.t, b.conn, req)
}

func (n *node) createTopic(conn *wire.Client, name string, partitions int32) kmsg.CreateTopicsResponseTopic {
	n.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	req.Topics, req.TimeoutMillis = append(req.Topics, t), 5000
	return ask[*kmsg.CreateTopicsResponse](n.t, conn, req).Topics[0]
}

// listener is an address that accepts, until it is closed.
func listener(t *testing.T) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}
