package metadata

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
)

// refusedWith is nil for success.
func (c *cluster) refused(want *kerr.Error, cmd Command) {
	c.t.Helper()
	before := c.img.Hash()
	r := c.do(cmd)
	if want == nil && r.Code != 0 || want != nil && r.Code != want.Code {
		c.t.Errorf("%T: got %v, want %v", cmd, r.Err(), want)
	}
	if r.Code != 0 && c.img.Hash() != before {
		c.t.Errorf("%T: refused, yet it changed the image", cmd)
	}
}

func TestNothingBeforeTheCluster(t *testing.T) {
	c := &cluster{t: t, img: New()}
	c.refused(kerr.UnsupportedVersion, &CreateTopic{ID: wire.NewUUID(), Name: "t"})
	c.refused(kerr.InvalidRequest, &FormCluster{})
	c.refused(nil, &FormCluster{ClusterID: "c"})
	c.refused(nil, &FormCluster{ClusterID: "c"})
	c.refused(kerr.InconsistentClusterID, &FormCluster{ClusterID: "d"})
	c.refused(kerr.UnsupportedVersion, &CreateTopic{ID: wire.NewUUID(), Name: "t"}) // no metadata.version finalised
}

func TestSetFeature(t *testing.T) {
	c := newCluster(t)
	c.refused(kerr.FeatureUpdateFailed, &SetFeature{Feature{MetadataFeature, MetadataVersion}})
	c.refused(kerr.FeatureUpdateFailed, &SetFeature{Feature{"", 3}})
	c.refused(nil, &SetFeature{Feature{MetadataFeature, MetadataVersion + 1}})
	if got := c.img.Feature(MetadataFeature); got != MetadataVersion+1 {
		t.Errorf("level %d", got)
	}
}

func TestRegisterBroker(t *testing.T) {
	dir, other := wire.NewUUID(), wire.NewUUID()
	first := RegisterBroker{ID: 1, ClusterID: "c", Incarnation: wire.NewUUID(), LogDirs: []wire.UUID{dir}, Listeners: []Listener{{Name: "P", Host: "h", Port: 1}}}
	with := func(change func(*RegisterBroker)) *RegisterBroker {
		r := first
		change(&r)
		return &r
	}
	c := newCluster(t)
	c.refused(kerr.InconsistentClusterID, with(func(r *RegisterBroker) { r.ClusterID = "d" }))
	c.refused(kerr.InvalidRegistration, with(func(r *RegisterBroker) { r.ID = -1 }))
	c.refused(kerr.InvalidRegistration, with(func(r *RegisterBroker) { r.Incarnation = wire.UUID{} }))
	c.refused(kerr.InvalidRegistration, with(func(r *RegisterBroker) { r.Listeners = nil }))
	c.refused(kerr.InvalidRegistration, with(func(r *RegisterBroker) { r.LogDirs = nil }))
	c.refused(kerr.InvalidRegistration, with(func(r *RegisterBroker) { r.LogDirs = []wire.UUID{dir, dir} }))
	c.refused(nil, &first)
	b := c.img.Broker(1)
	if b.Epoch != int64(c.img.Index()) || !b.Fenced {
		t.Fatalf("registered as %+v at index %d", b, c.img.Index())
	}
	c.refused(nil, with(func(r *RegisterBroker) { r.Incarnation = wire.NewUUID() })) // the other one is fenced
	c.refused(kerr.StaleBrokerEpoch, &UnfenceBroker{ID: 1, Epoch: b.Epoch})
	c.refused(nil, &UnfenceBroker{ID: 1, Epoch: c.img.Broker(1).Epoch})
	c.refused(kerr.DuplicateBrokerRegistration, with(func(r *RegisterBroker) { r.Incarnation = wire.NewUUID() }))
	epoch := c.img.Broker(1).Epoch
	c.refused(nil, with(func(r *RegisterBroker) { r.Incarnation, r.Rack = c.img.Broker(1).Incarnation, "r" }))
	if b := c.img.Broker(1); b.Fenced || b.Epoch != epoch || b.Rack != "r" {
		t.Errorf("the same life, registered again: %+v", b)
	}
	c.refused(kerr.InvalidRegistration, with(func(r *RegisterBroker) { r.ID = 2 }))
	c.refused(nil, with(func(r *RegisterBroker) { r.ID, r.LogDirs = 2, []wire.UUID{other} }))
}

