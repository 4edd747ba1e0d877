package broker

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

// producerIDs hands out ids from the block that the controller gave this broker.
type producerIDs struct {
	mu      sync.Mutex
	next    int64
	left    int32
	filling chan struct{} // closed when a request for a block has ended; nil: none
}

// take returns an id, false if the block is used up.
func (p *producerIDs) take() (int64, bool) {
	if p.left == 0 {
		return 0, false
	}
	id := p.next
	p.next++
	p.left--
	return id, true
}

// newProducerID returns an id that was never given to anyone. When the block is
// used up one caller fetches the next and the others wait for it.
func (b *Broker) newProducerID(ctx context.Context) (int64, error) {
	p := &b.ids
	for {
		p.mu.Lock()
		if id, ok := p.take(); ok {
			p.mu.Unlock()
			return id, nil
		}
		filling := p.filling
		mine := filling == nil
		if mine {
			p.filling = make(chan struct{})
		}
		p.mu.Unlock()
		if !mine {
			select {
			case <-filling:
				continue
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		first, count, err := b.follower.allocateProducerIDs(ctx)
		p.mu.Lock()
		if err == nil {
			p.next, p.left = first, count
		}
		close(p.filling)
		p.filling = nil
		p.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
}

// initProducerID answers InitProducerId for idempotent producers. It holds the
// reader when a new block of ids is needed, once in a thousand.
func (h *handler) initProducerID(ctx context.Context, r *wire.Request, req *kmsg.InitProducerIDRequest) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		resp.ErrorCode = kerr.InvalidRequest.Code
	case req.TransactionalID != nil: // a fatal error, so that clients say so instead of asking for ever
		resp.ErrorCode = kerr.InvalidRequest.Code
	default:
		id, err := h.newProducerID(ctx)
		if err != nil {
			h.log.Warn("no producer id", "err", err)
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code // retriable for every client
			break
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	r.Reply(resp)
}
