package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// ErrUnknownOutcome says that a write was sent to the controller and no answer
// came: it may have happened. Look at a later image, then decide.
var ErrUnknownOutcome = errors.New("outcome unknown")

// Submit proposes commands to the active controller in one entry. It returns one
// result a command and the index at which they are visible. Errors are
// ErrUnknownOutcome, or that nothing happened.
func (f *Follower) Submit(ctx context.Context, cmds ...metadata.Command) ([]metadata.Result, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RequestTimeout)
	defer cancel()
	req := &wire.SubmitCommandsRequest{BrokerID: f.cfg.NodeID, BrokerEpoch: f.BrokerEpoch(), ClusterID: f.cfg.ClusterID,
		TimeoutMillis: int32(f.cfg.RequestTimeout.Milliseconds())}
	for _, c := range cmds {
		req.Commands = append(req.Commands, metadata.EncodeCommand(c))
	}
	for {
		r, err := f.commands.Request(ctx, req)
		if err != nil {
			f.controllers.forget()
			return nil, 0, outcome(err)
		}
		resp := r.(*wire.SubmitCommandsResponse)
		switch err := responseError(resp.ErrorCode, resp.ErrorMessage); {
		case err == nil:
			return results(resp, len(cmds))
		case errors.Is(err, kerr.NotController) && f.tryNext(ctx, f.commands):
		case errors.Is(err, kerr.RequestTimedOut):
			return nil, 0, fmt.Errorf("submit: %w: %w", ErrUnknownOutcome, err)
		default:
			return nil, 0, fmt.Errorf("submit: %w", err)
		}
	}
}

// outcome tells a request that surely was not sent from one that perhaps was.
func outcome(err error) error {
	if errors.Is(err, wire.ErrDisconnected) {
		return fmt.Errorf("submit: %w: %w", ErrUnknownOutcome, err)
	}
	return fmt.Errorf("submit: %w", err)
}

func results(resp *wire.SubmitCommandsResponse, want int) ([]metadata.Result, uint64, error) {
	if len(resp.Results) != want {
		return nil, 0, fmt.Errorf("submit: %d results of %d commands", len(resp.Results), want)
	}
	out := make([]metadata.Result, want)
	for i, r := range resp.Results {
		out[i] = metadata.Result{Code: r.ErrorCode, Data: r.Data}
		if r.ErrorMessage != nil {
			out[i].Message = *r.ErrorMessage
		}
	}
	return out, resp.Index, nil
}

// tryNext turns a client from a controller that is not active to the one that
// is, or after a pause to another; false when time is up.
func (f *Follower) tryNext(ctx context.Context, c *wire.Client) bool {
	known := f.controllers.learn(ctx, c)
	c.Disconnect()
	if !known {
		pause(ctx, retryPause)
	}
	return ctx.Err() == nil
}

// minForward is the least time that a forwarded request has, whatever the
// client says: each that runs out costs the connection.
const minForward = time.Second

// forward sends a client's administrative request to the controller and waits
// until what it changed is applied here, so that the client sees its own write.
// notController looks into the answer for NOT_CONTROLLER.
func (f *Follower) forward(ctx context.Context, req kmsg.Request, timeoutMillis int32, notController func(kmsg.Response) bool) (kmsg.Response, error) {
	timeout := f.cfg.RequestTimeout
	if timeoutMillis > 0 {
		timeout = min(timeout, max(time.Duration(timeoutMillis)*time.Millisecond, minForward))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		resp, err := f.admin.Request(ctx, req)
		if err != nil {
			f.controllers.forget()
			return nil, err
		}
		if notController(resp) && f.tryNext(ctx, f.admin) {
			continue
		}
		f.barrier(ctx)
		return resp, nil
	}
}

// barrier waits until this broker has applied all that the controller it speaks
// to has committed by now. If that does not happen in time the write stands all
// the same and the client sees it a little later.
func (f *Follower) barrier(ctx context.Context) {
	img := f.Image()
	r, err := f.admin.Request(ctx, &wire.FetchMetadataRequest{
		BrokerID: f.cfg.NodeID, BrokerEpoch: f.BrokerEpoch(), ClusterID: f.cfg.ClusterID, Index: img.Index(), Term: img.Term()})
	if err != nil {
		return
	}
	if resp := r.(*wire.FetchMetadataResponse); resp.ErrorCode == 0 {
		f.WaitImage(ctx, resp.CommittedIndex)
	}
}

// allocateProducerIDs asks for the next block of producer ids.
func (f *Follower) allocateProducerIDs(ctx context.Context) (first int64, count int32, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RequestTimeout)
	defer cancel()
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = f.cfg.NodeID, f.BrokerEpoch()
	for {
		r, err := f.commands.Request(ctx, req)
		if err != nil {
			f.controllers.forget()
			return 0, 0, fmt.Errorf("allocate producer ids: %w", err)
		}
		resp := r.(*kmsg.AllocateProducerIDsResponse)
		err = kerr.ErrorForCode(resp.ErrorCode)
		if errors.Is(err, kerr.NotController) && f.tryNext(ctx, f.commands) {
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("allocate producer ids: %w", err)
		}
		return resp.ProducerIDStart, resp.ProducerIDLen, nil
	}
}
