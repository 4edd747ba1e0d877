package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

// G7: versions 0 to 3 of Metadata create topics; later ones only if they say so (P76).
func TestAutoCreateG7(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for v := int16(0); v <= 13; v++ {
		name := "auto" + string(rune('a'+v))
		resp := c.metadata(v, name)
		if v >= 4 { // AllowAutoTopicCreation is false in this request
			if e := resp.Topics[0].ErrorCode; e != kerr.UnknownTopicOrPartition.Code {
				t.Errorf("v%d: error %d", v, e)
			}
			req := kmsg.NewPtrMetadataRequest()
			req.AllowAutoTopicCreation = true
			req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
			resp = do[*kmsg.MetadataResponse](c, v, req)
		}
		if mt := resp.Topics[0]; mt.ErrorCode != 0 || len(mt.Partitions) != 1 || mt.Partitions[0].Leader != 1 || v >= 10 && mt.TopicID == [16]byte{} {
			t.Errorf("v%d: %+v", v, mt)
		}
	}
	off := startNode(t, "auto.create.topics.enable", "false")
	if e := off.dial().metadata(1, "x").Topics[0].ErrorCode; e != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("turned off: error %d", e)
	}
}

// G8: null is all topics, empty is none, in version 0 empty is all; invalid
// names say so even when topics are created; the controller is a living broker.
func TestMetadataG8(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.create("one", 1)
	c.create("two", 2)
	for v := int16(0); v <= 13; v++ {
		all := kmsg.NewPtrMetadataRequest()
		if v == 0 {
			all.Topics = []kmsg.MetadataRequestTopic{}
		}
		resp := do[*kmsg.MetadataResponse](c, v, all)
		if len(resp.Topics) != 2 || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 || v >= 1 && resp.ControllerID != 1 || v >= 2 && (resp.ClusterID == nil || *resp.ClusterID != n.clusterID) {
			t.Errorf("v%d: all: %+v", v, resp)
		}
		if v >= 1 {
			if resp := c.metadata(v); len(resp.Topics) != 0 || len(resp.Brokers) != 1 {
				t.Errorf("v%d: none: %+v", v, resp)
			}
		}
		bad := c.metadata(v, "no/slash", "one", "one", strings.Repeat("x", 250), "")
		var codes []int16
		for _, mt := range bad.Topics {
			codes = append(codes, mt.ErrorCode)
		}
		if want := []int16{17, 0, 17, 17}; !slices.Equal(codes, want) {
			t.Errorf("v%d: errors %v, want %v", v, codes, want)
		}
	}
}

// G24: topics by id from version 12; ids that are unknown, and null names before it.
func TestMetadataByIDG24(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	for v := int16(10); v <= 13; v++ {
		ask := func(mt kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{mt}
			return do[*kmsg.MetadataResponse](c, v, req).Topics[0]
		}
		known, unknown := ask(kmsg.MetadataRequestTopic{TopicID: id}), ask(kmsg.MetadataRequestTopic{TopicID: [16]byte{9}})
		if v < 12 {
			if known.ErrorCode != kerr.InvalidRequest.Code || unknown.ErrorCode != kerr.InvalidRequest.Code {
				t.Errorf("v%d: %d %d", v, known.ErrorCode, unknown.ErrorCode)
			}
			continue
		}
		if known.ErrorCode != 0 || *known.Topic != "t" || unknown.ErrorCode != kerr.UnknownTopicID.Code || unknown.TopicID != [16]byte{9} {
			t.Errorf("v%d: %+v %+v", v, known, unknown)
		}
	}
}

