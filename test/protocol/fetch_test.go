package protocol

import (
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

// addPartition adds a partition to a fetch request.
func addPartition(req *kmsg.FetchRequest, index int32, offset int64, maxBytes int32) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = index, offset, maxBytes, -1, -1
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
}

func partitionsOf(resp *kmsg.FetchResponse) (out []kmsg.FetchResponseTopicPartition) {
	for _, t := range resp.Topics {
		out = append(out, t.Partitions...)
	}
	return out
}

// G13, KIP-74: the first batch of the first partition that has data comes even if
// it is larger than all limits; after that the limits hold, and no second
// oversized batch comes (KAFKA-19462).
func TestFetchProgressG13(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 3)
	big := string(make([]byte, 50_000))
	for range 2 {
		req := produceRequest("t", id, -1, values(t, record.None, big), values(t, record.None, big), values(t, record.None, big))
		do[*kmsg.ProduceResponse](c, 9, req)
	}
	req := fetchRequest("t", id, 0)
	req.MaxBytes = 1000
	req.Topics[0].Partitions = nil
	for i := range int32(3) {
		addPartition(req, i, 0, 1000)
	}
	resp := do[*kmsg.FetchResponse](c, 12, req)
	var sizes []int
	for _, p := range partitionsOf(resp) {
		vs, _ := read(t, p.RecordBatches)
		sizes = append(sizes, len(vs))
	}
	if !reflect.DeepEqual(sizes, []int{1, 0, 0}) {
		t.Errorf("batches by partition: %v", sizes)
	}
	req.MaxBytes = 1 << 20
	resp = do[*kmsg.FetchResponse](c, 12, req) // partition limits only
	for i, p := range partitionsOf(resp) {
		vs, _ := read(t, p.RecordBatches)
		if want := 1 - min(i, 1); len(vs) != want {
			t.Errorf("partition %d: %d batches", i, len(vs))
		}
	}
}

// P47: a fetch of nothing waits for MaxWait, and ends as soon as there is enough.
func TestLongPollP47(t *testing.T) {
	n := startNode(t)
	c, other := n.dial(), n.dial()
	id := c.create("t", 1)
	req := fetchRequest("t", id, 0)
	req.MaxWaitMillis = 300
	begin := time.Now()
	do[*kmsg.FetchResponse](c, 12, req)
	if d := time.Since(begin); d < 250*time.Millisecond || d > 5*time.Second {
		t.Errorf("empty answer after %v", d)
	}
	req.MaxWaitMillis = 20_000
	begin = time.Now()
	corr := c.send(req)
	time.Sleep(50 * time.Millisecond)
	other.produce(9, "t", id, -1, values(t, record.None, "x"))
	p := partitionsOf(c.receive(req, corr).(*kmsg.FetchResponse))[0]
	if vs, _ := read(t, p.RecordBatches); len(vs) != 1 {
		t.Errorf("%+v", p)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("woken after %v", d)
	}
	// MinBytes is waited for.
	req.MinBytes, req.MaxWaitMillis = 1000, 300
	begin = time.Now()
	do[*kmsg.FetchResponse](c, 12, req)
	if d := time.Since(begin); d < 250*time.Millisecond {
		t.Errorf("too little data after %v", d)
	}
}

