package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions that the client speaks: current ones that both sides serve.
const (
	produceVersion = 12
	fetchVersion   = 16 // topics by id
)

const clientID = "bench"

// frame is a whole request: size, header version 2, body.
func frame(r kmsg.Request) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(r.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(r.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, 0) // correlation id: answers come in order
	b = binary.BigEndian.AppendUint16(b, uint16(len(clientID)))
	b = append(b, clientID...)
	b = append(b, 0) // no tags
	b = r.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// reader takes one response apart where it lies in the connection's buffer. The
// first error sticks.
type reader struct {
	r    *bufio.Reader
	left int // bytes of the response not yet taken
	err  error
	tmp  [16]byte
}

// begin reads the size and the header of the next response.
func (r *reader) begin() {
	r.left = 4
	r.left = int(r.int32())
	r.int32() // correlation id
	r.tags()
}

// end drops what is left of the response.
func (r *reader) end() error {
	r.skip(r.left)
	return r.err
}

func (r *reader) take(n int) []byte {
	if r.err == nil && n > r.left {
		r.err = fmt.Errorf("response ends %d bytes early", n-r.left)
	}
	if r.err != nil {
		return r.tmp[:n]
	}
	r.left -= n
	_, r.err = io.ReadFull(r.r, r.tmp[:n])
	return r.tmp[:n]
}

func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) uvarint() int {
	for v, shift := 0, 0; shift < 35; shift += 7 {
		b := r.take(1)[0]
		v |= int(b&0x7f) << shift
		if b < 0x80 || r.err != nil {
			return v
		}
	}
	r.err = errors.New("response: varint too long")
	return 0
}

// count is the length of a compact array or string; null counts as empty.
func (r *reader) count() int { return max(0, r.uvarint()-1) }

func (r *reader) skip(n int) {
	if r.err != nil {
		return
	}
	if n > r.left {
		r.err = fmt.Errorf("response ends %d bytes early", n-r.left)
		return
	}
	r.left -= n
	_, r.err = r.r.Discard(n)
}

func (r *reader) tags() {
	for range r.uvarint() {
		r.uvarint()
		r.skip(r.uvarint())
	}
}

// fail makes a Kafka error code the reader's error.
func (r *reader) fail(code int16, what string) {
	if r.err == nil && code != 0 {
		r.err = fmt.Errorf("%s: %w", what, kerr.ErrorForCode(code))
	}
}

// produceRequest is a frame that writes one batch to one partition.
func produceRequest(topic string, partition int32, batch []byte) []byte {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = produceVersion, 1, 30_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return frame(r)
}

// produceResponse reads the answer to produceRequest; base is the offset that
// the batch was given.
func (r *reader) produceResponse() (base int64, err error) {
	r.begin()
	for range r.count() {
		r.skip(r.count()) // topic
		for range r.count() {
			r.int32() // partition
			r.fail(r.int16(), "produce")
			base = r.int64()
			if err := r.end(); err != nil {
				return 0, err
			}
			return base, nil
		}
	}
	return 0, errors.Join(r.err, errors.New("produce response without a partition"))
}

// fetchRequest is a frame that reads some partitions of one topic, with the
// positions where each partition's fetch offset stands in it.
func fetchRequest(topicID [16]byte, offsets []int64, first int32, partitionBytes, maxBytes int32) (raw []byte, positions []int) {
	const mark = 0x5af3c1d200000000 // nothing else in the frame looks like it
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes = fetchVersion, 500, 1, maxBytes
	t := kmsg.NewFetchRequestTopic()
	t.TopicID = topicID
	for i := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = first+int32(i), mark+int64(i), partitionBytes
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	raw = frame(r)
	for at := 0; at+8 <= len(raw) && len(positions) < len(offsets); at++ {
		if binary.BigEndian.Uint64(raw[at:]) == mark+uint64(len(positions)) {
			binary.BigEndian.PutUint64(raw[at:], uint64(offsets[len(positions)]))
			positions = append(positions, at)
		}
	}
	return raw, positions
}

// fetchResponse reads an answer and calls records for every partition with the
// size of its record set; records must take or skip that many bytes.
func (r *reader) fetchResponse(records func(partition int32, size int)) error {
	r.begin()
	r.int32() // throttle
	r.fail(r.int16(), "fetch")
	r.int32() // session
	for range r.count() {
		r.take(16) // topic id
		for range r.count() {
			partition := r.int32()
			r.fail(r.int16(), "fetch")
			r.skip(24) // high watermark, last stable offset, log start
			for range r.count() {
				r.skip(16)
				r.tags()
			}
			r.int32() // preferred replica
			size := r.count()
			if r.err != nil {
				return r.err
			}
			records(partition, size)
			r.tags()
		}
		r.tags()
	}
	return r.end()
}
