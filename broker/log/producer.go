package log

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire/record"
)

// Origin says who appends, and with that which rules hold (Kafka's AppendOrigin).
type Origin int8

const (
	OriginClient      Origin = iota // a producer: everything is checked
	OriginCoordinator               // a coordinator of this cluster: markers, group and transaction records
	OriginReplication               // the leader has checked it
)

// producer is what the log remembers of one producer id: its epoch, the open transaction, and the last batches,
// by which a repeated one is recognised. It is a machine: check judges the next batch, then data or marker take
// it in.
type producer struct {
	epoch            int16 // -1 none
	coordinatorEpoch int32
	lastTimestamp    int64
	txnFirst         int64 // first offset of the open transaction, -1 none
	n                int
	batches          [record.MaxProducerBatches]record.ProducerBatch // oldest first, n of them
}

func newProducer() producer {
	return producer{epoch: -1, coordinatorEpoch: -1, lastTimestamp: record.NoTimestamp, txnFirst: -1}
}

// lastSequence is -1 if nothing is known.
func (p *producer) lastSequence() int32 {
	if p.n == 0 {
		return -1
	}
	return p.batches[p.n-1].LastSequence
}

// duplicate finds the batch of the same epoch and sequences among the last ones.
func (p *producer) duplicate(b record.Batch) (record.ProducerBatch, bool) {
	if b.ProducerEpoch() != p.epoch {
		return record.ProducerBatch{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, old := range p.batches[:p.n] {
		if old.LastSequence == last && old.FirstSequence() == first {
			return old, true
		}
	}
	return record.ProducerBatch{}, false
}

// check tells whether a data batch may follow (ProducerAppendInfo.maybeValidateDataBatch in Kafka). A producer
// that is not known may begin with any sequence: its records may be deleted already.
func (p *producer) check(b record.Batch, origin Origin) error {
	id, epoch, first := b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()
	if origin == OriginReplication {
		return nil
	}
	if epoch < p.epoch {
		return fmt.Errorf("producer %d: epoch %d is below the last seen epoch %d: %w", id, epoch, p.epoch, kerr.InvalidProducerEpoch)
	}
	if origin == OriginClient {
		switch last := p.lastSequence(); {
		case p.epoch < 0:
		case epoch != p.epoch && first != 0:
			return fmt.Errorf("producer %d: sequence %d begins epoch %d after epoch %d: %w", id, first, epoch, p.epoch, kerr.OutOfOrderSequenceNumber)
		case epoch == p.epoch && !inSequence(last, first):
			return fmt.Errorf("producer %d: sequence %d follows %d: %w", id, first, last, kerr.OutOfOrderSequenceNumber)
		}
	}
	if p.txnFirst >= 0 && !b.IsTransactional() {
		return fmt.Errorf("producer %d: a batch outside the transaction open since offset %d: %w", id, p.txnFirst, kerr.InvalidTxnState)
	}
	return nil
}

func inSequence(last, next int32) bool {
	return int64(next) == int64(last)+1 || next == 0 && last == math.MaxInt32
}

// checkMarker tells whether a marker may follow.
func (p *producer) checkMarker(m record.Marker, origin Origin) error {
	if origin == OriginReplication {
		return nil
	}
	if m.ProducerEpoch < p.epoch {
		return fmt.Errorf("producer %d: marker of epoch %d is below the last seen epoch %d: %w", m.ProducerID, m.ProducerEpoch, p.epoch, kerr.InvalidProducerEpoch)
	}
	if m.CoordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("producer %d: marker of coordinator epoch %d, last seen %d: %w", m.ProducerID, m.CoordinatorEpoch, p.coordinatorEpoch, kerr.TransactionCoordinatorFenced)
	}
	return nil
}

// setEpoch forgets the batches of another epoch.
func (p *producer) setEpoch(epoch int16) {
	if epoch != p.epoch {
		p.epoch, p.n = epoch, 0
	}
}

// data takes in a data batch whose offsets are assigned. It reports whether it began a transaction.
func (p *producer) data(b record.Batch) (began bool) {
	p.setEpoch(b.ProducerEpoch())
	if p.n == len(p.batches) {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = record.ProducerBatch{LastSequence: b.LastSequence(), LastOffset: b.LastOffset(),
		OffsetDelta: b.LastOffsetDelta(), Timestamp: b.MaxTimestamp()}
	p.n++
	p.lastTimestamp = b.MaxTimestamp()
	if began = b.IsTransactional() && p.txnFirst < 0; began {
		p.txnFirst = b.BaseOffset()
	}
	return began
}

// marker takes in a marker. It returns the first offset of the transaction that it ended, -1 if there was none.
func (p *producer) marker(m record.Marker) (first int64) {
	p.setEpoch(m.ProducerEpoch)
	p.coordinatorEpoch = m.CoordinatorEpoch
	p.lastTimestamp = m.Timestamp
	first, p.txnFirst = p.txnFirst, -1
	return first
}

func (p *producer) entry(id int64) record.ProducerEntry {
	return record.ProducerEntry{ProducerID: id, ProducerEpoch: p.epoch, CoordinatorEpoch: p.coordinatorEpoch,
		LastTimestamp: p.lastTimestamp, CurrentTxnFirstOffset: p.txnFirst,
		Batches: append([]record.ProducerBatch(nil), p.batches[:p.n]...)}
}

func producerOf(e record.ProducerEntry) producer {
	p := producer{epoch: e.ProducerEpoch, coordinatorEpoch: e.CoordinatorEpoch, lastTimestamp: e.LastTimestamp,
		txnFirst: e.CurrentTxnFirstOffset}
	last := e.Batches[max(0, len(e.Batches)-len(p.batches)):]
	p.n = copy(p.batches[:], last)
	return p
}
