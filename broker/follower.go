package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// FollowerConfig says who the broker is and where the controllers are.
type FollowerConfig struct {
	NodeID    int32
	ClusterID string
	Rack      string
	Listeners []Listener  // of clients, as advertised
	Dirs      []wire.UUID // ids of the log directories
	// PreviousEpoch is the broker epoch of the life before, if nothing that it wrote is lost (KIP-966); -1: none.
	PreviousEpoch int64
	// OfflineDirs are the ids of the log directories that failed; nil: none can.
	OfflineDirs func() []wire.UUID
	Controllers func() []string // host:port of controller listeners
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	TLS         *tls.Config

	HeartbeatInterval time.Duration // broker.heartbeat.interval.ms; 2 s
	RequestTimeout    time.Duration // of whatever is asked of the controller; 10 s

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Listener is where clients reach the broker.
type Listener struct {
	Name     string
	Protocol string // PLAINTEXT, SSL, ...
	Host     string
	Port     int32
}

// Follower is the broker's side of the controller's listener.
//
// It holds the metadata image that the broker acts on. A new image is first
// given to the partitions and then published, so that whoever waited for it,
// say to see a topic that he created, finds its partitions in place.
//
// The first image of a life is one that knows of this life's registration. An
// earlier one, from a controller that is itself behind or replaying, proves
// nothing: a partition that is not in it is not a deleted one.
type Follower struct {
	cfg         FollowerConfig
	incarnation wire.UUID
	log         *slog.Logger

	// A request that is not answered in time ends its connection and all that is
	// in flight there, so what is independent has connections of its own.
	metadata  *wire.Client // long polls
	heartbeat *wire.Client // its connection's end is taken for our death
	commands  *wire.Client // of this broker
	admin     *wire.Client // what clients ask and we forward

	controllers controllers

	image     atomic.Pointer[metadata.Image]
	epoch     atomic.Int64 // of the registration, -1 none
	fenced    atomic.Bool
	contact   atomic.Int64 // unix nanoseconds of the last good answer to FetchMetadata
	committed atomic.Uint64

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every image

	// The metadata loop's alone.
	latest          *metadata.Image // last fetched
	controllerEpoch int32           // highest seen
	controllerID    int32           // that was active by the last answer
}

// NewFollower returns a follower; Broker.Run runs it.
func NewFollower(cfg FollowerConfig) *Follower {
	if cfg.HeartbeatInterval <= 0 {
		cfg.HeartbeatInterval = 2 * time.Second
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Follower{cfg: cfg, incarnation: wire.NewUUID(), log: cfg.Logger, changed: make(chan struct{}), controllerID: -1}
	f.controllers.configured = cfg.Controllers
	client := func(purpose string, prefer func() string) *wire.Client {
		return wire.NewClient(wire.ClientConfig{
			Addrs:          f.controllers.addrs,
			Prefer:         prefer,
			DialTimeout:    dialTimeout,
			Dial:           cfg.Dial,
			TLS:            cfg.TLS,
			ClientID:       fmt.Sprintf("broker-%d-%s", cfg.NodeID, purpose),
			RequestTimeout: cfg.RequestTimeout,
			Logger:         cfg.Logger,
		})
	}
	f.metadata, f.heartbeat, f.commands, f.admin = client("metadata", nil),
		client("heartbeat", f.controllers.preferred), client("commands", f.controllers.preferred), client("admin", f.controllers.preferred)
	f.image.Store(metadata.New())
	f.latest = f.Image()
	f.epoch.Store(-1)
	f.fenced.Store(true)
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_broker_metadata_index", Help: "Index of the applied metadata image."},
				func() float64 { return float64(f.Image().Index()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_broker_metadata_lag_entries", Help: "Committed metadata entries that are not applied here yet."},
				func() float64 { return float64(max(int64(f.committed.Load())-int64(f.Image().Index()), 0)) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_broker_fenced", Help: "1 while the controller lets this broker lead nothing."},
				func() float64 { return btof(f.fenced.Load()) }))
	}
	return f
}

func btof(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Image returns the last image that the partitions have applied. Never nil.
func (f *Follower) Image() *metadata.Image { return f.image.Load() }

// BrokerEpoch is that of the current registration, -1 before the first.
func (f *Follower) BrokerEpoch() int64 { return f.epoch.Load() }

// WaitImage returns an image at or after index.
func (f *Follower) WaitImage(ctx context.Context, index uint64) (*metadata.Image, error) {
	return f.waitFor(ctx, func(m *metadata.Image) bool { return m.Index() >= index })
}

// waitFor returns the first image that has what is wanted.
func (f *Follower) waitFor(ctx context.Context, has func(*metadata.Image) bool) (*metadata.Image, error) {
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if img := f.Image(); has(img) {
			return img, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for metadata after index %d: %w", f.Image().Index(), ctx.Err())
		}
	}
}

func (f *Follower) publish(img *metadata.Image) {
	f.image.Store(img)
	f.mu.Lock()
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
}

// maxPoll is how long a controller holds a request for metadata when nothing
// happens, maxAnswer how long the answer may take on its way.
const (
	firstPoll = 20 * time.Millisecond // until the first image may be published
	maxPoll   = 2 * time.Second
	maxAnswer = 3 * time.Second
	// A controller that has not heard from the active one for so long may lag
	// behind it: another one is followed.
	maxSourceLag = time.Second
)

// Pauses after something failed, until it is tried again.
const retryPause = 100 * time.Millisecond

// follow fetches metadata until ctx ends. Each change goes to apply before it is published.
func (f *Follower) follow(ctx context.Context, apply func(*metadata.Delta)) {
	failing := false
	for ctx.Err() == nil {
		err := f.fetch(ctx, apply)
		switch {
		case err == nil:
			if failing {
				f.log.Info("following metadata again", "index", f.Image().Index())
			}
			failing = false
		case ctx.Err() == nil:
			if !failing {
				f.log.Warn("metadata cannot be fetched", "err", err)
			}
			failing = true
			f.metadata.Disconnect()
			pause(ctx, retryPause)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// fetch asks once and applies the answer.
func (f *Follower) fetch(ctx context.Context, apply func(*metadata.Delta)) error {
	old := f.latest
	poll, timeout := maxPoll, maxPoll+maxAnswer
	if !f.live() { // registration is about to complete, which is no news to the controller
		poll = firstPoll
	}
	if old.Index() == 0 { // a snapshot may be large
		timeout = max(timeout, f.cfg.RequestTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := f.metadata.Request(ctx, &wire.FetchMetadataRequest{
		BrokerID: f.cfg.NodeID, BrokerEpoch: f.BrokerEpoch(), ClusterID: f.cfg.ClusterID,
		Index: old.Index(), Term: old.Term(), MaxWaitMillis: int32(poll.Milliseconds()),
	})
	if err != nil {
		return err
	}
	resp := r.(*wire.FetchMetadataResponse)
	if err := responseError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	if resp.ControllerEpoch < f.controllerEpoch {
		return fmt.Errorf("controller %d is of epoch %d, %d is known", resp.ControllerID, resp.ControllerEpoch, f.controllerEpoch)
	}
	if resp.ControllerEpoch > f.controllerEpoch || resp.ControllerID != f.controllerID {
		f.controllerEpoch, f.controllerID = resp.ControllerEpoch, resp.ControllerID
		f.controllers.learn(ctx, f.metadata)
	}
	f.settle()
	next, delta, err := advance(old, resp)
	if err != nil {
		return err
	}
	f.committed.Store(max(resp.CommittedIndex, next.Index()))
	f.contact.Store(time.Now().UnixNano())
	f.latest = next
	if !f.live() {
		if epoch := f.BrokerEpoch(); epoch < 0 || next.Index() < uint64(epoch) {
			return f.fresh(resp)
		}
		delta = metadata.Diff(f.Image(), next)
	}
	if next != f.Image() {
		apply(delta) // also an empty one: it has the image
		f.publish(next)
	}
	return f.fresh(resp)
}

// errStale makes the follower turn to another controller.
var errStale = errors.New("the controller has not heard from the active one lately")

// fresh returns an error if the source of an answer, which is applied, may lag
// behind the others and there is another one.
func (f *Follower) fresh(resp *wire.FetchMetadataResponse) error {
	lag := time.Duration(resp.LeaderMillis) * time.Millisecond
	if lag >= 0 && lag <= maxSourceLag || len(f.controllers.addrs()) < 2 {
		return nil
	}
	return fmt.Errorf("%w (for %v)", errStale, lag)
}

// live reports whether the partitions have been given an image in this life.
func (f *Follower) live() bool { return f.Image().Index() > 0 }

// advance returns the image after a response and what differs.
func advance(old *metadata.Image, resp *wire.FetchMetadataResponse) (*metadata.Image, *metadata.Delta, error) {
	img := old
	if resp.Snapshot != nil {
		var err error
		if img, err = metadata.DecodeSnapshot(bytes.NewReader(resp.Snapshot)); err != nil {
			return nil, nil, fmt.Errorf("metadata snapshot at index %d: %w", resp.SnapshotIndex, err)
		}
		if img.Index() < old.Index() {
			return nil, nil, fmt.Errorf("metadata snapshot at index %d, %d is applied", img.Index(), old.Index())
		}
	}
	var all []metadata.Record
	for _, e := range resp.Entries {
		if e.PrevIndex != img.Index() {
			return nil, nil, fmt.Errorf("metadata gap: entry %d follows %d, %d is applied", e.Index, e.PrevIndex, img.Index())
		}
		recs, err := metadata.DecodeRecords(e.Records)
		if err != nil {
			return nil, nil, fmt.Errorf("metadata entry %d: %w", e.Index, err)
		}
		img = img.Replay(recs, e.Index, e.Term)
		all = append(all, recs...)
	}
	if resp.Snapshot != nil {
		return img, metadata.Diff(old, img), nil
	}
	return img, metadata.NewDelta(old, img, all), nil
}

// responseError is nil for code 0, else wraps kerr's value.
func responseError(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil {
		return fmt.Errorf("%w: %s", err, *message)
	}
	return err
}

// close ends the connections to the controller.
func (f *Follower) close() error {
	return errors.Join(f.metadata.Close(), f.heartbeat.Close(), f.commands.Close(), f.admin.Close())
}
