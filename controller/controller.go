package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// Config says who a controller is and what it may use.
type Config struct {
	NodeID int32
	Dir    string // of this node's quorum files; made if missing
	// ClusterID is what the node's log directories say, else what the operator
	// wants; "" for any.
	ClusterID string
	// Formatted says that the log directories belong to the cluster already:
	// an empty Dir is then one that was wiped, and founds no cluster.
	Formatted bool
	// Voters are the entries of controller.quorum.voters; none, or this node
	// alone, for a node that founds a cluster by itself. They count until a cluster
	// is formed; later they only say where a controller is.
	Voters []Voter
	// Address is host:port of the CONTROLLER listener, as other controllers
	// reach it.
	Address string
	// ElectionTimeout is how long a follower waits for its leader, and a leader
	// for a majority: varve.controller.election.timeout.ms; 250 ms.
	ElectionTimeout time.Duration
	// Properties is the node's static configuration: defaults of new topics,
	// and what their configuration is checked against.
	Properties     map[string]string
	SessionTimeout time.Duration // broker.session.timeout.ms; 9 s
	WriteTimeout   time.Duration // varve.controller.write.timeout.ms; 5 s
	// BalanceInterval is between looks at whether preferred replicas lead
	// (leader.imbalance.check.interval.seconds); 0: never
	// (auto.leader.rebalance.enable). ImbalancePercent is how many of the
	// partitions that a broker is preferred for others may lead.
	BalanceInterval  time.Duration
	ImbalancePercent int
	// Dial reaches other controllers, and brokers to see whether they live.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// OnFailure is called once when a store failed or hung, or an entry could
	// not be applied: the process must end. Run returns the same error.
	OnFailure  func(error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Voter is an entry of controller.quorum.voters.
type Voter struct {
	ID      int32
	Address string // host:port
}

const (
	defaultSessionTimeout  = 9 * time.Second
	defaultWriteTimeout    = 5 * time.Second
	defaultElectionTimeout = 250 * time.Millisecond
)

// Controller is one node of the metadata quorum.
type Controller struct {
	cfg       Config
	logger    *slog.Logger
	member    atomic.Pointer[member]
	machine   *machine
	quorum    Quorum
	streams   *streams
	peers     *peers
	observers observers
	changing  atomic.Bool                       // the members of the quorum are being changed
	waiting   atomic.Pointer[string]            // why this node is in no quorum; nil: it is, or that is not known yet
	found     func(founders []wire.Voter) error // begins a new quorum's log
	close     func() error                      // of the stores
	metrics   *metrics
	sessions  *sessions
	admin     chan adminRequest

	reign    atomic.Pointer[reign]
	failed   atomic.Pointer[error]
	failure  chan error         // capacity 1
	ending   sync.RWMutex       // held while life ends, so that nothing begins behind Run's back
	inFlight sync.WaitGroup     // answers on their way
	halt     context.CancelFunc // of life
	life     context.Context    // ends when Run ends
}

// reign is this node's time as the active controller: from the barrier in its
// term on.
type reign struct {
	term  uint64
	since time.Time
}

// New formats the directory or checks that it is this node's, and takes its
// lock. It starts nothing; Run must follow, and gives the directory back.
func New(cfg Config) (*Controller, error) {
	cfg.defaults()
	m, err := openMember(cfg.Dir, identity{nodeID: cfg.NodeID, clusterID: cfg.ClusterID, formatted: cfg.Formatted, alone: cfg.alone(), address: cfg.Address})
	if err != nil {
		return nil, fmt.Errorf("open controller directory: %w", err)
	}
	hlog := raftLogger(cfg.Logger)
	log, snapshots, err := openStores(cfg.Dir, hlog)
	if err != nil {
		return nil, fmt.Errorf("open controller directory: %w", err)
	}
	c := newController(cfg, m)
	guarded := &failClosed{log: log, stable: log, deadline: cfg.WriteTimeout, failed: c.fail, seconds: c.metrics.storeSeconds}
	id := serverID(cfg.NodeID, m.memberID)
	var q *raftQuorum
	c.streams = newStreams(cfg.Address, cfg.dial, func(id raft.ServerID) string { return c.addressOf(q.servers(), id) })
	connect := func() raft.Transport {
		c.streams.listen(c.member.Load().clusterID, id)
		return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: c.streams, ServerAddressProvider: c.streams,
			MaxPool: raftPool, MaxRPCsInFlight: 1, Timeout: raftRPCTimeout, Logger: hlog})
	}
	q = newRaftQuorum(id, cfg.ElectionTimeout, c.machine, raftStores{log: guarded, stable: guarded, snapshots: snapshots}, connect, hlog)
	guarded.halt = func() { q.stop() }
	c.quorum, c.found = q, q.found
	c.close = func() error {
		err := errors.Join(c.streams.Close(), c.peers.close())
		if guarded.err() == nil { // a hung store would keep us
			err = errors.Join(err, log.Close())
		}
		return err
	}
	return c, nil
}

