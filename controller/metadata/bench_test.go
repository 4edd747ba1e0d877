package metadata

import (
	"bytes"
	"testing"

	"github.com/varve-io/varve/wire"
)

// big is an image of 10,000 partitions with 65,536 remote segments, led by one broker.
func big(b *testing.B) (*Image, *Topic) {
	m := New()
	topic := &Topic{ID: wire.NewUUID(), Name: "t", NumPartitions: 10_000}
	recs := []Record{&Cluster{ID: "c"}, &Feature{MetadataFeature, MetadataVersion}, &Broker{ID: 1, Epoch: 1}, topic}
	for p := range int32(10_000) {
		recs = append(recs, &Partition{TopicID: topic.ID, Index: p, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, RemoteEnd: RemoteAt(7)})
		for s := range int64(7) {
			if len(recs) < 65_536+10_000 {
				recs = append(recs, &Segment{TopicID: topic.ID, Partition: p, Base: s, End: s + 1, Object: wire.NewUUID(), Size: 1 << 30})
			}
		}
	}
	return m.Replay(recs, 1, 1), topic
}

func BenchmarkCommitSegment(b *testing.B) {
	m, topic := big(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		object, end := wire.NewUUID(), int64(i)+8
		m, _, _ = Apply(m, &ReserveObject{BrokerID: 1, BrokerEpoch: 1, TopicID: topic.ID, Object: object, LifetimeMs: 1000}, Meta{Index: uint64(i) + 2, TimeMs: int64(i)})
		var r Result
		m, _, r = Apply(m, &CommitSegment{BrokerID: 1, BrokerEpoch: 1, Segment: Segment{TopicID: topic.ID, Base: end - 1, End: end, Object: object}}, Meta{Index: uint64(i) + 2, TimeMs: int64(i)})
		if r.Err() != nil {
			b.Fatal(r.Err())
		}
	}
}

func BenchmarkFence(b *testing.B) {
	m, _ := big(b)
	for b.Loop() {
		if _, recs, r := Apply(m, &FenceBroker{ID: 1, Epoch: 1}, Meta{Index: 2}); r.Err() != nil || len(recs) < 10_000 {
			b.Fatal(r.Err())
		}
	}
}

// BenchmarkFenceOther fences one of three brokers that each partition has, which leads none of them.
func BenchmarkFenceOther(b *testing.B) {
	m, topic := big(b)
	recs := []Record{&Broker{ID: 2, Epoch: 1}, &Broker{ID: 3, Epoch: 1}}
	for p := range m.Partitions(topic.ID) {
		row := *p
		row.Replicas, row.ISR = []int32{1, 2, 3}, []int32{1, 2, 3}
		recs = append(recs, &row)
	}
	m = m.Replay(recs, 2, 1)
	for b.Loop() {
		if _, recs, r := Apply(m, &FenceBroker{ID: 2, Epoch: 1}, Meta{Index: 3}); r.Err() != nil || len(recs) < 10_000 {
			b.Fatal(r.Err())
		}
	}
}

// BenchmarkFenceIdle fences a broker that has no replica.
func BenchmarkFenceIdle(b *testing.B) {
	m, _ := big(b)
	m = m.Replay([]Record{&Broker{ID: 2, Epoch: 1}}, 2, 1)
	for b.Loop() {
		if _, recs, r := Apply(m, &FenceBroker{ID: 2, Epoch: 1}, Meta{Index: 3}); r.Err() != nil || len(recs) != 1 {
			b.Fatal(r.Err())
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	m, _ := big(b)
	for b.Loop() {
		var buf bytes.Buffer
		if err := EncodeSnapshot(&buf, m); err != nil {
			b.Fatal(err)
		}
		if _, err := DecodeSnapshot(&buf); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(buf.Cap()), "bytes")
	}
}
