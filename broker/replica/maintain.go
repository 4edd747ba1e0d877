package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/controller/metadata"
)

// maintain looks at every partition for what age and size demand, and at the directories for writes that hang.
func (m *Manager) maintain(context.Context) {
	for _, d := range m.disks {
		if busy := d.Busy(); d.Err() == nil && busy > m.cfg.WriteTimeout {
			_ = d.Fail(fmt.Errorf("a write has not completed for %v", busy.Round(time.Second)))
		}
	}
	for _, p := range m.list() {
		p.kick()
	}
	m.assignDirs()
	m.reportEnds()
}

// internalTopics are never tiered: their records are state that is compacted, or small.
func internal(topic string) bool {
	return topic == "__consumer_offsets" || topic == "__transaction_state" || strings.HasPrefix(topic, "__cluster_")
}

// tiered tells whether the partition has, or is to have, data in the store.
func (p *Partition) tiered(row *metadata.Partition) bool {
	_, any := row.RemoteEnd.Offset()
	return any || p.m.tier != nil && p.offloads()
}

// offloads tells whether the topic's new segments go to the store.
func (p *Partition) offloads() bool {
	c := p.config.Load()
	return c.RemoteStorageEnable && !c.CleanupCompact && !internal(p.topic)
}

// tierWork keeps the upload and the chores of one partition one at a time each. Guarded by Partition.mu.
type tierWork struct {
	choring   bool
	choreMore bool
	kickedAt  int64 // bytes appended when segments were last looked at
	uploading bool
	failures  int       // uploads in a row
	retryAt   time.Time // no upload before
	lastErr   error
	expiredAt time.Time // producers were last looked at
}

// kick has the partition's chores done soon: rolling, retention, local deletion, deletion in the store.
func (p *Partition) kick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tier.choring {
		p.tier.choreMore = true
		return
	}
	p.tier.choring = p.m.uploads.chores.submit(p.chores)
}

func (p *Partition) chores() {
	if err := p.chore(p.m.life, time.Now()); err != nil && p.m.life.Err() == nil {
		p.m.logger.Warn("maintenance of a partition failed, it is tried again", "topic", p.topic, "partition", p.index, "error", err)
		p.m.metrics.choreErrors.Inc()
	}
	p.mu.Lock()
	more := p.tier.choreMore
	p.tier.choring, p.tier.choreMore = false, false
	p.mu.Unlock()
	if more {
		p.kick()
	}
	p.m.uploads.consider(p)
}

// chore does what is due. Every step stands alone: one that fails is tried again by the next round.
func (p *Partition) chore(ctx context.Context, now time.Time) error {
	l, row := p.log.Load(), p.row()
	if l == nil || row == nil || p.life.stopped.Load() || p.offline() {
		return nil
	}
	p.expireProducers(l, now)
	errs := []error{l.MaybeRoll(now)}
	if p.IsLeader() {
		errs = append(errs, p.sealForTier(l, now), p.retain(ctx, l, row, now))
		row = p.row()
	}
	if row != nil {
		errs = append(errs, p.releaseLocal(l, row, now))
	}
	if row != nil && p.IsLeader() {
		errs = append(errs, p.deleteRemote(ctx, row))
	}
	return errors.Join(errs...)
}

func (p *Partition) offline() bool {
	d := p.life.disk.Load()
	return d == nil || d.Err() != nil
}

// producerCheck is how often producers are looked at for expiry.
const producerCheck = time.Minute

func (p *Partition) expireProducers(l *log.Log, now time.Time) {
	p.mu.Lock()
	due := now.Sub(p.tier.expiredAt) >= producerCheck
	if due {
		p.tier.expiredAt = now
	}
	p.mu.Unlock()
	if due {
		l.ExpireProducers(now)
	}
}

// sealForTier seals an active segment that has waited varve.tier.max.lag.ms, so that an idle topic reaches the store too.
func (p *Partition) sealForTier(l *log.Log, now time.Time) error {
	if p.m.tier == nil || !p.offloads() || p.config.Load().RemoteCopyDisable {
		return nil
	}
	list := l.Segments()
	if active := list[len(list)-1]; active.Size > 0 && now.Sub(active.FirstAppend) >= p.m.cfg.TierMaxLag {
		return l.Roll()
	}
	return nil
}

