package protocol

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// metric sums a metric over its labels.
func metric(t testing.TB, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// seeds are well-formed requests of every API at every version, to be damaged.
func seeds(role wire.Role, id [16]byte) (out [][]byte) {
	for _, a := range wire.APIs(role) {
		if role == wire.Controller && a.Roles == wire.Broker|wire.Controller && a.Key != 18 {
			continue // administrators come by the broker's listener
		}
		for v := a.Min; v <= a.Max; v++ {
			var req kmsg.Request
			switch a.Key {
			case 0:
				req = produceRequest("t", id, -1, []byte("not a batch"), nil)
			case 1:
				f := fetchRequest("t", id, 0)
				f.SessionEpoch = 0
				req = f
			case wire.KeyFetchMetadata, wire.KeySubmitCommands, wire.KeyIntroduce:
				req = a.NewRequest()
			default:
				req = filled(kmsg.RequestForKey(a.Key))
			}
			req.SetVersion(v)
			b := []byte{0, 0, 0, 0}
			b = binary.BigEndian.AppendUint16(b, uint16(a.Key))
			b = binary.BigEndian.AppendUint16(b, uint16(v))
			b = append(b, 0, 0, 0, 1, 0, 1, 'x')
			if req.IsFlexible() {
				b = append(b, 0)
			}
			b = req.AppendTo(b)
			out = append(out, b)
		}
	}
	return out
}

// filled puts something into the arrays of a request, so that damage reaches them.
func filled(req kmsg.Request) kmsg.Request {
	t := "t"
	switch r := req.(type) {
	case *kmsg.ListOffsetsRequest:
		r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: t, Partitions: make([]kmsg.ListOffsetsRequestTopicPartition, 2)}}
	case *kmsg.MetadataRequest:
		r.Topics = []kmsg.MetadataRequestTopic{{Topic: &t}}
	case *kmsg.CreateTopicsRequest:
		r.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "u", NumPartitions: 1, ReplicationFactor: 1, ReplicaAssignment: make([]kmsg.CreateTopicsRequestTopicReplicaAssignment, 1),
			Configs: make([]kmsg.CreateTopicsRequestTopicConfig, 1)}}
	case *kmsg.DeleteTopicsRequest:
		r.TopicNames = []string{"u"}
		r.Topics = []kmsg.DeleteTopicsRequestTopic{{}}
	case *kmsg.DeleteRecordsRequest:
		r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: t, Partitions: make([]kmsg.DeleteRecordsRequestTopicPartition, 1)}}
	case *kmsg.OffsetForLeaderEpochRequest:
		r.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: t, Partitions: make([]kmsg.OffsetForLeaderEpochRequestTopicPartition, 1)}}
	case *kmsg.DescribeConfigsRequest:
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: t}, {ResourceType: 4, ResourceName: "1"}}
	case *kmsg.AlterConfigsRequest:
		r.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: t, Configs: make([]kmsg.AlterConfigsRequestResourceConfig, 1)}}
	case *kmsg.IncrementalAlterConfigsRequest:
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: 2, ResourceName: t, Configs: make([]kmsg.IncrementalAlterConfigsRequestResourceConfig, 1)}}
	case *kmsg.CreatePartitionsRequest:
		r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: t, Count: 2, Assignment: make([]kmsg.CreatePartitionsRequestTopicAssignment, 1)}}
	case *kmsg.ElectLeadersRequest:
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: t, Partitions: []int32{0}}}
	case *kmsg.AlterPartitionAssignmentsRequest:
		r.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: t, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{1}}}}}
	case *kmsg.ListPartitionReassignmentsRequest:
		r.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: t, Partitions: []int32{0}}}
	case *kmsg.DescribeTopicPartitionsRequest:
		r.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: t}}
		r.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: t}
	case *kmsg.FindCoordinatorRequest:
		r.CoordinatorKeys = []string{"g"}
	}
	return req
}

// damage changes some bytes behind the header.
func damage(rng *rand.Rand, frame []byte) []byte {
	b := append([]byte(nil), frame...)
	for range rng.IntN(4) {
		i := 14 + rng.IntN(max(len(b)-14, 1))
		if i >= len(b) {
			continue
		}
		switch rng.IntN(3) {
		case 0:
			b[i] = byte(rng.Uint32())
		case 1:
			b[i] = []byte{0, 1, 0x7f, 0x80, 0xff}[rng.IntN(5)]
		case 2:
			b = b[:i]
		}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// Whatever arrives, on either listener: an answer or the end of that one
// connection, no panic, and others are served as before.
func TestDamagedRequests(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for role, addr := range map[wire.Role]string{wire.Broker: n.addr, wire.Controller: n.controller} {
		all := seeds(role, id)
		for i := range 5 * len(all) {
			seed := all[i%len(all)]
			nc, err := net.Dial("tcp", addr)
			must(t, err)
			for range 12 {
				nc.SetDeadline(time.Now().Add(20 * time.Millisecond)) // long polls and acks=0 are not answered
				if _, err := nc.Write(damage(rng, seed)); err != nil {
					break
				}
				if !answered(nc) {
					break
				}
			}
			nc.Close()
		}
	}
	if p := metric(t, n.registry, "varve_wire_panics_total"); p != 0 {
		t.Errorf("%v panics", p)
	}
	again := n.dial()
	name := again.metadata(1, "after")
	if name.Topics[0].ErrorCode != 0 {
		t.Errorf("afterwards: %+v", name.Topics[0])
	}
	if p := again.produce(9, "after", id, -1, values(t, record.None, "x")); p.ErrorCode != 0 {
		t.Errorf("afterwards: %+v", p)
	}
}

func answered(nc net.Conn) bool {
	var l [4]byte
	if _, err := io.ReadFull(nc, l[:]); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, nc, int64(binary.BigEndian.Uint32(l[:])))
	return err == nil
}
