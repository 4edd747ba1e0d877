package protocol

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/broker"
	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// node is a broker and its controller in this process, without a store.
type node struct {
	t          testing.TB
	addr       string // of the client listener
	controller string // of the controller's
	clusterID  string
	broker     *broker.Broker
	follower   *broker.Follower
	replicas   *replica.Manager
	registry   *prometheus.Registry
}

// disk is what a node leaves behind.
type disk struct {
	data       vfs.FS
	controller string // a directory of the operating system
}

func newDisk(t testing.TB) disk { return disk{vfs.NewMem(), t.TempDir()} }

// startNode runs a node until the test ends. Properties are those of server.properties.
func startNode(t testing.TB, properties ...string) *node {
	t.Helper()
	return startBehind(t, direct, properties...)
}

// direct is how a broker usually reaches its controller.
func direct(addr string) string { return addr }

// startBehind runs a node whose broker reaches the controller at another address than the controller's own.
func startBehind(t testing.TB, via func(addr string) string, properties ...string) *node {
	t.Helper()
	return startOn(t, newDisk(t), via, properties...)
}

func testLogger() *slog.Logger {
	if os.Getenv("VARVE_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// startOn runs a node on a disk that another one may have used.
func startOn(t testing.TB, d disk, via func(addr string) string, properties ...string) *node {
	t.Helper()
	static := map[string]string{"node.id": "1", "process.roles": "broker,controller", "log.dirs": "data",
		"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}
	for i := 0; i < len(properties); i += 2 {
		static[properties[i]] = properties[i+1]
	}
	settings, err := config.ForBroker(static)
	must(t, err)
	logger := testLogger()
	controllers := listen(t)
	reg := prometheus.NewRegistry()
	ctl, err := controller.New(controller.Config{NodeID: 1, Dir: d.controller, Address: controllers.Addr().String(), Properties: static, Logger: logger, Registerer: reg})
	must(t, err)
	// Started from the controller outwards, stopped the other way round.
	run(t, "controller", ctl.Run)
	run(t, "controller listener", serve(controllers, wire.ServerConfig{Listener: "CONTROLLER", Role: wire.Controller, Handler: ctl.Handler(), Preface: ctl.Preface,
		Identity: ctl.Identity, Features: ctl.Features, Logger: logger, Registerer: reg}))
	return startBroker(t, 1, d.data, via, &node{controller: controllers.Addr().String(), clusterID: ctl.ClusterID(), registry: reg}, settings, static, logger)
}

// startBroker runs a broker, with a controller that is there.
func startBroker(t testing.TB, id int32, fs vfs.FS, via func(addr string) string, at *node, settings config.Broker, static map[string]string, logger *slog.Logger) *node {
	t.Helper()
	clients, reg := listen(t), at.registry
	n := &node{t: t, addr: clients.Addr().String(), controller: at.controller, clusterID: at.clusterID, registry: reg}
	dir, err := log.OpenDir(log.DirOptions{FS: fs, Path: "data", ClusterID: n.clusterID, NodeID: id, Format: true, Reserve: 1, Logger: logger})
	must(t, err)
	reach := via(n.controller)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == n.controller {
			addr = reach // also where the controller itself tells its address
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	host, port, err := net.SplitHostPort(n.addr)
	must(t, err)
	p, err := strconv.Atoi(port)
	must(t, err)
	listeners := []broker.Listener{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Host: host, Port: int32(p)}}
	n.follower = broker.NewFollower(broker.FollowerConfig{NodeID: id, ClusterID: n.clusterID, Rack: settings.Rack, Listeners: listeners, Dirs: []wire.UUID{dir.ID()}, PreviousEpoch: -1,
		Controllers: func() []string { return []string{n.controller} }, Dial: dial, RequestTimeout: settings.Session.RequestTimeout, Logger: logger, Registerer: reg})
	peers := &broker.Peers{NodeID: id, Image: func() *metadata.Image { return n.replicas.Image() }, Logger: logger}
	n.replicas, err = replica.NewManager(replica.Config{NodeID: id, BrokerEpoch: n.follower.BrokerEpoch, Dirs: []*log.Dir{dir}, FS: fs, Static: static,
		Committer: n.follower, WaitImage: n.follower.WaitImage, Peer: peers.Client, Replication: settings.Replication, Logger: logger, Registerer: reg})
	must(t, err)
	n.broker, err = broker.New(broker.Config{NodeID: id, ClusterID: n.clusterID, Rack: settings.Rack, Follower: n.follower, Replicas: n.replicas, Listeners: listeners,
		Settings: settings, Static: static, Logger: logger, Registerer: reg})
	must(t, err)
	must(t, n.replicas.Open(context.Background()))
	t.Cleanup(func() {
		if err := dir.Close(true, n.follower.BrokerEpoch()); err != nil {
			t.Errorf("close the log directory: %v", err)
		}
	})
	run(t, "replicas", n.replicas.Run)
	run(t, "broker listener", serve(clients, wire.ServerConfig{Listener: "PLAINTEXT", Role: wire.Broker, Handler: n.broker.Handler("PLAINTEXT"),
		Identity: func() (string, int32) { return n.clusterID, id }, Features: n.broker.Features, Logger: logger, Registerer: reg}))
	run(t, "broker", n.broker.Run)
	eventually(t, "ready", func() bool { return len(n.broker.Ready()) == 0 })
	return n
}

// startBrokers runs one controller and three brokers, each in a rack of its own: "a", "b", "c".
func startBrokers(t testing.TB, properties ...string) [3]*node {
	t.Helper()
	var all [3]*node
	all[0] = startNode(t, append([]string{"broker.rack", "a"}, properties...)...)
	for i := 1; i < len(all); i++ {
		static := map[string]string{"node.id": strconv.Itoa(i + 1), "process.roles": "broker", "log.dirs": "data", "broker.rack": string(rune('a' + i)),
			"listeners": "PLAINTEXT://127.0.0.1:0", "controller.quorum.voters": "1@" + all[0].controller}
		for i := 0; i < len(properties); i += 2 {
			static[properties[i]] = properties[i+1]
		}
		settings, err := config.ForBroker(static)
		must(t, err)
		at := &node{controller: all[0].controller, clusterID: all[0].clusterID, registry: prometheus.NewRegistry()}
		all[i] = startBroker(t, int32(i+1), vfs.NewMem(), direct, at, settings, static, testLogger().With("node", i+1))
	}
	return all
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return ln
}

func serve(ln net.Listener, cfg wire.ServerConfig) func(context.Context) error {
	cfg.ShutdownGrace = 200 * time.Millisecond
	return func(ctx context.Context) error { return wire.NewServer(cfg).Serve(ctx, ln) }
}

// run runs a part of the node until the test ends and everything started after it has ended.
func run(t testing.TB, name string, fn func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := fn(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("not %s in time", what)
		}
	}
}