// retain carries out total retention. Where a store is involved the controller commits the new log start before anything else
// happens; a local topic's is its own affair.
func (p *Partition) retain(ctx context.Context, l *log.Log, row *metadata.Partition, now time.Time) error {
	c := p.config.Load()
	if !row.RemoteEnd.Known() {
		return nil
	}
	if p.disabled(row) { // and then retention goes on, over what is local
		if err := p.advanceLogStart(ctx, l, l.LocalStart()); err != nil {
			return err
		}
	}
	if p.tiered(row) && row.LogStart < l.LogStart() { // it was a local topic's own affair until now
		if err := p.advanceLogStart(ctx, l, l.LogStart()); err != nil {
			return err
		}
	}
	if !c.CleanupDelete || c.RetentionMs < 0 && c.RetentionBytes < 0 {
		return nil
	}
	start := l.LogStart()
	list := extents(p.m.Image().Segments(p.id, p.index, start), l.Segments(), start)
	to, why, seal := expired(list, start, min(p.HighWatermark(), l.EndOffset()), c, now)
	if seal {
		if err := l.Roll(); err != nil {
			return err
		}
		p.kick()
	}
	if to <= start {
		return nil
	}
	p.m.logger.Info("log start advances", "topic", p.topic, "partition", p.index, "from", start, "to", to, "why", why)
	if p.tiered(row) {
		return p.advanceLogStart(ctx, l, to)
	}
	return l.SetLogStart(to)
}

// disabled tells that the topic's remote segments are to go because remote.storage.enable was taken back (KIP-950).
func (p *Partition) disabled(row *metadata.Partition) bool {
	c := p.config.Load()
	_, any := row.RemoteEnd.Offset()
	return any && !c.RemoteStorageEnable && c.RemoteDeleteOnDisable
}

// releaseLocal takes local segments out that lie below the log start, or that the store has and local retention lets go. Only what
// this broker has applied counts as being in the store; and nothing does once the store's part is to go.
func (p *Partition) releaseLocal(l *log.Log, row *metadata.Partition, now time.Time) error {
	if l.LocalStart() < l.LogStart() || l.Segments()[0].End <= l.LogStart() {
		if _, err := l.DeleteLocalBefore(l.LogStart(), "below the log start"); err != nil {
			return err
		}
	}
	remoteEnd, any := row.RemoteEnd.Offset()
	if !any || p.m.tier == nil || p.disabled(row) {
		return nil
	}
	to, why, seal := releasable(l.Segments(), min(remoteEnd, p.HighWatermark()), p.config.Load(), now)
	// A follower's segments end elsewhere than the leader's: its active one may be in the store as a whole.
	uploaded := l.EndOffset() <= remoteEnd
	if seal && (uploaded || p.IsLeader() && p.offloads() && !p.config.Load().RemoteCopyDisable) {
		if err := l.Roll(); err != nil {
			return err
		}
	}
	if to == 0 {
		return nil
	}
	_, err := l.DeleteLocalBefore(to, why)
	return err
}

// deleteRemote allows the deletion of objects below the log start, and deletes those whose grace is over.
func (p *Partition) deleteRemote(ctx context.Context, row *metadata.Partition) error {
	if p.m.tier == nil {
		return nil
	}
	var below, allowed bool // a row below the log start; one whose deletion is allowed already
	for s := range p.m.Image().Segments(p.id, p.index, 0) {
		below, allowed = s.End <= row.LogStart, s.End <= row.DeleteUpTo
		break
	}
	switch {
	case allowed:
		_, err := p.m.tier.Retain(ctx, p.id, p.index)
		return err
	case below && row.LogStart > row.DeleteUpTo:
		return p.m.commit(ctx, &metadata.DeleteSegmentsUpTo{BrokerID: p.m.cfg.NodeID, BrokerEpoch: p.m.cfg.BrokerEpoch(),
			TopicID: p.id, Partition: p.index, LeaderEpoch: p.LeaderEpoch(), UpTo: row.LogStart})
	}
	return nil
}
