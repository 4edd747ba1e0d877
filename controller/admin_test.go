package controller

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// adminNode is a node with one broker and a store.
func adminNode(t *testing.T) (*node, *fakeBroker) {
	n := startNode(t, Config{Dir: t.TempDir(), Properties: map[string]string{"varve.store.url": "file:///x", "num.partitions": "3"}}).ready()
	return n, n.broker(1, wire.NewUUID(), listener(t).Addr())
}

func newTopic(name string, partitions int32, factor int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

// TestCreateTopics holds gotcha G25: defaults by -1, errors by topic, nothing
// made of a topic whose configuration is wrong, all configurations told.
func TestCreateTopics(t *testing.T) {
	n, b := adminNode(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = []kmsg.CreateTopicsRequestTopic{
		newTopic("defaults", -1, -1, "retention.ms", "604800000"),
		newTopic("bad", 1, 1, "cleanup.policy", "shred"),
		newTopic("twice", 1, 1),
		newTopic("twice", 2, 1),
		newTopic("x.y", 1, 1),
		newTopic("x_y", 1, 1), // collides with the one before, in the same request
		newTopic("many", 1, 3),
	}
	resp := ask[*kmsg.CreateTopicsResponse](t, b.conn, req)
	got := map[string]kmsg.CreateTopicsResponseTopic{}
	for _, topic := range resp.Topics {
		got[topic.Topic] = topic
	}
	if len(resp.Topics) != 6 {
		t.Fatalf("%d answers", len(resp.Topics))
	}
	for name, want := range map[string]*kerr.Error{"defaults": nil, "bad": kerr.InvalidConfig, "twice": kerr.InvalidRequest, "x.y": nil,
		"x_y": kerr.InvalidTopicException, "many": kerr.InvalidReplicationFactor} {
		if err := kerr.TypedErrorForCode(got[name].ErrorCode); err != want || (err != nil) != (got[name].ErrorMessage != nil) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if (n.c.Image().Topic(name) != nil) != (want == nil) {
			t.Errorf("%s: exists %v", name, n.c.Image().Topic(name) != nil)
		}
	}
	made := got["defaults"]
	if made.NumPartitions != 3 || made.ReplicationFactor != 1 || wire.UUID(made.TopicID) != n.c.Image().Topic("defaults").ID || len(made.Configs) < 30 {
		t.Errorf("%+v", made)
	}
	for _, c := range made.Configs {
		if c.Name == "retention.ms" && (c.Source != 1 || *c.Value != "604800000") {
			t.Errorf("set, though to the default: %+v", c)
		}
		if c.Name == "segment.bytes" && c.Source != 5 {
			t.Errorf("%+v", c)
		}
	}
	again := newTopic("defaults", 1, 1)
	req.Topics = []kmsg.CreateTopicsRequestTopic{again}
	if resp := ask[*kmsg.CreateTopicsResponse](t, b.conn, req); resp.Topics[0].ErrorCode != kerr.TopicAlreadyExists.Code {
		t.Errorf("%+v", resp.Topics[0])
	}
}

func TestValidateOnly(t *testing.T) {
	n, b := adminNode(t)
	n.createTopic(b.conn, "t", 1)
	index := n.c.Image().Index()

	create := kmsg.NewPtrCreateTopicsRequest()
	create.ValidateOnly = true
	create.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("a.b", 2, 1), newTopic("a_b", 2, 1)}
	resp := ask[*kmsg.CreateTopicsResponse](t, b.conn, create)
	if resp.Topics[0].ErrorCode != 0 || resp.Topics[0].NumPartitions != 2 || resp.Topics[1].ErrorCode != kerr.InvalidTopicException.Code {
		t.Errorf("%+v", resp.Topics)
	}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.ValidateOnly = true
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 5}}
	if resp := ask[*kmsg.CreatePartitionsResponse](t, b.conn, grow); resp.Topics[0].ErrorCode != 0 {
		t.Errorf("%+v", resp.Topics)
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.ValidateOnly = true
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{incremental(kmsg.ConfigResourceTypeTopic, "t", "flush.ms", kmsg.IncrementalAlterConfigOpSet, "x")}
	if resp := ask[*kmsg.IncrementalAlterConfigsResponse](t, b.conn, alter); resp.Resources[0].ErrorCode != kerr.InvalidConfig.Code {
		t.Errorf("%+v", resp.Resources)
	}
	if n.c.Image().Index() != index {
		t.Error("validation was committed")
	}
}

