package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// Handler serves the CONTROLLER listener.
func (c *Controller) Handler() wire.Handler {
	return wire.HandlerFunc(func(ctx context.Context, group []*wire.Request) {
		for _, r := range group {
			c.handle(ctx, r)
		}
	})
}

func (c *Controller) handle(ctx context.Context, r *wire.Request) {
	switch req := r.Body.(type) {
	case *wire.FetchMetadataRequest:
		c.fetchMetadata(ctx, r, req)
	case *wire.IntroduceRequest:
		c.introduced(r, req)
	case *kmsg.DescribeQuorumRequest:
		c.describeQuorum(r, req)
	case *kmsg.AddRaftVoterRequest:
		c.addRaftVoter(r, req)
	case *kmsg.RemoveRaftVoterRequest:
		c.removeRaftVoter(r, req)
	case *wire.SubmitCommandsRequest:
		c.submitCommands(r, req)
	case *kmsg.BrokerRegistrationRequest:
		c.brokerRegistration(r, req)
	case *kmsg.BrokerHeartbeatRequest:
		c.brokerHeartbeat(ctx, r, req)
	case *kmsg.AllocateProducerIDsRequest:
		c.allocateProducerIDs(r, req)
	case *kmsg.DescribeClusterRequest:
		c.describeCluster(r, req)
	default:
		c.enqueueAdmin(r)
	}
}

// requestTimeout bounds requests that do not say for themselves.
const requestTimeout = 30 * time.Second

func timeoutOf(millis int32) time.Duration {
	if d := time.Duration(millis) * time.Millisecond; d > 0 && d < requestTimeout {
		return d
	}
	return requestTimeout
}

// refusal is an error as the wire says it; nil is no error.
func refusal(err error) metadata.Result {
	switch {
	case errors.Is(err, ErrNotLeader):
		return metadata.Result{Code: kerr.NotController.Code, Message: err.Error()}
	case errors.Is(err, ErrUnknown):
		return metadata.Result{Code: kerr.RequestTimedOut.Code, Message: err.Error()}
	}
	return metadata.Refusal(err)
}

func code(err error) int16 { return refusal(err).Code }

// text is the message of a refusal, null if there is none.
func text(err error) *string {
	if r := refusal(err); r.Message != "" {
		return &r.Message
	}
	return nil
}

// controllerEpoch is the term in which this node is active, else the one it
// knows of.
func (c *Controller) controllerEpoch() int32 {
	if r := c.reign.Load(); r != nil {
		return int32(r.term)
	}
	_, term := c.quorum.Leading()
	return int32(term)
}

func (c *Controller) fetchMetadata(ctx context.Context, r *wire.Request, req *wire.FetchMetadataRequest) {
	answer := func() { r.Reply(c.metadataAfter(req.ClusterID, req.Index, req.Term)) }
	if c.wrongCluster(req.ClusterID) != nil {
		answer()
		return
	}
	atEnd := func(wake func()) func() bool { return context.AfterFunc(ctx, wake) }
	if !c.machine.feed.wait(req.Index, req.Term, time.Duration(req.MaxWaitMillis)*time.Millisecond, atEnd, answer) {
		answer()
	}
}

// wrongCluster refuses who speaks of another cluster; "" speaks of any. A node
// that is in no quorum does not answer as a cluster.
func (c *Controller) wrongCluster(id string) error {
	if err := c.Joined(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	if cluster := c.ClusterID(); id != "" && id != cluster {
		return metadata.Refuse(kerr.InconsistentClusterID, "the cluster is %s, not %s", cluster, id)
	}
	return nil
}

// introduced answers another controller, which is to be taken for one that waits
// to be added if it says so.
func (c *Controller) introduced(r *wire.Request, req *wire.IntroduceRequest) {
	c.observers.note(req.From, time.Now())
	r.Reply(&wire.IntroduceResponse{From: c.introduction()})
}

func (c *Controller) metadataAfter(clusterID string, index, term uint64) *wire.FetchMetadataResponse {
	resp := &wire.FetchMetadataResponse{ControllerEpoch: c.controllerEpoch(), ControllerID: c.quorum.Leader(), CommittedIndex: c.Image().Index(), LeaderMillis: -1}
	if heard := c.quorum.Heard(); heard >= 0 {
		resp.LeaderMillis = int32(min(heard.Milliseconds(), math.MaxInt32))
	}
	if err := c.wrongCluster(clusterID); err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		return resp
	}
	entries, position := c.machine.feed.after(index, term)
	switch position {
	case follows:
		resp.Entries = entries
	case lost:
		snapshot, img, err := c.machine.encoded()
		if err != nil {
			resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
			return resp
		}
		resp.Snapshot, resp.SnapshotIndex, resp.SnapshotTerm = snapshot, img.Index(), img.Term()
	}
	return resp
}

func (c *Controller) submitCommands(r *wire.Request, req *wire.SubmitCommandsRequest) {
	resp := &wire.SubmitCommandsResponse{ControllerEpoch: c.controllerEpoch()}
	refuse := func(err error) {
		resp.ErrorCode, resp.ErrorMessage = code(err), text(err)
		r.Reply(resp)
	}
	if err := c.wrongCluster(req.ClusterID); err != nil {
		refuse(err)
		return
	}
	cmds, err := decodeCommands(req.Commands)
	if err != nil {
		refuse(err)
		return
	}
	if c.reign.Load() == nil {
		refuse(ErrNotLeader)
		return
	}
	proposal := c.begin(cmds...)
	timeout := timeoutOf(req.TimeoutMillis)
	c.answer(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		done, err := c.await(ctx, proposal)
		if err != nil {
			refuse(err)
			return
		}
		resp.Index = done.index
		for _, result := range done.results {
			out := wire.CommandResult{ErrorCode: result.Code, Data: result.Data}
			if result.Message != "" {
				out.ErrorMessage = &result.Message
			}
			resp.Results = append(resp.Results, out)
		}
		r.Reply(resp)
	})
}

// maxCommands bounds the commands of one request, and with them an entry's.
const maxCommands = 5000

func decodeCommands(raw [][]byte) ([]metadata.Command, error) {
	if len(raw) == 0 || len(raw) > maxCommands {
		return nil, metadata.Refuse(kerr.InvalidRequest, "%d commands, at least 1 and at most %d can be submitted", len(raw), maxCommands)
	}
	cmds := make([]metadata.Command, 0, len(raw))
	for _, b := range raw {
		cmd, err := metadata.DecodeCommand(b)
		switch {
		case errors.Is(err, metadata.ErrUnsupported):
			return nil, metadata.Refuse(kerr.UnsupportedVersion, "%s", err)
		case err != nil:
			return nil, metadata.Refuse(kerr.InvalidRequest, "%s", err)
		case !brokers(cmd):
			return nil, metadata.Refuse(kerr.ClusterAuthorizationFailed, "%T is not for brokers to submit", cmd)
		}
		cmds = append(cmds, cmd)
	}
	return cmds, nil
}

// brokers lists the commands that brokers may submit as they are; what clients
// ask for is planned here first.
func brokers(cmd metadata.Command) bool {
	switch cmd.(type) {
	case *metadata.AlterPartition, *metadata.AssignDirs, *metadata.ReserveObject, *metadata.CommitSegment, *metadata.ReleaseReservation,
		*metadata.AdvanceLogStart, *metadata.DeleteSegmentsUpTo, *metadata.ForgetSegments, *metadata.CompleteTask,
		*metadata.ExpireReservations: // by the controller's time, so it matters not who asks
		return true
	}
	return false
}
