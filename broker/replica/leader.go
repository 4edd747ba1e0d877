package replica

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

// leadership is what the image says of the partition, and where the log was when it began.
type leadership struct {
	row        *metadata.Partition
	leader     int32
	epoch      int32
	epochStart int64 // of the log when this broker became leader; -1 for followers
	inSync     int   // members of the ISR
	replicas   int
	here       bool // this broker is the leader, and its log is fit for it
}

func newLeadership(row *metadata.Partition, here bool, epochStart int64) *leadership {
	return &leadership{row: row, leader: row.Leader, epoch: row.LeaderEpoch, epochStart: epochStart,
		inSync: len(row.ISR), replicas: len(row.Replicas), here: here}
}

// follower is what a leader knows of another replica since its own epoch began.
type follower struct {
	brokerEpoch int64     // of the last fetch (KIP-903); -1: none
	end         int64     // the replica has all below; -1: it has not fetched in this epoch
	caughtUp    time.Time // when it last had all that the leader had then
	fetched     time.Time // the last fetch
	leaderEnd   int64     // where the leader's log ended at the last fetch
}

// fetchedAt takes in a fetch at an offset, with the leader's end now (Replica.updateFetchState): who asks for what was the
// end at his last fetch had caught up then.
func (f *follower) fetchedAt(offset, leaderEnd int64, now time.Time) {
	switch {
	case offset >= leaderEnd:
		f.caughtUp = now
	case offset >= f.leaderEnd && f.fetched.After(f.caughtUp):
		f.caughtUp = f.fetched
	}
	f.end, f.fetched, f.leaderEnd = offset, now, leaderEnd
}

// behind tells whether a replica is to leave the ISR.
func (f *follower) behind(leaderEnd int64, now time.Time, limit time.Duration) bool {
	return f == nil || f.end != leaderEnd && now.Sub(f.caughtUp) > limit
}

// setLead publishes who leads, and as what. What is known of followers, and what was proposed, belongs to one epoch.
func (p *Partition) setLead(lead *leadership) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.lead.Load()
	p.lead.Store(lead)
	if lead == nil || !lead.here {
		p.mu.followers, p.mu.isr = nil, isrWork{}
		return
	}
	if old == nil || !old.here || old.epoch != lead.epoch {
		p.mu.isr = isrWork{}
		p.mu.followers = make(map[int32]*follower, lead.replicas)
		for _, id := range lead.row.ISR { // they have the whole lag time to show themselves
			p.mu.followers[id] = &follower{brokerEpoch: -1, end: -1, caughtUp: time.Now()}
		}
		return
	}
	if old.row.PartitionEpoch != lead.row.PartitionEpoch {
		p.mu.isr = isrWork{}
		p.m.metrics.isrChanged(old.row.ISR, lead.row.ISR)
	}
	for _, id := range lead.row.ISR {
		if p.mu.followers[id] == nil {
			p.mu.followers[id] = &follower{brokerEpoch: -1, end: -1, caughtUp: time.Now()}
		}
	}
	for id := range p.mu.followers {
		if !slices.Contains(lead.row.Replicas, id) {
			delete(p.mu.followers, id)
		}
	}
}

// followed takes note of a replica's fetch: what lies below its offset is there, for it is told where its log
// differs before it comes so far.
func (p *Partition) followed(f *Fetch, x *FetchPartition, now time.Time) {
	lead, l, err := p.leading(x.CurrentLeaderEpoch)
	end := int64(0)
	if err == nil {
		end = l.EndOffset()
	}
	if err != nil || x.CurrentLeaderEpoch != lead.epoch || !holds(lead.row, f.Replica.ID) || x.Offset > end || x.Offset < l.LogStart() ||
		x.LastFetchedEpoch < 0 && x.Offset > l.LogStart() || divergence(l, x.LastFetchedEpoch, x.Offset, true) != nil {
		return
	}
	if b := p.m.Image().Broker(f.Replica.ID); b == nil || f.Replica.Epoch != b.Epoch {
		return // of a life that has ended, or is not known here yet
	}
	p.mu.Lock()
	if p.lead.Load() != lead { // it is heard at its next fetch
		p.mu.Unlock()
		return
	}
	known := p.mu.followers[f.Replica.ID]
	if known == nil || known.brokerEpoch != f.Replica.Epoch && known.brokerEpoch >= 0 {
		known = &follower{}
		p.mu.followers[f.Replica.ID] = known
	}
	known.brokerEpoch = f.Replica.Epoch
	known.fetchedAt(x.Offset, end, now)
	joins := p.joins(lead, f.Replica.ID)
	p.mu.Unlock()
	p.advance()
	if joins {
		p.m.isr.consider(p)
	}
}

// minInSync is how many in-sync replicas acks=all and the high watermark need: more than there are replicas is
// taken for as many as there are, as in Kafka.
func (p *Partition) minInSync(lead *leadership) int {
	return min(p.config.Load().MinInsyncReplicas, lead.replicas)
}

// durable tells whether the leader's end counts only up to what its disk has: always in fsync topics, and in
// replicated ones while no other replica has a copy.
func (p *Partition) durable(lead *leadership) bool {
	return lead.inSync < 2 || p.config.Load().Durability == config.Fsync
}