// G25: defaults, invalid configs, duplicates, validate only, all configs in the answer.
func TestCreateTopicsG25(t *testing.T) {
	n := startNode(t, "num.partitions", "3")
	c := n.dial()
	topic := func(name string, partitions int32, factor int16, configs ...string) kmsg.CreateTopicsRequestTopic {
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = name, partitions, factor
		for i := 0; i < len(configs); i += 2 {
			ct.Configs = append(ct.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
		}
		return ct
	}
	for v := int16(4); v <= 7; v++ {
		suffix := fmt.Sprint("-", v)
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 10_000
		req.Topics = []kmsg.CreateTopicsRequestTopic{
			topic("default"+suffix, -1, -1),
			topic("config"+suffix, 1, 1, "retention.ms", "soon"),
			topic("unknown"+suffix, 1, 1, "no.such.thing", "1"),
			topic("twice"+suffix, 1, 1),
			topic("twice"+suffix, 1, 1),
			topic("factor"+suffix, 1, 3),
			topic("zero"+suffix, 0, 1),
			topic("sl/ash", 1, 1),
			// What Connect, MirrorMaker and Streams set.
			topic("usual"+suffix, 1, 1, "cleanup.policy", "compact,delete", "min.insync.replicas", "1", "segment.bytes", "1048576",
				"message.timestamp.type", "LogAppendTime", "min.cleanable.dirty.ratio", "0.5", "delete.retention.ms", "1000", "segment.ms", "60000"),
		}
		want := map[string]int16{"default": 0, "config": kerr.InvalidConfig.Code, "unknown": kerr.InvalidConfig.Code, "twice": kerr.InvalidRequest.Code,
			"factor": kerr.InvalidReplicationFactor.Code, "zero": kerr.InvalidPartitions.Code, "sl/ash": kerr.InvalidTopicException.Code, "usual": 0}
		resp := do[*kmsg.CreateTopicsResponse](c, v, req)
		for _, rt := range resp.Topics {
			if code := want[strings.TrimSuffix(rt.Topic, suffix)]; rt.ErrorCode != code {
				t.Errorf("v%d %s: error %d, want %d", v, rt.Topic, rt.ErrorCode, code)
			}
			if rt.Topic == "default"+suffix && v >= 5 && (rt.NumPartitions != 3 || rt.ReplicationFactor != 1 || len(rt.Configs) < 30 || rt.ConfigErrorCode != 0) {
				t.Errorf("v%d: %d partitions, factor %d, %d configs", v, rt.NumPartitions, rt.ReplicationFactor, len(rt.Configs))
			}
			if rt.Topic == "default"+suffix && v >= 7 && rt.TopicID == [16]byte{} {
				t.Errorf("v%d: no topic id", v)
			}
		}
		for _, mt := range c.metadata(9, "default"+suffix, "config"+suffix, "twice"+suffix).Topics {
			if exists := mt.ErrorCode == 0; exists != (*mt.Topic == "default"+suffix) {
				t.Errorf("v%d: %s exists: %v", v, *mt.Topic, exists)
			}
		}
		req.Topics = []kmsg.CreateTopicsRequestTopic{topic("many"+suffix, 1<<30, 1)}
		if e := do[*kmsg.CreateTopicsResponse](c, v, req).Topics[0].ErrorCode; e != kerr.PolicyViolation.Code {
			t.Errorf("v%d: far too many partitions: error %d", v, e)
		}
		req.ValidateOnly = true
		req.Topics = []kmsg.CreateTopicsRequestTopic{topic("only"+suffix, 1, 1), topic("default"+suffix, 1, 1)}
		resp = do[*kmsg.CreateTopicsResponse](c, v, req)
		if resp.Topics[0].ErrorCode != 0 || resp.Topics[1].ErrorCode != kerr.TopicAlreadyExists.Code || c.metadata(9, "only"+suffix).Topics[0].ErrorCode == 0 {
			t.Errorf("v%d: validate only: %+v", v, resp)
		}
	}
}

// G27: unknown topics, DeleteRecords up to the high watermark and beyond.
func TestDeleteG27(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	for range 5 {
		c.produce(9, "t", id, -1, values(t, record.None, "x"))
	}
	deleteRecords := func(v int16, topic string, index int32, offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 10_000
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: index, Offset: offset}}}}
		return do[*kmsg.DeleteRecordsResponse](c, v, req).Topics[0].Partitions[0]
	}
	for v := int16(0); v <= 2; v++ {
		low := int64(v) + 1
		if p := deleteRecords(v, "t", 0, low); p.ErrorCode != 0 || p.LowWatermark != low {
			t.Errorf("v%d: %+v", v, p)
		}
		if p := c.listOffset(5, "t", -2); p.Offset != low {
			t.Errorf("v%d: earliest %d", v, p.Offset)
		}
		if p := c.fetch(12, "t", id, low-1); p.ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Errorf("v%d: deleted record: error %d", v, p.ErrorCode)
		}
		if p := deleteRecords(v, "t", 0, 6); p.ErrorCode != kerr.OffsetOutOfRange.Code || p.LowWatermark != -1 {
			t.Errorf("v%d: beyond: %+v", v, p)
		}
		if p := deleteRecords(v, "t", 7, 1); p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("v%d: unknown partition: %+v", v, p)
		}
	}
	if p := deleteRecords(2, "t", 0, -1); p.ErrorCode != 0 || p.LowWatermark != 5 {
		t.Errorf("all: %+v", p)
	}
	for v := int16(1); v <= 6; v++ {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 10_000
		req.TopicNames = []string{"nope"}
		req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: ptr("nope")}}
		rt := do[*kmsg.DeleteTopicsResponse](c, v, req).Topics[0]
		if rt.ErrorCode != kerr.UnknownTopicOrPartition.Code || rt.Topic == nil || *rt.Topic != "nope" {
			t.Errorf("v%d: %+v", v, rt)
		}
	}
	byID := kmsg.NewPtrDeleteTopicsRequest()
	byID.TimeoutMillis = 10_000
	byID.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: [16]byte{1}}, {TopicID: id}}
	resp := do[*kmsg.DeleteTopicsResponse](c, 6, byID)
	if resp.Topics[0].ErrorCode != kerr.UnknownTopicID.Code || resp.Topics[1].ErrorCode != 0 {
		t.Errorf("by id: %+v", resp.Topics)
	}
	if e := c.metadata(9, "t").Topics[0].ErrorCode; e != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("deleted: error %d", e)
	}
}