// KIP-227: a session is made, told only what changed, advanced, and refused by
// wrong ids and epochs.
func TestFetchSessions(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 3)
	for _, v := range []int16{7, 12, 13, 18} {
		req := fetchRequest("t", id, 0)
		req.SessionEpoch = 0
		req.Topics[0].Partitions = nil
		for i := range int32(3) {
			end := c.end("t", i)
			addPartition(req, i, end, 1<<20)
		}
		full := do[*kmsg.FetchResponse](c, v, req)
		if full.ErrorCode != 0 || full.SessionID == 0 || len(partitionsOf(full)) != 3 {
			t.Fatalf("v%d: full: %+v", v, full)
		}
		next := func(epoch int32) *kmsg.FetchResponse {
			inc := kmsg.NewPtrFetchRequest()
			inc.MaxWaitMillis, inc.MinBytes, inc.MaxBytes, inc.SessionID, inc.SessionEpoch = 0, 1, 1<<20, full.SessionID, epoch
			return do[*kmsg.FetchResponse](c, v, inc)
		}
		if r := next(1); r.ErrorCode != 0 || len(r.Topics) != 0 {
			t.Fatalf("v%d: nothing changed: %+v", v, r)
		}
		c.produce(9, "t", id, -1, values(t, record.None, "news"))
		r := next(2)
		if parts := partitionsOf(r); len(parts) != 1 || parts[0].Partition != 0 || len(parts[0].RecordBatches) == 0 {
			t.Fatalf("v%d: news: %+v", v, r)
		}
		if r := next(2); r.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
			t.Errorf("v%d: epoch again: %d", v, r.ErrorCode)
		}
		// Positions move on, partitions are forgotten, an error is told and told again.
		inc := fetchRequest("t", id, c.end("t", 0))
		inc.SessionID, inc.SessionEpoch = full.SessionID, 3
		addPartition(inc, 1, 1<<40, 1<<20)
		inc.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "t", TopicID: id, Partitions: []int32{2}}}
		for epoch := int32(3); epoch < 5; epoch++ {
			r := do[*kmsg.FetchResponse](c, v, inc)
			if parts := partitionsOf(r); len(parts) != 1 && epoch > 3 || len(parts) > 2 || parts[len(parts)-1].ErrorCode != kerr.OffsetOutOfRange.Code {
				t.Fatalf("v%d: epoch %d: %+v", v, epoch, r)
			}
			inc = kmsg.NewPtrFetchRequest()
			inc.MinBytes, inc.MaxBytes, inc.SessionID, inc.SessionEpoch = 1, 1<<20, full.SessionID, epoch+1
		}
		// Names and ids do not mix.
		other := int16(13)
		if v >= 13 {
			other = 12
		}
		if r := do[*kmsg.FetchResponse](c, other, inc); r.ErrorCode != kerr.FetchSessionTopicIDError.Code {
			t.Errorf("v%d session with v%d: %d", v, other, r.ErrorCode)
		}
		// Ended by epoch -1; then unknown.
		last := kmsg.NewPtrFetchRequest()
		last.SessionID, last.SessionEpoch = full.SessionID, -1
		if r := do[*kmsg.FetchResponse](c, v, last); r.ErrorCode != 0 || r.SessionID != 0 {
			t.Errorf("v%d: end: %+v", v, r)
		}
		if r := next(5); r.ErrorCode != kerr.FetchSessionIDNotFound.Code {
			t.Errorf("v%d: after the end: %d", v, r.ErrorCode)
		}
	}
}

// end is the high watermark of a partition.
func (c *client) end(topic string, index int32) int64 {
	c.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = index, -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return do[*kmsg.ListOffsetsResponse](c, 5, req).Topics[0].Partitions[0].Offset
}

// G13: in a session, partitions that gave data go to the end of the order, so
// that a small limit starves none.
func TestRotationG13(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	const parts = 4
	id := c.create("t", parts)
	big := string(make([]byte, 10_000))
	for range 3 {
		var sets [][]byte
		for range parts {
			sets = append(sets, values(t, record.None, big))
		}
		do[*kmsg.ProduceResponse](c, 9, produceRequest("t", id, -1, sets...))
	}
	req := fetchRequest("t", id, 0)
	req.SessionEpoch, req.MaxBytes = 0, 100
	req.Topics[0].Partitions = nil
	for i := range int32(parts) {
		addPartition(req, i, 0, 1<<20)
	}
	var served []int32
	resp := do[*kmsg.FetchResponse](c, 12, req)
	for epoch := int32(1); ; epoch++ {
		for _, p := range partitionsOf(resp) {
			if len(p.RecordBatches) > 0 {
				served = append(served, p.Partition)
			}
		}
		if epoch == 2*parts {
			break
		}
		inc := kmsg.NewPtrFetchRequest()
		inc.MinBytes, inc.MaxBytes, inc.SessionID, inc.SessionEpoch = 1, 100, resp.SessionID, epoch
		resp = do[*kmsg.FetchResponse](c, 12, inc)
	}
	if want := []int32{0, 1, 2, 3, 0, 1, 2, 3}; !reflect.DeepEqual(served, want) {
		t.Errorf("served %v", served)
	}
}

