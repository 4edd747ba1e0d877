package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/broker"
	"github.com/varve-io/varve/broker/admin"
	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// node is one server process: it makes all parts of the program and ties them
// together. The parts know each other only by what they are given here.
//
// Parts start in the order of their needs (directories, controller, metadata,
// tier, partitions, clients) and stop in reverse. Until a part is there, the
// admin listener says that the node is starting.
type node struct {
	cfg      config.Broker
	static   map[string]string
	logger   *slog.Logger
	registry *prometheus.Registry
	fs       vfs.FS
	services *services
	budget   *wire.Budget
	exit     func(code int)

	clusterID   string
	dirs        []*log.Dir
	logMetrics  *log.Metrics
	controller  *controller.Controller
	controllers []string       // addresses of controller listeners
	bound       []net.Listener // client listeners until they are served
	follower    *broker.Follower
	provider    objstore.Store // the store as it is
	store       objstore.Store // with limits, tries again and metrics around it
	prefix      prefixCheck
	tier        *tier.Manager
	replicas    *replica.Manager
	broker      *broker.Broker

	phase   atomic.Pointer[string] // what the start is waiting for; nil: started
	started atomic.Pointer[node]   // set with everything above
}

func newNode(cfg config.Broker, static map[string]string, logger *slog.Logger) *node {
	n := &node{cfg: cfg, static: static, logger: logger.With("node", cfg.NodeID), registry: prometheus.NewRegistry(), fs: vfs.OS(), exit: os.Exit}
	n.services = newServices(n.logger)
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.budget = wire.NewBudget(requestMemory(cfg.Net.RequestMemory))
	return n
}

// defaultRequestMemory bounds requests in flight where queued.max.request.bytes
// does not.
const defaultRequestMemory = 512 << 20

func requestMemory(set int64) int64 {
	if set <= 0 {
		return defaultRequestMemory
	}
	return set
}