func (c *client) describe(v int16, kind kmsg.ConfigResourceType, name string, names ...string) kmsg.DescribeConfigsResponseResource {
	c.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, names
	req.Resources = append(req.Resources, r)
	return do[*kmsg.DescribeConfigsResponse](c, v, req).Resources[0]
}

func entry(r kmsg.DescribeConfigsResponseResource, name string) *kmsg.DescribeConfigsResponseResourceConfig {
	for i := range r.Configs {
		if r.Configs[i].Name == name {
			return &r.Configs[i]
		}
	}
	return nil
}

// G26: sources, synonyms, values that equal the default; the whole configuration
// goes through describe and alter unchanged (P59).
func TestConfigsG26(t *testing.T) {
	n := startNode(t, "log.retention.hours", "24")
	c := n.dial()
	c.create("t", 1, "segment.bytes", "1073741824", "cleanup.policy", "compact")
	for v := int16(1); v <= 4; v++ {
		r := c.describe(v, kmsg.ConfigResourceTypeTopic, "t")
		if r.ErrorCode != 0 || len(r.Configs) < 30 {
			t.Fatalf("v%d: error %d, %d configs", v, r.ErrorCode, len(r.Configs))
		}
		for name, want := range map[string]kmsg.ConfigSource{"segment.bytes": 1, "cleanup.policy": 1, "retention.ms": 4, "max.message.bytes": 5} {
			e := entry(r, name)
			if e == nil || e.Source != want || len(e.ConfigSynonyms) == 0 || v >= 3 && e.ConfigType == 0 {
				t.Errorf("v%d: %s: %+v, want source %d", v, name, e, want)
			}
		}
		if e := entry(r, "retention.ms"); *e.Value != "86400000" {
			t.Errorf("v%d: retention.ms %s", v, *e.Value)
		}
	}
	if r := c.describe(4, kmsg.ConfigResourceTypeTopic, "t", "segment.bytes"); len(r.Configs) != 1 {
		t.Errorf("one name: %d configs", len(r.Configs))
	}
	if r := c.describe(4, kmsg.ConfigResourceTypeTopic, "nope"); r.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown topic: error %d", r.ErrorCode)
	}
	if r := c.describe(4, kmsg.ConfigResourceTypeBroker, "1"); r.ErrorCode != 0 || entry(r, "log.retention.hours") == nil || entry(r, "log.retention.hours").Source != 4 {
		t.Errorf("broker: error %d %+v", r.ErrorCode, entry(r, "log.retention.hours"))
	}
	if r := c.describe(4, kmsg.ConfigResourceTypeBroker, "7"); r.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("another broker: error %d", r.ErrorCode)
	}
	if r := c.describe(4, kmsg.ConfigResourceTypeGroupConfig, "g"); r.ErrorCode != 0 { // P94
		t.Errorf("group: error %d", r.ErrorCode)
	}
	// Back in what came out.
	all := c.describe(4, kmsg.ConfigResourceTypeTopic, "t")
	alter := kmsg.NewPtrAlterConfigsRequest()
	res := kmsg.NewAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	for _, e := range all.Configs {
		if e.Value != nil && !e.ReadOnly {
			res.Configs = append(res.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: e.Name, Value: e.Value})
		}
	}
	alter.Resources = append(alter.Resources, res)
	if a := do[*kmsg.AlterConfigsResponse](c, 2, alter).Resources[0]; a.ErrorCode != 0 {
		t.Errorf("round trip: error %d %s", a.ErrorCode, *a.ErrorMessage)
	}
	// P58: AlterConfigs resets what it does not name.
	alter.Resources[0].Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.bytes", Value: ptr("5000000")}}
	for v := int16(0); v <= 2; v++ {
		if a := do[*kmsg.AlterConfigsResponse](c, v, alter).Resources[0]; a.ErrorCode != 0 {
			t.Errorf("alter v%d: error %d", v, a.ErrorCode)
		}
	}
	r := c.describe(4, kmsg.ConfigResourceTypeTopic, "t")
	if e := entry(r, "segment.bytes"); e.Source != 5 {
		t.Errorf("not reset: %+v", e)
	}
	if e := entry(r, "retention.bytes"); e.Source != 1 || *e.Value != "5000000" {
		t.Errorf("not set: %+v", e)
	}
}