// TestFencing follows KIP-841: who is fenced leads nothing and is in sync
// nowhere; the last member of an ISR is eligible when it comes back (KIP-966).
func TestFencing(t *testing.T) {
	c := newCluster(t)
	b1, b2 := c.broker(1), c.broker(2)
	tp := c.topic("t", []int32{1, 2}, []int32{1}, []int32{2, 1})
	state := func(p int32) Partition { return *c.img.Partition(tp.ID, p) }

	c.must(&FenceBroker{ID: 1, Epoch: b1.Epoch})
	if p := state(0); p.Leader != 2 || p.LeaderEpoch != 1 || !slices.Equal(p.ISR, []int32{2}) {
		t.Errorf("0: %+v", p)
	}
	if p := state(1); p.Leader != NoLeader || p.LeaderEpoch != 1 || len(p.ISR) > 0 || !slices.Equal(p.ELR, []int32{1}) {
		t.Errorf("1: %+v", p)
	}
	if p := state(2); p.Leader != 2 || p.LeaderEpoch != 0 || p.PartitionEpoch != 1 || !slices.Equal(p.ISR, []int32{2}) {
		t.Errorf("2: %+v", p)
	}
	c.must(&FenceBroker{ID: 1, Epoch: b1.Epoch}) // again: nothing
	if p := state(1); p.LeaderEpoch != 1 {
		t.Errorf("fenced twice: %+v", p)
	}
	c.must(&FenceBroker{ID: 2, Epoch: b2.Epoch})
	if p := state(0); p.Leader != NoLeader || len(p.ISR) > 0 || !slices.Equal(p.ELR, []int32{2}) {
		t.Errorf("0: %+v", p)
	}
	c.must(&UnfenceBroker{ID: 1, Epoch: b1.Epoch})
	if p := state(0); p.Leader != NoLeader {
		t.Errorf("0: 1 is not in sync, yet it leads: %+v", p)
	}
	if p := state(1); p.Leader != 1 || p.LeaderEpoch != 2 {
		t.Errorf("1: %+v", p)
	}
	c.refused(kerr.StaleBrokerEpoch, &FenceBroker{ID: 1, Epoch: b1.Epoch - 1})
	c.refused(kerr.BrokerIDNotRegistered, &FenceBroker{ID: 9})
}

func TestRestartElectsAgain(t *testing.T) {
	c := newCluster(t)
	b := c.broker(1)
	tp := c.topic("t", []int32{1})
	c.must(&FenceBroker{ID: 1, Epoch: b.Epoch})
	c.broker(1) // another life, same directory
	if p := c.img.Partition(tp.ID, 0); p.Leader != 1 || p.LeaderEpoch != 2 {
		t.Errorf("%+v", p)
	}
}

func TestControlledShutdown(t *testing.T) {
	c := newCluster(t)
	b1 := c.broker(1)
	c.broker(2)
	tp := c.topic("t", []int32{1, 2}, []int32{1})
	c.must(&ShutdownBroker{ID: 1, Epoch: b1.Epoch})
	if p := c.img.Partition(tp.ID, 0); p.Leader != 2 || !slices.Equal(p.ISR, []int32{2}) {
		t.Errorf("0: %+v", p)
	}
	if p := c.img.Partition(tp.ID, 1); p.Leader != 1 || p.LeaderEpoch != 0 {
		t.Errorf("1: nobody else can lead it: %+v", p)
	}
	c.refused(kerr.InvalidReplicaAssignment, &CreateTopic{ID: wire.NewUUID(), Name: "u", Assignments: [][]int32{{1}}})
}