// When all session slots are in use a new fetch gets its data without a session.
func TestSessionSlots(t *testing.T) {
	n := startNode(t, "max.incremental.fetch.session.cache.slots", "2")
	c := n.dial()
	id := c.create("t", 1)
	got := 0
	for range 4 {
		req := fetchRequest("t", id, 0)
		req.SessionEpoch = 0
		resp := do[*kmsg.FetchResponse](c, 12, req)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 {
			t.Fatalf("%+v", resp)
		}
		if resp.SessionID != 0 {
			got++
		}
	}
	if got != 2 {
		t.Errorf("%d sessions in 2 slots", got)
	}
}

// CVE-2018-1288: a client that says it is a replica is refused.
func TestPosingAsReplica(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	for _, v := range []int16{5, 12} {
		req := fetchRequest("t", id, 0)
		req.ReplicaID = 1
		resp := do[*kmsg.FetchResponse](c, v, req)
		code := resp.ErrorCode
		if v < 7 {
			code = partitionsOf(resp)[0].ErrorCode
		}
		if code != kerr.ClusterAuthorizationFailed.Code {
			t.Errorf("v%d: error %d", v, code)
		}
	}
	for _, who := range []int32{1, 2} { // the leader itself, and a broker without a replica
		req := fetchRequest("t", id, 0)
		req.ReplicaState.ID, req.ReplicaState.Epoch = who, n.follower.BrokerEpoch()
		p := partitionsOf(do[*kmsg.FetchResponse](c, 18, req))[0]
		if p.ErrorCode != kerr.UnknownLeaderEpoch.Code || len(p.RecordBatches) > 0 {
			t.Errorf("replica %d: error %d", who, p.ErrorCode)
		}
	}
}

// G15, P73: read_committed works without transactions; the list of aborted ones
// is there, and null for read_uncommitted.
func TestIsolationG15(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	c.produce(9, "t", id, -1, values(t, record.None, "x"))
	req := fetchRequest("t", id, 0)
	req.IsolationLevel = 1
	p := partitionsOf(do[*kmsg.FetchResponse](c, 12, req))[0]
	if vs, _ := read(t, p.RecordBatches); len(vs) != 1 || p.AbortedTransactions == nil || p.LastStableOffset != 1 {
		t.Errorf("read_committed: %+v", p)
	}
	if p := c.fetch(12, "t", id, 0); p.AbortedTransactions != nil {
		t.Errorf("read_uncommitted: %+v", p)
	}
}

