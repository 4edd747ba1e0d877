package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

// reader is a lean consumer: it asks for the next bytes as soon as the last have arrived and
// checks them meanwhile, as ordinary clients do, without their cost per record. On two cores that the store, the
// broker and the reader share, the reader must not be what is measured.
type reader struct {
	conn    net.Conn
	request *kmsg.FetchRequest
	answers chan answer // to check
	buffers chan []byte // to be filled again
}

// answer is a response and the record batches in it.
type answer struct{ frame, batches []byte }

const (
	fetchVersion = 12 // the last that names topics
	fetchWait    = 500 * time.Millisecond
	maxFrame     = 64 << 20
)

func dialReader(ctx context.Context, addr string, fetch int) (*reader, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = fetchVersion, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, maxFrame
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = int32(fetch)
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	r := &reader{conn: conn, request: req, answers: make(chan answer, 1), buffers: make(chan []byte, 3)}
	for range cap(r.buffers) {
		r.buffers <- nil
	}
	return r, nil
}

// ask sends a Fetch from offset.
func (r *reader) ask(offset int64) error {
	r.request.Topics[0].Partitions[0].FetchOffset = offset
	_, err := r.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, r.request, int32(offset)))
	return err
}

// receive reads one response.
func (r *reader) receive() (a answer, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r.conn, size[:]); err != nil {
		return a, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n < 5 || n > maxFrame+1<<20 {
		return a, fmt.Errorf("a response of %d bytes", n)
	}
	if a.frame = <-r.buffers; cap(a.frame) < n {
		a.frame = make([]byte, n)
	}
	a.frame = a.frame[:n]
	if _, err := io.ReadFull(r.conn, a.frame); err != nil {
		return a, err
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = fetchVersion
	if err := resp.ReadFrom(a.frame[5:]); err != nil { // after the correlation id and no tags
		return a, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return a, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return a, fmt.Errorf("answer of %d topics", len(resp.Topics))
	}
	p := resp.Topics[0].Partitions[0]
	a.batches = p.RecordBatches
	return a, kerr.ErrorForCode(p.ErrorCode)
}

// run reads [0, end) and gives the batches of every answer to check, in order, while the next is under
// way. It returns when the first record came.
func (r *reader) run(ctx context.Context, end int64, check func(batches []byte) error) (first time.Duration, err error) {
	stop := context.AfterFunc(ctx, func() { r.conn.SetDeadline(time.Now()) })
	defer stop()
	checked := make(chan error, 1)
	go func() {
		var err error
		for a := range r.answers {
			if err == nil {
				err = check(a.batches)
			}
			r.buffers <- a.frame
		}
		checked <- err
	}()
	begin := time.Now()
	err = r.ask(0)
	for offset := int64(0); err == nil && offset < end; {
		var a answer
		if a, err = r.receive(); err != nil {
			break
		}
		if first == 0 && len(a.batches) > 0 {
			first = time.Since(begin)
		}
		if offset, err = after(a.batches, offset); err == nil && offset < end {
			err = r.ask(offset)
		}
		r.answers <- a
	}
	close(r.answers)
	if e := <-checked; err == nil {
		err = e
	}
	return first, err
}

// after is the offset behind the last whole batch, offset itself if there is none.
func after(b []byte, offset int64) (int64, error) {
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err == record.ErrShort {
			break // a batch that was cut off
		}
		if err != nil {
			return 0, err
		}
		offset, b = batch.NextOffset(), rest
	}
	return offset, nil
}
