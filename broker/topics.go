package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// What changes topics is decided by the controller. Its answers go to clients as
// they are; when there is none, every item of the request gets the error.

func (h *handler) createTopics(ctx context.Context, r *wire.Request, req *kmsg.CreateTopicsRequest) {
	resp, err := h.follower.forward(ctx, req, req.TimeoutMillis, createNotController)
	if err != nil {
		failed := kmsg.NewPtrCreateTopicsResponse()
		for _, t := range req.Topics {
			ft := kmsg.NewCreateTopicsResponseTopic()
			ft.Topic, ft.ErrorCode, ft.ErrorMessage = t.Topic, unreachable(err), message(err)
			failed.Topics = append(failed.Topics, ft)
		}
		resp = failed
	}
	r.Reply(resp)
}

func createNotController(resp kmsg.Response) bool {
	r, ok := resp.(*kmsg.CreateTopicsResponse)
	return ok && len(r.Topics) > 0 && r.Topics[0].ErrorCode == kerr.NotController.Code
}

func (h *handler) deleteTopics(ctx context.Context, r *wire.Request, req *kmsg.DeleteTopicsRequest) {
	if r.Version < 6 { // the controller is always asked in the latest form
		for _, name := range req.TopicNames {
			req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &name})
		}
	}
	if !h.cfg.Settings.DeleteTopics {
		r.Reply(failDelete(req, kerr.TopicDeletionDisabled.Code, message(kerr.TopicDeletionDisabled)))
		return
	}
	resp, err := h.follower.forward(ctx, req, req.TimeoutMillis, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.DeleteTopicsResponse)
		return ok && len(r.Topics) > 0 && r.Topics[0].ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		resp = failDelete(req, unreachable(err), message(err))
	}
	if d := resp.(*kmsg.DeleteTopicsResponse); r.Version < 6 {
		for i := range d.Topics {
			if d.Topics[i].Topic == nil {
				d.Topics[i].Topic = new(string) // not nullable before
			}
		}
	}
	r.Reply(resp)
}

func failDelete(req *kmsg.DeleteTopicsRequest, code int16, why *string) *kmsg.DeleteTopicsResponse {
	failed := kmsg.NewPtrDeleteTopicsResponse()
	for _, t := range req.Topics {
		ft := kmsg.NewDeleteTopicsResponseTopic()
		ft.Topic, ft.TopicID, ft.ErrorCode, ft.ErrorMessage = t.Topic, t.TopicID, code, why
		failed.Topics = append(failed.Topics, ft)
	}
	return failed
}

func (h *handler) createPartitions(ctx context.Context, r *wire.Request, req *kmsg.CreatePartitionsRequest) {
	resp, err := h.follower.forward(ctx, req, req.TimeoutMillis, func(resp kmsg.Response) bool {
		r, ok := resp.(*kmsg.CreatePartitionsResponse)
		return ok && len(r.Topics) > 0 && r.Topics[0].ErrorCode == kerr.NotController.Code
	})
	if err != nil {
		failed := kmsg.NewPtrCreatePartitionsResponse()
		for _, t := range req.Topics {
			ft := kmsg.NewCreatePartitionsResponseTopic()
			ft.Topic, ft.ErrorCode, ft.ErrorMessage = t.Topic, unreachable(err), message(err)
			failed.Topics = append(failed.Topics, ft)
		}
		resp = failed
	}
	r.Reply(resp)
}
