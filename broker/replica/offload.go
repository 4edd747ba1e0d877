package replica

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire/config"
)

// offloader moves sealed segments into the store: the oldest of a partition first, one at a time, and a partition that has more goes to the
// end of the queue, so that all come forward together. Chores have workers of their own, so that deletion never waits for
// copying (KAFKA-16853).
type offloader struct {
	m      *Manager
	copies pool
	chores pool
}

const choreWorkers = 4

func (o *offloader) init(m *Manager) {
	o.m = m
	o.copies.limit = m.cfg.Uploads
	o.chores.limit = choreWorkers
}

// run waits for the end, and for the work under way.
func (o *offloader) run(ctx context.Context) {
	<-ctx.Done()
	o.chores.close()
	o.copies.close()
}

// consider queues the partition's next upload if there is one.
func (o *offloader) consider(p *Partition) {
	if o.m.tier == nil || !p.IsLeader() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tier.uploading || time.Now().Before(p.tier.retryAt) || !p.hasUpload() {
		return
	}
	p.tier.uploading = o.copies.submit(p.upload)
}

// hasUpload tells whether a sealed segment may go to the store. Memory only.
func (p *Partition) hasUpload() bool {
	row, l := p.row(), p.log.Load()
	if row == nil || l == nil {
		return false
	}
	next, known := row.Next()
	if !known {
		return false
	}
	for _, s := range l.Segments() {
		if s.End > next {
			return p.hold(l, s, time.Now()) == ""
		}
	}
	return false
}

// hold says why a local segment beyond the remote end is not uploaded yet; "" if it may be.
func (p *Partition) hold(l *log.Log, s log.SegmentInfo, now time.Time) string {
	c := p.config.Load()
	switch {
	case p.m.tier == nil:
		return "no store: varve.store.url is not set"
	case internal(p.topic):
		return "internal topics stay local"
	case c.CleanupCompact:
		return "compacted topics stay local"
	case !c.RemoteStorageEnable:
		return "remote.storage.enable=false"
	case c.RemoteCopyDisable:
		return "remote.log.copy.disable=true"
	case !s.Sealed:
		return "active segment"
	case s.End > p.HighWatermark() || p.HighWatermark() < p.epochStart():
		return "above the high watermark"
	case s.End > p.LastStableOffset():
		return "a transaction is open"
	case !copyDue(s, l.Segments(), c, now):
		return "remote.copy.lag.ms, remote.copy.lag.bytes"
	}
	return ""
}

// copyDue applies remote.copy.lag.* (KIP-1241): a segment goes as soon as it is old enough, or enough was written after it. -1 stands for
// local retention.
func copyDue(s log.SegmentInfo, list []log.SegmentInfo, c *config.Topic, now time.Time) bool {
	lagMs, lagBytes := c.RemoteCopyLagMs, c.RemoteCopyLagBytes
	if lagMs == -1 {
		lagMs = c.LocalRetentionMs
	}
	if lagBytes == -1 {
		lagBytes = c.LocalRetentionBytes
	}
	if lagMs == 0 || older(now.Sub(timeOf(s.MaxTimestamp, s.FirstAppend)), lagMs) {
		return true
	}
	var after int64
	for _, other := range list {
		if other.Base >= s.End {
			after += other.Size
		}
	}
	return lagBytes >= 0 && after >= lagBytes
}

// upload uploads one segment.
func (p *Partition) upload() {
	did, err := p.uploadNext(p.m.life)
	p.mu.Lock()
	p.tier.uploading = false
	p.tier.lastErr = err
	if err == nil {
		p.tier.failures, p.tier.retryAt = 0, time.Time{}
	} else {
		p.tier.failures++
		p.tier.retryAt = time.Now().Add(uploadBackoff(p.tier.failures))
	}
	failures := p.tier.failures
	p.mu.Unlock()
	switch {
	case did:
		p.kick() // local retention may let it go; and the next may follow
		return
	case err == nil, p.m.life.Err() != nil:
		return
	}
	p.m.metrics.uploadErrors.Inc()
	if failures == 1 || failures%uploadNag == 0 {
		p.m.logger.Warn("segment does not reach the store, it is tried again", "topic", p.topic, "partition", p.index,
			"attempts", failures, "error", err)
	}
	time.AfterFunc(uploadBackoff(failures), func() { p.m.uploads.consider(p) })
}

// uploadNag is how many failures in a row are worth another line in the log.
const uploadNag = 20

// uploadBackoff is the pause after so many failures: half a second, doubled up to half a minute, with jitter.
func uploadBackoff(failures int) time.Duration {
	d := min(500*time.Millisecond<<min(failures-1, 6), 30*time.Second)
	return d - time.Duration(rand.Int64N(int64(d)/5))
}

// uploadNext uploads what follows the remote end, and waits until this broker has applied the commit. It reports false if there was
// nothing to do.
func (p *Partition) uploadNext(ctx context.Context) (did bool, err error) {
	lead, l, err := p.leading(-1)
	row := p.row()
	if err != nil || row == nil {
		return false, nil // no longer ours
	}
	next, known := row.Next()
	if !known || p.HighWatermark() < lead.epochStart {
		return false, nil
	}
	s, ok, err := l.Sealed(next)
	if err != nil || !ok {
		return false, err
	}
	defer s.Release()
	if s.End > min(p.HighWatermark(), p.LastStableOffset()) {
		return false, nil
	}
	_, index, err := p.m.tier.Upload(ctx, tier.Run{
		Topic: p.topic, TopicID: p.id, Partition: p.index, LeaderEpoch: lead.epoch, Base: s.Base, End: s.End, Size: s.Size,
		MinTimestamp: s.MinTimestamp, MaxTimestamp: s.MaxTimestamp, Data: s.Data,
		Epochs: l.Epochs(l.LogStart(), s.End), Producers: s.Producers, Aborted: s.Aborted,
	})
	if err != nil {
		return false, err
	}
	_, err = p.m.cfg.WaitImage(ctx, index)
	return err == nil, err
}

// unuploaded is since when the oldest record that belongs into the store waits for it; false if none does.
func (p *Partition) unuploaded(row *metadata.Partition) (since time.Time, ok bool) {
	l := p.log.Load()
	if l == nil || row == nil || !p.tiered(row) || !p.offloads() {
		return since, false
	}
	next, _ := row.Next()
	for _, s := range l.Segments() {
		if s.End > next && s.Size > 0 {
			return s.FirstAppend, true
		}
	}
	return since, false
}
