package protocol

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

// client is a raw connection: it sends exactly what a test says.
type client struct {
	net.Conn
	t    testing.TB
	next int32
}

func (n *node) dial() *client {
	n.t.Helper()
	return dial(n.t, n.addr)
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	must(t, err)
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	t.Cleanup(func() { nc.Close() })
	return &client{Conn: nc, t: t}
}

// send writes a request at the version it is set to and returns its correlation id.
func (c *client) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.next++
	b := []byte{0, 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(req.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(c.next))
	b = append(b, 0, 4, 't', 'e', 's', 't')
	if req.IsFlexible() {
		b = append(b, 0)
	}
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("send key %d: %v", req.Key(), err)
	}
	return c.next
}

// frame reads one response frame.
func (c *client) frame() []byte {
	c.t.Helper()
	var l [4]byte
	if _, err := io.ReadFull(c, l[:]); err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(l[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	return b
}

// receive reads the answer to req, which must be the next.
func (c *client) receive(req kmsg.Request, id int32) kmsg.Response {
	c.t.Helper()
	b := c.frame()
	if got := int32(binary.BigEndian.Uint32(b)); got != id {
		c.t.Fatalf("answer to request %d, want %d", got, id)
	}
	b = b[4:]
	resp := req.ResponseKind()
	if req.IsFlexible() && req.Key() != 18 {
		if b[0] != 0 {
			c.t.Fatalf("key %d: tags in the header", req.Key())
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		c.t.Fatalf("key %d version %d: %v in %x", req.Key(), req.GetVersion(), err, b)
	}
	return resp
}

// do sends req at version v and returns the answer.
func do[R kmsg.Response](c *client, v int16, req kmsg.Request) R {
	c.t.Helper()
	req.SetVersion(v)
	return c.receive(req, c.send(req)).(R)
}

// closed reports that the node has closed the connection.
func (c *client) closed() {
	c.t.Helper()
	var b [1]byte
	if n, err := c.Read(b[:]); n > 0 || err == nil {
		c.t.Fatal("the connection is still open")
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("the connection is not closed")
	}
}

func ptr[T any](v T) *T { return &v }

// create makes a topic; configs are pairs.
func (c *client) create(topic string, partitions int32, configs ...string) [16]byte {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, 1
	for i := 0; i < len(configs); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	req.Topics = append(req.Topics, t)
	resp := do[*kmsg.CreateTopicsResponse](c, 7, req)
	if e := resp.Topics[0]; e.ErrorCode != 0 {
		c.t.Fatalf("create %s: %d %v", topic, e.ErrorCode, e.ErrorMessage)
	}
	return resp.Topics[0].TopicID
}

// values builds one batch of records without keys.
func values(t testing.TB, codec record.Codec, vs ...string) []byte {
	t.Helper()
	b := record.NewBuilder(record.Options{Codec: codec, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1})
	now := time.Now().UnixMilli() // retention goes by it
	for _, v := range vs {
		b.Append(now, nil, []byte(v))
	}
	batch, err := b.Build()
	must(t, err)
	return batch
}

// produceRequest asks to append record sets, by partition number from 0.
func produceRequest(topic string, id [16]byte, acks int16, sets ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	for i, s := range sets {
		t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(i), Records: s})
	}
	req.Topics = append(req.Topics, t)
	return req
}

// produce appends one batch to partition 0 and returns its fate.
func (c *client) produce(v int16, topic string, id [16]byte, acks int16, set []byte) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return do[*kmsg.ProduceResponse](c, v, produceRequest(topic, id, acks, set)).Topics[0].Partitions[0]
}

// fetchRequest asks for partition 0 from an offset, without waiting.
func fetchRequest(topic string, id [16]byte, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1, 50<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = offset, 1<<20, -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (c *client) fetch(v int16, topic string, id [16]byte, offset int64) kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	return do[*kmsg.FetchResponse](c, v, fetchRequest(topic, id, offset)).Topics[0].Partitions[0]
}

// read returns the values in a record set, and the offset of the first.
func read(t testing.TB, set []byte) (vs []string, first int64) {
	t.Helper()
	first = -1
	for len(set) > 0 {
		b, rest, err := record.Next(set)
		must(t, err)
		must(t, b.VerifyCRC())
		must(t, b.Each(1<<20, func(r record.Record) (bool, error) {
			if first < 0 {
				first = r.Offset
			}
			vs = append(vs, string(r.Value))
			return true, nil
		}))
		set = rest
	}
	return vs, first
}

// listOffset asks for one timestamp of partition 0.
func (c *client) listOffset(v int16, topic string, ts int64) kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = -1, 5000
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = ts, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return do[*kmsg.ListOffsetsResponse](c, v, req).Topics[0].Partitions[0]
}
