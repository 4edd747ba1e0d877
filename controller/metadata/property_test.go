package metadata

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/varve-io/varve/wire"
)

// TestRandomCommands applies random commands, sensible and not, and holds
// after each that replaying the records, applying the entry on another
// replica, and loading a snapshot all give the same image, and that the delta
// of the records is the difference of the images.
func TestRandomCommands(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomCommands(t, rand.New(rand.NewPCG(seed, 0)), 1000, outcomes) })
	}
	for _, kind := range []Command{&CreateTopic{}, &DeleteTopic{}, &CreatePartitions{}, &ReserveObject{}, &CommitSegment{}, &DeleteSegmentsUpTo{}, &ForgetSegments{},
		&CompleteTask{}, &RegisterBroker{}, &AlterPartition{}, &AlterConfig{}, &ElectLeader{}, &AlterReassignment{}, &ReportEnd{}, &FailDirs{}} {
		for _, ok := range []bool{true, false} {
			if n := outcomes[fmt.Sprintf("%T %v", kind, ok)]; n < 5 {
				t.Errorf("%T: accepted=%v only %d times: the test has lost its way", kind, ok, n)
			}
		}
	}
}

func randomCommands(t *testing.T, rng *rand.Rand, steps int, outcomes map[string]int) {
	g := &generator{rng: rng}
	leader, replica, broker := New(), New(), New()
	for step := range steps {
		e := Entry{TimeMs: int64(step*10) - rng.Int64N(100)}
		if step == 0 {
			e.Commands = []Command{&FormCluster{ClusterID: "c", Features: []Feature{{MetadataFeature, MetadataVersion}}}}
		}
		for range rng.IntN(4) {
			e.Commands = append(e.Commands, g.command(leader))
		}
		raw := EncodeEntry(e)
		decoded, err := DecodeEntry(raw)
		if err != nil {
			t.Fatal(err)
		}
		index, term := uint64(step+1), uint64(step/100+1)
		next, recs, results := ApplyEntry(leader, e, index, term)
		replica, _, _ = ApplyEntry(replica, decoded, index, term)
		replayed, err := DecodeRecords(EncodeRecords(recs))
		if err != nil {
			t.Fatal(err)
		}
		broker = broker.Replay(replayed, index, term)

		for i, r := range results {
			outcomes[fmt.Sprintf("%T %v", e.Commands[i], r.Code == 0)]++
		}
		want := next.Hash()
		if replica.Hash() != want || broker.Hash() != want {
			t.Fatalf("step %d: hashes %x, replica %x, broker %x after %+v", step, want, replica.Hash(), broker.Hash(), e)
		}
		if next.Index() != index || next.Term() != term || next.TimeMs() < leader.TimeMs() {
			t.Fatalf("step %d: at %d, term %d, time %d", step, next.Index(), next.Term(), next.TimeMs())
		}
		if step%10 == 0 {
			checkSnapshot(t, next)
		}
		checkDelta(t, leader, next, recs)
		checkImage(t, next)
		checkEpochs(t, leader, next)
		leader = next
	}
}

func checkSnapshot(t *testing.T, m *Image) {
	t.Helper()
	var buf bytes.Buffer
	if err := EncodeSnapshot(&buf, m); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeSnapshot(&buf)
	if err != nil || got.Hash() != m.Hash() || got.Index() != m.Index() || got.Term() != m.Term() || !Diff(got, m).Empty() {
		t.Fatalf("snapshot at %d: %v", m.Index(), err)
	}
}

// checkDelta compares the cheap delta with the full comparison. The cheap one
// may name rows that were written and are as before.
func checkDelta(t *testing.T, old, next *Image, recs []Record) {
	t.Helper()
	full, cheap := Diff(old, next), NewDelta(old, next, recs)
	missing := func(what string, n int) {
		if n > 0 {
			t.Fatalf("the delta misses %d %s: %+v", n, what, recs)
		}
	}
	missing("brokers", len(slices.DeleteFunc(full.Brokers, func(k int32) bool { return slices.Contains(cheap.Brokers, k) })))
	missing("topics", len(slices.DeleteFunc(full.Topics, func(k wire.UUID) bool { return slices.Contains(cheap.Topics, k) })))
	missing("partitions", len(slices.DeleteFunc(full.Partitions, func(k PartitionKey) bool { return slices.Contains(cheap.Partitions, k) })))
	missing("segments", len(slices.DeleteFunc(full.Segments, func(k PartitionKey) bool { return slices.Contains(cheap.Segments, k) })))
	missing("configs", len(slices.DeleteFunc(full.Configs, func(k ConfigKey) bool { return slices.Contains(cheap.Configs, k) })))
	missing("tasks", len(slices.DeleteFunc(full.Tasks, func(k uint64) bool { return slices.Contains(cheap.Tasks, k) })))
}

