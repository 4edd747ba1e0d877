package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	retryEvery   = 50 * time.Millisecond  // metadata, while there is no answer
	askTimeout   = 200 * time.Millisecond // of one request for metadata, or for a connection
	writeTimeout = 10 * time.Second       // of an answer that has begun to come
	maxAnswer    = 1 << 20

	produceVersion  = 9
	metadataVersion = 9
)

var value = make([]byte, 100)

// batch is one record of value, as a RecordBatch v2.
var batch = func() []byte {
	r := kmsg.Record{Value: value}
	r.Length = int32(len(r.AppendTo(nil)) - 1) // its own length takes one byte while it is zero
	records := r.AppendTo(nil)
	b := kmsg.RecordBatch{
		Length: int32(49 + len(records)), PartitionLeaderEpoch: -1, Magic: 2,
		FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: records,
	}
	raw := b.AppendTo(nil)
	const crc = 17
	binary.BigEndian.PutUint32(raw[crc:], crc32.Checksum(raw[crc+4:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}()

// lean writes over one connection to the partition's leader. While it waits for an answer, or has nobody to
// ask, it asks the brokers in turn every retryEvery who leads, and goes to a leader of a later epoch.
type lean struct {
	addrs     []string
	partition int32
	turn      int // of addrs, whom to ask next

	epoch int32
	conn  *conn // to the leader, nil if there is none
}

func newLean(addrs []string, partition int32) *lean {
	return &lean{addrs: addrs, partition: partition, epoch: -1}
}

func (l *lean) close() { l.drop() }

func (l *lean) drop() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// write sends the batch once, to whoever leads.
func (l *lean) write(ctx context.Context) error {
	for l.conn == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.find(); l.conn == nil {
			pause(ctx, retryEvery)
		}
	}
	err := l.produce(ctx)
	if err != nil {
		l.drop()
	}
	return err
}

func (l *lean) produce(ctx context.Context) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(writeTimeout.Milliseconds())
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = l.partition, batch
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	c := l.conn
	if err := c.send(req, produceVersion); err != nil {
		return err
	}
	for {
		c.SetReadDeadline(time.Now().Add(retryEvery))
		_, err := c.in.Peek(4)
		if err == nil {
			break
		}
		var wait net.Error
		if !errors.As(err, &wait) || !wait.Timeout() {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.find(); l.conn != c {
			return errors.New("another broker leads")
		}
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	if err := c.receive(resp, writeTimeout); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("a produce response without the partition")
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// find asks one broker, other than the one that owes an answer, who leads, and connects to a leader that is news,
// or if there is no connection.
func (l *lean) find() {
	l.turn++
	if l.conn != nil && l.conn.RemoteAddr().String() == l.addrs[l.turn%len(l.addrs)] {
		l.turn++
	}
	addr, epoch, err := l.ask(l.addrs[l.turn%len(l.addrs)])
	if err != nil || epoch < l.epoch || epoch == l.epoch && l.conn != nil {
		return
	}
	if c, err := dial(addr); err == nil {
		l.drop()
		l.conn, l.epoch = c, epoch
	}
}

// ask is one Metadata request.
func (l *lean) ask(addr string) (leader string, epoch int32, err error) {
	c, err := dial(addr)
	if err != nil {
		return "", 0, err
	}
	defer c.Close()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	name := topic
	t.Topic = &name
	req.Topics = append(req.Topics, t)
	if err := c.send(req, metadataVersion); err != nil {
		return "", 0, err
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = metadataVersion
	if err := c.receive(resp, askTimeout); err != nil {
		return "", 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition != l.partition || p.ErrorCode != 0 {
				continue
			}
			for _, b := range resp.Brokers {
				if b.NodeID == p.Leader {
					return fmt.Sprintf("%s:%d", b.Host, b.Port), p.LeaderEpoch, nil
				}
			}
		}
	}
	return "", 0, errors.New("no leader")
}

// conn is a connection with one request at a time.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, askTimeout)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

func (c *conn) send(r kmsg.Request, version int16) error {
	r.SetVersion(version)
	c.SetWriteDeadline(time.Now().Add(askTimeout))
	_, err := c.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("failover")).AppendRequest(nil, r, 0))
	return err
}

// receive reads one answer with a flexible header.
func (c *conn) receive(r kmsg.Response, limit time.Duration) error {
	c.SetReadDeadline(time.Now().Add(limit))
	var head [9]byte // size, correlation id, no tags
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(head[:])) - 5
	if n < 0 || n > maxAnswer {
		return fmt.Errorf("an answer of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	return r.ReadFrom(body)
}