// P55, P88: errors of IncrementalAlterConfigs are answers; append and subtract work on lists.
func TestIncrementalAlterConfigsG26(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	c.create("t", 1)
	alter := func(v int16, name string, op kmsg.IncrementalAlterConfigOp, value *string) int16 {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
		res.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Op: op, Value: value}}
		req.Resources = append(req.Resources, res)
		return do[*kmsg.IncrementalAlterConfigsResponse](c, v, req).Resources[0].ErrorCode
	}
	get := func(name string) *kmsg.DescribeConfigsResponseResourceConfig {
		return entry(c.describe(4, kmsg.ConfigResourceTypeTopic, "t"), name)
	}
	const set, del, add, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	for v := int16(0); v <= 1; v++ {
		if e := alter(v, "retention.ms", set, ptr("1000")); e != 0 || *get("retention.ms").Value != "1000" {
			t.Errorf("v%d: set: error %d", v, e)
		}
		if e := alter(v, "retention.ms", del, nil); e != 0 || get("retention.ms").Source != 5 {
			t.Errorf("v%d: delete: error %d", v, e)
		}
		if e := alter(v, "cleanup.policy", add, ptr("compact")); e != 0 || *get("cleanup.policy").Value != "delete,compact" {
			t.Errorf("v%d: append: error %d, %s", v, e, *get("cleanup.policy").Value)
		}
		if e := alter(v, "cleanup.policy", sub, ptr("compact")); e != 0 || *get("cleanup.policy").Value != "delete" {
			t.Errorf("v%d: subtract: error %d, %s", v, e, *get("cleanup.policy").Value)
		}
		for name, value := range map[string]string{"retention.ms": "soon", "no.such.thing": "1", "min.insync.replicas": "0"} {
			if e := alter(v, name, set, &value); e != kerr.InvalidConfig.Code {
				t.Errorf("v%d: %s=%s: error %d", v, name, value, e)
			}
		}
		if e := alter(v, "retention.ms", add, ptr("1")); e != kerr.InvalidConfig.Code && e != kerr.InvalidRequest.Code {
			t.Errorf("v%d: append to a number: error %d", v, e)
		}
		if e := alter(v, "retention.ms", kmsg.IncrementalAlterConfigOp(9), ptr("1")); e == 0 {
			t.Errorf("v%d: unknown operation is accepted", v)
		}
	}
}

