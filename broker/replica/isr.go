package replica

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/varve-io/varve/controller/metadata"
)

// isrWork is what a leader has proposed of its ISR and does not see in the image yet (KIP-497). Guarded by Partition.mu. Until it is
// settled, members of the ISR and of every proposal count for the high watermark.
type isrWork struct {
	pending  []int32 // in flight, or accepted and not applied here
	unknown  []int32 // proposed, and no answer came: it may be accepted yet, until the row's partition epoch moves
	inFlight bool
	retryAt  time.Time // not before
}

// isrKeeper proposes the ISRs of the partitions led here: who falls behind is found by looking, who catches up by his
// fetches. All that is due goes in one request, and one is under way at a time.
type isrKeeper struct {
	m    *Manager
	wake chan struct{}

	mu  sync.Mutex
	due map[*Partition]bool
}

const (
	// maxProposals bounds one request.
	maxProposals = 1000
	// proposalPause is how long a partition waits after a proposal that came to nothing.
	proposalPause = 500 * time.Millisecond
)

// consider has a partition looked at soon.
func (k *isrKeeper) consider(p *Partition) {
	k.mu.Lock()
	k.due[p] = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *isrKeeper) run(ctx context.Context) {
	ticker := time.NewTicker(k.m.cfg.Replication.LagTime / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.propose(ctx, k.m.list())
		case <-k.wake:
			k.propose(ctx, k.take())
		}
	}
}

func (k *isrKeeper) take() []*Partition {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]*Partition, 0, len(k.due))
	for p := range k.due {
		list = append(list, p)
	}
	clear(k.due)
	return list
}

func (k *isrKeeper) propose(ctx context.Context, list []*Partition) {
	now := time.Now()
	var from []*Partition
	var cmds []metadata.Command
	for i, p := range list {
		if cmd := p.proposal(now); cmd != nil {
			from, cmds = append(from, p), append(cmds, cmd)
		}
		if len(cmds) == maxProposals || i == len(list)-1 && len(cmds) > 0 {
			k.submit(ctx, from, cmds)
			from, cmds = nil, nil
		}
	}
}

func (k *isrKeeper) submit(ctx context.Context, from []*Partition, cmds []metadata.Command) {
	results, index, err := k.m.cfg.Committer.Submit(ctx, cmds...)
	if err == nil {
		// An answer counts once the image shows what came of it; should that take long, it is as good as none.
		_, err = k.m.cfg.WaitImage(ctx, index)
	}
	if err != nil && ctx.Err() == nil {
		k.m.logger.Warn("no answer to proposals of in-sync replicas, they are made again", "partitions", len(cmds), "error", err)
	}
	for i, p := range from {
		cmd := cmds[i].(*metadata.AlterPartition)
		switch {
		case err != nil || len(results) != len(cmds):
			p.proposed(cmd, true)
			k.m.metrics.isrFailed.Inc()
		case results[i].Err() != nil:
			k.m.logger.Info("in-sync replicas stay as they are", "topic", p.topic, "partition", p.index, "proposed", members(cmd), "reason", results[i].Err())
			p.proposed(cmd, false)
			k.m.metrics.isrFailed.Inc()
		default:
			p.proposed(cmd, false)
		}
	}
}

// proposed takes note that a proposal was answered, or was not. An accepted one has changed the row, and with it the state here is
// new; if the row is the same, nothing came of it.
func (p *Partition) proposed(cmd *metadata.AlterPartition, unknown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead := p.lead.Load()
	if lead == nil || !lead.here || lead.epoch != cmd.LeaderEpoch || lead.row.PartitionEpoch != cmd.PartitionEpoch {
		return
	}
	w := &p.mu.isr
	if row := p.row(); unknown || row == nil || row.PartitionEpoch != cmd.PartitionEpoch { // the image is ahead of what this partition follows
		for _, id := range w.pending {
			if !slices.Contains(w.unknown, id) {
				w.unknown = append(w.unknown, id)
			}
		}
	}
	w.pending, w.inFlight = nil, false
	w.retryAt = time.Now().Add(proposalPause)
	p.m.timers.add(&deadline{}, w.retryAt, func() { p.m.isr.consider(p) })
}

// proposal is the ISR that this leader wants and does not have; nil if there is none to be proposed now.
func (p *Partition) proposal(now time.Time) *metadata.AlterPartition {
	l := p.log.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	lead := p.lead.Load()
	if l == nil || lead == nil || !lead.here || lead.replicas < 2 || p.mu.isr.inFlight || now.Before(p.mu.isr.retryAt) {
		return nil
	}
	me, end, limit := p.m.cfg.NodeID, l.EndOffset(), p.m.cfg.Replication.LagTime
	cmd := &metadata.AlterPartition{BrokerID: me, BrokerEpoch: p.m.cfg.BrokerEpoch(), TopicID: p.id, Partition: p.index,
		LeaderEpoch: lead.epoch, PartitionEpoch: lead.row.PartitionEpoch}
	changes := len(p.mu.isr.unknown) > 0 // then a proposal settles it, whatever it says
	for _, id := range lead.row.Replicas {
		f, in := p.mu.followers[id], slices.Contains(lead.row.ISR, id)
		switch {
		case id == me:
			cmd.ISR = append(cmd.ISR, metadata.ISRMember{BrokerID: id, BrokerEpoch: cmd.BrokerEpoch})
		case in && !f.behind(end, now, limit):
			cmd.ISR = append(cmd.ISR, metadata.ISRMember{BrokerID: id, BrokerEpoch: f.brokerEpoch})
		case !in && p.joins(lead, id):
			cmd.ISR = append(cmd.ISR, metadata.ISRMember{BrokerID: id, BrokerEpoch: f.brokerEpoch})
			changes = true
		case in:
			changes = true
		}
	}
	if !changes {
		return nil
	}
	p.mu.isr.pending, p.mu.isr.inFlight = members(cmd), true
	return cmd
}

// joins tells whether a replica outside may be proposed: it has fetched in this epoch, at its broker's present epoch, and has all that is
// or can have been committed. The caller holds p.mu.
func (p *Partition) joins(lead *leadership, id int32) bool {
	f := p.mu.followers[id]
	if f == nil || f.end < max(p.hw.Load(), lead.epochStart) || slices.Contains(lead.row.ISR, id) {
		return false
	}
	b := p.m.Image().Broker(id)
	return b.Active() && b.Epoch == f.brokerEpoch
}

func members(cmd *metadata.AlterPartition) []int32 {
	list := make([]int32, len(cmd.ISR))
	for i, m := range cmd.ISR {
		list[i] = m.BrokerID
	}
	return list
}