// TestLostDirectory: a replica of a directory that does not come back is
// neither in sync nor elected, in the very entry that registers its broker.
func TestLostDirectory(t *testing.T) {
	a, b, d := wire.NewUUID(), wire.NewUUID(), wire.NewUUID()
	register := func(dirs ...wire.UUID) *RegisterBroker {
		return &RegisterBroker{ID: 1, ClusterID: "c", Incarnation: wire.NewUUID(), LogDirs: dirs, Listeners: []Listener{{Name: "P", Host: "h", Port: 1}}}
	}
	c := newCluster(t)
	c.must(register(a, b))
	c.must(&UnfenceBroker{ID: 1, Epoch: c.img.Broker(1).Epoch})
	tp := c.topic("t", []int32{1}, []int32{1}, []int32{1})
	epoch := c.img.Broker(1).Epoch
	c.refused(kerr.LogDirNotFound, &AssignDirs{BrokerID: 1, BrokerEpoch: epoch, Dirs: []DirAssignment{{tp.ID, 0, d}}})
	c.must(&AssignDirs{BrokerID: 1, BrokerEpoch: epoch, Dirs: []DirAssignment{{tp.ID, 0, a}, {tp.ID, 1, b}, {tp.ID, 99, b}}})
	c.must(&FenceBroker{ID: 1, Epoch: epoch})
	again := register(a, d)
	again.PreviousEpoch = epoch
	c.must(again)
	c.must(&UnfenceBroker{ID: 1, Epoch: c.img.Broker(1).Epoch})
	for p, leader := range []int32{1, NoLeader, NoLeader} { // the third was never assigned: it may have been in b
		if got := c.img.Partition(tp.ID, int32(p)); got.Leader != leader || (leader == NoLeader) != (len(got.ISR) == 0) {
			t.Errorf("%d: %+v", p, got)
		}
	}
}

func TestUnregisterBroker(t *testing.T) {
	c := newCluster(t)
	b := c.broker(1)
	tp := c.topic("t", []int32{1})
	c.refused(kerr.BrokerIDNotRegistered, &UnregisterBroker{ID: 2})
	c.refused(kerr.InvalidRequest, &UnregisterBroker{ID: 1})
	c.must(&FenceBroker{ID: 1, Epoch: b.Epoch})
	c.refused(kerr.InvalidRequest, &UnregisterBroker{ID: 1})
	c.must(&DeleteTopic{ID: tp.ID})
	c.must(&UnregisterBroker{ID: 1})
	if c.img.Broker(1) != nil {
		t.Error("still there")
	}
}

func TestAllocateProducerIDs(t *testing.T) {
	c := newCluster(t)
	b := c.broker(1)
	for want := range int64(3) {
		block, err := DecodeProducerIDBlock(c.must(&AllocateProducerIDs{BrokerID: 1, BrokerEpoch: b.Epoch, Count: 1000}).Data)
		if err != nil || block.First != want*1000 || block.Count != 1000 {
			t.Fatalf("%+v, %v", block, err)
		}
	}
	c.refused(kerr.StaleBrokerEpoch, &AllocateProducerIDs{BrokerID: 1, BrokerEpoch: b.Epoch + 1, Count: 1})
	c.refused(kerr.InvalidRequest, &AllocateProducerIDs{BrokerID: 1, BrokerEpoch: b.Epoch})
}

