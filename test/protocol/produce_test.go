package protocol

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

// Every version of Produce and of Fetch carries a record through.
func TestEveryVersion(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	var want []string
	for v := int16(3); v <= 13; v++ {
		value := fmt.Sprint("value ", v)
		p := c.produce(v, "t", id, -1, values(t, record.None, value))
		if p.ErrorCode != 0 || p.BaseOffset != int64(len(want)) || p.LogAppendTime != -1 || v >= 5 && p.LogStartOffset != 0 {
			t.Fatalf("v%d: %+v", v, p)
		}
		want = append(want, value)
	}
	for v := int16(4); v <= 18; v++ {
		p := c.fetch(v, "t", id, 0)
		got, first := read(t, p.RecordBatches)
		if p.ErrorCode != 0 || first != 0 || !reflect.DeepEqual(got, want) || p.HighWatermark != int64(len(want)) || p.LastStableOffset != p.HighWatermark || p.AbortedTransactions != nil {
			t.Fatalf("v%d: %+v, records %q", v, p, got)
		}
	}
}

// G10: acks=0 gets no answer, and an error closes the connection.
func TestAcksZeroG10(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	for v := int16(3); v <= 13; v++ {
		req := produceRequest("t", id, 0, values(t, record.None, "quiet"))
		req.Version = v
		c.send(req)
	}
	eventually(t, "all 11 records there", func() bool { return c.listOffset(1, "t", -1).Offset == 11 })
	req := produceRequest("no such topic", id, 0, values(t, record.None, "x"))
	req.Version = 9
	c.send(req)
	c.closed()
}

// G11: exactly one batch of magic 2 a partition; zstd only from version 7.
func TestRecordSetsG11(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	one := values(t, record.None, "a")
	old := append([]byte(nil), one...)
	old[16] = 1 // magic
	bad := append([]byte(nil), one...)
	bad[len(bad)-1] ^= 1
	for name, k := range map[string]struct {
		set  []byte
		v    int16
		want *kerr.Error
	}{
		"none":        {[]byte{}, 9, kerr.InvalidRecord},
		"null":        {nil, 9, kerr.InvalidRecord},
		"two batches": {append(append([]byte(nil), one...), one...), 9, kerr.InvalidRecord},
		"magic 1":     {old, 9, kerr.InvalidRecord},
		"crc":         {bad, 9, kerr.CorruptMessage},
		"truncated":   {one[:len(one)-1], 9, kerr.CorruptMessage},
		"zstd v6":     {values(t, record.Zstd, "a"), 6, kerr.UnsupportedCompressionType},
	} {
		if p := c.produce(k.v, "t", id, -1, k.set); p.ErrorCode != k.want.Code && !(name == "truncated" && p.ErrorCode == kerr.InvalidRecord.Code) {
			t.Errorf("%s: error %d, want %d", name, p.ErrorCode, k.want.Code)
		} else if p.BaseOffset != -1 {
			t.Errorf("%s: base offset %d with an error", name, p.BaseOffset)
		}
	}
	if p := c.produce(7, "t", id, -1, values(t, record.Zstd, "a")); p.ErrorCode != 0 {
		t.Errorf("zstd v7: error %d", p.ErrorCode)
	}
	// Whoever cannot read what the topic is compressed with is told so.
	id = c.create("zstd", 1, "compression.type", "zstd")
	if p := c.produce(9, "zstd", id, -1, values(t, record.None, "a")); p.ErrorCode != 0 {
		t.Errorf("to a zstd topic: error %d", p.ErrorCode)
	}
	if p := c.fetch(9, "zstd", id, 0); p.ErrorCode != kerr.UnsupportedCompressionType.Code {
		t.Errorf("fetch of zstd with version 9: error %d", p.ErrorCode)
	}
	if p := c.fetch(10, "zstd", id, 0); p.ErrorCode != 0 {
		t.Errorf("fetch of zstd with version 10: error %d", p.ErrorCode)
	}
}

