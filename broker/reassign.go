package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// Who leads and where replicas lie is decided by the controller. When there is
// no answer from it, the request as a whole gets the error.

func (h *handler) electLeaders(ctx context.Context, r *wire.Request, req *kmsg.ElectLeadersRequest) {
	resp, err := h.follower.forward(ctx, req, req.TimeoutMillis, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.ElectLeadersResponse)
		return ok && r.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrElectLeadersResponse()
		failed.ErrorCode = unreachable(err)
		for _, t := range req.Topics { // version 0 has nothing but these
			ft := kmsg.NewElectLeadersResponseTopic()
			ft.Topic = t.Topic
			for _, p := range t.Partitions {
				fp := kmsg.NewElectLeadersResponseTopicPartition()
				fp.Partition, fp.ErrorCode, fp.ErrorMessage = p, unreachable(err), message(err)
				ft.Partitions = append(ft.Partitions, fp)
			}
			failed.Topics = append(failed.Topics, ft)
		}
		resp = failed
	}
	r.Reply(resp)
}

func (h *handler) alterReassignments(ctx context.Context, r *wire.Request, req *kmsg.AlterPartitionAssignmentsRequest) {
	resp, err := h.follower.forward(ctx, req, req.TimeoutMillis, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.AlterPartitionAssignmentsResponse)
		return ok && r.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		failed.ErrorCode, failed.ErrorMessage = unreachable(err), message(err)
		resp = failed
	}
	r.Reply(resp)
}

func (h *handler) listReassignments(ctx context.Context, r *wire.Request, req *kmsg.ListPartitionReassignmentsRequest) {
	resp, err := h.follower.forward(ctx, req, req.TimeoutMillis, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.ListPartitionReassignmentsResponse)
		return ok && r.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrListPartitionReassignmentsResponse()
		failed.ErrorCode, failed.ErrorMessage = unreachable(err), message(err)
		resp = failed
	}
	r.Reply(resp)
}

func (h *handler) unregisterBroker(ctx context.Context, r *wire.Request, req *kmsg.UnregisterBrokerRequest) {
	resp, err := h.follower.forward(ctx, req, 0, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.UnregisterBrokerResponse)
		return ok && r.ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrUnregisterBrokerResponse()
		failed.ErrorCode, failed.ErrorMessage = unreachable(err), message(err)
		resp = failed
	}
	r.Reply(resp)
}