// TestDeleteTopics holds gotcha G27: what is unknown is said to be unknown, by
// name and by id alike.
func TestDeleteTopics(t *testing.T) {
	n, b := adminNode(t)
	made := n.createTopic(b.conn, "one", 1)
	n.createTopic(b.conn, "two", 1)
	n.createTopic(b.conn, "three", 1)
	name := func(s string) kmsg.DeleteTopicsRequestTopic { return kmsg.DeleteTopicsRequestTopic{Topic: &s} }
	both := name("three")
	both.TopicID = made.TopicID
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: made.TopicID}, name("none"), {TopicID: wire.NewUUID()}, name("two"), name("two"), both, {}}
	resp := ask[*kmsg.DeleteTopicsResponse](t, b.conn, req)
	for i, want := range []*kerr.Error{nil, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest} {
		if got := kerr.TypedErrorForCode(resp.Topics[i].ErrorCode); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if first := resp.Topics[0]; first.Topic == nil || *first.Topic != "one" || first.TopicID != made.TopicID {
		t.Errorf("%+v", first)
	}
	if n.c.Image().Topic("one") != nil || n.c.Image().Topic("two") == nil || n.c.Image().Topic("three") == nil {
		t.Error("the wrong ones are gone")
	}
}

func TestCreatePartitions(t *testing.T) {
	n, b := adminNode(t)
	n.createTopic(b.conn, "t", 1)
	n.createTopic(b.conn, "u", 2)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 4}, {Topic: "u", Count: 1}, {Topic: "v", Count: 1}, {Topic: "w", Count: 1}, {Topic: "w", Count: 2}}
	resp := ask[*kmsg.CreatePartitionsResponse](t, b.conn, req)
	for i, want := range []*kerr.Error{nil, kerr.InvalidPartitions, kerr.UnknownTopicOrPartition, kerr.InvalidRequest} {
		if got := kerr.TypedErrorForCode(resp.Topics[i].ErrorCode); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if len(resp.Topics) != 4 || n.c.Image().Topic("t").NumPartitions != 4 {
		t.Errorf("%+v", resp.Topics)
	}
}

func incremental(kind kmsg.ConfigResourceType, name, key string, op kmsg.IncrementalAlterConfigOp, value string) kmsg.IncrementalAlterConfigsRequestResource {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, op, &value
	r.ResourceType, r.ResourceName, r.Configs = kind, name, append(r.Configs, c)
	return r
}

// TestAlterConfigs holds gotcha G26: increments, lists among them; an error is
// an answer; the old API resets what it does not name.
func TestAlterConfigs(t *testing.T) {
	n, b := adminNode(t)
	n.createTopic(b.conn, "t", 1)
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{
		incremental(topic, "t", "cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, "compact"),
		incremental(topic, "none", "flush.ms", kmsg.IncrementalAlterConfigOpSet, "1"),
		incremental(broker, "", "log.retention.ms", kmsg.IncrementalAlterConfigOpSet, "1000"),
		incremental(broker, "1", "node.id", kmsg.IncrementalAlterConfigOpSet, "1000"),
		incremental(kmsg.ConfigResourceType(77), "1", "x", kmsg.IncrementalAlterConfigOpSet, "1"),
	}
	resp := ask[*kmsg.IncrementalAlterConfigsResponse](t, b.conn, req)
	for i, want := range []*kerr.Error{nil, kerr.UnknownTopicOrPartition, nil, kerr.InvalidConfig, kerr.InvalidRequest} {
		if got := kerr.TypedErrorForCode(resp.Resources[i].ErrorCode); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if got := fmt.Sprint(n.c.Image().Config(metadata.ResourceTopic, "t")); got != "map[cleanup.policy:delete,compact]" {
		t.Errorf("after append: %s", got)
	}
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{incremental(topic, "t", "cleanup.policy", kmsg.IncrementalAlterConfigOpSubtract, "delete")}
	ask[*kmsg.IncrementalAlterConfigsResponse](t, b.conn, req)
	if got := fmt.Sprint(n.c.Image().Config(metadata.ResourceTopic, "t")); got != "map[cleanup.policy:compact]" {
		t.Errorf("after subtract: %s", got)
	}
	old := kmsg.NewPtrAlterConfigsRequest()
	one := "1"
	old.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: topic, ResourceName: "t", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "flush.ms", Value: &one}}}}
	if resp := ask[*kmsg.AlterConfigsResponse](t, b.conn, old); resp.Resources[0].ErrorCode != 0 {
		t.Errorf("%+v", resp.Resources)
	}
	if got := fmt.Sprint(n.c.Image().Config(metadata.ResourceTopic, "t")); got != "map[flush.ms:1]" {
		t.Errorf("after replacing: %s", got)
	}
}