// CreatePartitions only ever adds.
func TestCreatePartitions(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	for v := int16(0); v <= 3; v++ {
		ask := func(topic string, count int32) int16 {
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.TimeoutMillis = 10_000
			ct := kmsg.NewCreatePartitionsRequestTopic()
			ct.Topic, ct.Count = topic, count
			req.Topics = append(req.Topics, ct)
			return do[*kmsg.CreatePartitionsResponse](c, v, req).Topics[0].ErrorCode
		}
		count := int32(v) + 2
		if e := ask("t", count); e != 0 || len(c.metadata(9, "t").Topics[0].Partitions) != int(count) {
			t.Errorf("v%d: error %d", v, e)
		}
		req := produceRequest("t", id, -1, values(t, record.None, "x"))
		req.Topics[0].Partitions[0].Partition = count - 1
		if p := do[*kmsg.ProduceResponse](c, 9, req).Topics[0].Partitions[0]; p.ErrorCode != 0 {
			t.Errorf("v%d: produce to the new one: error %d", v, p.ErrorCode)
		}
		if e := ask("t", 1<<30); e != kerr.PolicyViolation.Code {
			t.Errorf("v%d: far too many: error %d", v, e)
		}
		if e := ask("t", count-1); e != kerr.InvalidPartitions.Code {
			t.Errorf("v%d: fewer: error %d", v, e)
		}
		if e := ask("nope", 5); e != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("v%d: unknown: error %d", v, e)
		}
	}
}

// DescribeCluster tells brokers to those who ask for brokers.
func TestDescribeCluster(t *testing.T) {
	n := startNode(t, "broker.rack", "r1")
	c := n.dial()
	for v := int16(0); v <= 2; v++ {
		req := kmsg.NewPtrDescribeClusterRequest()
		resp := do[*kmsg.DescribeClusterResponse](c, v, req)
		if resp.ErrorCode != 0 || resp.ClusterID != n.clusterID || resp.ControllerID != 1 || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 {
			t.Errorf("v%d: %+v", v, resp)
		}
		if v == 0 {
			continue
		}
		for kind, want := range map[int8]int16{2: kerr.MismatchedEndpointType.Code, 7: kerr.UnsupportedEndpointType.Code} {
			req.EndpointType = kind
			if resp := do[*kmsg.DescribeClusterResponse](c, v, req); resp.ErrorCode != want {
				t.Errorf("v%d: endpoint type %d: error %d", v, kind, resp.ErrorCode)
			}
		}
	}
}

