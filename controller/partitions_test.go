package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// fleet is a controller with some brokers.
type fleet struct {
	*node
	brokers map[int32]*fakeBroker
	metrics *prometheus.Registry
}

func newFleet(t *testing.T, cfg Config, ids ...int32) *fleet {
	t.Helper()
	f := &fleet{brokers: map[int32]*fakeBroker{}, metrics: prometheus.NewRegistry()}
	cfg.Dir, cfg.Registerer = t.TempDir(), f.metrics
	f.node = startNode(t, cfg).ready()
	for _, id := range ids {
		f.brokers[id] = f.broker(id, wire.NewUUID(), listener(t).Addr())
	}
	return f
}

// assigned makes a topic with the given replicas.
func (f *fleet) assigned(name string, configs []string, assignments ...[]int32) *metadata.Topic {
	f.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := newTopic(name, -1, -1, configs...)
	for i, replicas := range assignments {
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: replicas})
	}
	req.Topics = append(req.Topics, topic)
	if resp := ask[*kmsg.CreateTopicsResponse](f.t, f.any(), req); resp.Topics[0].ErrorCode != 0 {
		f.t.Fatalf("%+v", resp.Topics[0])
	}
	return f.c.Image().Topic(name)
}

func (f *fleet) any() *wire.Client {
	for _, b := range f.brokers {
		return b.conn
	}
	return nil
}

// fence has a broker ask to be out of service.
func (f *fleet) fence(id int32, fenced bool) {
	f.t.Helper()
	b := f.brokers[id]
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset, req.WantFence = id, b.epoch, int64(f.c.Image().Index()), fenced
	if resp := ask[*kmsg.BrokerHeartbeatResponse](f.t, b.conn, req); resp.ErrorCode != 0 || resp.IsFenced != fenced {
		f.t.Fatalf("%+v", resp)
	}
}