// checkImage holds what must be true of every image.
func checkImage(t *testing.T, m *Image) {
	t.Helper()
	partitions := 0
	for tp := range m.Topics() {
		partitions += int(tp.NumPartitions)
		if n := len(slices.Collect(m.Partitions(tp.ID))); n != int(tp.NumPartitions) {
			t.Fatalf("%s has %d partition rows, not %d", tp.Name, n, tp.NumPartitions)
		}
	}
	if partitions != m.NumPartitions() {
		t.Fatalf("%d partitions, %d rows", partitions, m.NumPartitions())
	}
	for p := range m.AllPartitions() {
		checkPartition(t, m, p)
		at, end := int64(0), int64(0)
		for s := range m.Segments(p.TopicID, p.Index, 0) {
			if s.Base < at || s.End <= s.Base {
				t.Fatalf("segments overlap: %+v", s)
			}
			at, end = s.End, s.End
			for _, o := range []int64{s.Base, s.End - 1} {
				if got, ok := m.SegmentAt(p.TopicID, p.Index, o); !ok || got != s {
					t.Fatalf("offset %d is not found in %+v", o, s)
				}
			}
		}
		if remote, _ := p.RemoteEnd.Offset(); end > remote {
			t.Fatalf("rows end at %d, beyond the remote end %d", end, remote)
		}
	}
}

// checkPartition holds what must be true of who leads a partition and who could.
func checkPartition(t *testing.T, m *Image, p *Partition) {
	t.Helper()
	if len(distinct(p.Replicas)) != len(p.Replicas) || len(p.Replicas) == 0 || len(p.Dirs) != len(p.Replicas) {
		t.Fatalf("replicas: %+v", p)
	}
	sets := slices.Concat(p.ISR, p.ELR, p.LastKnownELR)
	if len(distinct(sets)) != len(sets) || len(intersect(sets, p.Replicas)) != len(sets) {
		t.Fatalf("in two of ISR, ELR and LastKnownELR, or no replica: %+v", p)
	}
	if len(p.ELR)+len(p.LastKnownELR) > 0 && len(p.ISR) >= m.MinInSync(p) {
		t.Fatalf("enough are in sync, yet others are eligible: %+v", p)
	}
	if (p.Leader == NoLeader) != (len(p.ISR) == 0) || p.Leader != NoLeader && !slices.Contains(p.ISR, p.Leader) {
		t.Fatalf("led by %d, who is not in sync, or by nobody though one is: %+v", p.Leader, p)
	}
	for _, r := range p.ISR {
		if b := m.Broker(r); b.Fenced || !b.Active() && r != p.Leader || m.offline(p, r) {
			t.Fatalf("%d is out of service and in sync: %+v", r, p)
		}
	}
	for _, r := range p.ELR {
		if p.Leader == NoLeader && m.Broker(r).Active() && !m.offline(p, r) {
			t.Fatalf("nobody leads, though %d is eligible: %+v", r, p)
		}
	}
	if len(p.Ends) > 0 && !p.Undecided() || p.LossEpoch > p.LeaderEpoch {
		t.Fatalf("%+v", p)
	}
	moved := slices.Concat(p.Adding, p.Removing)
	if len(distinct(moved)) != len(moved) || len(intersect(moved, p.Replicas)) != len(moved) || len(p.Target()) == 0 || len(p.Original()) == 0 {
		t.Fatalf("reassignment: %+v", p)
	}
	if p.Reassigning() && len(without(p.Adding, p.ISR)) == 0 && len(without(p.ISR, p.Removing)) >= max(m.MinInSync(p), 1) {
		t.Fatalf("the reassignment is complete, and goes on: %+v", p)
	}
}

