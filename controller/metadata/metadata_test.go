package metadata

import (
	"bytes"
	"testing"

	"github.com/varve-io/varve/wire"
)

// cluster is an image under test with a clock and an index of its own.
type cluster struct {
	t    *testing.T
	img  *Image
	now  int64
	log  [][]Record // what each entry came to
	dirs map[int32]wire.UUID
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, img: New(), now: 1_000, dirs: map[int32]wire.UUID{}}
	c.must(&FormCluster{ClusterID: "c", Features: []Feature{{MetadataFeature, MetadataVersion}}})
	return c
}

func (c *cluster) do(cmd Command) Result {
	c.t.Helper()
	decoded, err := DecodeCommand(EncodeCommand(cmd))
	if err != nil {
		c.t.Fatalf("%T: %v", cmd, err)
	}
	next, recs, result := Apply(c.img, decoded, Meta{Index: c.img.Index() + 1, Term: 1, TimeMs: c.now})
	c.img, c.log = next, append(c.log, recs)
	return result
}

func (c *cluster) must(cmd Command) Result {
	c.t.Helper()
	r := c.do(cmd)
	if r.Code != 0 {
		c.t.Fatalf("%T: %v", cmd, r.Err())
	}
	return r
}

// broker registers and unfences a broker, whose life before, if it had one, ended cleanly.
func (c *cluster) broker(id int32) *Broker {
	c.t.Helper()
	previous := int64(-1)
	if old := c.img.Broker(id); old != nil {
		previous = old.Epoch
	}
	c.register(id, previous)
	c.must(&UnfenceBroker{ID: id, Epoch: c.img.Broker(id).Epoch})
	return c.img.Broker(id)
}

// register begins another life of a broker, fenced; previous is the life of which it lost nothing.
func (c *cluster) register(id int32, previous int64) *Broker {
	c.t.Helper()
	if c.dirs[id].IsZero() {
		c.dirs[id] = wire.NewUUID()
	}
	c.must(&RegisterBroker{ID: id, ClusterID: "c", Incarnation: wire.NewUUID(), LogDirs: []wire.UUID{c.dirs[id]}, PreviousEpoch: previous,
		Listeners: []Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092}}})
	return c.img.Broker(id)
}

// fence takes a broker out of service.
func (c *cluster) fence(ids ...int32) {
	c.t.Helper()
	for _, id := range ids {
		c.must(&FenceBroker{ID: id, Epoch: c.img.Broker(id).Epoch})
	}
}

// crash ends a life of a broker such that it may have lost records, and begins another one, fenced.
func (c *cluster) crash(ids ...int32) {
	c.t.Helper()
	c.fence(ids...)
	for _, id := range ids {
		c.register(id, -1)
	}
}

func (c *cluster) unfence(ids ...int32) {
	c.t.Helper()
	for _, id := range ids {
		c.must(&UnfenceBroker{ID: id, Epoch: c.img.Broker(id).Epoch})
	}
}

// alter has the leader propose an ISR.
func (c *cluster) alter(p *Partition, isr ...int32) {
	c.t.Helper()
	x := &AlterPartition{BrokerID: p.Leader, BrokerEpoch: c.img.Broker(p.Leader).Epoch, TopicID: p.TopicID, Partition: p.Index,
		LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, id := range isr {
		x.ISR = append(x.ISR, ISRMember{id, c.img.Broker(id).Epoch})
	}
	c.must(x)
}

func (c *cluster) topic(name string, assignments ...[]int32) *Topic {
	c.t.Helper()
	c.must(&CreateTopic{ID: wire.NewUUID(), Name: name, Assignments: assignments})
	return c.img.Topic(name)
}

func TestRoundTrip(t *testing.T) {
	c := newCluster(t)
	b := c.broker(1)
	tp := c.topic("orders", []int32{1}, []int32{1})
	object := wire.NewUUID()
	c.must(&ReserveObject{BrokerID: 1, BrokerEpoch: b.Epoch, TopicID: tp.ID, Object: object, LifetimeMs: 1000})
	s := Segment{TopicID: tp.ID, Base: 0, End: 10, Object: object, Size: 100}
	c.must(&CommitSegment{BrokerID: 1, BrokerEpoch: b.Epoch, Segment: s})
	if got, ok := c.img.SegmentAt(tp.ID, 0, 9); !ok || *got != s {
		t.Fatalf("segment at 9: %+v", got)
	}
	var buf bytes.Buffer
	if err := EncodeSnapshot(&buf, c.img); err != nil {
		t.Fatal(err)
	}
	m, err := DecodeSnapshot(&buf)
	if err != nil || m.Hash() != c.img.Hash() || !Diff(m, c.img).Empty() {
		t.Fatalf("snapshot round trip: %v", err)
	}
}
