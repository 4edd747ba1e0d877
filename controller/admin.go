package controller

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// maxAdminQueue bounds the requests that wait for the one goroutine which
// plans and proposes for administrators.
const maxAdminQueue = 1024

// adminRequest is a request of an administrator that waits for its turn.
type adminRequest struct {
	r     *wire.Request
	until time.Time
}

// enqueueAdmin hands a request to the administrator's goroutine. One after the
// other, each sees what the former did: a topic that was just created can be
// altered by the next request of the pipeline.
func (c *Controller) enqueueAdmin(r *wire.Request) {
	timeout := requestTimeout
	if t, ok := r.Body.(interface{ Timeout() int32 }); ok {
		timeout = timeoutOf(t.Timeout())
	}
	switch {
	case c.reign.Load() == nil:
		c.refuseAdmin(r, ErrNotLeader)
	default:
		select {
		case c.admin <- adminRequest{r, r.Received.Add(timeout)}:
		case <-c.life.Done():
			c.refuseAdmin(r, ErrNotLeader)
		default:
			c.refuseAdmin(r, metadata.Refuse(kerr.ThrottlingQuotaExceeded, "%d requests are waiting", maxAdminQueue))
		}
	}
}

// administer works off the queue until ctx ends.
func (c *Controller) administer(ctx context.Context) {
	for {
		select {
		case a := <-c.admin:
			c.administerOne(ctx, a)
		case <-ctx.Done():
			for {
				select {
				case a := <-c.admin:
					c.refuseAdmin(a.r, ErrNotLeader)
				default:
					return
				}
			}
		}
	}
}

func (c *Controller) administerOne(ctx context.Context, a adminRequest) {
	ctx, cancel := context.WithDeadline(ctx, a.until)
	defer cancel()
	if ctx.Err() != nil {
		c.refuseAdmin(a.r, metadata.Refuse(kerr.RequestTimedOut, "not begun in time"))
		return
	}
	b := batch{c: c, image: c.Image()}
	b.planner = metadata.Planner{Image: b.image, Static: c.cfg.Properties, NewID: wire.NewUUID, Seed: rand.Uint64()}
	b.answer(ctx, a.r)
}

// answer carries out a request and replies.
func (b *batch) answer(ctx context.Context, r *wire.Request) {
	switch req := r.Body.(type) {
	case *kmsg.CreateTopicsRequest:
		r.Reply(b.createTopics(ctx, req))
	case *kmsg.DeleteTopicsRequest:
		r.Reply(b.deleteTopics(ctx, req))
	case *kmsg.CreatePartitionsRequest:
		r.Reply(b.createPartitions(ctx, req))
	case *kmsg.AlterConfigsRequest:
		r.Reply(b.alterConfigs(ctx, req))
	case *kmsg.IncrementalAlterConfigsRequest:
		r.Reply(b.incrementalAlterConfigs(ctx, req))
	case *kmsg.ElectLeadersRequest:
		r.Reply(b.electLeaders(ctx, req))
	case *kmsg.AlterPartitionAssignmentsRequest:
		r.Reply(b.alterReassignments(ctx, req))
	case *kmsg.ListPartitionReassignmentsRequest:
		r.Reply(b.listReassignments(req))
	case *kmsg.UnregisterBrokerRequest:
		r.Reply(b.unregisterBroker(ctx, req))
	default:
		r.Fail(errUnserved)
	}
}

// refuseAdmin answers every item of a request with one error.
func (c *Controller) refuseAdmin(r *wire.Request, err error) {
	b := batch{c: c, image: c.Image(), refused: err}
	b.answer(context.Background(), r) // nothing is asked of the quorum
}

// batch gathers what the items of one request come to, so that they share an
// entry. Items keep their numbers; each has its own outcome.
type batch struct {
	c       *Controller
	image   *metadata.Image
	planner metadata.Planner
	refused error // if set, of every item

	cmds  []metadata.Command
	items []int // item of each command
	errs  []error
}

// add gives the next item its plan, or the reason why there is none. A nil
// command without an error is an item with nothing to do.
func (b *batch) add(cmd metadata.Command, err error) {
	if b.refused != nil {
		cmd, err = nil, b.refused
	}
	if err == nil && cmd != nil && len(b.cmds) == metadata.MaxCommands {
		err = metadata.Refuse(kerr.PolicyViolation, "More than %d changes in one request; ask for them in several.", metadata.MaxCommands)
	}
	if err == nil && cmd != nil {
		b.cmds, b.items = append(b.cmds, cmd), append(b.items, len(b.errs))
	}
	b.errs = append(b.errs, err)
}

// commit proposes what was planned, or with dry only tries it on the image,
// and returns the outcome of every item.
func (b *batch) commit(ctx context.Context, dry bool) []error {
	switch {
	case len(b.cmds) == 0:
	case dry:
		m := b.image
		for i, cmd := range b.cmds {
			var result metadata.Result
			m, _, result = metadata.Apply(m, cmd, metadata.Meta{Index: m.Index() + 1, Term: m.Term(), TimeMs: time.Now().UnixMilli()})
			b.errs[b.items[i]] = result.Err()
		}
	default:
		done, err := b.c.propose(ctx, b.cmds...)
		for i, item := range b.items {
			if b.errs[item] = err; err == nil {
				b.errs[item] = done.results[i].Err()
			}
		}
	}
	return b.errs
}

// twice counts how often each key occurs.
func twice[T any, K comparable](items []T, key func(T) K) map[K]int {
	counts := make(map[K]int, len(items))
	for _, item := range items {
		counts[key(item)]++
	}
	return counts
}