// checkEpochs holds that epochs rise with what they stand for, and never fall.
func checkEpochs(t *testing.T, old, next *Image) {
	t.Helper()
	for p := range next.AllPartitions() {
		before := old.Partition(p.TopicID, p.Index)
		if before == nil || before == p {
			continue
		}
		if p.LeaderEpoch < before.LeaderEpoch || p.PartitionEpoch < before.PartitionEpoch || p.LossEpoch < before.LossEpoch {
			t.Fatalf("an epoch fell: %+v, was %+v", p, before)
		}
		if p.Leader != before.Leader && p.LeaderEpoch == before.LeaderEpoch || !p.sameState(before) && p.PartitionEpoch == before.PartitionEpoch {
			t.Fatalf("an epoch stands: %+v, was %+v", p, before)
		}
	}
}

// generator makes commands that are mostly right, by looking at the image.
type generator struct {
	rng  *rand.Rand
	dirs [propertyBrokers + 1]wire.UUID
}

const propertyBrokers = 5

// replicas picks up to four brokers.
func (g *generator) replicas() []int32 {
	var ids []int32
	for _, i := range g.rng.Perm(propertyBrokers)[:1+g.rng.IntN(4)] {
		ids = append(ids, int32(i+1))
	}
	return ids
}

func (g *generator) uuid() (u wire.UUID) {
	for i := range u {
		u[i] = byte(g.rng.Uint32())
	}
	return u
}

