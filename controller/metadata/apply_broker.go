package metadata

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
)

func (x *FormCluster) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	switch {
	case m.clusterID == x.ClusterID && x.ClusterID != "":
		return nil, nil, nil // proposed twice
	case m.clusterID != "":
		return nil, nil, Refuse(kerr.InconsistentClusterID, "the cluster is %s", m.clusterID)
	case x.ClusterID == "":
		return nil, nil, Refuse(kerr.InvalidRequest, "no cluster id")
	}
	recs := []Record{&Cluster{ID: x.ClusterID}}
	for i := range x.Features {
		recs = append(recs, &x.Features[i])
	}
	return recs, nil, nil
}

func (x *SetFeature) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	if old := m.Feature(x.Feature.Name); x.Feature.Name == "" || x.Feature.Level <= old {
		return nil, nil, Refuse(kerr.FeatureUpdateFailed, "%s is at level %d: cannot go to %d", x.Feature.Name, old, x.Feature.Level)
	}
	return []Record{&x.Feature}, nil, nil
}

// apply of a registration puts a new life of the broker in place fenced. The
// life before has been fenced, so that it leads nothing. The same life, whose
// first answer was lost, stays what it is. What it held in a log directory
// that it does not bring along is lost with this very entry, and so is the
// eligibility of what may lack records: all that was not fsynced, unless
// PreviousEpoch proves that the former life lost nothing (KIP-966).
func (x *RegisterBroker) apply(m *Image, at Meta) ([]Record, []byte, error) {
	old := m.Broker(x.ID)
	switch {
	case x.ClusterID != m.clusterID:
		return nil, nil, Refuse(kerr.InconsistentClusterID, "the cluster is %s, the broker's is %s", m.clusterID, x.ClusterID)
	case x.ID < 0 || x.Incarnation.IsZero() || len(x.Listeners) == 0 || len(x.LogDirs) == 0:
		return nil, nil, Refuse(kerr.InvalidRegistration, "broker %d needs an id, an incarnation, a listener and a log directory", x.ID)
	case len(distinct(x.LogDirs)) != len(x.LogDirs):
		return nil, nil, Refuse(kerr.InvalidRegistration, "broker %d lists a log directory twice", x.ID)
	case old != nil && !old.Fenced && old.Incarnation != x.Incarnation:
		return nil, nil, Refuse(kerr.DuplicateBrokerRegistration, "broker %d is alive as another process, incarnation %s", x.ID, old.Incarnation)
	}
	for b := range m.Brokers() {
		for _, dir := range x.LogDirs {
			if b.ID != x.ID && slices.Contains(b.LogDirs, dir) {
				return nil, nil, Refuse(kerr.InvalidRegistration, "log directory %s belongs to broker %d", dir, b.ID)
			}
		}
	}
	b := &Broker{ID: x.ID, Epoch: int64(at.Index), Incarnation: x.Incarnation, Rack: x.Rack,
		Listeners: x.Listeners, LogDirs: x.LogDirs, Fenced: true}
	if old == nil {
		return []Record{b}, nil, nil
	}
	same := old.Incarnation == x.Incarnation
	if same {
		b.Epoch, b.Fenced, b.InControlledShutdown = old.Epoch, old.Fenced, old.InControlledShutdown
		b.OfflineDirs = slices.DeleteFunc(slices.Clone(old.OfflineDirs), func(d wire.UUID) bool { return !slices.Contains(b.LogDirs, d) })
	}
	sound := same || x.PreviousEpoch == old.Epoch
	recs := append([]Record{b}, m.leave(x.ID, func(p *Partition) departure {
		switch {
		case lostDir(p, old, b):
			return lost
		case sound || m.fsynced(p.TopicID):
			return stays
		}
		return unclean
	})...)
	if !same {
		recs = append(recs, m.reassign(x.ID)...)
	}
	return recs, nil, nil
}