func TestCreateTopic(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	b2 := c.broker(2)
	c.must(&FenceBroker{ID: 2, Epoch: b2.Epoch})
	one := [][]int32{{1}}
	id := wire.NewUUID()
	for name, cmd := range map[string]struct {
		cmd  CreateTopic
		want *kerr.Error
	}{
		"empty name":      {CreateTopic{ID: wire.NewUUID(), Assignments: one}, kerr.InvalidTopicException},
		"dots":            {CreateTopic{ID: wire.NewUUID(), Name: "..", Assignments: one}, kerr.InvalidTopicException},
		"slash":           {CreateTopic{ID: wire.NewUUID(), Name: "a/b", Assignments: one}, kerr.InvalidTopicException},
		"long":            {CreateTopic{ID: wire.NewUUID(), Name: string(make([]byte, 250)), Assignments: one}, kerr.InvalidTopicException},
		"no id":           {CreateTopic{Name: "t", Assignments: one}, kerr.InvalidRequest},
		"no partitions":   {CreateTopic{ID: wire.NewUUID(), Name: "t"}, kerr.InvalidPartitions},
		"too many":        {CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: make([][]int32, maxPartitions+1)}, kerr.InvalidPartitions},
		"no replicas":     {CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: [][]int32{{}}}, kerr.InvalidReplicaAssignment},
		"twice one":       {CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: [][]int32{{1, 1}}}, kerr.InvalidReplicaAssignment},
		"unknown broker":  {CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: [][]int32{{1, 3}}}, kerr.InvalidReplicaAssignment},
		"none alive":      {CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: [][]int32{{2}}}, kerr.InvalidReplicaAssignment},
		"second one dead": {CreateTopic{ID: id, Name: "x_y", Assignments: [][]int32{{2, 1}}, Configs: map[string]string{"retention.ms": "1"}, Durability: "fsync"}, nil},
	} {
		t.Run(name, func(t *testing.T) { c.t = t; c.refused(cmd.want, &cmd.cmd) })
	}
	c.t = t
	if p := c.img.Partition(id, 0); p.Leader != 1 || !slices.Equal(p.ISR, []int32{1}) || p.RemoteEnd != RemoteNone || p.Dirs[1] != c.dirs[1] {
		t.Errorf("%+v", p)
	}
	if got := c.img.Config(ResourceTopic, "x_y")["retention.ms"]; got != "1" || c.img.Topic("x_y").Durability != "fsync" {
		t.Errorf("config %q", got)
	}
	c.refused(kerr.TopicAlreadyExists, &CreateTopic{ID: wire.NewUUID(), Name: "x_y", Assignments: one})
	c.refused(kerr.InvalidTopicException, &CreateTopic{ID: wire.NewUUID(), Name: "x.y", Assignments: one}) // same metric name
	c.refused(kerr.InvalidRequest, &CreateTopic{ID: id, Name: "other", Assignments: one})
	c.must(&DeleteTopic{ID: id})
	c.refused(kerr.UnknownTopicID, &DeleteTopic{ID: id})
	if c.img.Topic("x_y") != nil || c.img.Partition(id, 0) != nil || c.img.Config(ResourceTopic, "x_y") != nil {
		t.Error("something of the deleted topic remains")
	}
	if n := len(slices.Collect(c.img.Tasks())); n != 0 {
		t.Errorf("%d tasks: nothing remote to purge", n)
	}
}

func TestCreatePartitions(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	tp := c.topic("t", []int32{1})
	c.refused(kerr.UnknownTopicOrPartition, &CreatePartitions{TopicID: wire.NewUUID(), Existing: 1, Assignments: [][]int32{{1}}})
	c.refused(kerr.InvalidPartitions, &CreatePartitions{TopicID: tp.ID, Existing: 2, Assignments: [][]int32{{1}}})
	c.refused(kerr.InvalidPartitions, &CreatePartitions{TopicID: tp.ID, Existing: 1})
	c.refused(nil, &CreatePartitions{TopicID: tp.ID, Existing: 1, Assignments: [][]int32{{1}, {1}}})
	if n := len(slices.Collect(c.img.Partitions(tp.ID))); n != 3 || c.img.Topic("t").NumPartitions != 3 {
		t.Errorf("%d partitions", n)
	}
}

func TestAlterConfig(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	c.topic("t", []int32{1})
	entries := map[string]string{"retention.ms": "5"}
	c.refused(kerr.UnknownTopicOrPartition, &AlterConfig{Type: ResourceTopic, Name: "u", Entries: entries})
	c.refused(kerr.InvalidRequest, &AlterConfig{Type: 3, Name: "t", Entries: entries})
	c.refused(nil, &AlterConfig{Type: ResourceTopic, Name: "t", Entries: entries})
	c.refused(kerr.InvalidUpdateVersion, &AlterConfig{Type: ResourceTopic, Name: "t"}) // changed meanwhile
	c.refused(nil, &AlterConfig{Type: ResourceTopic, Name: "t", Version: c.img.ConfigVersion(ResourceTopic, "t")})
	if c.img.Config(ResourceTopic, "t") != nil {
		t.Error("entries remain")
	}
	c.refused(nil, &AlterConfig{Type: ResourceBroker, Entries: map[string]string{"log.retention.ms": "5"}})
}