// addressOf is where a member is: where the configuration says that its node
// is, else where the quorum's log does.
func (c *Controller) addressOf(servers []raft.Server, id raft.ServerID) string {
	for _, v := range c.cfg.Voters {
		if v.ID == nodeOf(id) {
			return v.Address
		}
	}
	for _, s := range servers {
		if s.ID == id {
			return string(s.Address)
		}
	}
	if nodeOf(id) == c.cfg.NodeID {
		return c.cfg.Address
	}
	return ""
}

const (
	raftRPCTimeout = 5 * time.Second // of one exchange between controllers
	raftPool       = 3               // idle connections to another one
)

func (cfg *Config) defaults() {
	if cfg.SessionTimeout <= 0 {
		cfg.SessionTimeout = defaultSessionTimeout
	}
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = defaultWriteTimeout
	}
	if cfg.ElectionTimeout <= 0 {
		cfg.ElectionTimeout = defaultElectionTimeout
	}
	for _, v := range cfg.Voters {
		if v.ID == cfg.NodeID {
			cfg.Address = v.Address // as the others know it
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Address == "" {
		cfg.Address = fmt.Sprintf("node-%d", cfg.NodeID) // nobody will dial it
	}
}

func (cfg *Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if cfg.Dial == nil {
		return nil, errors.New("this controller was given no way to dial")
	}
	return cfg.Dial(ctx, network, addr)
}

// alone reports whether the node founds a cluster by itself.
func (cfg *Config) alone() bool {
	return !slices.ContainsFunc(cfg.Voters, func(v Voter) bool { return v.ID != cfg.NodeID })
}

// newController makes a controller that lacks its quorum.
func newController(cfg Config, m member) *Controller {
	cfg.defaults()
	c := &Controller{
		cfg:      cfg,
		logger:   cfg.Logger,
		peers:    &peers{dial: cfg.dial, clientID: fmt.Sprintf("controller-%d", cfg.NodeID), logger: cfg.Logger, clients: map[string]*wire.Client{}},
		sessions: newSessions(cfg.SessionTimeout),
		admin:    make(chan adminRequest, maxAdminQueue),
		failure:  make(chan error, 1),
		close:    func() error { return nil },
	}
	c.member.Store(&m)
	c.life, c.halt = context.WithCancel(context.Background())
	c.machine = newMachine(c.fail)
	c.metrics = newMetrics(cfg.Registerer, c)
	c.machine.applied = c.elected
	return c
}

// fail is called, from any goroutine, with what makes it impossible to go on.
func (c *Controller) fail(err error) {
	if !c.failed.CompareAndSwap(nil, &err) {
		return // one is enough
	}
	c.failure <- err
	c.logger.Error("the controller cannot go on: the process must end", "err", err)
	c.reign.Store(nil)
	if c.cfg.OnFailure != nil {
		c.cfg.OnFailure(err)
	}
}

// Run takes part in the quorum until ctx ends or something fails for good, and
// returns when all has ended and the directory is given back.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	quorum := make(chan error, 1)
	wg.Go(func() { quorum <- c.takePart(ctx) })
	wg.Go(func() { c.announce(ctx) })
	wg.Go(func() { c.lead(ctx) })
	wg.Go(func() { c.administer(ctx) })
	wg.Go(func() { c.watch(ctx) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-c.failure:
	case err = <-quorum:
		if err == nil && ctx.Err() == nil {
			err = errors.New("the metadata quorum ended by itself")
		}
	}
	cancel()
	c.reign.Store(nil)
	c.ending.Lock()
	c.halt()
	c.ending.Unlock()
	c.machine.feed.close()
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		c.inFlight.Wait()
		close(ended)
	}()
	if err == nil {
		<-ended
	} else if !waitFor(ended, failedGrace) {
		return err // a disk that hangs keeps goroutines; the process must end all the same
	}
	c.metrics.unregister()
	if cerr := c.close(); err == nil && cerr != nil {
		err = fmt.Errorf("close controller: %w", cerr)
	}
	return err
}

// takePart runs the quorum once this node is one that has part in it.
func (c *Controller) takePart(ctx context.Context) error {
	if err := c.join(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	return c.quorum.Run(ctx)
}

// failedGrace is how long a Run that failed waits for what it started.
const failedGrace = 5 * time.Second

func waitFor(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// lead follows the quorum's leadership: this node reigns from the barrier in
// its term on, since before it the image may lack what was committed.
func (c *Controller) lead(ctx context.Context) {
	retry := time.NewTimer(math.MaxInt64)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.quorum.Changed():
			c.machine.feed.wake() // brokers learn at once who leads
		case <-retry.C:
		}
		leads, term := c.quorum.Leading()
		if r := c.reign.Load(); r != nil && leads && r.term == term {
			continue
		}
		c.reign.Store(nil)
		if !leads {
			continue
		}
		if err := c.ascend(ctx, term); err != nil && ctx.Err() == nil {
			c.logger.Warn("not yet active", "term", term, "err", err)
			retry.Reset(reignRetry)
		}
	}
}

