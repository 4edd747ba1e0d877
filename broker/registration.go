package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
)

// securityProtocols are Kafka's numbers.
var securityProtocols = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

// stayRegistered registers the broker and sends heartbeats until ctx ends.
func (f *Follower) stayRegistered(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.register(ctx)
		if err == nil {
			err = f.beat(ctx)
		}
		if ctx.Err() != nil {
			return // the epoch stays: it is needed to leave
		}
		f.epoch.Store(-1)
		f.fenced.Store(true)
		f.log.Warn("not registered", "err", err)
		pause(ctx, retryPause)
	}
}

// register asks the controller to admit this life of the broker.
func (f *Follower) register(ctx context.Context) error {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID = f.cfg.NodeID
	req.ClusterID = f.cfg.ClusterID
	req.IncarnationID = f.incarnation
	req.PreviousBrokerEpoch = f.cfg.PreviousEpoch
	if f.cfg.Rack != "" {
		req.Rack = &f.cfg.Rack
	}
	for _, l := range f.cfg.Listeners {
		req.Listeners = append(req.Listeners, kmsg.BrokerRegistrationRequestListener{
			Name: l.Name, Host: l.Host, Port: uint16(l.Port), SecurityProtocol: securityProtocols[l.Protocol]})
	}
	for _, d := range f.cfg.Dirs {
		req.LogDirs = append(req.LogDirs, d)
	}
	req.Features = []kmsg.BrokerRegistrationRequestFeature{{
		Name: metadata.MetadataFeature, MinSupportedVersion: metadata.MetadataVersionMin, MaxSupportedVersion: metadata.MetadataVersion}}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RequestTimeout)
	defer cancel()
	r, err := f.heartbeat.Request(ctx, req)
	if err != nil {
		f.controllers.forget()
		return fmt.Errorf("register: %w", err)
	}
	resp := r.(*kmsg.BrokerRegistrationResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if errors.Is(err, kerr.NotController) {
			f.tryNext(ctx, f.heartbeat)
		}
		return fmt.Errorf("register: %w", err)
	}
	f.epoch.Store(resp.BrokerEpoch)
	f.log.Info("registered", "broker", f.cfg.NodeID, "epoch", resp.BrokerEpoch)
	return nil
}

// beat sends heartbeats until the registration is no longer valid. A fenced
// broker sends one as soon as it has caught up with its own registration: that
// unfences it. A heartbeat that gets no answer says nothing about the
// registration, so the next one follows soon.
func (f *Follower) beat(ctx context.Context) error {
	silent := false
	for {
		told := f.Image().Index()
		fenced, err := f.sendHeartbeat(ctx, false)
		var refused *kerr.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refused) && refused != kerr.NotController:
			return err
		case err != nil:
			if !silent {
				f.log.Warn("no answer to heartbeats", "err", err)
			}
			silent = true
			pause(ctx, retryPause)
			continue
		}
		silent = false
		f.settle()
		if f.fenced.Swap(fenced) != fenced {
			f.log.Info("broker fencing changed", "fenced", fenced)
		}
		wait, cancel := context.WithTimeout(ctx, f.cfg.HeartbeatInterval)
		if epoch := uint64(f.BrokerEpoch()); fenced && told < epoch {
			f.WaitImage(wait, epoch)
		} else {
			<-wait.Done()
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// sendHeartbeat reports whether the broker is fenced, or to shut down may go.
func (f *Follower) sendHeartbeat(ctx context.Context, leave bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*f.cfg.HeartbeatInterval)
	defer cancel()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID = f.cfg.NodeID
	req.BrokerEpoch = f.BrokerEpoch()
	req.CurrentMetadataOffset = int64(f.Image().Index())
	req.WantShutdown = leave
	if f.cfg.OfflineDirs != nil {
		for _, d := range f.cfg.OfflineDirs() {
			req.OfflineLogDirs = append(req.OfflineLogDirs, d)
		}
	}
	r, err := f.heartbeat.Request(ctx, req)
	if err != nil {
		f.controllers.forget()
		return true, fmt.Errorf("heartbeat: %w", err)
	}
	resp := r.(*kmsg.BrokerHeartbeatResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if errors.Is(err, kerr.NotController) {
			f.tryNext(ctx, f.heartbeat)
		}
		return true, fmt.Errorf("heartbeat: %w", err)
	}
	if leave {
		return resp.ShouldShutdown, nil
	}
	return resp.IsFenced, nil
}

// leavePause is between heartbeats that ask to leave.
const leavePause = 50 * time.Millisecond

// leave has the controller move leaderships away before the broker stops.
func (f *Follower) leave(ctx context.Context) {
	for f.BrokerEpoch() >= 0 {
		if may, err := f.sendHeartbeat(ctx, true); may || err != nil {
			return
		}
		pause(ctx, leavePause)
	}
}
