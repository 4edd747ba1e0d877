package broker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/wire"
)

// produceCall is one Produce request while its record sets are appended.
type produceCall struct {
	h    *handler
	r    *wire.Request
	acks int16
	resp wire.ProduceResponse
	left atomic.Int32 // record sets without a fate, and one for the handler itself
}

// slot is where the fate of one record set goes.
type slot struct {
	replica.Produce
	call  *produceCall
	part  *wire.ProducePartitionResponse
	topic *wire.ProduceTopicResponse
}

// batch is all that a run of requests brings for one partition, in order.
type batch struct {
	partition *replica.Partition
	items     []*replica.Produce
}

// produce appends a run of Produce requests that arrived together. What they
// bring for one partition is one append; each is answered by itself.
func (h *handler) produce(run []*wire.Request) {
	var batches []batch
	calls := make([]*produceCall, len(run))
	for i, r := range run {
		calls[i] = h.prepare(r, &batches)
	}
	for _, b := range batches {
		b.partition.Append(b.items)
	}
	for _, c := range calls {
		c.done()
	}
}

// prepare makes the response of a request, with what is wrong already in it, and
// adds the rest to batches.
func (h *handler) prepare(r *wire.Request, batches *[]batch) *produceCall {
	req := r.Produce
	c := &produceCall{h: h, r: r, acks: req.Acks}
	c.left.Store(1)
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	c.resp.Topics = make([]wire.ProduceTopicResponse, len(req.Topics))
	parts := make([]wire.ProducePartitionResponse, n)
	slots := make([]slot, n)
	refused := checkProduce(req)
	var deadline time.Time
	if req.Acks != 0 {
		deadline = r.Received.Add(time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond)
	}
	for i := range req.Topics {
		t, tr := &req.Topics[i], &c.resp.Topics[i]
		tr.Topic, tr.TopicID = t.Topic, t.TopicID
		k := len(t.Partitions)
		tr.Partitions, parts = parts[:k:k], parts[k:]
		for j := range t.Partitions {
			s := &slots[0]
			slots = slots[1:]
			s.call, s.topic, s.part = c, tr, &tr.Partitions[j]
			*s.part = wire.ProducePartitionResponse{Partition: t.Partitions[j].Partition, BaseOffset: -1, LogAppendTimeMs: -1, LogStartOffset: -1}
			err := refused
			var p *replica.Partition
			if err == nil {
				p, err = h.partition(r.Version >= 13, t.Topic, t.TopicID, s.part.Partition)
			}
			if err != nil {
				s.fail(err)
				continue
			}
			s.Produce = replica.Produce{Records: t.Partitions[j].Records, Acks: req.Acks, Deadline: deadline, Version: r.Version,
				Transactional: req.TransactionalID != nil, Done: produced, Tag: s}
			c.left.Add(1)
			add(batches, p, &s.Produce)
		}
	}
	return c
}

// checkProduce refuses a request as a whole.
func checkProduce(req *wire.ProduceRequest) error {
	switch {
	case req.Acks < -1 || req.Acks > 1:
		return fmt.Errorf("acks=%d: %w", req.Acks, kerr.InvalidRequiredAcks)
	case req.TransactionalID != nil:
		return fmt.Errorf("transactions are not served: %w", kerr.InvalidTxnState)
	}
	return nil
}

// add appends to the partition's batch. Runs touch few partitions, mostly one.
func add(batches *[]batch, p *replica.Partition, item *replica.Produce) {
	for i := len(*batches) - 1; i >= 0; i-- {
		if b := &(*batches)[i]; b.partition == p {
			b.items = append(b.items, item)
			return
		}
	}
	*batches = append(*batches, batch{p, []*replica.Produce{item}})
}

// partition finds a partition by topic id or by name.
func (b *Broker) partition(byID bool, topic string, id wire.UUID, index int32) (*replica.Partition, error) {
	if byID {
		return b.replicas.Partition(id, index)
	}
	return b.replicas.PartitionByName(topic, index)
}

// produced is called when the fate of a record set is known.
func produced(p *replica.Produce) {
	s := p.Tag.(*slot)
	if p.Err != nil {
		s.fail(p.Err)
	} else {
		s.part.BaseOffset, s.part.LogAppendTimeMs, s.part.LogStartOffset = p.BaseOffset, p.LogAppendTime, p.LogStart
	}
	s.part.ErrorRecords = p.RecordErrors
	s.Produce.Records = nil
	s.call.done()
}

// fail fills in an error. Produce never tells PRODUCER_FENCED: clients know
// INVALID_PRODUCER_EPOCH here.
func (s *slot) fail(err error) {
	s.part.ErrorCode, s.part.ErrorMessage = code(err), message(err)
	switch s.part.ErrorCode {
	case kerr.ProducerFenced.Code:
		s.part.ErrorCode = kerr.InvalidProducerEpoch.Code
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code:
		if s.call.r.Version >= 10 {
			s.part.CurrentLeader, _ = s.call.h.leaderHint(s.topic.Topic, s.topic.TopicID, s.part.Partition)
		}
	}
}

// done counts one record set, and answers after the last.
func (c *produceCall) done() {
	if c.left.Add(-1) > 0 {
		return
	}
	if c.acks == 0 {
		c.answerNothing()
		return
	}
	if c.r.Version >= 10 {
		for _, t := range c.resp.Topics {
			for _, p := range t.Partitions {
				if p.CurrentLeader != nil {
					c.resp.NodeEndpoints = c.h.addEndpoint(c.resp.NodeEndpoints, p.CurrentLeader.LeaderID)
				}
			}
		}
	}
	c.r.Reply(&c.resp)
}

// answerNothing ends a request with acks=0: there is no answer, and an error
// closes the connection so that the client notices at all.
func (c *produceCall) answerNothing() {
	for _, t := range c.resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				c.r.Fail(fmt.Errorf("acks=0: %s-%d: %w", t.Topic, p.Partition, kerr.ErrorForCode(p.ErrorCode)))
				return
			}
		}
	}
	c.r.NoReply()
}
