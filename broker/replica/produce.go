package replica

import (
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
	"github.com/varve-io/varve/wire/record"
)

// Produce is one record set for one partition. Partition.Append takes it and gives it back through
// Done; meanwhile it belongs to the partition. The caller may pool it.
type Produce struct {
	// Records is the record set as it came: exactly one batch is allowed. It is patched in place and
	// not kept after Append has returned.
	Records       []byte
	Acks          int16     // 0 none, 1 the leader's, -1 all in-sync replicas
	Deadline      time.Time // for the acknowledgement; unused with Acks 0
	Version       int16     // of the Produce request
	Transactional bool      // the request names a transactional id
	Coordinator   bool      // a coordinator of this cluster appends: markers are allowed, and batches without sequence
	// Done is called exactly once: before Append returns, or later from any goroutine. It must not block.
	Done func(*Produce)
	Tag  any // the caller's

	// Results, valid from Done on.
	Err           error // nil, or wraps a kerr.Error
	BaseOffset    int64 // -1 with an error
	LogAppendTime int64 // -1 unless the topic stamps it
	LogStart      int64
	RecordErrors  []wire.ProduceErrorRecord
}

// zstdVersion is the first version of Produce whose clients are known to read zstd.
const zstdVersion = 7

// group is what one Append hands to the log; pooled.
type group struct {
	appends []log.Append
	list    []*log.Append
	items   []*Produce // beside list
}

var groups = sync.Pool{New: func() any { return new(group) }}

// Append appends what one read of a connection brought for the partition, in order. When it returns every batch is in the
// log or refused; acknowledgements that have to wait for the disk or for replicas follow by Done.
func (p *Partition) Append(items []*Produce) {
	lead, l, err := p.leading(-1)
	if err != nil {
		for _, item := range items {
			item.finish(err)
		}
		return
	}
	g := groups.Get().(*group)
	g.stage(p, lead, items)
	if len(g.list) > 0 {
		if err := l.AppendAsLeader(g.list, lead.epoch); errors.Is(err, log.ErrOffline) {
			p.fail(err)
		}
		p.settle(lead, l, g)
	}
	clear(g.appends)
	clear(g.list)
	clear(g.items)
	groups.Put(g)
}

// stage checks what needs no look into the log and readies the rest.
func (g *group) stage(p *Partition, lead *leadership, items []*Produce) {
	g.list, g.items = g.list[:0], g.items[:0]
	if cap(g.appends) < len(items) {
		g.appends = make([]log.Append, len(items))
	}
	g.appends = g.appends[:len(items)]
	for i, item := range items {
		batch, err := p.admit(lead, item)
		if err != nil {
			item.finish(err)
			continue
		}
		a := &g.appends[i]
		*a = log.Append{Batch: batch, Origin: log.OriginClient}
		if item.Coordinator {
			a.Origin = log.OriginCoordinator
		}
		g.list, g.items = append(g.list, a), append(g.items, item)
	}
}

// admit applies the rules of Kafka's ProduceRequest.validateRecords and Partition.appendRecordsToLeader.
func (p *Partition) admit(lead *leadership, item *Produce) (record.Batch, error) {
	switch {
	case item.Acks < -1 || item.Acks > 1:
		return nil, refuse(kerr.InvalidRequiredAcks, "acks=%d", item.Acks)
	case item.Acks == -1 && lead.inSync < p.minInSync(lead):
		return nil, refuse(kerr.NotEnoughReplicas, "%d in sync of %s-%d, min.insync.replicas is %d", lead.inSync, p.topic, p.index, p.minInSync(lead))
	}
	batch, rest, err := record.Next(item.Records)
	switch {
	case len(item.Records) == 0:
		return nil, refuse(kerr.InvalidRecord, "no record batch")
	case errors.Is(err, record.ErrMagic):
		return nil, refuse(kerr.InvalidRecord, "%v", err)
	case err != nil:
		return nil, refuse(kerr.CorruptMessage, "%v", err)
	case len(rest) > 0:
		return nil, refuse(kerr.InvalidRecord, "more than one record batch")
	case batch.Codec() == record.Zstd && item.Version < zstdVersion && !item.Coordinator:
		return nil, refuse(kerr.UnsupportedCompressionType, "zstd needs Produce version %d", zstdVersion)
	case batch.IsTransactional() && !item.Transactional && !item.Coordinator:
		return nil, refuse(kerr.InvalidRecord, "transactional batch in a request without a transactional id")
	}
	return batch, nil
}

