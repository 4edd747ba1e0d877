package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// The controllers' quorum is described and changed by the active controller.

func (h *handler) describeQuorum(ctx context.Context, r *wire.Request, req *kmsg.DescribeQuorumRequest) {
	resp, err := h.follower.forward(ctx, req, 0, func(resp kmsg.Response) bool {
		q, ok := resp.(*kmsg.DescribeQuorumResponse)
		if !ok || len(q.Topics) == 0 || len(q.Topics[0].Partitions) == 0 {
			return ok && q.ErrorCode == kerr.NotController.Code
		}
		return q.Topics[0].Partitions[0].ErrorCode == kerr.NotLeaderForPartition.Code
	})
	if err != nil {
		failed := kmsg.NewPtrDescribeQuorumResponse()
		failed.ErrorCode, failed.ErrorMessage = unreachable(err), message(err)
		resp = failed
	}
	r.Reply(resp)
}

func (h *handler) addRaftVoter(ctx context.Context, r *wire.Request, req *kmsg.AddRaftVoterRequest) {
	resp, err := h.follower.forward(ctx, req, req.TimeoutMillis, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.AddRaftVoterResponse)
		return ok && r.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrAddRaftVoterResponse()
		failed.ErrorCode, failed.ErrorMessage = unreachable(err), message(err)
		resp = failed
	}
	r.Reply(resp)
}

func (h *handler) removeRaftVoter(ctx context.Context, r *wire.Request, req *kmsg.RemoveRaftVoterRequest) {
	resp, err := h.follower.forward(ctx, req, 0, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.RemoveRaftVoterResponse)
		return ok && r.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrRemoveRaftVoterResponse()
		failed.ErrorCode, failed.ErrorMessage = unreachable(err), message(err)
		resp = failed
	}
	r.Reply(resp)
}