// run starts the node, serves until ctx ends or a part fails, and stops.
func (n *node) run(ctx context.Context) error {
	err := n.start(ctx)
	if err == nil {
		n.started.Store(n)
		n.phase.Store(nil)
		n.logger.Info("started", "cluster", n.clusterID, "listeners", fmt.Sprint(n.cfg.Advertised), "version", buildVersion().Version)
		err = n.services.wait(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // asked to stop while starting
	}
	n.logger.Info("stopping", "failed", err != nil)
	return errors.Join(err, n.stop())
}

// start makes the parts in the order in which they need each other.
func (n *node) start(ctx context.Context) error {
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"open the admin listener", n.startAdmin},
		{"check the log directories", n.inspectDirs},
		{"start the controller", n.startController},
		{"join the controllers", n.joinControllers},
		{"open the log directories", n.openDirs},
		{"open the object store", n.openTier},
		{"recover the logs", n.openReplicas},
		{"wait until the controller has caught up", n.awaitController},
		{"join the cluster", n.startBroker},
		{"wait until the controller knows this broker", n.awaitRegistration},
		{"open the client listeners", n.serveClients},
		{"take part", n.takePart},
	} {
		phase := "starting: " + step.name
		n.phase.Store(&phase)
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		if err := step.run(ctx); err != nil {
			return err
		}
		n.logger.Debug("start", "step", step.name, "took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// stop ends the services in reverse order, then gives back what they used.
func (n *node) stop() error {
	phase := "stopping"
	n.phase.Store(&phase)
	err := n.services.stop(n.cfg.ShutdownTimeout)
	for _, ln := range n.bound {
		err = errors.Join(err, ln.Close())
	}
	clean := err == nil
	for _, d := range n.dirs {
		epoch := int64(-1)
		if n.follower != nil {
			epoch = n.follower.BrokerEpoch()
		}
		err = errors.Join(err, d.Close(clean, epoch))
	}
	if n.store != nil {
		err = errors.Join(err, n.store.Close())
	}
	n.logger.Info("stopped", "clean", err == nil)
	return err
}

// inspectDirs looks whose the log directories are before anything is written.
func (n *node) inspectDirs(context.Context) error {
	formatted, empty := "", []string{}
	for _, dir := range n.cfg.LogDirs {
		meta, err := log.InspectDir(n.fs, dir)
		switch {
		case errors.Is(err, log.ErrUnformatted):
			empty = append(empty, dir)
		case err != nil:
			return err
		case n.clusterID != "" && meta.ClusterID != n.clusterID:
			return fmt.Errorf("%w: %s is of cluster %s, %s of cluster %s: take one out of log.dirs", log.ErrOtherCluster, formatted, n.clusterID, dir, meta.ClusterID)
		case meta.NodeID != n.cfg.NodeID:
			return fmt.Errorf("%w: %s is of node %d, this is node %d: set node.id=%d, or point log.dirs at this node's directory", log.ErrOtherNode, dir, meta.NodeID, n.cfg.NodeID, meta.NodeID)
		default:
			n.clusterID, formatted = meta.ClusterID, dir
		}
	}
	switch set := n.cfg.ClusterID; {
	case set != "" && n.clusterID != "" && set != n.clusterID:
		return fmt.Errorf("%w: %s is of cluster %s, varve.cluster.id is %s: point log.dirs at that cluster's directory, or leave varve.cluster.id out", log.ErrOtherCluster, formatted, n.clusterID, set)
	case formatted != "" && len(empty) > 0:
		n.logger.Warn("log directories without data beside others that have some: formatted as new, what was on them is lost", "directories", strings.Join(empty, ","))
	}
	return nil
}

// controllerDir is where the metadata quorum's files lie, in metadata.log.dir.
const controllerDir = "controller"

// startController runs the controller, if this node is one, and its listener.
func (n *node) startController(ctx context.Context) error {
	for _, v := range n.cfg.Voters {
		n.controllers = append(n.controllers, v.Addr())
		if v.ID == n.cfg.NodeID && n.cfg.IsController { // metadata comes from the nearest, if it is up to date
			last := len(n.controllers) - 1
			n.controllers[0], n.controllers[last] = n.controllers[last], n.controllers[0]
		}
	}
	if !n.cfg.IsController {
		return nil
	}
	listener := n.cfg.ControllerListeners[0]
	ln, err := listen(ctx, listener)
	if err != nil {
		return err
	}
	var voters []controller.Voter
	if n.static["controller.quorum.voters"] == "" {
		n.controllers = []string{reachable(ln.Addr())} // else the operator said where brokers find it
	} else {
		for _, v := range n.cfg.Voters {
			voters = append(voters, controller.Voter{ID: v.ID, Address: v.Addr()})
		}
	}
	n.controller, err = controller.New(controller.Config{
		NodeID: n.cfg.NodeID, Dir: filepath.Join(n.cfg.MetadataDir, controllerDir), Voters: voters, Address: reachable(ln.Addr()),
		ClusterID: cmp.Or(n.clusterID, n.cfg.ClusterID), Formatted: n.clusterID != "", Properties: n.static,
		SessionTimeout: n.cfg.Session.Timeout, WriteTimeout: n.cfg.Session.ControllerWriteTimeout, ElectionTimeout: n.cfg.Session.ElectionTimeout, Logger: n.logger, Registerer: n.registry,
		BalanceInterval: n.cfg.Balance.Interval, ImbalancePercent: n.cfg.Balance.Percent,
		Dial: (&net.Dialer{}).DialContext, OnFailure: n.controllerFailed,
	})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	n.services.start("controller", n.controller.Run)
	server := wire.NewServer(n.serverConfig(listener, wire.Controller, wire.ServerConfig{
		Handler: n.controller.Handler(), Preface: n.controller.Preface, Identity: n.controller.Identity, Features: n.controller.Features,
	}))
	n.services.start("listener "+listener.Name, func(ctx context.Context) error { return server.Serve(ctx, ln) })
	return nil
}

// joinControllers waits until it is known of which cluster this node is: its
// controller is in a quorum, or, where it has none, the controllers have told.
func (n *node) joinControllers(ctx context.Context) error {
	if n.controller != nil {
		err := n.await(ctx, "waiting for the quorum of controllers", func() []string {
			if err := n.controller.Joined(); err != nil {
				return []string{err.Error()}
			}
			return nil
		})
		n.clusterID = n.controller.ClusterID()
		return err
	}
	ask := wire.NewClient(wire.ClientConfig{Addrs: func() []string { return n.controllers }, ClientID: fmt.Sprintf("broker-%d-join", n.cfg.NodeID), Logger: n.logger})
	err := n.await(ctx, "waiting for the controllers", func() []string {
		cluster, err := askCluster(ctx, ask)
		if err != nil {
			ask.Disconnect()
			return []string{err.Error()}
		}
		if n.clusterID != "" && n.clusterID != cluster {
			return []string{fmt.Sprintf("the controllers are of cluster %s, this node's log directories of cluster %s", cluster, n.clusterID)}
		}
		n.clusterID = cluster
		return nil
	})
	return errors.Join(err, ask.Close())
}

// joinTimeout bounds one question to a controller that this node knows nothing of.
const joinTimeout = 5 * time.Second

// askCluster asks a controller of what cluster it is (KIP-919).
func askCluster(ctx context.Context, controller *wire.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2
	r, err := controller.Request(ctx, req)
	if err != nil {
		return "", err
	}
	resp := r.(*kmsg.DescribeClusterResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if resp.ErrorMessage != nil {
			err = fmt.Errorf("%w: %s", err, *resp.ErrorMessage)
		}
		return "", err
	}
	return resp.ClusterID, nil
}

// failGrace is how long a node whose controller failed may take to stop by
// itself: a hung disk may hang the stop too.
const failGrace = 10 * time.Second

// controllerFailed ends the process: the quorum must elect another.
func (n *node) controllerFailed(err error) {
	n.logger.Error("the controller cannot go on", "error", err)
	n.services.fail("controller", err)
	time.AfterFunc(failGrace, func() { n.exit(exitFailed) })
}

// openDirs locks the log directories and formats those that are new.
func (n *node) openDirs(context.Context) error {
	if !n.cfg.IsBroker {
		return nil
	}
	n.logMetrics = log.NewMetrics(n.registry)
	for _, path := range n.cfg.LogDirs {
		d, err := log.OpenDir(log.DirOptions{
			FS: n.fs, Path: path, ClusterID: n.clusterID, NodeID: n.cfg.NodeID, Format: true,
			Reserve: n.cfg.Log.ReserveBytes, Logger: n.logger, Metrics: n.logMetrics,
		})
		if err != nil {
			return err
		}
		n.dirs = append(n.dirs, d)
	}
	return nil
}

// openReplicas opens every log; after a power loss this may take a while.
func (n *node) openReplicas(ctx context.Context) error {
	if !n.cfg.IsBroker {
		return nil
	}
	cfg := replica.Config{
		NodeID: n.cfg.NodeID, BrokerEpoch: n.follower.BrokerEpoch, Dirs: n.dirs, FS: n.fs, Static: n.static, LogMetrics: n.logMetrics,
		Committer: n.follower, WaitImage: n.follower.WaitImage,
		Peer: n.peers().Client, Replication: n.cfg.Replication,
		ProducerIDExpiration: n.cfg.Log.ProducerIDExpiration,
		TierMaxLag:           n.cfg.Tier.MaxLag, WriteTimeout: n.cfg.Log.WriteTimeout, Uploads: n.cfg.Tier.UploadConcurrency,
		// One loop looks for both kinds of work.
		CheckInterval: min(n.cfg.Tier.Interval, n.cfg.Log.RetentionCheckInterval),
		Logger:        n.logger, Registerer: n.registry,
	}
	if n.tier != nil {
		cfg.Tier = n.tier
	}
	var err error
	if n.replicas, err = replica.NewManager(cfg); err != nil {
		return err
	}
	return n.replicas.Open(ctx)
}

// peers are reached where the metadata that the partitions act on says: it is known to them first.
func (n *node) peers() *broker.Peers {
	return &broker.Peers{NodeID: n.cfg.NodeID, Image: func() *metadata.Image { return n.replicas.Image() },
		Listener: n.cfg.Replication.Listener, Dial: (&net.Dialer{}).DialContext, Logger: n.logger}
}

// startBroker follows the metadata and registers this broker.
func (n *node) startBroker(context.Context) error {
	if !n.cfg.IsBroker {
		return nil
	}
	var err error
	n.broker, err = broker.New(broker.Config{
		NodeID: n.cfg.NodeID, ClusterID: n.clusterID, Rack: n.cfg.Rack, Follower: n.follower, Replicas: n.replicas,
		Listeners: n.advertised(), Settings: n.cfg, Static: n.static, Logger: n.logger, Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	if n.tier != nil {
		n.services.start("tier", n.tier.Run)
		n.services.start("store check", n.checkPrefix)
	}
	n.services.start("partitions", n.replicas.Run)
	n.services.start("broker", n.broker.Run)
	return nil
}

// takePart ends first of all: leaderships move away while clients and followers are still served.
func (n *node) takePart(context.Context) error {
	if n.broker != nil {
		n.services.start("leaderships", func(ctx context.Context) error {
			<-ctx.Done()
			n.broker.Leave(context.WithoutCancel(ctx))
			return nil
		})
	}
	return nil
}

// How often a start asks whether others are ready, and how often it tells that
// it still waits.
const (
	readyPoll = 2 * time.Millisecond
	readyTell = 10 * time.Second
)

// awaitController keeps the broker from following a controller of this process
// that is still reading its own log.
func (n *node) awaitController(ctx context.Context) error {
	if n.controller == nil {
		return nil
	}
	return n.await(ctx, "waiting for the controller", func() []string {
		if err := n.controller.Ready(); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

// awaitRegistration keeps clients out until they can be told who leads what.
func (n *node) awaitRegistration(ctx context.Context) error {
	if n.broker == nil {
		return nil
	}
	return n.await(ctx, "waiting to be registered", n.broker.Ready)
}

// await asks until there are no reasons left to wait, or a service ended.
func (n *node) await(ctx context.Context, what string, reasons func() []string) error {
	told := time.Now()
	for {
		why := reasons()
		if len(why) == 0 {
			return nil
		}
		if time.Since(told) >= readyTell {
			told = time.Now()
			n.logger.Warn(what, "reasons", strings.Join(why, "; "), "controllers", strings.Join(n.controllers, ","))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case svc := <-n.services.ended:
			return svc.failure()
		case <-time.After(readyPoll):
		}
	}
}

// image is the newest metadata, empty while there is none.
func (n *node) image() *metadata.Image {
	switch s := n.started.Load(); {
	case s != nil && s.follower != nil:
		return s.follower.Image()
	case s != nil && s.controller != nil:
		return s.controller.Image()
	}
	return metadata.New()
}

func (n *node) partitions() iter.Seq[*replica.Partition] {
	if s := n.started.Load(); s != nil && s.replicas != nil {
		return s.replicas.Partitions()
	}
	return slices.Values([]*replica.Partition(nil))
}

// ready returns why clients are not served, or not fully.
func (n *node) ready() []string {
	if phase := n.phase.Load(); phase != nil {
		return []string{*phase}
	}
	var reasons []string
	if n.controller != nil {
		if err := n.controller.Ready(); err != nil {
			reasons = append(reasons, "controller: "+err.Error())
		}
	}
	if n.broker != nil {
		reasons = append(reasons, n.broker.Ready()...)
	}
	for _, d := range n.dirs {
		if err := d.Err(); err != nil {
			reasons = append(reasons, fmt.Sprintf("log directory %s is offline: %v", d.Path(), err))
		}
	}
	return reasons
}

// healthy returns an error once nothing but another process can help: every
// log directory is offline.
func (n *node) healthy() error {
	if n.started.Load() == nil || len(n.dirs) == 0 {
		return nil
	}
	var failed []error
	for _, d := range n.dirs {
		if err := d.Err(); err != nil {
			failed = append(failed, fmt.Errorf("log directory %s: %w", d.Path(), err))
		}
	}
	if len(failed) < len(n.dirs) {
		return nil
	}
	return errors.Join(failed...)
}

// degraded returns what does not work although clients are served: without the
// object store, producing and reading recent data go on.
func (n *node) degraded() []string {
	if s := n.storeStatus(); s != nil && !s.Healthy {
		return []string{fmt.Sprintf("object store: %s; %s", s.Cause, s.Remedy)}
	}
	return nil
}

func (n *node) startAdmin(ctx context.Context) error {
	ln, err := n.listenAdmin(ctx)
	if ln == nil || err != nil {
		return err
	}
	n.logger.Info("admin listener", "url", "http://"+ln.Addr().String())
	server := admin.New(admin.Config{
		NodeID: n.cfg.NodeID, ClusterID: func() string { return n.image().ClusterID() }, Ready: n.ready, Degraded: n.degraded, Healthy: n.healthy,
		Gatherer: n.registry, Image: n.image, Partitions: n.partitions, Store: n.storeStatus, Logger: n.logger,
	})
	n.services.start("admin listener", func(ctx context.Context) error { return server.Serve(ctx, ln) })
	return nil
}

// listenAdmin takes another port where the default one is in use, since a
// second node on a machine is no mistake; what was set must be had.
func (n *node) listenAdmin(ctx context.Context) (net.Listener, error) {
	address := n.cfg.AdminListener
	if address == "" {
		return nil, nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if _, set := n.static["varve.admin.listener"]; err != nil && !set {
		host, _, _ := net.SplitHostPort(address)
		n.logger.Warn("the default varve.admin.listener is in use, taking a free port", "address", address)
		ln, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, &problem{"varve.admin.listener " + address, innermost(err), "set another host:port, or none: --set varve.admin.listener="}
	}
	return ln, nil
}