// settle answers what is decided and parks the rest.
func (p *Partition) settle(lead *leadership, l *log.Log, g *group) {
	fsync := p.config.Load().Durability == config.Fsync
	var all, own *produceWait // for the high watermark, for the leader's own disk
	var end, bytes int64
	for i, a := range g.list {
		item := g.items[i]
		item.take(a)
		if a.Err == nil && !a.Duplicate {
			end, bytes = a.LastOffset+1, bytes+int64(len(a.Batch))
		}
		switch {
		case a.Err != nil:
			item.finish(a.Err)
		case item.Acks == -1:
			all = all.with(p, item, a.LastOffset+1)
		case item.Acks == 1 && fsync:
			own = own.with(p, item, a.LastOffset+1)
		default:
			item.finish(nil)
		}
	}
	if all != nil {
		all.acksAll = true
	}
	waiting, sealed, woken := p.park(all, own, end, bytes)
	for _, w := range woken {
		w.wake()
	}
	if p.durable(lead) || fsync {
		p.wantSync(waiting)
	}
	if !p.durable(lead) {
		p.advance()
	}
	if sealed {
		p.kick()
	}
	if now := p.lead.Load(); now != lead && (now == nil || !now.here || now.epoch != lead.epoch) {
		p.release(p.CheckLeader(lead.epoch)) // leadership went while this was parked
	}
}

func (w *produceWait) with(p *Partition, item *Produce, need int64) *produceWait {
	if w == nil {
		w = &produceWait{p: p}
	}
	w.items, w.need = append(w.items, item), max(w.need, need)
	return w
}

// kicksPerSegment is how often, in terms of bytes, a partition that is written to has its chores done: so a segment goes to the
// store, or leaves it, soon after the next one has begun.
const kicksPerSegment = 4

// park puts the waits into their lists and notes what was appended. waiting tells whether anybody waits for the high watermark
// or the disk: one of these, or a parked fetch; sealed that a segment may have been sealed since the last kick; woken are fetches of
// replicas for which there is enough now.
func (p *Partition) park(all, own *produceWait, end, bytes int64) (waiting, sealed bool, woken []*fetchWait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes > 0 {
		p.mu.marks.appendedTo(end, bytes)
		woken = p.mu.replicas.grown(p.mu.marks.appended, nil)
	}
	if sealed = p.mu.marks.appended-p.tier.kickedAt >= p.config.Load().SegmentBytes/kicksPerSegment; sealed {
		p.tier.kickedAt = p.mu.marks.appended
	}
	if all != nil {
		p.mu.acks.insert(all)
		p.m.timers.add(&all.deadline, all.firstDeadline(), all.expire)
	}
	if own != nil {
		p.mu.syncs.insert(own)
		p.m.timers.add(&own.deadline, own.firstDeadline(), own.expire)
	}
	return all != nil || own != nil || p.mu.fetches.len() > 0, sealed, woken
}

func (w *produceWait) firstDeadline() time.Time {
	first := w.items[0].Deadline
	for _, item := range w.items[1:] {
		if item.Deadline.Before(first) {
			first = item.Deadline
		}
	}
	return first
}

// take copies what the log says.
func (item *Produce) take(a *log.Append) {
	item.BaseOffset, item.LogAppendTime, item.LogStart = a.BaseOffset, a.LogAppendTime, a.LogStart
	for _, e := range a.RecordErrors {
		message := e.Message
		item.RecordErrors = append(item.RecordErrors, wire.ProduceErrorRecord{RelativeOffset: int32(e.Index), ErrorMessage: &message})
	}
}

// finish gives the item back.
func (item *Produce) finish(err error) {
	item.Err = err
	if err != nil {
		item.BaseOffset, item.LogAppendTime = -1, -1
	}
	item.Records = nil
	item.Done(item)
}
