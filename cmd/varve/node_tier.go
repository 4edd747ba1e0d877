package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/varve-io/varve/broker"
	"github.com/varve-io/varve/broker/admin"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
)

// How long the store may take to answer a probe, and how often one that does
// not is asked again. Clients are served without it.
const (
	probePatience = 5 * time.Second
	probeRetry    = 5 * time.Second
	// probeName is looked for; it need not be there.
	probeName = "varve-cluster.json"
)

// prefixCheck is what is known of the question whether the store's prefix is
// this cluster's.
type prefixCheck struct {
	mu   sync.Mutex
	done bool
	err  error
}

func (p *prefixCheck) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.err = p.done || err == nil, err
}

// failing returns the error while the question is open.
func (p *prefixCheck) failing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return nil
	}
	return p.err
}

// openTier makes the metadata follower, which the tier commits through, and
// the tier itself if there is a store.
func (n *node) openTier(ctx context.Context) error {
	if !n.cfg.IsBroker {
		return nil
	}
	if err := n.bindClients(ctx); err != nil {
		return err
	}
	n.follower = broker.NewFollower(n.followerConfig())
	if n.cfg.Store.URL == "" {
		n.logger.Info("no object store: varve.store.url is not set, topics stay on local disks")
		return nil
	}
	var err error
	if n.provider, err = openProvider(ctx, n.cfg.Store); err != nil {
		return err
	}
	n.store = wrapStore(n.provider, n.cfg.Store, n.registry)
	if n.tier, err = tier.New(n.tierConfig()); err != nil {
		return err
	}
	return n.checkPrefixOnce(ctx)
}

func (n *node) followerConfig() broker.FollowerConfig {
	cfg := broker.FollowerConfig{
		NodeID: n.cfg.NodeID, ClusterID: n.clusterID, Rack: n.cfg.Rack, Listeners: n.advertised(), PreviousEpoch: n.previousEpoch(), OfflineDirs: n.offlineDirs,
		Controllers:       func() []string { return n.controllers },
		HeartbeatInterval: n.cfg.Session.Heartbeat, RequestTimeout: n.cfg.Session.RequestTimeout, Logger: n.logger, Registerer: n.registry,
	}
	for _, d := range n.dirs {
		cfg.Dirs = append(cfg.Dirs, d.ID())
	}
	return cfg
}

// offlineDirs are the log directories that failed in this life.
func (n *node) offlineDirs() []wire.UUID {
	var failed []wire.UUID
	for _, d := range n.dirs {
		if d.Err() != nil {
			failed = append(failed, d.ID())
		}
	}
	return failed
}

// previousEpoch is the broker epoch of the last life if no directory lost
// anything that it wrote, else -1 (KIP-966).
func (n *node) previousEpoch() int64 {
	epoch := n.dirs[0].PreviousEpoch()
	for _, d := range n.dirs {
		if d.PreviousEpoch() != epoch {
			return -1
		}
	}
	return epoch
}

func (n *node) tierConfig() tier.Config {
	t := n.cfg.Tier
	return tier.Config{
		ClusterID: n.clusterID, NodeID: n.cfg.NodeID, BrokerEpoch: n.follower.BrokerEpoch, Store: n.store, FS: n.fs,
		CacheDir: t.CacheDir, CacheBytes: t.CacheBytes, ChunkBytes: int64(t.ChunkBytes), ReadAheadBytes: t.ReadAheadBytes,
		MaxReadMemory: t.ReadMemoryBytes, IndexBytes: t.IndexCacheBytes, ReadRate: rate(t.ReadRate), UploadRate: rate(t.UploadRate),
		UploadConcurrency: t.UploadConcurrency, ReservationMs: t.Reservation.Milliseconds(), DeleteGrace: t.DeleteGrace,
		Image: n.follower.Image, WaitImage: n.follower.WaitImage, Committer: n.follower,
		Logger: n.logger, Registerer: n.registry,
	}
}

// rate turns Kafka's "no limit" into ours.
func rate(bytesPerSecond int64) int64 {
	if bytesPerSecond == math.MaxInt64 {
		return 0
	}
	return bytesPerSecond
}

// checkPrefixOnce refuses a prefix of another cluster; a store that does not
// answer is told of and does not keep the node from starting.
func (n *node) checkPrefixOnce(ctx context.Context) error {
	err := n.probe(ctx)
	if err == nil {
		err = n.tier.CheckPrefix(ctx)
	}
	if errors.Is(err, tier.ErrForeignPrefix) || errors.Is(err, tier.ErrVersion) {
		return err
	}
	if n.prefix.note(err); err == nil {
		n.logger.Info("object store answers", "url", n.cfg.Store.URL)
	} else if ctx.Err() == nil {
		cause, remedy := objstore.Diagnose(err)
		n.logger.Error("object store: "+cause, "remedy", remedy, "url", n.cfg.Store.URL, "error", err)
	}
	return nil
}

// probe asks the store once and does not try again, so that what is wrong is
// known soon.
func (n *node) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	_, err := n.provider.Head(ctx, probeName)
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, objstore.ErrTimeout):
		return fmt.Errorf("%w: %w", objstore.ErrTimeout, err)
	}
	return err
}

// checkPrefix asks again until the store has answered once.
func (n *node) checkPrefix(ctx context.Context) error {
	for n.prefix.failing() != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(probeRetry):
		}
		if err := n.checkPrefixOnce(ctx); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// storeStatus is nil if there is no store.
func (n *node) storeStatus() *admin.StoreStatus {
	if s := n.started.Load(); s == nil || s.tier == nil {
		return nil
	}
	st := n.tier.Status()
	s := &admin.StoreStatus{
		URL: n.cfg.Store.URL, Healthy: st.Healthy, Uploads: st.Uploads, Downloads: st.Downloads,
		CacheBytes: st.CacheBytes, CacheLimit: st.CacheLimit, Corrupt: st.CorruptChunks,
	}
	err := st.LastError
	if failing := n.prefix.failing(); failing != nil {
		err, s.Healthy = failing, false
	}
	if !s.Healthy && err != nil {
		s.Cause, s.Remedy = objstore.Diagnose(err)
		s.Error = fmt.Sprint(err)
		if !st.FailingSince.IsZero() {
			s.FailingSince = &st.FailingSince
		}
	}
	return s
}