// TestAlterPartition: ISR changes are compare-and-set (KIP-497) among brokers
// that live (KIP-841) and are who the leader thinks (KIP-903).
func TestAlterPartition(t *testing.T) {
	c := newCluster(t)
	b1, b2, b3 := c.broker(1), c.broker(2), c.broker(3)
	tp := c.topic("t", []int32{1, 2, 3})
	ok := AlterPartition{BrokerID: 1, BrokerEpoch: b1.Epoch, TopicID: tp.ID, ISR: []ISRMember{{1, b1.Epoch}, {2, b2.Epoch}}}
	with := func(change func(*AlterPartition)) *AlterPartition {
		x := ok
		change(&x)
		return &x
	}
	c.refused(kerr.UnknownTopicID, with(func(x *AlterPartition) { x.TopicID = wire.NewUUID() }))
	c.refused(kerr.UnknownTopicOrPartition, with(func(x *AlterPartition) { x.Partition = 7 }))
	c.refused(kerr.StaleBrokerEpoch, with(func(x *AlterPartition) { x.BrokerEpoch-- }))
	c.refused(kerr.UnknownLeaderEpoch, with(func(x *AlterPartition) { x.LeaderEpoch = 1 }))
	c.refused(kerr.NotLeaderForPartition, with(func(x *AlterPartition) { x.BrokerID, x.BrokerEpoch = 2, b2.Epoch }))
	c.refused(kerr.InvalidUpdateVersion, with(func(x *AlterPartition) { x.PartitionEpoch = 1 }))
	c.refused(kerr.InvalidRequest, with(func(x *AlterPartition) { x.ISR = []ISRMember{{2, b2.Epoch}} }))
	c.refused(kerr.InvalidRequest, with(func(x *AlterPartition) { x.ISR = []ISRMember{{1, b1.Epoch}, {1, b1.Epoch}} }))
	c.refused(kerr.InvalidRequest, with(func(x *AlterPartition) { x.ISR = []ISRMember{{1, b1.Epoch}, {4, -1}} }))
	c.refused(kerr.IneligibleReplica, with(func(x *AlterPartition) { x.ISR = []ISRMember{{1, b1.Epoch}, {2, b2.Epoch - 1}} }))
	c.refused(nil, &ok)
	if p := c.img.Partition(tp.ID, 0); !slices.Equal(p.ISR, []int32{1, 2}) || p.PartitionEpoch != 1 || p.LeaderEpoch != 0 {
		t.Errorf("%+v", p)
	}
	c.must(&FenceBroker{ID: 3, Epoch: b3.Epoch})
	c.refused(kerr.IneligibleReplica, with(func(x *AlterPartition) { x.PartitionEpoch, x.ISR = 1, []ISRMember{{1, -1}, {3, -1}} }))
	c.must(&FenceBroker{ID: 1, Epoch: b1.Epoch})
	c.must(&UnfenceBroker{ID: 1, Epoch: b1.Epoch})
	c.refused(kerr.FencedLeaderEpoch, &ok)
}

// remote is a cluster with one partition that broker 1 leads.
type remote struct {
	*cluster
	b  *Broker
	id wire.UUID
}

func newRemote(t *testing.T) *remote {
	c := newCluster(t)
	b := c.broker(1)
	return &remote{c, b, c.topic("t", []int32{1}).ID}
}

func (r *remote) reserve() wire.UUID {
	r.t.Helper()
	object := wire.NewUUID()
	r.must(r.reservation(object))
	return object
}

func (r *remote) reservation(object wire.UUID) *ReserveObject {
	p := r.img.Partition(r.id, 0)
	return &ReserveObject{BrokerID: 1, BrokerEpoch: r.img.Broker(1).Epoch, TopicID: r.id, LeaderEpoch: p.LeaderEpoch, Object: object, LifetimeMs: 1000}
}