// alter has the leader of a partition propose an ISR.
func (f *fleet) alter(t *metadata.Topic, partition int32, isr ...int32) {
	f.t.Helper()
	p := f.c.Image().Partition(t.ID, partition)
	b := f.brokers[p.Leader]
	x := &metadata.AlterPartition{BrokerID: b.id, BrokerEpoch: b.epoch, TopicID: t.ID, Partition: partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, id := range isr {
		x.ISR = append(x.ISR, metadata.ISRMember{BrokerID: id, BrokerEpoch: f.brokers[id].epoch})
	}
	if resp := b.submit(x); resp.ErrorCode != 0 || resp.Results[0].ErrorCode != 0 {
		f.t.Fatalf("%+v", resp)
	}
}

func (f *fleet) leader(t *metadata.Topic, partition int32) int32 {
	return f.c.Image().Partition(t.ID, partition).Leader
}

// value reads a metric.
func (f *fleet) value(name string) float64 {
	f.t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "varve_controller_"+name {
			m := family.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	f.t.Fatalf("no metric %s", name)
	return 0
}

func (f *fleet) elect(kind int8, topics ...kmsg.ElectLeadersRequestTopic) *kmsg.ElectLeadersResponse {
	f.t.Helper()
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.Topics = kind, topics
	return ask[*kmsg.ElectLeadersResponse](f.t, f.any(), req)
}

// TestFencingIsOneEntry: all leaderships of a broker move in the entry that fences it.
func TestFencingIsOneEntry(t *testing.T) {
	f := newFleet(t, Config{}, 1, 2, 3)
	var assignments [][]int32
	for range 200 {
		assignments = append(assignments, []int32{1, 2, 3})
	}
	topic := f.assigned("t", nil, assignments...)
	index := f.c.Image().Index()
	f.fence(1, true)
	if got := f.c.Image().Index(); got != index+1 {
		t.Errorf("%d entries", got-index)
	}
	for p := range f.c.Image().Partitions(topic.ID) {
		if p.Leader != 2 || !slices.Equal(p.ISR, []int32{2, 3}) {
			t.Fatalf("%+v", p)
		}
	}
	if got := f.value("under_replicated_partitions"); got != 200 {
		t.Errorf("%v under-replicated", got)
	}
	if got := f.value("preferred_replica_imbalance"); got != 200 {
		t.Errorf("%v led by others", got)
	}
}

// TestSeveralDeadProcesses: those whose connections end and whose ports refuse are fenced at once; those who live stay.
func TestSeveralDeadProcesses(t *testing.T) {
	f := newFleet(t, Config{SessionTimeout: time.Hour})
	listeners := map[int32]interface{ Close() error }{}
	for id := int32(1); id <= 4; id++ {
		ln := listener(t)
		listeners[id], f.brokers[id] = ln, f.broker(id, wire.NewUUID(), ln.Addr())
	}
	topic := f.assigned("t", nil, []int32{1, 2, 3}, []int32{2, 3, 4}, []int32{4, 1, 2})
	for _, id := range []int32{1, 2} {
		listeners[id].Close()
		f.brokers[id].conn.Close()
	}
	eventually(t, func() error {
		for p, want := range []int32{3, 3, 4} {
			if got := f.leader(topic, int32(p)); got != want {
				return fmt.Errorf("%d is led by %d", p, got)
			}
		}
		return nil
	})
	if img := f.c.Image(); img.Broker(3).Fenced || img.Broker(4).Fenced {
		t.Error("a broker that lives is fenced")
	}
	if got := f.value("fenced_brokers"); got != 2 {
		t.Errorf("%v fenced", got)
	}
}

func TestElectLeaders(t *testing.T) {
	f := newFleet(t, Config{}, 1, 2)
	topic := f.assigned("t", nil, []int32{1, 2}, []int32{2, 1})
	f.assigned("single", nil, []int32{1})
	f.fence(1, true)
	f.fence(1, false)
	f.alter(topic, 0, 2, 1) // 1 is behind on nothing but partition 1
	resp := f.elect(preferredElection, kmsg.ElectLeadersRequestTopic{Topic: "t", Partitions: []int32{0, 1, 9}},
		kmsg.ElectLeadersRequestTopic{Topic: "none", Partitions: []int32{0}})
	if len(resp.Topics) != 2 || len(resp.Topics[0].Partitions) != 3 {
		t.Fatalf("%+v", resp)
	}
	for i, want := range []*kerr.Error{nil, kerr.ElectionNotNeeded, kerr.UnknownTopicOrPartition} {
		if got := kerr.TypedErrorForCode(resp.Topics[0].Partitions[i].ErrorCode); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if got := kerr.TypedErrorForCode(resp.Topics[1].Partitions[0].ErrorCode); got != kerr.UnknownTopicOrPartition {
		t.Errorf("%v", got)
	}
	if f.leader(topic, 0) != 1 {
		t.Errorf("led by %d", f.leader(topic, 0))
	}
	if resp := f.elect(7); resp.ErrorCode != kerr.InvalidRequest.Code || len(resp.Topics) > 0 {
		t.Errorf("%+v", resp)
	}
	f.fence(2, true)
	if resp := f.elect(preferredElection); resp.ErrorCode != 0 || len(resp.Topics) > 0 {
		t.Errorf("nothing can be done: %+v", resp)
	}
	f.fence(1, true)
	if got := f.value("offline_partitions"); got != 3 {
		t.Errorf("%v offline", got)
	}
	f.fence(2, false) // 1 was the last member of two of them
	resp = f.elect(uncleanElection)
	if len(resp.Topics) != 2 || resp.Topics[0].Topic != "single" || len(resp.Topics[1].Partitions) == 0 {
		t.Fatalf("%+v", resp)
	}
	if got := resp.Topics[0].Partitions[0].ErrorCode; got != kerr.EligibleLeadersNotAvailable.Code {
		t.Errorf("2 has no replica of it: %d", got)
	}
	for _, p := range resp.Topics[1].Partitions {
		if p.ErrorCode != 0 {
			t.Errorf("%+v", p)
		}
	}
	if got := f.value("unclean_elections_total"); got != 1 {
		t.Errorf("%v unclean elections", got)
	}
}

// TestUncleanElectionByConfig: where the topic allows it, whoever lives leads, without anybody asking.
func TestUncleanElectionByConfig(t *testing.T) {
	f := newFleet(t, Config{}, 1, 2)
	risky := f.assigned("risky", []string{"unclean.leader.election.enable", "true"}, []int32{1, 2})
	safe := f.assigned("safe", nil, []int32{1, 2})
	f.alter(risky, 0, 1)
	f.alter(safe, 0, 1)
	f.fence(1, true)
	eventually(t, func() error {
		if f.leader(risky, 0) != 2 {
			return errors.New("not elected")
		}
		return nil
	})
	if f.leader(safe, 0) != metadata.NoLeader || f.value("unclean_elections_total") != 1 {
		t.Errorf("led by %d, %v unclean elections", f.leader(safe, 0), f.value("unclean_elections_total"))
	}
}

// TestBalance: leaderships go back to preferred replicas, of brokers that lead too little only.
func TestBalance(t *testing.T) {
	f := newFleet(t, Config{BalanceInterval: 300 * time.Millisecond, ImbalancePercent: 50}, 1, 2)
	topic := f.assigned("t", nil, []int32{1, 2}, []int32{1, 2}, []int32{2, 1})
	f.fence(1, true)
	f.fence(1, false)
	f.alter(topic, 0, 2, 1)
	f.alter(topic, 1, 2, 1)
	eventually(t, func() error {
		if f.leader(topic, 0) != 1 || f.leader(topic, 1) != 1 || f.leader(topic, 2) != 2 {
			return errors.New("not balanced")
		}
		return nil
	})
	img := f.c.Image()
	if got := preferredElections(img, 0); len(got) > 0 {
		t.Errorf("balanced, yet %d to elect", len(got))
	}
	p := *img.Partition(topic.ID, 0)
	p.Leader = 2
	away := img.Replay([]metadata.Record{&p}, img.Index(), img.Term())
	if all, none := preferredElections(away, 49), preferredElections(away, 50); len(all) != 1 || len(none) != 0 {
		t.Errorf("one of two is led by another: %d above 49 %%, %d above 50 %%", len(all), len(none))
	}
}

func TestReassignments(t *testing.T) {
	f := newFleet(t, Config{}, 1, 2, 3)
	topic := f.assigned("t", nil, []int32{1}, []int32{2})
	alter := func(allow bool, parts ...kmsg.AlterPartitionAssignmentsRequestTopicPartition) []int16 {
		t.Helper()
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.AllowReplicationFactorChange = allow
		req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: parts}, {Topic: "none", Partitions: parts[:1]}}
		resp := ask[*kmsg.AlterPartitionAssignmentsResponse](t, f.any(), req)
		if resp.ErrorCode != 0 || len(resp.Topics) != 2 || resp.Topics[1].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Fatalf("%+v", resp)
		}
		var codes []int16
		for _, p := range resp.Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		return codes
	}
	list := func(topics ...kmsg.ListPartitionReassignmentsRequestTopic) string {
		t.Helper()
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = topics
		resp := ask[*kmsg.ListPartitionReassignmentsResponse](t, f.any(), req)
		out := ""
		for _, x := range resp.Topics {
			for _, p := range x.Partitions {
				out += fmt.Sprintf("%s-%d %v +%v -%v;", x.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas)
			}
		}
		return out
	}
	type part = kmsg.AlterPartitionAssignmentsRequestTopicPartition
	if got := alter(false, part{Partition: 0, Replicas: []int32{1, 2}}); got[0] != kerr.InvalidReplicationFactor.Code {
		t.Errorf("%v", got)
	}
	if got := alter(true, part{Partition: 0, Replicas: []int32{3}}, part{Partition: 1, Replicas: []int32{1, 3}}, part{Partition: 5, Replicas: []int32{1}}); !slices.Equal(got, []int16{0, 0, kerr.UnknownTopicOrPartition.Code}) {
		t.Errorf("%v", got)
	}
	if got := list(); got != "t-0 [3 1] +[3] -[1];t-1 [1 3 2] +[1 3] -[2];" {
		t.Error(got)
	}
	if got := list(kmsg.ListPartitionReassignmentsRequestTopic{Topic: "t", Partitions: []int32{1, 4}}); got != "t-1 [1 3 2] +[1 3] -[2];" {
		t.Error(got)
	}
	if got := f.value("reassigning_partitions"); got != 2 {
		t.Errorf("%v being reassigned", got)
	}
	f.alter(topic, 0, 1, 3)
	if p := f.c.Image().Partition(topic.ID, 0); p.Leader != 3 || !slices.Equal(p.Replicas, []int32{3}) {
		t.Errorf("%+v", p)
	}
	if got := alter(true, part{Partition: 1}, part{Partition: 0}); !slices.Equal(got, []int16{0, kerr.NoReassignmentInProgress.Code}) {
		t.Errorf("cancelled: %v", got)
	}
	if got := list(); got != "" {
		t.Error(got)
	}
}

