package replica

import (
	"context"
	"sync/atomic"

	"github.com/varve-io/varve/controller/metadata"
)

// assigner tells the controller in which log directory each replica lies (KIP-858), where the image does not know it or is
// wrong: so a directory that is lost later takes only what lay in it out of the ISR.
type assigner struct {
	busy atomic.Bool
}

// maxAssigned bounds one command; what is left is told by the next round.
const maxAssigned = 1000

// assignDirs submits what the image does not know. One submission is under way at a time.
func (m *Manager) assignDirs() {
	if len(m.disks) < 2 || len(m.unassigned()) == 0 || !m.assigner.busy.CompareAndSwap(false, true) {
		return
	}
	if !m.uploads.chores.submit(func() {
		defer m.assigner.busy.Store(false)
		m.submitDirs(m.life)
	}) {
		m.assigner.busy.Store(false)
	}
}

func (m *Manager) submitDirs(ctx context.Context) {
	dirs := m.unassigned()
	if len(dirs) == 0 {
		return
	}
	err := m.commit(ctx, &metadata.AssignDirs{BrokerID: m.cfg.NodeID, BrokerEpoch: m.cfg.BrokerEpoch(), Dirs: dirs})
	if err != nil && ctx.Err() == nil {
		m.logger.Warn("the controller does not know yet where replicas lie", "replicas", len(dirs), "error", err)
	}
}

// unassigned lists the replicas whose directory the image does not tell as it is.
func (m *Manager) unassigned() []metadata.DirAssignment {
	var list []metadata.DirAssignment
	img := m.Image()
	for _, p := range m.list() {
		d, row := p.life.disk.Load(), img.Partition(p.id, p.index)
		if d == nil || row == nil || len(list) == maxAssigned {
			continue
		}
		for i, r := range row.Replicas {
			if r == m.cfg.NodeID && (i >= len(row.Dirs) || row.Dirs[i] != d.ID()) {
				list = append(list, metadata.DirAssignment{TopicID: p.id, Partition: p.index, Dir: d.ID()})
			}
		}
	}
	return list
}