func (r *remote) segment(object wire.UUID, base, end int64) *CommitSegment {
	return &CommitSegment{BrokerID: 1, BrokerEpoch: r.img.Broker(1).Epoch,
		Segment: Segment{TopicID: r.id, Base: base, End: end, Epoch: r.img.Partition(r.id, 0).LeaderEpoch, Object: object, Size: end - base}}
}

func (r *remote) commit(base, end int64) wire.UUID {
	r.t.Helper()
	object := r.reserve()
	r.must(r.segment(object, base, end))
	return object
}

func TestReserveObject(t *testing.T) {
	r := newRemote(t)
	object := wire.NewUUID()
	with := func(change func(*ReserveObject)) *ReserveObject {
		x := *r.reservation(object)
		change(&x)
		return &x
	}
	r.refused(kerr.StaleBrokerEpoch, with(func(x *ReserveObject) { x.BrokerEpoch-- }))
	r.refused(kerr.UnknownTopicID, with(func(x *ReserveObject) { x.TopicID = wire.NewUUID() }))
	r.refused(kerr.UnknownLeaderEpoch, with(func(x *ReserveObject) { x.LeaderEpoch = 5 }))
	r.refused(kerr.InvalidRequest, with(func(x *ReserveObject) { x.Object = wire.UUID{} }))
	r.refused(kerr.InvalidRequest, with(func(x *ReserveObject) { x.LifetimeMs = 0 }))
	r.refused(kerr.InvalidRequest, with(func(x *ReserveObject) { x.LifetimeMs = MaxReservationMs + 1 }))
	r.refused(nil, r.reservation(object))
	r.refused(kerr.InvalidRequest, r.reservation(object))
	if got := r.img.Reservation(object); got.ExpiresMs != r.now+1000 {
		t.Errorf("%+v at %d", got, r.now)
	}

	unknown := *r.img.Partition(r.id, 0)
	unknown.RemoteEnd = RemoteUnknown
	r.img = r.img.Replay([]Record{&unknown}, r.img.Index(), r.img.Term())
	r.refused(kerr.OffsetNotAvailable, r.reservation(wire.NewUUID()))
	r.refused(kerr.OffsetNotAvailable, r.segment(object, 0, 10))
	r.refused(kerr.OffsetNotAvailable, &DeleteSegmentsUpTo{BrokerID: 1, BrokerEpoch: r.b.Epoch, TopicID: r.id, UpTo: 1})
}

// TestCommitSegment: a row is accepted iff its reservation lives, its epoch is
// the leader's and remoteEnd <= base <= next < end, next = max(remoteEnd, logStart).
func TestCommitSegment(t *testing.T) {
	for name, tt := range map[string]struct {
		remoteEnd, logStart int64 // -1: none
		base, end           int64
		want                *kerr.Error
	}{
		"first":                     {-1, 0, 0, 10, nil},
		"first leaves a gap":        {-1, 0, 1, 10, kerr.InvalidUpdateVersion},
		"first after a log start":   {-1, 5, 5, 10, nil},
		"first across a log start":  {-1, 5, 3, 10, nil},
		"below the log start":       {-1, 5, 0, 5, kerr.InvalidUpdateVersion},
		"continues":                 {10, 0, 10, 20, nil},
		"overlaps":                  {10, 0, 9, 20, kerr.InvalidUpdateVersion},
		"gap":                       {10, 0, 11, 20, kerr.InvalidUpdateVersion},
		"empty":                     {10, 0, 10, 10, kerr.InvalidUpdateVersion},
		"again":                     {10, 0, 0, 10, kerr.InvalidUpdateVersion},
		"log start past remote end": {10, 15, 15, 20, nil},
		"gap that was deleted":      {10, 15, 12, 20, nil},
		"gap past the log start":    {10, 15, 16, 20, kerr.InvalidUpdateVersion},
		"wholly deleted":            {10, 15, 10, 15, kerr.InvalidUpdateVersion},
		"negative":                  {-1, 0, -1, 10, kerr.InvalidUpdateVersion},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			if tt.remoteEnd >= 0 {
				r.commit(0, tt.remoteEnd)
			}
			r.must(&AdvanceLogStart{BrokerID: 1, BrokerEpoch: r.b.Epoch, TopicID: r.id, LogStart: tt.logStart})
			object := r.reserve()
			r.refused(tt.want, r.segment(object, tt.base, tt.end))
			if tt.want != nil {
				return
			}
			if end, ok := r.img.Partition(r.id, 0).RemoteEnd.Offset(); !ok || end != tt.end {
				t.Errorf("remote end %d", end)
			}
			if r.img.Reservation(object) != nil {
				t.Error("the reservation remains")
			}
			r.refused(nil, r.segment(object, tt.base, tt.end)) // the answer was lost: asked again
		})
	}
}

