package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// Config is what a Broker is made of.
type Config struct {
	NodeID    int32
	ClusterID string
	Rack      string
	Follower  *Follower
	Replicas  *replica.Manager
	Listeners []Listener        // of clients, as advertised
	Settings  config.Broker     // typed values of server.properties
	Static    map[string]string // server.properties as given: shown by DescribeConfigs

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Broker answers clients.
type Broker struct {
	cfg      Config
	log      *slog.Logger
	follower *Follower
	replicas *replica.Manager
	sessions *sessionCache
	ids      producerIDs
	creating creations

	ctx   context.Context // of work that belongs to no connection; ends with Run
	stop  context.CancelFunc
	work  chan struct{} // one token for each request that a goroutine works on
	tasks tasks
}

// Limits of work that is done beside the readers of connections.
const (
	maxBackground   = 64
	defaultSessions = 1000
)

// New returns a broker; Run runs it.
func New(cfg Config) (*Broker, error) {
	if cfg.Follower == nil || cfg.Replicas == nil {
		return nil, errors.New("broker: follower and replicas are needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	slots := cfg.Settings.Fetch.MaxSessions
	if slots <= 0 {
		slots = defaultSessions
	}
	b := &Broker{
		cfg:      cfg,
		log:      cfg.Logger,
		follower: cfg.Follower,
		replicas: cfg.Replicas,
		sessions: newSessionCache(slots, cfg.Registerer),
		work:     make(chan struct{}, maxBackground),
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.creating.broker = b
	return b, nil
}

// shutdownTime bounds how long a broker that stops waits for its leaderships to move away.
const shutdownTime = 5 * time.Second

// Leave has the controller move the leaderships of this broker away, and returns when they are elsewhere, as far as there is anybody
// to take them, or when ctx ends. Clients and followers must be served until then.
func (b *Broker) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shutdownTime)
	defer cancel()
	b.follower.leave(ctx)
	b.follower.barrier(ctx) // it is no news until it is applied here
}

// Run follows the metadata, keeps the broker registered and returns when ctx has
// ended, the broker has left in order (within shutdownTime) and all that it started has too.
func (b *Broker) Run(ctx context.Context) error {
	// Following outlives ctx: leaderships that move away while leaving are news too.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { b.follower.follow(following, b.replicas.Apply) })
	wg.Go(func() { b.follower.stayRegistered(ctx) })
	<-ctx.Done()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	b.follower.leave(leaving)
	b.stop()
	stop()
	wg.Wait()
	b.tasks.stop()
	return b.follower.close()
}

// Ready returns the reasons why the broker should get no traffic; none: it may.
func (b *Broker) Ready() []string {
	const late = 10 * time.Second
	f := b.follower
	var why []string
	switch last := f.contact.Load(); {
	case last == 0:
		why = append(why, "no metadata from a controller yet")
	case time.Since(time.Unix(0, last)) > late:
		why = append(why, fmt.Sprintf("no metadata from a controller for %v", time.Since(time.Unix(0, last)).Round(time.Second)))
	}
	switch {
	case f.BrokerEpoch() < 0:
		why = append(why, "not registered with a controller")
	case f.fenced.Load():
		why = append(why, "fenced by the controller")
	}
	return why
}

// Features tells what ApiVersions says of features (KIP-584).
func (b *Broker) Features() wire.Features {
	img := b.follower.Image()
	out := wire.Features{
		Supported:      []wire.FeatureRange{{Name: metadata.MetadataFeature, Min: metadata.MetadataVersionMin, Max: metadata.MetadataVersion}},
		FinalizedEpoch: int64(img.Index()),
	}
	for f := range img.Features() {
		out.Finalized = append(out.Finalized, wire.FeatureRange{Name: f.Name, Min: f.Level, Max: f.Level})
	}
	return out
}

// Handler returns the handler of a client listener. Clients that came in by it
// are told addresses of it.
func (b *Broker) Handler(listener string) wire.Handler {
	return &handler{Broker: b, listener: listener}
}

type handler struct {
	*Broker
	listener string
}

// Handle implements wire.Handler. Consecutive Produce requests are appended
// together, everything else goes one by one.
func (h *handler) Handle(ctx context.Context, group []*wire.Request) {
	for i := 0; i < len(group); {
		n := i
		for n < len(group) && group[n].Produce != nil {
			n++
		}
		if n > i {
			h.produce(group[i:n])
			i = n
			continue
		}
		h.dispatch(ctx, group[i])
		i++
	}
}

func (h *handler) dispatch(ctx context.Context, r *wire.Request) {
	switch req := r.Body.(type) {
	case *kmsg.FetchRequest:
		h.fetch(ctx, r, req)
	case *kmsg.ListOffsetsRequest:
		h.listOffsets(ctx, r, req)
	case *kmsg.MetadataRequest:
		h.metadata(ctx, r, req)
	case *kmsg.FindCoordinatorRequest:
		h.findCoordinator(r, req)
	case *kmsg.CreateTopicsRequest:
		h.createTopics(ctx, r, req)
	case *kmsg.DeleteTopicsRequest:
		h.deleteTopics(ctx, r, req)
	case *kmsg.DeleteRecordsRequest:
		h.deleteRecords(ctx, r, req)
	case *kmsg.InitProducerIDRequest:
		h.initProducerID(ctx, r, req)
	case *kmsg.OffsetForLeaderEpochRequest:
		h.offsetForLeaderEpoch(r, req)
	case *kmsg.DescribeConfigsRequest:
		h.describeConfigs(r, req)
	case *kmsg.AlterConfigsRequest:
		h.alterConfigs(ctx, r, req)
	case *kmsg.DescribeLogDirsRequest:
		h.describeLogDirs(r, req)
	case *kmsg.CreatePartitionsRequest:
		h.createPartitions(ctx, r, req)
	case *kmsg.DescribeQuorumRequest:
		h.describeQuorum(ctx, r, req)
	case *kmsg.AddRaftVoterRequest:
		h.addRaftVoter(ctx, r, req)
	case *kmsg.RemoveRaftVoterRequest:
		h.removeRaftVoter(ctx, r, req)
	case *kmsg.ElectLeadersRequest:
		h.electLeaders(ctx, r, req)
	case *kmsg.AlterPartitionAssignmentsRequest:
		h.alterReassignments(ctx, r, req)
	case *kmsg.ListPartitionReassignmentsRequest:
		h.listReassignments(ctx, r, req)
	case *kmsg.UnregisterBrokerRequest:
		h.unregisterBroker(ctx, r, req)
	case *kmsg.IncrementalAlterConfigsRequest:
		h.incrementalAlterConfigs(ctx, r, req)
	case *kmsg.DescribeClusterRequest:
		h.describeCluster(r, req)
	case *kmsg.DescribeTopicPartitionsRequest:
		h.describeTopicPartitions(r, req)
	default:
		r.Fail(fmt.Errorf("no handler for api key %d", r.Key))
	}
}

// background runs a part of a request off the connection's reader. When too many
// run already, the reader waits; when the broker has ended, it is false.
func (b *Broker) background(fn func()) bool {
	select {
	case b.work <- struct{}{}:
	case <-b.ctx.Done():
		return false
	}
	started := b.tasks.run(func() {
		defer func() { <-b.work }()
		fn()
	})
	if !started {
		<-b.work
	}
	return started
}
