package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// response puts the size and a header version 1 before a body.
func response(r kmsg.Response) []byte {
	b := r.AppendTo([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0})
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func newReader(raw ...[]byte) *reader {
	return &reader{r: bufio.NewReader(bytes.NewReader(bytes.Join(raw, nil)))}
}

func produceAnswer(code int16, base int64) []byte {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	p := kmsg.NewProduceResponseTopicPartition()
	p.ErrorCode, p.BaseOffset = code, base
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	resp.Topics = append(resp.Topics, topic)
	return response(resp)
}

func TestProduceResponse(t *testing.T) {
	r := newReader(produceAnswer(0, 42), produceAnswer(6, -1))
	if base, err := r.produceResponse(); err != nil || base != 42 {
		t.Fatalf("base %d, %v; want 42", base, err)
	}
	if _, err := r.produceResponse(); err == nil {
		t.Fatal("error code 6 was taken for success")
	}
	if _, err := newReader().produceResponse(); err == nil {
		t.Fatal("no bytes were taken for an answer")
	}
}

func TestFetchRoundTrip(t *testing.T) {
	const batches, records = 3, 4
	batch := newBatch(records, 100, 1)
	var log []byte
	for i := range batches {
		binary.BigEndian.PutUint64(batch, uint64(i*records))
		log = append(log, batch...)
	}
	answer := func(sets ...[]byte) []byte {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = fetchVersion
		topic := kmsg.NewFetchResponseTopic()
		for i, set := range sets {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.RecordBatches = int32(i), set
			p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1}}
			p.UnknownTags.Set(77, []byte("later"))
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
		return response(resp)
	}
	l := newFetchLoad([16]byte{1}, 0, []int64{0, 0}, batches*records, batch, 1<<20, 1<<20)
	l.verify = true
	cut := len(batch)*2 + 10 // two batches and a part of the third
	n, err := l.answer(newReader(answer(log[:cut], log)))
	if err != nil || n != 5*len(batch) {
		t.Fatalf("counted %d bytes, %v; want %d", n, err, 5*len(batch))
	}
	if l.offsets[0] != 2*records || l.offsets[1] != 0 || l.laps != 1 {
		t.Fatalf("offsets %v, laps %d", l.offsets, l.laps)
	}
	var req kmsg.FetchRequest
	req.Version = fetchVersion
	if err := req.ReadFrom(l.requests(1)[4+2+2+4+2+len(clientID)+1:]); err != nil {
		t.Fatal(err)
	}
	if got := req.Topics[0].Partitions[0].FetchOffset; got != 2*records {
		t.Fatalf("next fetch asks for offset %d", got)
	}
	log[len(batch)+70] ^= 1
	l.offsets = []int64{0, 0}
	if _, err := l.answer(newReader(answer(log, nil))); err == nil {
		t.Fatal("a flipped byte went unnoticed")
	}
	if _, err := l.answer(newReader(answer(log)[:40])); err != io.EOF && err != io.ErrUnexpectedEOF {
		t.Fatalf("a cut answer gave %v", err)
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{5, 1, 9}); m != 5 {
		t.Fatalf("median %v", m)
	}
}
