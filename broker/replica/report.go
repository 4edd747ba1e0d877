package replica

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/varve-io/varve/controller/metadata"
)

// reporter tells the controller how far the logs of partitions go that nobody is eligible to lead, so that the best replica
// of those that are left can be elected (KIP-966).
type reporter struct {
	busy  atomic.Bool
	again atomic.Bool // something changed while one submission was under way
}

// maxReported bounds one submission; what is left is told by the next one.
const maxReported = 1000

// reportEnds submits what the image asks for and does not have. One submission is under way at a time.
func (m *Manager) reportEnds() {
	m.reporter.again.Store(true)
	if m.reporter.busy.CompareAndSwap(false, true) && !m.uploads.chores.submit(m.report) {
		m.reporter.busy.Store(false)
	}
}

func (m *Manager) report() {
	r := &m.reporter
	for {
		for r.again.Swap(false) {
			m.submitEnds(m.life)
		}
		r.busy.Store(false)
		if !r.again.Load() || !r.busy.CompareAndSwap(false, true) {
			return
		}
	}
}

func (m *Manager) submitEnds(ctx context.Context) {
	cmds := m.unreported()
	if len(cmds) == 0 {
		return
	}
	if _, _, err := m.cfg.Committer.Submit(ctx, cmds...); err != nil && ctx.Err() == nil {
		m.logger.Warn("the controller does not know yet how far replicas go that nobody leads", "replicas", len(cmds), "error", err)
	}
}

// unreported lists what the image does not know of the replicas here. While this broker is fenced nothing of it counts.
func (m *Manager) unreported() []metadata.Command {
	img, epoch := m.Image(), m.cfg.BrokerEpoch()
	if b := img.Broker(m.cfg.NodeID); !b.Active() || b.Epoch != epoch {
		return nil
	}
	var cmds []metadata.Command
	for _, p := range m.list() {
		row, l := img.Partition(p.id, p.index), p.log.Load()
		if row == nil || l == nil || !row.Undecided() || len(cmds) == maxReported || slices.ContainsFunc(row.Ends, func(e metadata.ReplicaEnd) bool {
			return e.BrokerID == m.cfg.NodeID && e.BrokerEpoch == epoch
		}) {
			continue
		}
		cmds = append(cmds, &metadata.ReportEnd{BrokerID: m.cfg.NodeID, BrokerEpoch: epoch, TopicID: p.id, Partition: p.index,
			LastEpoch: l.LastEpoch(), End: l.EndOffset()})
	}
	return cmds
}

// asked reports whether a change may ask this broker for the ends of its logs.
func (m *Manager) asked(d *metadata.Delta, changed []metadata.PartitionKey) bool {
	if slices.Contains(d.Brokers, m.cfg.NodeID) {
		return true
	}
	return slices.ContainsFunc(changed, func(k metadata.PartitionKey) bool {
		row := d.New.Partition(k.TopicID, k.Partition)
		return row != nil && row.Undecided() && holds(row, m.cfg.NodeID)
	})
}
