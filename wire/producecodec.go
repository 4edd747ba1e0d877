package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// First flexible version of Produce, and the first that names topics by id.
const (
	produceFlexible = 9
	produceTopicIDs = 13
)

// maxProduceItems bounds the topics and partitions of one request: their
// structs outweigh an empty record set by far.
const maxProduceItems = 1 << 17

// names returns the string for bytes, reusing the last one: a connection mostly
// speaks of the same topic and client.
type names struct{ last string }

func (n *names) string(b []byte) string {
	if string(b) != n.last {
		n.last = string(b)
	}
	return n.last
}

// oneProduce holds the usual request of one topic and one partition in one allocation.
type oneProduce struct {
	ProduceRequest
	topic [1]ProduceTopic
	part  [1]ProducePartition
}

// decodeProduce reads a Produce request body in place: record sets are
// sub-slices of src.
func decodeProduce(src []byte, version int16, n *names) (*ProduceRequest, error) {
	d := decoder{b: src, flex: version >= produceFlexible}
	one := new(oneProduce)
	r := &one.ProduceRequest
	if id := d.nullableString(); id != nil {
		s := string(id)
		r.TransactionalID = &s
	}
	r.Acks = d.int16()
	r.TimeoutMillis = d.int32()
	minTopic, minPart := 2+4, 4+4
	switch {
	case version >= produceTopicIDs:
		minTopic, minPart = len(UUID{})+1+1, 4+1+1
	case d.flex:
		minTopic, minPart = 1+1+1, 4+1+1
	}
	items := d.array(minTopic)
	if items > maxProduceItems {
		return nil, fmt.Errorf("%w: %d topics", ErrMalformed, items)
	}
	r.Topics = one.topic[:]
	if items != 1 {
		r.Topics = make([]ProduceTopic, items)
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= produceTopicIDs {
			t.TopicID = d.uuid()
		} else if name := d.nullableString(); name != nil {
			t.Topic = n.string(name)
		} else {
			d.bad = true
		}
		k := d.array(minPart)
		if items += k; items > maxProduceItems {
			return nil, fmt.Errorf("%w: %d topics and partitions", ErrMalformed, items)
		}
		if k == 1 && len(r.Topics) == 1 {
			t.Partitions = one.part[:]
		} else {
			t.Partitions = make([]ProducePartition, k)
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			p.Partition = d.int32()
			p.Records = d.nullableBytes()
			d.tags()
		}
		d.tags()
		if d.bad {
			break
		}
	}
	d.tags()
	return r, d.finish()
}

// appendTo appends the body of the response at version.
func (r *ProduceResponse) appendTo(dst []byte, version int16) []byte {
	flex := version >= produceFlexible
	dst = appendArrayLen(dst, len(r.Topics), flex)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= produceTopicIDs {
			dst = append(dst, t.TopicID[:]...)
		} else {
			dst = appendString(dst, t.Topic, flex)
		}
		dst = appendArrayLen(dst, len(t.Partitions), flex)
		for j := range t.Partitions {
			dst = t.Partitions[j].appendTo(dst, version, flex)
		}
		dst = appendTags(dst, flex)
	}
	dst = kbin.AppendInt32(dst, r.ThrottleMillis)
	switch {
	case version >= 10:
		dst = appendEndpoints(dst, r.NodeEndpoints)
	case flex:
		dst = append(dst, 0)
	}
	return dst
}

func (p *ProducePartitionResponse) appendTo(dst []byte, version int16, flex bool) []byte {
	dst = kbin.AppendInt32(dst, p.Partition)
	dst = kbin.AppendInt16(dst, p.ErrorCode)
	dst = kbin.AppendInt64(dst, p.BaseOffset)
	dst = kbin.AppendInt64(dst, p.LogAppendTimeMs)
	if version >= 5 {
		dst = kbin.AppendInt64(dst, p.LogStartOffset)
	}
	if version >= 8 {
		dst = appendArrayLen(dst, len(p.ErrorRecords), flex)
		for i := range p.ErrorRecords {
			e := &p.ErrorRecords[i]
			dst = kbin.AppendInt32(dst, e.RelativeOffset)
			dst = appendNullableString(dst, e.ErrorMessage, flex)
			dst = appendTags(dst, flex)
		}
		dst = appendNullableString(dst, p.ErrorMessage, flex)
	}
	switch {
	case version >= 10 && p.CurrentLeader != nil:
		dst = append(dst, 1)
		dst = appendLeader(dst, 0, p.CurrentLeader)
	case flex:
		dst = append(dst, 0)
	}
	return dst
}