const (
	reignRetry     = 50 * time.Millisecond
	barrierTimeout = 10 * time.Second
)

// ascend makes this node the active controller of a term.
func (c *Controller) ascend(ctx context.Context, term uint64) error {
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if err := c.quorum.Barrier(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if leads, now := c.quorum.Leading(); !leads || now != term {
		return ErrNotLeader
	}
	if err := c.form(ctx); err != nil {
		return err
	}
	r := &reign{term: term, since: time.Now()}
	c.sessions.reset(c.Image(), r.since)
	c.reign.Store(r)
	c.probeAll()
	c.logger.Info("active controller", "term", term, "index", c.Image().Index())
	return nil
}

// form commits the first entry of a new cluster.
func (c *Controller) form(ctx context.Context) error {
	cluster := c.member.Load().clusterID
	if id := c.Image().ClusterID(); id == "" {
		first := &metadata.FormCluster{ClusterID: cluster, Features: []metadata.Feature{{Name: metadata.MetadataFeature, Level: metadata.MetadataVersion}}}
		if _, err := c.propose(ctx, first); err != nil {
			return fmt.Errorf("form the cluster: %w", err)
		}
	}
	if id := c.Image().ClusterID(); id != cluster {
		err := fmt.Errorf("%w: its log is of cluster %s, its %s of %s", ErrForeign, id, memberFile, cluster)
		c.fail(err)
		return err
	}
	return nil
}

// propose commits commands in one entry and returns their results, in order.
// The error is ErrNotLeader or ErrUnknown.
func (c *Controller) propose(ctx context.Context, cmds ...metadata.Command) (applied, error) {
	return c.await(ctx, c.begin(cmds...))
}

// begin proposes commands; they are in the log in the order of the calls.
func (c *Controller) begin(cmds ...metadata.Command) Proposal {
	c.metrics.proposals.Inc()
	return c.quorum.Propose(metadata.EncodeEntry(metadata.Entry{TimeMs: time.Now().UnixMilli(), Commands: cmds}))
}

func (c *Controller) await(ctx context.Context, p Proposal) (applied, error) {
	index, result, err := p.Wait(ctx)
	if err != nil {
		c.metrics.refused(err)
		return applied{}, err
	}
	out := result.(applied)
	out.index = index
	return out, nil
}

// Ready returns nil if metadata can be read and changed through this node or
// the leader that it knows; else the reason.
func (c *Controller) Ready() error {
	leader := c.quorum.Leader()
	switch err := c.failed.Load(); {
	case err != nil:
		return *err
	case c.life.Err() != nil:
		return errors.New("the controller has stopped")
	case c.reign.Load() != nil:
		return nil
	case c.Joined() != nil:
		return c.Joined()
	case leader == c.cfg.NodeID:
		return errors.New("the new leader of the metadata quorum has not caught up with what was committed")
	case leader < 0:
		return errors.New("waiting for the metadata quorum to elect a leader")
	case c.Image().ClusterID() == "":
		return errors.New("nothing of the cluster's metadata has arrived here yet")
	}
	return nil
}

// Image is the metadata as of the last entry applied on this node.
func (c *Controller) Image() *metadata.Image { return c.machine.image.Load() }

// ErrNoQuorum: this node is in no quorum yet; the text around it says why.
var ErrNoQuorum = errors.New("no part of a metadata quorum yet")

// Joined returns nil once this node is a member of a quorum, as far as it knows;
// else what it waits for.
func (c *Controller) Joined() error {
	if isMember(c.quorum.Members(), wire.Introduction{NodeID: c.cfg.NodeID, MemberID: c.member.Load().memberID}) {
		return nil
	}
	if why := c.waiting.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrNoQuorum, *why)
	}
	return ErrNoQuorum
}

// ClusterID is "" until it is known of what cluster this node is; of a node
// that founds one alone it is known from New on.
func (c *Controller) ClusterID() string { return c.member.Load().clusterID }

// Identity is what ApiVersions checks clients' ideas against (KIP-1242).
func (c *Controller) Identity() (clusterID string, nodeID int32) {
	return c.ClusterID(), c.cfg.NodeID
}

// Features is what ApiVersions tells about features.
func (c *Controller) Features() wire.Features {
	img := c.Image()
	f := wire.Features{
		Supported:      []wire.FeatureRange{{Name: metadata.MetadataFeature, Min: metadata.MetadataVersionMin, Max: metadata.MetadataVersion}},
		FinalizedEpoch: int64(img.Index()),
	}
	for level := range img.Features() {
		f.Finalized = append(f.Finalized, wire.FeatureRange{Name: level.Name, Min: level.Level, Max: level.Level})
	}
	return f
}

// Preface takes over a connection that began with wire.PrefaceMagic: it is
// another controller's.
func (c *Controller) Preface(nc net.Conn) bool { return c.streams != nil && c.streams.offer(nc) }