func TestUnregisterBroker(t *testing.T) {
	f := newFleet(t, Config{}, 1, 2)
	f.assigned("t", nil, []int32{1})
	unregister := func(id int32) int16 {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		return ask[*kmsg.UnregisterBrokerResponse](t, f.brokers[1].conn, req).ErrorCode
	}
	if got := unregister(9); got != kerr.BrokerIDNotRegistered.Code {
		t.Errorf("%d", got)
	}
	if got := unregister(2); got != kerr.InvalidRequest.Code {
		t.Errorf("alive: %d", got)
	}
	f.fence(2, true)
	if got := unregister(2); got != 0 || f.c.Image().Broker(2) != nil {
		t.Errorf("%d", got)
	}
}

// TestFailedDirectory: a broker tells of it with its heartbeat, and others lead what lies there; it is told again and again, and
// that is no news.
func TestFailedDirectory(t *testing.T) {
	f := newFleet(t, Config{}, 1, 2)
	topic := f.assigned("t", nil, []int32{1, 2})
	b := f.brokers[1]
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = b.id, b.epoch, int64(f.c.Image().Index())
	req.OfflineLogDirs = [][16]byte{b.dir, wire.NewUUID()}
	if resp := ask[*kmsg.BrokerHeartbeatResponse](t, b.conn, req); resp.ErrorCode != 0 || resp.IsFenced {
		t.Fatalf("%+v", resp)
	}
	if p := f.c.Image().Partition(topic.ID, 0); p.Leader != 2 || !slices.Equal(p.ISR, []int32{2}) {
		t.Errorf("%+v", p)
	}
	index := f.c.Image().Index()
	req.CurrentMetadataOffset = int64(index)
	if resp := ask[*kmsg.BrokerHeartbeatResponse](t, b.conn, req); resp.ErrorCode != 0 || f.c.Image().Index() != index {
		t.Errorf("%+v, index %d after %d", resp, f.c.Image().Index(), index)
	}
}