func TestCommitNeedsItsReservation(t *testing.T) {
	r := newRemote(t)
	r.refused(kerr.ResourceNotFound, r.segment(wire.NewUUID(), 0, 10))
	object := r.reserve()
	r.now += 999
	r.must(&ExpireReservations{})
	r.refused(kerr.StaleBrokerEpoch, func() Command { x := r.segment(object, 0, 10); x.BrokerEpoch++; return x }())
	r.now++
	r.refused(kerr.ResourceNotFound, r.segment(object, 0, 10)) // its time is over, though it is still listed
	r.must(&ExpireReservations{})
	if r.img.Reservation(object) != nil {
		t.Error("expired, but there")
	}
	object = r.reserve()
	r.must(&ReleaseReservation{Object: object})
	r.refused(nil, &ReleaseReservation{Object: object})
	r.refused(kerr.ResourceNotFound, r.segment(object, 0, 10))
}

// TestStaleUploader: who was deposed in mid-upload cannot commit.
func TestStaleUploader(t *testing.T) {
	r := newRemote(t)
	object := r.reserve()
	stale := r.segment(object, 0, 10)
	r.must(&FenceBroker{ID: 1, Epoch: r.b.Epoch})
	r.refused(kerr.FencedLeaderEpoch, stale)
	r.must(&UnfenceBroker{ID: 1, Epoch: r.b.Epoch})
	r.refused(kerr.FencedLeaderEpoch, stale)
	stale.Segment.Epoch = 2
	r.refused(nil, stale)
}

// TestTimeNeverGoesBack: a leader whose clock is behind does not revive what expired.
func TestTimeNeverGoesBack(t *testing.T) {
	r := newRemote(t)
	object := r.reserve()
	r.now += 5000
	r.commit(0, 5)
	r.now = 0
	r.refused(kerr.ResourceNotFound, r.segment(object, 5, 10))
	if r.img.TimeMs() < 5000 {
		t.Errorf("time %d", r.img.TimeMs())
	}
}

func TestDeletion(t *testing.T) {
	r := newRemote(t)
	a, b, last := r.commit(0, 10), r.commit(10, 20), r.commit(20, 30)
	start := func(o int64) *AdvanceLogStart {
		return &AdvanceLogStart{BrokerID: 1, BrokerEpoch: r.b.Epoch, TopicID: r.id, LogStart: o}
	}
	upTo := func(o int64) *DeleteSegmentsUpTo {
		return &DeleteSegmentsUpTo{BrokerID: 1, BrokerEpoch: r.b.Epoch, TopicID: r.id, UpTo: o}
	}
	forget := func(objects ...wire.UUID) *ForgetSegments {
		return &ForgetSegments{BrokerID: 1, BrokerEpoch: r.b.Epoch, TopicID: r.id, Objects: objects}
	}
	r.must(start(20))
	r.refused(nil, start(15)) // never back
	if got := r.img.Partition(r.id, 0).LogStart; got != 20 {
		t.Fatalf("log start %d", got)
	}
	r.refused(kerr.OffsetOutOfRange, upTo(21))
	r.refused(kerr.InvalidRequest, forget(a))
	r.now += 50
	r.must(upTo(20))
	if got := r.img.DeletableSegments(r.id, 0, r.now+99, 100); len(got) != 0 {
		t.Errorf("%d deletable within the grace", len(got))
	}
	if got := r.img.DeletableSegments(r.id, 0, r.now+100, 100); len(got) != 2 || got[0].Object != a || got[1].Object != b {
		t.Errorf("deletable: %v", got)
	}
	r.must(start(30))
	r.refused(kerr.OperationNotAttempted, upTo(30)) // the former is not done yet
	r.refused(nil, upTo(20))
	r.refused(kerr.InvalidRequest, forget(a, last))
	r.must(forget(a))
	r.refused(kerr.OperationNotAttempted, upTo(30))
	r.must(forget(a, b))
	r.must(upTo(30))
	r.must(forget(last))
	if n := r.img.NumSegments(); n != 0 {
		t.Errorf("%d rows remain", n)
	}
	if end, ok := r.img.Partition(r.id, 0).RemoteEnd.Offset(); !ok || end != 30 {
		t.Errorf("the remote end went back to %d", end)
	}
	r.refused(kerr.FencedLeaderEpoch, func() Command { x := start(40); x.LeaderEpoch = -1; return x }())
}

