package controller

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// goneAfter is how long into a reign a broker that was never heard of in it is
// taken for alive when another process registers in its place.
const goneAfter = 3 * time.Second

// brokerRegistration, versions 0-4 (KIP-631; 3: previous epoch, KIP-966).
func (c *Controller) brokerRegistration(r *wire.Request, req *kmsg.BrokerRegistrationRequest) {
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	reign := c.reign.Load()
	if reign == nil {
		resp.ErrorCode = kerr.NotController.Code
		r.Reply(resp)
		return
	}
	cmds := []metadata.Command{registration(req)}
	if old := c.Image().Broker(req.BrokerID); old != nil && !old.Fenced && old.Incarnation != req.IncarnationID && c.superseded(old, req, reign) {
		// One entry: nobody sees the broker between its two lives.
		cmds = append([]metadata.Command{&metadata.FenceBroker{ID: old.ID, Epoch: old.Epoch}}, cmds...)
	}
	proposal := c.begin(cmds...)
	c.answer(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		done, err := c.await(ctx, proposal)
		if err == nil {
			err = done.results[len(done.results)-1].Err()
		}
		if b := c.Image().Broker(req.BrokerID); err == nil && (b == nil || b.Incarnation != req.IncarnationID) {
			err = metadata.Refuse(kerr.DuplicateBrokerRegistration, "another process has taken the place of broker %d", req.BrokerID)
		} else if err == nil {
			resp.BrokerEpoch = b.Epoch
		}
		if resp.ErrorCode = code(err); err == nil {
			c.logger.Info("broker registered", "broker", req.BrokerID, "epoch", resp.BrokerEpoch, "rack", deref(req.Rack))
		} else {
			c.logger.Warn("broker registration refused", "broker", req.BrokerID, "err", err)
		}
		r.Reply(resp)
	})
}

func registration(req *kmsg.BrokerRegistrationRequest) *metadata.RegisterBroker {
	cmd := &metadata.RegisterBroker{
		ID:            req.BrokerID,
		ClusterID:     req.ClusterID,
		Incarnation:   req.IncarnationID,
		Rack:          deref(req.Rack),
		PreviousEpoch: req.PreviousBrokerEpoch,
	}
	for _, l := range req.Listeners {
		cmd.Listeners = append(cmd.Listeners, metadata.Listener{Name: l.Name, Host: l.Host, Port: int32(l.Port), Security: l.SecurityProtocol})
	}
	for _, d := range req.LogDirs {
		cmd.LogDirs = append(cmd.LogDirs, wire.UUID(d))
	}
	return cmd
}

// superseded reports whether the registered process is surely over now that
// another one asks for its place, so that this one need not wait for a session
// to end:
//
//   - the broker of this node's own id runs in this very process;
//   - its connection ended, and the new one has the address that only one
//     process can listen on;
//   - it has not been heard of in this reign, which has lasted a while, and the
//     address is the same.
func (c *Controller) superseded(old *metadata.Broker, req *kmsg.BrokerRegistrationRequest, r *reign) bool {
	if old.ID == c.cfg.NodeID {
		return true
	}
	if !slices.Equal(old.Listeners, registration(req).Listeners) || c.sessions.connected(old.ID, old.Epoch) {
		return false
	}
	return c.sessions.gone(old.ID, old.Epoch) || time.Since(r.since) > goneAfter
}

// brokerHeartbeat, versions 0-2. A broker asks to be in service, out of it, or
// to shut down; the answer says what it is.
func (c *Controller) brokerHeartbeat(ctx context.Context, r *wire.Request, req *kmsg.BrokerHeartbeatRequest) {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	img := c.Image()
	b := img.Broker(req.BrokerID)
	var err error
	switch {
	case c.reign.Load() == nil:
		err = ErrNotLeader
	case b == nil:
		err = kerr.BrokerIDNotRegistered
	case b.Epoch != req.BrokerEpoch:
		err = metadata.Refuse(kerr.StaleBrokerEpoch, "broker %d is at epoch %d", b.ID, b.Epoch)
	}
	if err != nil {
		resp.ErrorCode = code(err)
		r.Reply(resp)
		return
	}
	newConn, behind := c.sessions.heard(b, r.Conn.ID, time.Now(), uint64(max(req.CurrentMetadataOffset, 0)), img.Index())
	if conn := r.Conn.ID; newConn {
		context.AfterFunc(ctx, func() { c.connectionEnded(b.ID, b.Epoch, conn) })
	}
	resp.IsCaughtUp = req.CurrentMetadataOffset >= b.Epoch && !behind
	var cmds []metadata.Command
	if failed := failedDirs(b, req); len(failed) > 0 {
		c.logger.Warn("log directories of a broker failed: what lies there is led by others", "broker", b.ID, "directories", failed)
		cmds = append(cmds, &metadata.FailDirs{ID: b.ID, Epoch: b.Epoch, Dirs: failed})
	}
	if cmd := transition(b, req, resp.IsCaughtUp); cmd != nil {
		cmds = append(cmds, cmd)
	}
	if len(cmds) == 0 {
		resp.IsFenced, resp.ShouldShutdown = b.Fenced, req.WantShutdown
		r.Reply(resp)
		return
	}
	proposal := c.begin(cmds...)
	c.answer(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		done, err := c.await(ctx, proposal)
		if err == nil {
			err = done.results[len(done.results)-1].Err()
		}
		resp.ErrorCode = code(err)
		if now := c.Image().Broker(b.ID); now != nil && err == nil {
			resp.IsFenced, resp.ShouldShutdown = now.Fenced, req.WantShutdown
			c.logger.Info("broker changed", "broker", b.ID, "epoch", b.Epoch, "fenced", now.Fenced, "shutting_down", now.InControlledShutdown)
		}
		r.Reply(resp)
	})
}