// lostDir reports whether p's replica lay in a directory that the broker
// brought before and does not bring now. A replica whose directory was never
// told may lie in any of them.
func lostDir(p *Partition, old, now *Broker) bool {
	i := slices.Index(p.Replicas, now.ID)
	if i < 0 {
		return false
	}
	if dir := p.dir(i); !dir.IsZero() {
		return !slices.Contains(now.LogDirs, dir)
	}
	return slices.ContainsFunc(old.LogDirs, func(d wire.UUID) bool { return !slices.Contains(now.LogDirs, d) })
}

func (p *Partition) dir(replica int) wire.UUID {
	if replica < len(p.Dirs) {
		return p.Dirs[replica]
	}
	return wire.UUID{}
}

// dirs is a copy of Dirs, as long as Replicas.
func (p *Partition) dirs() []wire.UUID {
	dirs := make([]wire.UUID, len(p.Replicas))
	copy(dirs, p.Dirs)
	return dirs
}

func (x *FenceBroker) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	b, err := m.brokerAt(x.ID, x.Epoch)
	if err != nil || b.Fenced {
		return nil, nil, err
	}
	next := *b
	next.Fenced = true
	recs := append([]Record{&next}, m.leave(x.ID, func(*Partition) departure { return fenced })...)
	return append(recs, m.reassign(x.ID)...), nil, nil
}

func (x *ShutdownBroker) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	b, err := m.brokerAt(x.ID, x.Epoch)
	if err != nil || b.InControlledShutdown || b.Fenced {
		return nil, nil, err
	}
	next := *b
	next.InControlledShutdown = true
	recs := append([]Record{&next}, m.leave(x.ID, func(*Partition) departure { return leaving })...)
	return append(recs, m.reassign(x.ID)...), nil, nil
}

func (x *UnfenceBroker) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	b, err := m.brokerAt(x.ID, x.Epoch)
	if err != nil || !b.Fenced || b.InControlledShutdown {
		return nil, nil, err
	}
	next := *b
	next.Fenced = false
	recs := []Record{&next}
	for p := range m.AllPartitions() {
		if p.Leader != NoLeader || !slices.Contains(p.Replicas, x.ID) {
			continue
		}
		c := m.change(p)
		c.in = x.ID
		if row := c.settle(); row != nil {
			recs = append(recs, row)
		}
	}
	for t := range m.Tasks() {
		if t.Assignee == NoLeader {
			recs = append(recs, t.assign(x.ID))
		}
	}
	return recs, nil, nil
}

func (x *FailDirs) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	b, err := m.brokerAt(x.ID, x.Epoch)
	if err != nil {
		return nil, nil, err
	}
	failed := map[wire.UUID]bool{}
	next := *b
	next.OfflineDirs = slices.Clone(b.OfflineDirs)
	for _, d := range x.Dirs {
		if slices.Contains(b.LogDirs, d) && !slices.Contains(next.OfflineDirs, d) {
			next.OfflineDirs = append(next.OfflineDirs, d)
			failed[d] = true
		}
	}
	if len(failed) == 0 {
		return nil, nil, nil
	}
	recs := append([]Record{&next}, m.leave(x.ID, func(p *Partition) departure {
		switch dir := b.dirOf(p); {
		case !failed[dir] && !dir.IsZero():
			return stays
		case m.fsynced(p.TopicID):
			return fenced
		}
		return unclean
	})...)
	if !next.Active() {
		recs = append(recs, m.reassign(x.ID)...)
	}
	return recs, nil, nil
}

// offline reports whether p's replica on a broker lies in a log directory that
// failed. One whose directory was never told may lie in any of them.
func (m *Image) offline(p *Partition, id int32) bool {
	b := m.Broker(id)
	if b == nil || len(b.OfflineDirs) == 0 {
		return false
	}
	dir := b.dirOf(p)
	return dir.IsZero() || slices.Contains(b.OfflineDirs, dir)
}

// dirOf is the log directory in which b's replica of p surely lies, zero if
// that is not known: what the row says may be a directory that b lost since.
func (b *Broker) dirOf(p *Partition) wire.UUID {
	if i := slices.Index(p.Replicas, b.ID); i >= 0 && slices.Contains(b.LogDirs, p.dir(i)) {
		return p.dir(i)
	}
	return b.onlyDir()
}