// TestPurge: a deleted topic leaves a task that outlives its worker and waits
// for uploads in flight.
func TestPurge(t *testing.T) {
	r := newRemote(t)
	b2 := r.broker(2)
	r.commit(0, 10)
	object := r.reserve()
	r.must(&DeleteTopic{ID: r.id})
	task := slices.Collect(r.img.Tasks())[0]
	if task.Kind != PurgeTopic || task.TopicID != r.id || task.Partitions != 1 || r.img.Topic("t") != nil || r.img.NumSegments() != 0 {
		t.Fatalf("%+v", task)
	}
	r.refused(kerr.UnknownTopicID, &CommitSegment{BrokerID: 1, BrokerEpoch: r.b.Epoch, Segment: Segment{TopicID: r.id, End: 5, Object: object}})
	r.refused(kerr.InvalidRequest, &CreateTopic{ID: r.id, Name: "t2", Assignments: [][]int32{{2}}}) // the id is still in use

	r.must(&FenceBroker{ID: task.Assignee, Epoch: r.img.Broker(task.Assignee).Epoch})
	moved := r.img.Task(task.ID)
	if moved.Assignee == task.Assignee || moved.Epoch != task.Epoch+1 {
		t.Fatalf("%+v", moved)
	}
	r.must(&FenceBroker{ID: moved.Assignee, Epoch: r.img.Broker(moved.Assignee).Epoch})
	if r.img.Task(task.ID).Assignee != NoLeader {
		t.Fatal("assigned to a broker that is fenced")
	}
	r.must(&UnfenceBroker{ID: 2, Epoch: b2.Epoch})
	now := r.img.Task(task.ID)
	done := CompleteTask{ID: now.ID, Epoch: now.Epoch, BrokerID: 2, BrokerEpoch: b2.Epoch}
	if now.Assignee != 2 {
		t.Fatalf("%+v", now)
	}
	stale := done
	stale.Epoch--
	r.refused(kerr.InvalidUpdateVersion, &stale)
	r.refused(kerr.OperationNotAttempted, &done)
	r.must(&ReleaseReservation{Object: object})
	r.refused(nil, &done)
	r.refused(nil, &done)
	if r.img.Task(now.ID) != nil {
		t.Error("the task remains")
	}
}

func TestObjectName(t *testing.T) {
	s := Segment{TopicID: wire.NewUUID(), Partition: 3, Base: 5, End: 1 << 40, Epoch: 7, Object: wire.UUID{0xfb, 0xff, 0xbe}} // base64url with dashes
	name := ObjectName("cl", &s)
	cluster, got, err := ParseObjectName(name)
	if err != nil || cluster != "cl" || got != s {
		t.Errorf("%s: %s %+v %v", name, cluster, got, err)
	}
	for _, bad := range []string{"", "a/b", name + "x", "x" + name[1:] + "/", "cl/0000/" + name[8:]} {
		if _, _, err := ParseObjectName(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}