// failedDirs are the log directories that a heartbeat (version 1, KIP-858) says
// are offline, and the image does not know of.
func failedDirs(b *metadata.Broker, req *kmsg.BrokerHeartbeatRequest) []wire.UUID {
	var failed []wire.UUID
	for _, d := range req.OfflineLogDirs {
		if slices.Contains(b.LogDirs, wire.UUID(d)) && !slices.Contains(b.OfflineDirs, wire.UUID(d)) {
			failed = append(failed, d)
		}
	}
	return failed
}

// transition is the command that brings a broker to what it wants and may be;
// nil if it is there.
func transition(b *metadata.Broker, req *kmsg.BrokerHeartbeatRequest, caughtUp bool) metadata.Command {
	switch {
	case req.WantShutdown && !b.Fenced && !b.InControlledShutdown:
		return &metadata.ShutdownBroker{ID: b.ID, Epoch: b.Epoch}
	case req.WantShutdown:
		return nil
	case !b.Fenced && (req.WantFence || !caughtUp):
		return &metadata.FenceBroker{ID: b.ID, Epoch: b.Epoch}
	case b.Fenced && !req.WantFence && caughtUp:
		return &metadata.UnfenceBroker{ID: b.ID, Epoch: b.Epoch}
	}
	return nil
}

// producerIDBlock is how many producer ids a broker gets at a time, as in Kafka.
const producerIDBlock = 1000

// allocateProducerIDs, version 0.
func (c *Controller) allocateProducerIDs(r *wire.Request, req *kmsg.AllocateProducerIDsRequest) {
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	if c.reign.Load() == nil {
		resp.ErrorCode = kerr.NotController.Code
		r.Reply(resp)
		return
	}
	proposal := c.begin(&metadata.AllocateProducerIDs{BrokerID: req.BrokerID, BrokerEpoch: req.BrokerEpoch, Count: producerIDBlock})
	c.answer(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		done, err := c.await(ctx, proposal)
		if err == nil {
			err = done.results[0].Err()
		}
		if err == nil {
			var block metadata.ProducerIDBlock
			if block, err = metadata.DecodeProducerIDBlock(done.results[0].Data); err == nil {
				resp.ProducerIDStart, resp.ProducerIDLen = block.First, block.Count
			}
		}
		resp.ErrorCode = code(err)
		r.Reply(resp)
	})
}

// Kinds of endpoints in DescribeCluster (KIP-919).
const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

// describeCluster, versions 0-2.
func (c *Controller) describeCluster(r *wire.Request, req *kmsg.DescribeClusterRequest) {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType = req.EndpointType
	if err := c.wrongCluster(""); err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		r.Reply(resp)
		return
	}
	resp.ClusterID = c.ClusterID()
	resp.ControllerID = c.quorum.Leader()
	if req.EndpointType == controllerEndpoints {
		resp.Brokers = c.controllers()
	} else {
		resp.EndpointType = brokerEndpoints
		for b := range c.Image().Brokers() {
			if !b.Fenced || req.IncludeFencedBrokers {
				resp.Brokers = append(resp.Brokers, endpoint(b))
			}
		}
	}
	r.Reply(resp)
}

// controllers lists the members of the quorum.
func (c *Controller) controllers() []kmsg.DescribeClusterResponseBroker {
	var out []kmsg.DescribeClusterResponseBroker
	for _, v := range c.quorum.Members() {
		host, digits := c.hostPort(v)
		port, _ := strconv.ParseUint(digits, 10, 16)
		e := kmsg.NewDescribeClusterResponseBroker()
		e.NodeID, e.Host, e.Port = v.NodeID, host, int32(port)
		out = append(out, e)
	}
	return out
}

func endpoint(b *metadata.Broker) kmsg.DescribeClusterResponseBroker {
	out := kmsg.NewDescribeClusterResponseBroker()
	out.NodeID, out.IsFenced = b.ID, b.Fenced
	out.Host, out.Port = b.Listeners[0].Host, b.Listeners[0].Port
	if b.Rack != "" {
		out.Rack = &b.Rack
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