// G12: offset and epoch are stamped outside the CRC; LogAppendTime rewrites
// attributes and timestamp, with the CRC, and is told in the answer.
func TestLogAppendTimeG12(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1, "message.timestamp.type", "LogAppendTime")
	p := c.produce(9, "t", id, -1, values(t, record.None, "a", "b"))
	if p.ErrorCode != 0 || p.LogAppendTime <= 1_600_000_000_000 {
		t.Fatalf("%+v", p)
	}
	set := c.fetch(12, "t", id, 0).RecordBatches
	b, _, err := record.Next(set)
	must(t, err)
	must(t, b.VerifyCRC())
	if !b.LogAppendTime() || b.MaxTimestamp() != p.LogAppendTime || b.LeaderEpoch() < 0 {
		t.Fatalf("log append time %v, %d, epoch %d", b.LogAppendTime(), b.MaxTimestamp(), b.LeaderEpoch())
	}
}

// G12, P83: a fetch from the middle of a batch returns the whole batch.
func TestFetchInsideBatchG12(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	c.produce(9, "t", id, -1, values(t, record.Gzip, "0", "1", "2"))
	c.produce(9, "t", id, -1, values(t, record.LZ4, "3", "4", "5"))
	for offset := range int64(6) {
		got, first := read(t, c.fetch(12, "t", id, offset).RecordBatches)
		if want := offset / 3 * 3; first != want || len(got) != int(6-want) {
			t.Errorf("from %d: first %d, %q", offset, first, got)
		}
	}
	if p := c.fetch(12, "t", id, 6); p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.RecordBatches == nil {
		t.Errorf("at the end: %+v", p) // G13: empty, not null
	}
	for _, offset := range []int64{7, -1} {
		if p := c.fetch(12, "t", id, offset); p.ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Errorf("from %d: error %d", offset, p.ErrorCode)
		}
	}
}

// G24: an id that is unknown, or that of a topic which was made anew, is
// UNKNOWN_TOPIC_ID and never another topic.
func TestTopicIDsG24(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	old := c.create("t", 1)
	c.delete("t")
	id := c.create("t", 1)
	if id == old {
		t.Fatal("the id was used again")
	}
	if p := c.produce(13, "", old, -1, values(t, record.None, "x")); p.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("produce: error %d", p.ErrorCode)
	}
	if p := c.fetch(13, "", old, 0); p.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("fetch: error %d", p.ErrorCode)
	}
	if p := c.produce(13, "", id, -1, values(t, record.None, "x")); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Errorf("produce to the new one: %+v", p)
	}
}

func (c *client) delete(topic string) {
	c.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &topic})
	if e := do[*kmsg.DeleteTopicsResponse](c, 6, req).Topics[0]; e.ErrorCode != 0 {
		c.t.Fatalf("delete %s: %d", topic, e.ErrorCode)
	}
}

// P85: max.message.bytes bounds a batch.
func TestMaxMessageBytesP85(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1, "max.message.bytes", "1000")
	if p := c.produce(9, "t", id, -1, values(t, record.None, string(make([]byte, 2000)))); p.ErrorCode != kerr.MessageTooLarge.Code {
		t.Errorf("error %d", p.ErrorCode)
	}
	if p := c.produce(9, "t", id, -1, values(t, record.None, string(make([]byte, 500)))); p.ErrorCode != 0 {
		t.Errorf("error %d", p.ErrorCode)
	}
}

// P46: partitions that do not exist, negative ones too, are UNKNOWN_TOPIC_OR_PARTITION.
func TestUnknownPartitionP46(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	for _, index := range []int32{1, -1, 1 << 30, -1 << 31} {
		req := produceRequest("t", id, -1, values(t, record.None, "x"))
		req.Topics[0].Partitions[0].Partition = index
		if p := do[*kmsg.ProduceResponse](c, 12, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("produce to %d: error %d", index, p.ErrorCode)
		}
		f := fetchRequest("t", id, 0)
		f.Topics[0].Partitions[0].Partition = index
		if p := do[*kmsg.FetchResponse](c, 12, f).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("fetch of %d: error %d", index, p.ErrorCode)
		}
	}
}