// G16, P25-P29, K43: lookups by time and by the special timestamps of each version.
func TestListOffsetsG16(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1, "retention.ms", "-1")
	batch := func(ts ...int64) {
		b := record.NewBuilder(record.Options{Codec: record.Gzip})
		for _, at := range ts {
			b.Append(at, nil, []byte("v"))
		}
		set, err := b.Build()
		must(t, err)
		if p := c.produce(9, "t", id, -1, set); p.ErrorCode != 0 {
			t.Fatalf("%+v", p)
		}
	}
	batch(1000, 3000, 2000) // timestamps need not rise
	batch(5000, 4000)
	for _, k := range []struct{ ts, offset, found int64 }{
		{0, 0, 1000}, {1000, 0, 1000}, {1001, 1, 3000}, {2500, 1, 3000}, {3001, 3, 5000}, {4500, 3, 5000}, {5000, 3, 5000},
		{5001, -1, -1}, // none: no error
		{-1, 5, -1}, {-2, 0, -1},
	} {
		for v := int16(1); v <= 11; v++ {
			p := c.listOffset(v, "t", k.ts)
			if p.ErrorCode != 0 || p.Offset != k.offset || p.Timestamp != k.found {
				t.Errorf("v%d timestamp %d: %+v, want offset %d timestamp %d", v, k.ts, p, k.offset, k.found)
			}
		}
	}
	since := map[int64]int16{-3: 7, -4: 8, -5: 9, -6: 11, -7: 99, -100: 99}
	for ts, first := range since {
		for v := int16(1); v <= 11; v++ {
			p := c.listOffset(v, "t", ts)
			if v < first && p.ErrorCode != kerr.UnsupportedVersion.Code {
				t.Errorf("v%d timestamp %d: error %d, want UNSUPPORTED_VERSION", v, ts, p.ErrorCode)
			}
			if v >= first && p.ErrorCode != 0 {
				t.Errorf("v%d timestamp %d: error %d", v, ts, p.ErrorCode)
			}
		}
	}
	if p := c.listOffset(7, "t", -3); p.Offset != 3 || p.Timestamp != 5000 {
		t.Errorf("max timestamp: %+v", p)
	}
	if p := c.listOffset(11, "t", -4); p.Offset != 0 {
		t.Errorf("earliest local: %+v", p)
	}
	// P32, G17: epochs are real, and those of the offset.
	if p := c.listOffset(7, "t", 3001); p.LeaderEpoch < 0 {
		t.Errorf("leader epoch %d", p.LeaderEpoch)
	}
	// The same partition twice is nobody's meaning.
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = "t"
	lt.Partitions = []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}, {Timestamp: -2, CurrentLeaderEpoch: -1}}
	req.Topics = append(req.Topics, lt)
	for _, p := range do[*kmsg.ListOffsetsResponse](c, 5, req).Topics[0].Partitions {
		if p.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("duplicate: %+v", p)
		}
	}
	if p := c.listOffset(5, "nope", -1); p.ErrorCode != kerr.UnknownTopicOrPartition.Code || p.Offset != -1 {
		t.Errorf("unknown topic: %+v", p)
	}
}

// G17, KIP-320: epochs are the same everywhere, and fence.
func TestLeaderEpochsG17(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	c.produce(9, "t", id, -1, values(t, record.None, "x"))
	m := c.metadata(9, "t").Topics[0].Partitions[0]
	b, _, err := record.Next(c.fetch(12, "t", id, 0).RecordBatches)
	must(t, err)
	if m.LeaderEpoch < 0 || b.LeaderEpoch() != m.LeaderEpoch {
		t.Errorf("metadata says epoch %d, the batch %d", m.LeaderEpoch, b.LeaderEpoch())
	}
	for _, k := range []struct {
		epoch int32
		want  int16
	}{{-1, 0}, {m.LeaderEpoch, 0}, {m.LeaderEpoch + 1, kerr.UnknownLeaderEpoch.Code}} {
		req := fetchRequest("t", id, 0)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = k.epoch
		if p := partitionsOf(do[*kmsg.FetchResponse](c, 12, req))[0]; p.ErrorCode != k.want {
			t.Errorf("fetch with epoch %d: error %d", k.epoch, p.ErrorCode)
		}
	}
	for v := int16(2); v <= 4; v++ {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		ot := kmsg.NewOffsetForLeaderEpochRequestTopic()
		ot.Topic = "t"
		ot.Partitions = []kmsg.OffsetForLeaderEpochRequestTopicPartition{{Partition: 0, CurrentLeaderEpoch: m.LeaderEpoch, LeaderEpoch: m.LeaderEpoch}, {Partition: 9, CurrentLeaderEpoch: -1}}
		req.Topics = append(req.Topics, ot)
		p := do[*kmsg.OffsetForLeaderEpochResponse](c, v, req).Topics[0].Partitions
		if p[0].ErrorCode != 0 || p[0].EndOffset != 1 || p[0].LeaderEpoch != m.LeaderEpoch || p[1].ErrorCode != kerr.UnknownTopicOrPartition.Code || p[1].EndOffset != -1 {
			t.Errorf("v%d: %+v", v, p)
		}
	}
}

func (c *client) metadata(v int16, topics ...string) *kmsg.MetadataResponse {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	return do[*kmsg.MetadataResponse](c, v, req)
}