// DescribeTopicPartitions goes page by page, by topic name.
func TestDescribeTopicPartitions(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	for _, name := range []string{"b", "a", "c"} {
		c.create(name, 3)
	}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 4
	var seen []string
	for range 10 {
		resp := do[*kmsg.DescribeTopicPartitionsResponse](c, 0, req)
		count := 0
		for _, dt := range resp.Topics {
			for _, p := range dt.Partitions {
				seen = append(seen, *dt.Topic+string(rune('0'+p.Partition)))
				count++
				if p.LeaderID != 1 || p.ErrorCode != 0 || p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
					t.Errorf("%+v", p)
				}
			}
		}
		if count > 4 {
			t.Errorf("%d partitions in a page", count)
		}
		if resp.NextCursor == nil {
			break
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	if want := []string{"a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"}; !slices.Equal(seen, want) {
		t.Errorf("seen %v", seen)
	}
	req = kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 100
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "nope"}, {Topic: "a"}, {Topic: "sl/ash"}}
	resp := do[*kmsg.DescribeTopicPartitionsResponse](c, 0, req)
	for _, dt := range resp.Topics {
		if want := map[string]int16{"a": 0, "nope": 3, "sl/ash": 17}[*dt.Topic]; dt.ErrorCode != want {
			t.Errorf("%s: error %d", *dt.Topic, dt.ErrorCode)
		}
	}
}

func TestDescribeLogDirs(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 2)
	c.produce(9, "t", id, -1, values(t, record.None, "x"))
	for v := int16(1); v <= 5; v++ {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		all := do[*kmsg.DescribeLogDirsResponse](c, v, req)
		if len(all.Dirs) != 1 || all.Dirs[0].ErrorCode != 0 || len(all.Dirs[0].Topics) != 1 || len(all.Dirs[0].Topics[0].Partitions) != 2 {
			t.Fatalf("v%d: %+v", v, all)
		}
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		one := do[*kmsg.DescribeLogDirsResponse](c, v, req)
		if p := one.Dirs[0].Topics[0].Partitions; len(p) != 1 || p[0].Size == 0 {
			t.Errorf("v%d: %+v", v, p)
		}
	}
}

// G23: both shapes of FindCoordinator; there are none, and transactions are not to be waited for.
func TestFindCoordinatorG23(t *testing.T) {
	n := startNode(t, "offsets.topic.num.partitions", "3")
	c := n.dial()
	for v := int16(0); v <= 6; v++ {
		for kind, want := range map[int8]int16{0: kerr.CoordinatorNotAvailable.Code, 1: kerr.InvalidRequest.Code} {
			if kind > 0 && v == 0 {
				continue
			}
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey, req.CoordinatorKeys, req.CoordinatorType = "g", []string{"g", "h"}, kind
			resp := do[*kmsg.FindCoordinatorResponse](c, v, req)
			if v < 4 && resp.ErrorCode != want || v >= 4 && (len(resp.Coordinators) != 2 || resp.Coordinators[1].ErrorCode != want || resp.Coordinators[1].Key != "h") {
				t.Errorf("v%d type %d: %+v", v, kind, resp)
			}
		}
	}
}

// The first question for a group's coordinator has the topic of offsets created, which is internal.
func TestOffsetsTopic(t *testing.T) {
	n := startNode(t, "offsets.topic.num.partitions", "3")
	c := n.dial()
	if e := c.metadata(1, "__consumer_offsets").Topics[0].ErrorCode; e != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("before: error %d", e)
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey = "g"
	do[*kmsg.FindCoordinatorResponse](c, 2, req)
	eventually(t, "created", func() bool {
		mt := c.metadata(9, "__consumer_offsets").Topics[0]
		return mt.ErrorCode == 0 && mt.IsInternal && len(mt.Partitions) == 3
	})
	if e := entry(c.describe(4, kmsg.ConfigResourceTypeTopic, "__consumer_offsets"), "cleanup.policy"); *e.Value != "compact" || e.Source != 1 {
		t.Errorf("%+v", e)
	}
}

// G8: a client may send what is the controller's to any broker; what is the
// nodes' own is on the controller's listener only.
func TestListeners(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.SetVersion(1)
	c.send(req)
	c.closed()
	c = dial(t, n.controller)
	fetch := fetchRequest("t", [16]byte{}, 0)
	fetch.SetVersion(12)
	c.send(fetch)
	c.closed()
}
