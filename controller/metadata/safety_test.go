package metadata

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/varve-io/varve/wire"
)

// The model below is a cluster that does with one partition what the rules allow and the disks do to it: brokers that see the
// image late, leaders that do not know that they are deposed, crashes that lose the page cache, reassignments. It holds the
// promise of the whole: whoever is elected has every acknowledged record, unless the row says that records may be lost; and while
// fewer than min.insync.replicas lose their page cache it never says so.

// entry is a record of a model's log: its epoch and a number that no other has.
type entry struct {
	epoch int32
	id    int
}

// member is one broker of the model, with its replica.
type member struct {
	id      int32
	up      bool
	epoch   int64      // of its registration
	seen    *Partition // the row that it acts by: perhaps an old one
	log     []entry
	durable int // of log
	hw      int
	// What a leader knows in its epoch: where its followers' logs end, in which life of theirs (KIP-903), and the ISR that it
	// proposed and does not know the fate of: all of it counts (KIP-497).
	ends     map[int32]int
	lives    map[int32]int64
	proposed []int32
	start    int  // leader: where the epoch begins in its log
	lossy    bool // lost something, and was not in sync since
}

type model struct {
	*cluster
	rng               *rand.Rand
	topic             *Topic
	members           map[int32]*member
	acked             []entry
	next              int
	fsync             bool
	limited           bool // no more power losses than the promise bears
	trace             []string
	losses, elections int
	told              int32 // the last LossEpoch that was taken into account
}

const modelBrokers = 5

func newModel(t *testing.T, seed uint64, durability string, limited bool) *model {
	m := &model{cluster: newCluster(t), rng: rand.New(rand.NewPCG(seed, 7)), members: map[int32]*member{}, fsync: durability == "fsync", limited: limited}
	for id := int32(1); id <= modelBrokers; id++ {
		m.members[id] = &member{id: id, up: true, epoch: m.broker(id).Epoch}
	}
	m.must(&CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: [][]int32{{1, 2, 3}}, Durability: durability, MinInSync: 2})
	m.topic = m.img.Topic("t")
	for _, b := range m.members {
		m.see(b)
	}
	return m
}

func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.trace[max(0, len(m.trace)-60):] {
		m.t.Log(line)
	}
	m.t.Fatalf(format, args...)
}

func (m *model) present() *Partition { return m.img.Partition(m.topic.ID, 0) }

// see has a broker apply the present image.
func (m *model) see(b *member) {
	p := m.present()
	b.proposed = nil
	if b.seen != nil && b.seen.LeaderEpoch == p.LeaderEpoch && b.seen.Leader == p.Leader {
		b.seen = p
		return
	}
	b.seen = p
	b.ends, b.lives = map[int32]int{}, map[int32]int64{}
	b.start = len(b.log)
	if m.leads(b) {
		m.begins(b)
	}
}

// end is how much of its log counts.
func (m *model) end(b *member) int {
	if m.fsync {
		return b.durable
	}
	return len(b.log)
}

func (m *model) leads(b *member) bool { return b.up && b.seen != nil && b.seen.Leader == b.id }

func (m *model) produce(b *member) {
	if !m.leads(b) {
		return
	}
	m.next++
	b.log = append(b.log, entry{b.seen.LeaderEpoch, m.next})
	m.advance(b)
}

// advance moves a leader's high watermark by the row that it knows, and acknowledges.
func (m *model) advance(b *member) {
	p := b.seen
	if !m.leads(b) || len(p.ISR) < min(2, len(p.Replicas)) {
		return
	}
	hw := m.end(b)
	for _, r := range slices.Concat(p.ISR, b.proposed) {
		if r != b.id {
			hw = min(hw, b.ends[r])
		}
	}
	b.hw = max(b.hw, hw)
	if hw > len(m.acked) {
		if !slices.Equal(m.acked, b.log[:len(m.acked)]) {
			m.fail("broker %d acknowledges %v, without %v", b.id, b.log[:hw], m.acked)
		}
		m.acked = slices.Clone(b.log[:hw])
	}
}