func (g *generator) command(m *Image) Command {
	id := g.rng.Int32N(propertyBrokers) + 1
	b := m.Broker(id)
	if b == nil {
		b = &Broker{ID: id}
	}
	epoch := b.Epoch
	if g.rng.IntN(20) == 0 {
		epoch--
	}
	var p *Partition
	if all := slices.Collect(m.AllPartitions()); len(all) > 0 {
		p = all[g.rng.IntN(len(all))]
		if l := m.Broker(p.Leader); l != nil && g.rng.IntN(10) > 0 {
			id, epoch = l.ID, l.Epoch
		}
	} else {
		p = &Partition{TopicID: g.uuid(), Leader: id}
	}
	switch g.rng.IntN(29) {
	case 28:
		dir := g.dirs[b.ID]
		if g.rng.IntN(4) == 0 {
			dir = g.uuid()
		}
		return &FailDirs{ID: b.ID, Epoch: b.Epoch - g.rng.Int64N(2)*g.rng.Int64N(2), Dirs: []wire.UUID{dir}}
	case 20, 21:
		x := &AlterReassignment{TopicID: p.TopicID, Partition: p.Index, Target: g.replicas(), Cancel: g.rng.IntN(4) == 0}
		if g.rng.IntN(20) == 0 {
			x.Target = append(x.Target, 77)
		}
		return x
	case 22:
		return &ElectLeader{TopicID: p.TopicID, Partition: p.Index, Unclean: g.rng.IntN(4) == 0}
	case 23, 24:
		for q := range m.AllPartitions() {
			if r := q.Replicas[g.rng.IntN(len(q.Replicas))]; q.Undecided() && m.Broker(r) != nil {
				return &ReportEnd{BrokerID: r, BrokerEpoch: m.Broker(r).Epoch - g.rng.Int64N(2)*g.rng.Int64N(2), TopicID: q.TopicID, Partition: q.Index,
					LastEpoch: q.LeaderEpoch - g.rng.Int32N(2), End: g.rng.Int64N(9)}
			}
		}
		return &UnregisterBroker{ID: b.ID}
	case 25:
		if p.Leader != NoLeader && m.Broker(p.Leader) != nil { // all that live catch up
			x := &AlterPartition{BrokerID: p.Leader, BrokerEpoch: m.Broker(p.Leader).Epoch, TopicID: p.TopicID, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
			for _, r := range p.Replicas {
				if m.Broker(r).Active() {
					x.ISR = append(x.ISR, ISRMember{r, m.Broker(r).Epoch})
				}
			}
			return x
		}
		return &UnfenceBroker{ID: b.ID, Epoch: b.Epoch}
	case 26:
		return &AlterConfig{Type: ResourceBroker, Version: m.ConfigVersion(ResourceBroker, ""), Entries: map[string]string{"min.insync.replicas": fmt.Sprint(1 + g.rng.IntN(3))}}
	case 0, 1:
		if g.dirs[id].IsZero() || g.rng.IntN(30) == 0 {
			g.dirs[id] = g.uuid()
		}
		return &RegisterBroker{ID: b.ID, ClusterID: "c", Incarnation: g.uuid(), Rack: "r", LogDirs: []wire.UUID{g.dirs[b.ID]},
			Listeners: []Listener{{"P", "host", 9092, 0}}, PreviousEpoch: b.Epoch - g.rng.Int64N(2)}
	case 2, 3, 4:
		return &UnfenceBroker{ID: b.ID, Epoch: b.Epoch}
	case 5:
		return &FenceBroker{ID: b.ID, Epoch: b.Epoch}
	case 6:
		if g.rng.IntN(3) == 0 {
			return &ShutdownBroker{ID: b.ID, Epoch: b.Epoch}
		}
		return &AllocateProducerIDs{BrokerID: id, BrokerEpoch: epoch, Count: g.rng.Int32N(100)}
	case 7:
		var parts [][]int32
		for range g.rng.IntN(3) + 1 {
			parts = append(parts, g.replicas())
		}
		return &CreateTopic{ID: g.uuid(), Name: fmt.Sprintf("topic-%d", g.rng.IntN(6)), Assignments: parts, Configs: map[string]string{"a": "1", "b": ""},
			MinInSync: g.rng.Int32N(4), Durability: []string{"", "fsync", "replicated"}[g.rng.IntN(3)]}
	case 8:
		if g.rng.IntN(4) == 0 {
			return &DeleteTopic{ID: p.TopicID}
		}
		return &CreatePartitions{TopicID: p.TopicID, Existing: g.rng.Int32N(4), Assignments: [][]int32{{1}}}
	case 9:
		name := fmt.Sprintf("topic-%d", g.rng.IntN(6))
		x := &AlterConfig{Type: ResourceTopic, Name: name, Version: m.ConfigVersion(ResourceTopic, name), Entries: map[string]string{"k": fmt.Sprint(g.rng.Int()), "min.insync.replicas": fmt.Sprint(g.rng.IntN(4))}}
		if g.rng.IntN(3) == 0 {
			x.Entries = nil
		}
		return x
	case 10:
		x := &AlterPartition{BrokerID: id, BrokerEpoch: epoch, TopicID: p.TopicID, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
		for _, r := range p.Replicas {
			if r == p.Leader || g.rng.IntN(2) == 0 {
				x.ISR = append(x.ISR, ISRMember{r, -1})
			}
		}
		return x
	case 11, 12:
		return &ReserveObject{BrokerID: id, BrokerEpoch: epoch, TopicID: p.TopicID, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, Object: g.uuid(), LifetimeMs: 1 + g.rng.Int64N(300)}
	case 13, 14, 15:
		x := &CommitSegment{BrokerID: id, BrokerEpoch: epoch, Segment: Segment{TopicID: p.TopicID, Partition: p.Index, Epoch: p.LeaderEpoch, Size: 7}}
		for r := range m.Reservations() {
			if q := m.Partition(r.TopicID, r.Partition); q != nil && m.Broker(r.BrokerID) != nil && g.rng.IntN(3) > 0 {
				x.BrokerID, x.BrokerEpoch = r.BrokerID, m.Broker(r.BrokerID).Epoch
				next, _ := q.Next()
				x.Segment = Segment{TopicID: r.TopicID, Partition: r.Partition, Epoch: q.LeaderEpoch, Object: r.Object, Base: next, End: next + g.rng.Int64N(10)}
			}
		}
		return x
	case 16:
		return &AdvanceLogStart{BrokerID: id, BrokerEpoch: epoch, TopicID: p.TopicID, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, LogStart: p.LogStart + g.rng.Int64N(8)}
	case 17:
		return &DeleteSegmentsUpTo{BrokerID: id, BrokerEpoch: epoch, TopicID: p.TopicID, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, UpTo: p.LogStart + g.rng.Int64N(2)}
	case 18:
		x := &ForgetSegments{BrokerID: id, BrokerEpoch: epoch, TopicID: p.TopicID, Partition: p.Index, LeaderEpoch: p.LeaderEpoch}
		for s := range m.Segments(p.TopicID, p.Index, 0) {
			x.Objects = append(x.Objects, s.Object)
			if g.rng.IntN(2) == 0 {
				break
			}
		}
		return x
	}
	for task := range m.Tasks() {
		if w := m.Broker(task.Assignee); w != nil {
			return &CompleteTask{ID: task.ID, Epoch: task.Epoch - g.rng.Int32N(2), BrokerID: w.ID, BrokerEpoch: w.Epoch}
		}
	}
	return &ExpireReservations{}
}