// Requests of a connection that arrive together are appended in order, each with its own answer, good among bad.
func TestPipelinedProduce(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 2)
	const count = 200
	var reqs []*kmsg.ProduceRequest
	var ids []int32
	for i := range count {
		set := values(t, record.None, fmt.Sprint(i))
		if i%7 == 3 {
			set[len(set)-1] ^= 1
		}
		req := produceRequest("t", id, -1, set, values(t, record.None, "other"))
		req.Version = 9
		reqs = append(reqs, req)
		ids = append(ids, c.send(req))
	}
	good := int64(0)
	for i, req := range reqs {
		resp := c.receive(req, ids[i]).(*kmsg.ProduceResponse).Topics[0]
		if resp.Partitions[1].BaseOffset != int64(i) {
			t.Fatalf("request %d, partition 1: %+v", i, resp.Partitions[1])
		}
		if i%7 == 3 {
			if resp.Partitions[0].ErrorCode != kerr.CorruptMessage.Code {
				t.Fatalf("request %d: %+v", i, resp.Partitions[0])
			}
			continue
		}
		if resp.Partitions[0].ErrorCode != 0 || resp.Partitions[0].BaseOffset != good {
			t.Fatalf("request %d: %+v, want offset %d", i, resp.Partitions[0], good)
		}
		good++
	}
}

// G29: the last five batches of an idempotent producer may come again and get
// their offset; a gap is OUT_OF_ORDER_SEQUENCE_NUMBER.
func TestIdempotenceG29(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	init := do[*kmsg.InitProducerIDResponse](c, 4, kmsg.NewPtrInitProducerIDRequest())
	if init.ErrorCode != 0 || init.ProducerID < 0 || init.ProducerEpoch != 0 {
		t.Fatalf("%+v", init)
	}
	batch := func(seq int32) []byte {
		b := record.NewBuilder(record.Options{Idempotent: true, ProducerID: init.ProducerID, BaseSequence: seq})
		b.Append(time.Now().UnixMilli(), nil, []byte(fmt.Sprint(seq)))
		set, err := b.Build()
		must(t, err)
		return set
	}
	for seq := range int32(6) {
		if p := c.produce(9, "t", id, -1, batch(seq)); p.ErrorCode != 0 || p.BaseOffset != int64(seq) {
			t.Fatalf("sequence %d: %+v", seq, p)
		}
	}
	for seq := int32(1); seq < 6; seq++ {
		if p := c.produce(9, "t", id, -1, batch(seq)); p.ErrorCode != 0 || p.BaseOffset != int64(seq) {
			t.Errorf("sequence %d again: %+v", seq, p)
		}
	}
	if p := c.produce(9, "t", id, -1, batch(8)); p.ErrorCode != kerr.OutOfOrderSequenceNumber.Code {
		t.Errorf("gap: %+v", p)
	}
	if p := c.listOffset(1, "t", -1); p.Offset != 6 {
		t.Errorf("end %d", p.Offset)
	}
}

// Producer ids are never given twice; transactions are refused so that clients stop asking.
func TestInitProducerID(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	seen := map[int64]bool{}
	for i := range 2500 { // more than two blocks
		resp := do[*kmsg.InitProducerIDResponse](c, int16(i%6), kmsg.NewPtrInitProducerIDRequest())
		if resp.ErrorCode != 0 || seen[resp.ProducerID] {
			t.Fatalf("%+v", resp)
		}
		seen[resp.ProducerID] = true
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = ptr("tx")
	if resp := do[*kmsg.InitProducerIDResponse](c, 4, req); resp.ErrorCode != kerr.InvalidRequest.Code || resp.ProducerID != -1 {
		t.Errorf("%+v", resp)
	}
}

// Acks other than -1, 0 and 1 are refused, an absurd batch header too.
func TestProduceNonsense(t *testing.T) {
	n := startNode(t)
	c := n.dial()
	id := c.create("t", 1)
	if p := c.produce(9, "t", id, 2, values(t, record.None, "x")); p.ErrorCode != kerr.InvalidRequiredAcks.Code {
		t.Errorf("acks=2: error %d", p.ErrorCode)
	}
	for at, v := range map[int]int32{8: -1, 23: 1 << 30, 57: 1 << 30} { // batch length, last offset delta, count
		set := values(t, record.None, "x")
		binary.BigEndian.PutUint32(set[at:], uint32(v))
		if p := c.produce(9, "t", id, -1, set); p.ErrorCode == 0 {
			t.Errorf("%d at byte %d is accepted", v, at)
		}
	}
	if p := c.listOffset(1, "t", -1); p.Offset != 0 {
		t.Errorf("end %d", p.Offset)
	}
}