// fetch has a follower truncate to what it shares with the leader that it knows, and copy some of the rest.
func (m *model) fetch(b *member) {
	if !b.up || b.seen == nil || b.seen.Leader < 0 || b.seen.Leader == b.id || !slices.Contains(b.seen.Replicas, b.id) {
		return
	}
	l := m.members[b.seen.Leader]
	if !m.leads(l) || l.seen.LeaderEpoch != b.seen.LeaderEpoch || !slices.Contains(l.seen.Replicas, b.id) {
		return
	}
	common := 0
	for common < len(b.log) && common < len(l.log) && b.log[common] == l.log[common] {
		common++
	}
	b.log = b.log[:common:common]
	b.durable = min(b.durable, common)
	l.ends[b.id], l.lives[b.id] = m.end(b), b.epoch
	m.advance(l)
	if more := len(l.log) - common; more > 0 {
		b.log = append(b.log, l.log[common:common+1+m.rng.IntN(more)]...)
	}
	b.hw = min(l.hw, len(b.log))
}

// propose has a leader shrink or grow the ISR by what it knows.
func (m *model) propose(b *member) {
	if !m.leads(b) || b.proposed != nil {
		return
	}
	p := b.seen
	x := &AlterPartition{BrokerID: b.id, BrokerEpoch: b.epoch, TopicID: p.TopicID, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, r := range p.Replicas {
		in := slices.Contains(p.ISR, r)
		end, known := b.ends[r]
		switch {
		case r == b.id:
		case in && m.rng.IntN(4) == 0:
			continue // says it is slow
		case !in && (!known || end < b.hw || end < b.start || m.rng.IntN(4) == 0):
			continue
		}
		life := b.lives[r]
		if r == b.id {
			life = b.epoch
		} else if in && !known {
			life = -1
		}
		x.ISR = append(x.ISR, ISRMember{r, life})
		b.proposed = append(b.proposed, r)
	}
	m.rng.Shuffle(len(x.ISR), func(i, j int) { x.ISR[i], x.ISR[j] = x.ISR[j], x.ISR[i] })
	if r := m.do(x); r.Code == 0 {
		m.note("%d has ISR %v", b.id, m.present().ISR)
		if m.rng.IntN(2) == 0 {
			m.see(b)
		}
	} else {
		b.proposed = nil
	}
}

// die ends a process; power says that the page cache goes with it. It is noticed now or when it comes back.
func (m *model) die(b *member, power bool) {
	if !b.up {
		return
	}
	if power {
		if m.limited && !m.fsync && slices.ContainsFunc(m.all(), func(o *member) bool { return o.lossy }) {
			return
		}
		b.log = b.log[:b.durable+m.rng.IntN(len(b.log)-b.durable+1)]
		b.lossy = true
	}
	b.up, b.hw, b.seen = false, 0, nil
	m.note("%d dies, power loss %v, has %v", b.id, power, b.log)
	if m.rng.IntN(2) == 0 {
		m.do(&FenceBroker{ID: b.id, Epoch: b.epoch})
	}
}

func (m *model) all() []*member {
	var all []*member
	for id := int32(1); id <= modelBrokers; id++ {
		all = append(all, m.members[id])
	}
	return all
}

// comeBack registers another life of a broker.
func (m *model) comeBack(b *member) {
	if b.up {
		return
	}
	m.do(&FenceBroker{ID: b.id, Epoch: b.epoch})
	previous := b.epoch
	if b.lossy {
		previous = -1
	}
	b.epoch = m.register(b.id, previous).Epoch
	b.up = true
	b.durable = min(b.durable, len(b.log))
	m.unfence(b.id)
	m.see(b)
	m.note("%d is back", b.id)
}

func (m *model) shutDown(b *member) {
	if b.up {
		m.do(&ShutdownBroker{ID: b.id, Epoch: b.epoch})
		m.see(b)
		m.die(b, false)
	}
}

func (m *model) sync(b *member) {
	b.durable = len(b.log)
	m.advance(b)
}

// report answers a row that asks.
func (m *model) report(b *member) {
	if p := b.seen; b.up && p != nil && p.Undecided() && slices.Contains(p.Replicas, b.id) {
		last := int32(-1)
		if len(b.log) > 0 {
			last = b.log[len(b.log)-1].epoch
		}
		m.do(&ReportEnd{BrokerID: b.id, BrokerEpoch: b.epoch, TopicID: p.TopicID, LastEpoch: last, End: int64(len(b.log))})
	}
}

func (m *model) reassign() {
	target := m.rng.Perm(modelBrokers)[:3]
	x := &AlterReassignment{TopicID: m.topic.ID, Cancel: m.rng.IntN(3) == 0}
	for _, i := range target {
		x.Target = append(x.Target, int32(i+1))
	}
	if r := m.do(x); r.Code == 0 {
		m.note("reassigned: %+v", m.present())
	}
}

func (m *model) step() {
	b := m.members[m.rng.Int32N(modelBrokers)+1]
	switch n := m.rng.IntN(100); {
	case n == 0:
		if m.rng.IntN(2) == 0 {
			m.die(b, m.rng.IntN(2) == 0)
		} else {
			m.shutDown(b)
		}
	case n == 1:
		m.do(&FenceBroker{ID: b.id, Epoch: b.epoch}) // it hangs, and does not know
	case n == 2:
		m.reassign()
	case n == 3:
		m.do(&ElectLeader{TopicID: m.topic.ID})
	case n < 7:
		m.comeBack(b)
	case n < 10:
		if b.up && m.img.Broker(b.id).Fenced {
			m.see(b)
			m.unfence(b.id)
		}
	case n < 12:
		m.report(b)
	case n < 15:
		m.sync(b)
	case n < 30:
		m.propose(b)
	case n < 45:
		m.produce(b)
	case n < 65:
		if b.up {
			m.see(b)
		}
	default:
		m.fetch(b)
	}
	m.check()
}

// check holds the promise.
func (m *model) check() {
	m.t.Helper()
	checkImage(m.t, m.img)
	p := m.present()
	for _, r := range p.ISR {
		if m.members[r].up {
			m.members[r].lossy = m.members[r].lossy && m.img.Broker(r).Epoch != m.members[r].epoch
		}
	}
	if m.limited && p.LossEpoch > 0 {
		m.fail("a loss is said to be possible: %+v", p)
	}
}

// begins looks at a broker that begins to lead: it has every acknowledged record, or it was said that it may not.
func (m *model) begins(l *member) {
	m.t.Helper()
	p := l.seen
	m.elections++
	m.note("%d leads in epoch %d: %v, acknowledged are %d", l.id, p.LeaderEpoch, l.log, len(m.acked))
	common := 0
	for common < len(m.acked) && common < len(l.log) && m.acked[common] == l.log[common] {
		common++
	}
	switch {
	case p.LossEpoch > m.told:
		m.losses++
		m.told = p.LossEpoch
		m.acked = m.acked[:common:common]
		for _, b := range m.members {
			b.hw = min(b.hw, common)
		}
	case common < len(m.acked):
		m.fail("broker %d leads in epoch %d without what was acknowledged: has %v, acknowledged %v", l.id, p.LeaderEpoch, l.log, m.acked)
	}
}

func TestAcknowledgedIsNeverLost(t *testing.T) {
	for _, tt := range []struct {
		name, durability string
		limited          bool
	}{
		{"any power losses", "replicated", false},
		{"one power loss at a time", "replicated", true},
		{"fsync, any power losses", "fsync", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			acked, losses, elections := 0, 0, 0
			for seed := range uint64(60) {
				m := newModel(t, seed, tt.durability, tt.limited)
				for range 8000 {
					m.step()
				}
				acked, losses, elections = acked+len(m.acked), losses+m.losses, elections+m.elections
			}
			t.Logf("%d records acknowledged, %d elections, %d of them with possible loss", acked, elections, losses)
			if acked < 1000 || elections < 1000 || (losses > 0) == tt.limited {
				t.Error("the model has lost its way")
			}
		})
	}
}
