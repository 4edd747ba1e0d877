package metadata

import (
	"slices"
)

// departure is how a broker leaves a partition.
type departure int

const (
	stays   departure = iota
	leaving           // shuts down in good order: hands over what it can, leads on what nobody else can lead
	fenced            // leads no more, is not in sync
	unclean           // its copy may lack acknowledged records: it is not eligible either
	lost              // its copy is gone
)

// change is a partition row in the making. A command says who is in sync, who
// comes, who goes and how; settle draws the consequences.
type change struct {
	m    *Image
	old  *Partition
	next Partition
	in   int32 // goes into service with this command; NoLeader: nobody
	out  int32 // goes, in the way that how says; NoLeader: nobody
	how  departure
	// forced leads although it may lack records, if nobody is eligible; NoLeader: nobody is forced.
	forced int32
}

func (m *Image) change(p *Partition) *change {
	return &change{m: m, old: p, next: *p, in: NoLeader, out: NoLeader, forced: NoLeader}
}

// leave returns the partition rows after broker id has left, each in the way
// that how says.
func (m *Image) leave(id int32, how func(*Partition) departure) []Record {
	var recs []Record
	for p := range m.AllPartitions() {
		if !slices.Contains(p.Replicas, id) {
			continue
		}
		c := m.change(p)
		c.out, c.how = id, how(p)
		if c.how == stays {
			continue
		}
		if row := c.settle(); row != nil {
			recs = append(recs, row)
		}
	}
	return recs
}

// active reports whether a replica may be elected once this command is done.
func (c *change) active(id int32) bool {
	b := c.m.Broker(id)
	if id == c.in {
		back := *b
		back.Fenced = false
		b = &back
	}
	return id != c.out && b.Active() && !c.m.offline(&c.next, id)
}

// settle returns the row, nil if it is as before: those who were in sync
// remain eligible or do not, a reassignment completes, and a leader is elected
// where there is none that is in sync.
func (c *change) settle() *Partition {
	p := &c.next
	if c.out != NoLeader {
		p.ISR = remove(p.ISR, c.out)
	}
	c.keepEligible()
	c.completeReassignment()
	c.elect()
	c.completeReassignment() // the leader may have been all that was missing; it stays, being of the target
	if len(p.ISR) >= c.m.MinInSync(p) {
		p.ELR, p.LastKnownELR = nil, nil // the high watermark moves on without them
	}
	if !p.Undecided() {
		p.Ends = nil
	}
	if p.sameState(c.old) {
		return nil
	}
	p.PartitionEpoch++
	return p
}

func (p *Partition) sameState(q *Partition) bool {
	return p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && slices.Equal(p.ISR, q.ISR) && slices.Equal(p.ELR, q.ELR) &&
		slices.Equal(p.LastKnownELR, q.LastKnownELR) && slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.Adding, q.Adding) &&
		slices.Equal(p.Removing, q.Removing) && slices.Equal(p.Ends, q.Ends)
}

// keepEligible sorts who is no longer in sync into ELR and LastKnownELR
// (KIP-966). If enough are in sync, settle forgets both.
func (c *change) keepEligible() {
	p, old := &c.next, c.old
	p.ELR, p.LastKnownELR = nil, nil
	for _, r := range p.Replicas {
		eligible := slices.Contains(old.ISR, r) || slices.Contains(old.ELR, r)
		known := eligible || slices.Contains(old.LastKnownELR, r)
		switch {
		case slices.Contains(p.ISR, r) || r == c.out && c.how == lost:
		case eligible && (r != c.out || c.how != unclean):
			p.ELR = append(p.ELR, r)
		case known:
			p.LastKnownELR = append(p.LastKnownELR, r)
		}
	}
}

// elect finds a leader if the present one is not in sync: of the ISR, else of
// the ELR, else, if all that must have reported what they have, the best of
// them.
func (c *change) elect() {
	p := &c.next
	if p.Leader != NoLeader && slices.Contains(p.ISR, p.Leader) {
		return
	}
	p.Leader = NoLeader
	if id := c.first(p.ISR); id != NoLeader {
		c.lead(id)
	} else if id := c.first(p.ELR); id != NoLeader {
		p.ISR, p.ELR = []int32{id}, remove(p.ELR, id)
		c.lead(id)
	} else if c.how == leaving && c.old.Leader == c.out {
		p.Leader, p.ISR, p.ELR, p.LastKnownELR = c.out, c.old.ISR, c.old.ELR, c.old.LastKnownELR
	} else if id := c.fallback(); id != NoLeader {
		c.leadUncleanly(id)
	} else if c.old.Leader != NoLeader {
		p.LeaderEpoch++
	}
}

// first is the first replica among ids that is active, rather one that does
// not go with the reassignment.
func (c *change) first(ids []int32) int32 {
	best := NoLeader
	for _, r := range c.next.Replicas {
		switch {
		case !slices.Contains(ids, r) || !c.active(r):
		case !slices.Contains(c.next.Removing, r):
			return r
		case best == NoLeader:
			best = r
		}
	}
	return best
}

func (c *change) lead(id int32) {
	c.next.Leader = id
	c.next.LeaderEpoch++
}

// leadUncleanly makes a replica the leader that may lack acknowledged records.
// What the others have more is lost, so none of them is eligible any more.
func (c *change) leadUncleanly(id int32) {
	p := &c.next
	c.lead(id)
	p.ISR, p.ELR, p.LastKnownELR = []int32{id}, nil, nil
	p.LossEpoch = p.LeaderEpoch
	i := slices.Index(p.Replicas, id)
	if b := c.m.Broker(id); !slices.Contains(b.LogDirs, p.dir(i)) {
		p.Dirs = p.dirs()
		p.Dirs[i] = b.onlyDir() // its log is new, wherever it will lie
	}
}

// Undecided reports whether nobody is eligible to lead: the replicas that live
// are to report what they have (ReportEnd).
func (p *Partition) Undecided() bool {
	return p.Leader == NoLeader && len(p.ISR) == 0 && len(p.ELR) == 0
}

// fallback is who is to lead where nobody is eligible, if that is decided.
func (c *change) fallback() int32 {
	if c.forced != NoLeader {
		return c.forced
	}
	return c.recovered()
}

// recovered returns whom to elect where nobody is eligible: the replica that
// reported most, once every last known member and every other replica that
// lives has reported; NoLeader before.
func (c *change) recovered() int32 {
	p := &c.next
	if !p.Undecided() || len(p.LastKnownELR) == 0 {
		return NoLeader
	}
	for _, r := range p.Replicas {
		if _, ok := c.end(r); !ok && (slices.Contains(p.LastKnownELR, r) || c.active(r)) {
			return NoLeader
		}
	}
	return c.best()
}

// best is the live replica that reported the longest log of the latest epoch.
func (c *change) best() int32 {
	best, most := NoLeader, ReplicaEnd{}
	for _, r := range c.next.Replicas {
		e, ok := c.end(r)
		if ok && (best == NoLeader || e.LastEpoch > most.LastEpoch || e.LastEpoch == most.LastEpoch && e.End > most.End) {
			best, most = r, e
		}
	}
	return best
}

// end is what a replica reported in the present life of its broker.
func (c *change) end(id int32) (ReplicaEnd, bool) {
	for _, e := range c.next.Ends {
		if e.BrokerID == id {
			return e, c.active(id) && c.m.Broker(id).Epoch == e.BrokerEpoch
		}
	}
	return ReplicaEnd{}, false
}