// TestPipelinedAdmin: a request sees what the one before it did, though both
// came in one packet.
func TestPipelinedAdmin(t *testing.T) {
	n, _ := adminNode(t)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.SetVersion(7)
	create.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("t", 1, 1)}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.SetVersion(1)
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{incremental(kmsg.ConfigResourceTypeTopic, "t", "flush.ms", kmsg.IncrementalAlterConfigOpSet, "5")}
	format := kmsg.NewRequestFormatter()
	nc, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := nc.Write(append(format.AppendRequest(nil, create, 1), format.AppendRequest(nil, alter, 2)...)); err != nil {
		t.Fatal(err)
	}
	for _, resp := range []kmsg.Response{create.ResponseKind(), alter.ResponseKind()} {
		var size [4]byte
		if _, err := io.ReadFull(nc, size[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(nc, frame); err != nil {
			t.Fatal(err)
		}
		if err := resp.ReadFrom(frame[5:]); err != nil { // correlation id, tags
			t.Fatal(err)
		}
	}
	if got := n.c.Image().Config(metadata.ResourceTopic, "t")["flush.ms"]; got != "5" {
		t.Errorf("flush.ms %q", got)
	}
}

// TestNotController: a node that does not lead says so of every item.
func TestNotController(t *testing.T) {
	n, b := adminNode(t)
	n.c.reign.Store(nil)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("a", 1, 1), newTopic("b", 1, 1)}
	resp := ask[*kmsg.CreateTopicsResponse](t, b.conn, create)
	for _, topic := range resp.Topics {
		if topic.ErrorCode != kerr.NotController.Code {
			t.Errorf("%+v", topic)
		}
	}
	if hb := b.heartbeat(b.epoch); len(resp.Topics) != 2 || hb.ErrorCode != kerr.NotController.Code {
		t.Errorf("%+v", hb)
	}
	if reg := b.register(wire.NewUUID()); reg.ErrorCode != kerr.NotController.Code {
		t.Errorf("%+v", reg)
	}
	if sub := b.submit(&metadata.ReleaseReservation{}); sub.ErrorCode != kerr.NotController.Code {
		t.Errorf("%+v", sub)
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	name := "a"
	del.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	if resp := ask[*kmsg.DeleteTopicsResponse](t, b.conn, del); resp.Topics[0].ErrorCode != kerr.NotController.Code {
		t.Errorf("%+v", resp.Topics[0])
	}
}

// TestTooMuchAtATime: what one request asks for goes into one entry, so there is a limit over all its items; those that
// fit are carried out.
func TestTooMuchAtATime(t *testing.T) {
	_, b := adminNode(t)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("t", 1, 1), newTopic("u", 1, 1)}
	ask[*kmsg.CreateTopicsResponse](t, b.conn, create)

	create.ValidateOnly = true
	create.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("huge", 1<<30, 1), newTopic("first", 6000, 1), newTopic("second", 6000, 1), newTopic("third", 4000, 1), newTopic("default", -1, 1)}
	policy := kerr.PolicyViolation.Code
	want := []int16{policy, 0, policy, 0, policy}
	for i, topic := range ask[*kmsg.CreateTopicsResponse](t, b.conn, create).Topics {
		if topic.ErrorCode != want[i] {
			t.Errorf("topic %s: %v, want %d", topic.Topic, topic.ErrorCode, want[i])
		}
	}

	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.ValidateOnly = true
	for _, counts := range []struct {
		t, u         int32
		wantT, wantU int16
	}{{1 << 30, 10_001, policy, 0}, {6001, 6001, 0, policy}, {5001, 5001, 0, 0}, {-1 << 31, 0, kerr.InvalidPartitions.Code, kerr.InvalidPartitions.Code}} {
		grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: counts.t}, {Topic: "u", Count: counts.u}}
		got := ask[*kmsg.CreatePartitionsResponse](t, b.conn, grow).Topics
		if got[0].ErrorCode != counts.wantT || got[1].ErrorCode != counts.wantU {
			t.Errorf("%+v: %d, %d", counts, got[0].ErrorCode, got[1].ErrorCode)
		}
	}

	var items batch
	for range metadata.MaxCommands + 1 {
		items.add(&metadata.DeleteTopic{}, nil)
	}
	if len(items.cmds) != metadata.MaxCommands || code(items.errs[metadata.MaxCommands]) != policy {
		t.Errorf("%d commands in one entry, the last item: %v", len(items.cmds), items.errs[metadata.MaxCommands])
	}
}