func (x *UnregisterBroker) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	b := m.Broker(x.ID)
	if b == nil {
		return nil, nil, Refuse(kerr.BrokerIDNotRegistered, "broker %d", x.ID)
	}
	if !b.Fenced {
		return nil, nil, Refuse(kerr.InvalidRequest, "broker %d is alive: stop it first", x.ID)
	}
	for p := range m.AllPartitions() {
		if slices.Contains(p.Replicas, x.ID) {
			return nil, nil, Refuse(kerr.InvalidRequest, "broker %d still holds a replica of %s-%d", x.ID, m.TopicByID(p.TopicID).Name, p.Index)
		}
	}
	return []Record{&RemoveBroker{ID: x.ID}}, nil, nil
}

func (x *AssignDirs) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	b, err := m.brokerAt(x.BrokerID, x.BrokerEpoch)
	if err != nil {
		return nil, nil, err
	}
	var recs []Record
	for _, d := range x.Dirs {
		if !slices.Contains(b.LogDirs, d.Dir) {
			return nil, nil, Refuse(kerr.LogDirNotFound, "broker %d has not registered %s", x.BrokerID, d.Dir)
		}
		p := m.Partition(d.TopicID, d.Partition)
		if p == nil {
			continue // deleted meanwhile
		}
		if i := slices.Index(p.Replicas, x.BrokerID); i >= 0 && p.dir(i) != d.Dir {
			c := m.change(p)
			c.next.Dirs = p.dirs()
			c.next.Dirs[i] = d.Dir
			if p.Leader == NoLeader {
				c.settle() // it may have been all that was not known
			}
			recs = append(recs, &c.next)
		}
	}
	return recs, nil, nil
}

func (x *AllocateProducerIDs) apply(m *Image, _ Meta) ([]Record, []byte, error) {
	if _, err := m.brokerAt(x.BrokerID, x.BrokerEpoch); err != nil {
		return nil, nil, err
	}
	if x.Count < 1 || x.Count > 1<<20 {
		return nil, nil, Refuse(kerr.InvalidRequest, "a block of %d producer ids", x.Count)
	}
	block := ProducerIDBlock{First: m.nextProducerID, Count: x.Count}
	c := coder{}
	block.fields(&c)
	return []Record{&ProducerIDs{Next: block.First + int64(block.Count)}}, c.b, nil
}

// brokerAt returns a broker if epoch is its present one.
func (m *Image) brokerAt(id int32, epoch int64) (*Broker, error) {
	b := m.Broker(id)
	if b == nil {
		return nil, Refuse(kerr.BrokerIDNotRegistered, "broker %d", id)
	}
	if b.Epoch != epoch {
		return nil, Refuse(kerr.StaleBrokerEpoch, "broker %d is at epoch %d, the request at %d", id, b.Epoch, epoch)
	}
	return b, nil
}

// reassign hands the tasks of a broker that leaves to another one.
func (m *Image) reassign(id int32) []Record {
	var recs []Record
	for t := range m.Tasks() {
		if t.Assignee == id {
			recs = append(recs, t.assign(m.worker(t.ID, id)))
		}
	}
	return recs
}

func (t *Task) assign(broker int32) *Task {
	next := *t
	next.Assignee = broker
	next.Epoch++
	return &next
}

// worker picks an active broker, spread by n, that is not except.
func (m *Image) worker(n uint64, except int32) int32 {
	var alive []int32
	for b := range m.Brokers() {
		if b.Active() && b.ID != except {
			alive = append(alive, b.ID)
		}
	}
	if len(alive) == 0 {
		return NoLeader
	}
	return alive[n%uint64(len(alive))]
}

func remove(ids []int32, id int32) []int32 {
	if !slices.Contains(ids, id) {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(x int32) bool { return x == id })
}

func distinct[T comparable](s []T) map[T]bool {
	set := make(map[T]bool, len(s))
	for _, v := range s {
		set[v] = true
	}
	return set
}