// committable is where the high watermark may be: at what every member of the maximal ISR has, those proposed included. The
// caller holds p.mu.
func (p *Partition) committable(lead *leadership, l *log.Log) int64 {
	if lead.inSync < p.minInSync(lead) {
		return 0
	}
	end := l.EndOffset()
	if p.durable(lead) {
		end = l.SyncedEnd()
	}
	if lead.replicas == 1 {
		return end
	}
	for _, list := range [][]int32{lead.row.ISR, p.mu.isr.pending, p.mu.isr.unknown} {
		for _, id := range list {
			if id == p.m.cfg.NodeID {
				continue
			}
			f := p.mu.followers[id]
			if f == nil {
				return 0
			}
			end = min(end, f.end)
		}
	}
	return end
}

// advance moves the high watermark to where it may be now and completes what waited for that. Both the ISR and what its
// members have are looked at under the lock that guards proposals: nobody may join below a high watermark that was computed
// without him.
func (p *Partition) advance() {
	l := p.log.Load()
	if l == nil {
		return
	}
	p.mu.Lock()
	lead := p.lead.Load()
	if lead == nil || !lead.here {
		p.mu.Unlock()
		return
	}
	synced := l.SyncedEnd()
	p.raise(l, p.committable(lead, l))
	done := p.completed(p.hw.Load(), synced)
	p.mu.Unlock()
	done.finish()
}

// raise moves the high watermark up. The caller holds p.mu.
func (p *Partition) raise(l *log.Log, hw int64) {
	if hw > p.hw.Load() {
		p.hw.Store(hw)
		l.SetHighWatermark(hw)
	}
}

// completion is what an advance has ended.
type completion struct {
	acks  []*produceWait
	woken []*fetchWait
}

// completed ends the waits for offsets below hw, and below synced. The caller holds p.mu.
func (p *Partition) completed(hw, synced int64) (done completion) {
	done.acks = p.mu.syncs.takeBelow(synced, p.mu.acks.takeBelow(hw, nil))
	for _, w := range done.acks {
		p.m.timers.remove(&w.deadline)
	}
	bytes := p.mu.marks.upTo(hw)
	if p.mu.fetches.len() > 0 {
		done.woken = p.mu.fetches.reached(p, hw, bytes, done.woken)
	}
	done.woken = p.mu.replicas.older(hw, done.woken)
	return done
}

func (c completion) finish() {
	for _, w := range c.acks {
		w.finish(nil)
	}
	for _, w := range c.woken {
		w.wake()
	}
}

// divergence tells where the leader's log has left that of a reader whose last record is of an epoch and lies right before offset; nil if
// it has not, or the reader says nothing. A replica is always told: one whose epochs are not known here has written what no
// leader knows.
func divergence(l *log.Log, lastEpoch int32, offset int64, replica bool) *wire.EpochEnd {
	if lastEpoch < 0 {
		return nil
	}
	epoch, end := l.EndOffsetForEpoch(lastEpoch)
	if replica && (epoch < 0 || end < 0) {
		epoch, end = l.LastEpoch(), l.EndOffset()
	}
	if epoch < lastEpoch || end < offset {
		return &wire.EpochEnd{Epoch: epoch, EndOffset: end}
	}
	return nil
}

// readAsReplica reads up to the end of the log: what no consumer may see yet is what a replica is for.
func (x *FetchPartition) readAsReplica(v *visit) {
	p := x.Partition
	lead, l, err := p.leading(x.CurrentLeaderEpoch)
	if err != nil {
		x.Err = err
		return
	}
	b := p.m.Image().Broker(v.f.Replica.ID)
	switch { // who is refused may know more than this broker does
	case v.f.Replica.ID == p.m.cfg.NodeID || !holds(lead.row, v.f.Replica.ID):
		x.Err = refuse(kerr.UnknownLeaderEpoch, "broker %d has no replica of %s-%d to fetch for", v.f.Replica.ID, p.topic, p.index)
		return
	case b == nil || b.Epoch != v.f.Replica.Epoch:
		x.Err = refuse(kerr.StaleBrokerEpoch, "broker %d is not at epoch %d here", v.f.Replica.ID, v.f.Replica.Epoch)
		return
	}
	x.HighWatermark, x.LastStableOffset, x.LogStart, x.end = p.HighWatermark(), p.LastStableOffset(), l.LogStart(), l.EndOffset()
	if x.Diverging = divergence(l, x.LastFetchedEpoch, x.Offset, true); x.Diverging != nil {
		return
	}
	err = x.readLocal(v, l, x.end)
	if local := l.LocalStart(); x.Offset >= l.LogStart() && x.Offset < local {
		wire.ReleaseRanges(x.Records)
		x.Records, x.Size = nil, 0
		err = refuse(kerr.OffsetMovedToTieredStorage, "offset %d of %s-%d is in the store, %d is here", x.Offset, p.topic, p.index, local)
	}
	if x.LogStart = l.LogStart(); err != nil {
		x.fails(err)
	}
}

// preferred is the in-sync replica of a rack that a consumer there had better read from: the one that has most, if it has the offset
// (KIP-392, RackAwareReplicaSelector). -1: here.
func (p *Partition) preferred(l *log.Log, rack string, offset int64) int32 {
	img, me := p.m.Image(), p.m.cfg.NodeID
	if b := img.Broker(me); b != nil && b.Rack == rack || offset < l.LogStart() {
		return -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	lead := p.lead.Load()
	if lead == nil || !lead.here {
		return -1
	}
	best, end := int32(-1), offset
	for _, id := range lead.row.Replicas {
		b, f := img.Broker(id), p.mu.followers[id]
		if id == me || f == nil || !slices.Contains(lead.row.ISR, id) || !b.Active() || b.Rack != rack {
			continue
		}
		if f.end > end || best < 0 && f.end == end {
			best, end = id, f.end
		}
	}
	return best
}
