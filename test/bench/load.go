package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBuffer  = 64 << 10
	callTimeout = 60 * time.Second // no single answer may take longer
)

// load is one kind of traffic on one connection.
type load interface {
	// requests returns n whole requests, to be written at once.
	requests(n int) []byte
	// answer reads one response and returns the bytes of records it stands for.
	answer(r *reader) (int, error)
}

// meter is shared by the connections of one run.
type meter struct {
	measuring atomic.Bool // set for the measured part of the run
	stop      atomic.Bool
	bytes     atomic.Int64 // of records, measured part
	total     atomic.Int64 // of records, whole run
	count     atomic.Int64 // of requests, measured part
}

// connection keeps depth requests in flight, in a closed loop.
type connection struct {
	conn      net.Conn
	load      load
	depth     int
	latencies []time.Duration // of requests that ended in the measured part
}

func dial(addr string, l load, depth int) (*connection, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &connection{conn: c, load: l, depth: depth}, nil
}

// run drives the connection until the meter says stop, then takes the answers
// that are still due. All answers that have arrived are taken before more
// requests are sent, in one write.
func (c *connection) run(m *meter) error {
	defer c.conn.Close()
	r := &reader{r: bufio.NewReaderSize(c.conn, readBuffer)}
	sent := make([]time.Time, 0, c.depth) // of requests in flight, oldest first
	for {
		c.conn.SetDeadline(time.Now().Add(callTimeout))
		if free := c.depth - len(sent); free > 0 && !m.stop.Load() {
			for now := time.Now(); len(sent) < c.depth; {
				sent = append(sent, now)
			}
			if _, err := c.conn.Write(c.load.requests(free)); err != nil {
				return err
			}
		}
		if len(sent) == 0 {
			return nil
		}
		for first := true; len(sent) > 0 && (first || wholeResponse(r.r)); first = false {
			n, err := c.load.answer(r)
			if err != nil {
				return err
			}
			m.total.Add(int64(n))
			if m.measuring.Load() {
				m.bytes.Add(int64(n))
				m.count.Add(1)
				c.latencies = append(c.latencies, time.Since(sent[0]))
			}
			sent = slices.Delete(sent, 0, 1)
		}
	}
}

// wholeResponse says whether a complete response is already buffered.
func wholeResponse(r *bufio.Reader) bool {
	if r.Buffered() < 4 {
		return false
	}
	head, err := r.Peek(4)
	return err == nil && r.Buffered()-4 >= int(binary.BigEndian.Uint32(head))
}

// result is what the client saw in the measured part of one run.
type result struct {
	Elapsed  time.Duration
	Bytes    int64 // of records
	Requests int64
	P50, P99 time.Duration
}

// span is when and for how long a run is measured.
type span struct {
	settle   time.Duration // load before the measured part
	duration time.Duration // of the measured part
	most     int64         // bytes of records after which a run ends early; 0: none
}

// drive runs the loads, one connection each, and calls begin and end around
// the measured part.
func drive(ctx context.Context, addr string, loads []load, depth int, s span, begin, end func()) (result, error) {
	var (
		m     meter
		wg    sync.WaitGroup
		conns []*connection
		fails = make(chan error, len(loads))
	)
	for _, l := range loads {
		c, err := dial(addr, l, depth)
		if err != nil {
			m.stop.Store(true)
			return result{}, err
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		wg.Go(func() {
			if err := c.run(&m); err != nil {
				fails <- err
			}
		})
	}
	failed := pause(ctx, s.settle, fails, func() bool { return false })
	begin()
	began := time.Now()
	m.measuring.Store(true)
	if failed == nil {
		failed = pause(ctx, s.duration, fails, func() bool { return s.most > 0 && m.total.Load() > s.most })
	}
	m.measuring.Store(false)
	r := result{Elapsed: time.Since(began), Bytes: m.bytes.Load(), Requests: m.count.Load()}
	end()
	m.stop.Store(true)
	wg.Wait()
	if failed != nil {
		return result{}, failed
	}
	select {
	case err := <-fails:
		return result{}, err
	default:
	}
	var all []time.Duration
	for _, c := range conns {
		all = append(all, c.latencies...)
	}
	if len(all) == 0 {
		return result{}, errors.New("no request ended in the measured time")
	}
	slices.Sort(all)
	r.P50, r.P99 = all[len(all)/2], all[len(all)*99/100]
	return r, nil
}

// pause waits for d, until enough says so, a connection fails or ctx ends.
func pause(ctx context.Context, d time.Duration, fails <-chan error, enough func() bool) error {
	over := time.After(d)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return nil
		case <-tick.C:
			if enough() {
				return nil
			}
		case err := <-fails:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// produceLoad writes the same batch to one partition again and again.
type produceLoad struct {
	frames  []byte // depth copies of the request
	request int    // size of one
	batch   int    // bytes of records in one
	last    int64  // offset of the newest batch
}

func newProduceLoad(topic string, partition int32, batch []byte, depth int) *produceLoad {
	f := produceRequest(topic, partition, batch)
	l := &produceLoad{request: len(f), batch: len(batch), last: -1}
	for range depth {
		l.frames = append(l.frames, f...)
	}
	return l
}

func (l *produceLoad) requests(n int) []byte { return l.frames[:n*l.request] }

func (l *produceLoad) answer(r *reader) (int, error) {
	base, err := r.produceResponse()
	if err != nil {
		return 0, err
	}
	if base <= l.last {
		return 0, fmt.Errorf("batch acknowledged at offset %d after one at %d", base, l.last)
	}
	l.last = base
	return l.batch, nil
}

// fetchLoad reads some partitions of one topic round and round. All batches
// of the topic are of one size, so that the next offset follows from the size
// of an answer; a batch that is cut off at its end does not count.
type fetchLoad struct {
	frame     []byte
	positions []int
	first     int32 // partition
	offsets   []int64
	end       int64 // of every partition
	batch     int   // bytes
	records   int64 // of one batch
	verify    bool  // take the batches and check them
	laps      int   // how often a partition was read to its end
	buf       []byte
}

func newFetchLoad(topicID [16]byte, first int32, offsets []int64, end int64, batch []byte, partitionBytes, maxBytes int) *fetchLoad {
	l := &fetchLoad{first: first, offsets: offsets, end: end, batch: len(batch)}
	l.records = int64(binary.BigEndian.Uint32(batch[batchDeltaPos:])) + 1
	l.frame, l.positions = fetchRequest(topicID, offsets, first, int32(partitionBytes), int32(maxBytes))
	return l
}

// requests serves depth 1 only: the next offset is known once an answer is in.
func (l *fetchLoad) requests(int) []byte {
	for i, at := range l.positions {
		binary.BigEndian.PutUint64(l.frame[at:], uint64(l.offsets[i]))
	}
	return l.frame
}

func (l *fetchLoad) answer(r *reader) (int, error) {
	sum := 0
	err := r.fetchResponse(func(partition int32, size int) {
		i := int(partition - l.first)
		if i < 0 || i >= len(l.offsets) {
			r.err = fmt.Errorf("fetch answered partition %d that was not asked for", partition)
			return
		}
		whole := size / l.batch
		if l.verify {
			l.check(r, i, size)
		} else {
			r.skip(size)
		}
		sum += whole * l.batch
		if l.offsets[i] += int64(whole) * l.records; l.offsets[i] >= l.end {
			l.offsets[i] = 0
			l.laps++
		}
	})
	return sum, err
}

// check takes the records of one partition and verifies them.
func (l *fetchLoad) check(r *reader, i, size int) {
	l.buf = slices.Grow(l.buf[:0], size)[:size]
	if size > r.left {
		r.err = io.ErrUnexpectedEOF
		return
	}
	r.left -= size
	if _, r.err = io.ReadFull(r.r, l.buf); r.err != nil {
		return
	}
	next, err := checkBatches(l.buf, l.offsets[i])
	if want := l.offsets[i] + int64(size/l.batch)*l.records; err == nil && next != want {
		err = fmt.Errorf("fetch at %d: batches end at %d, their size says %d", l.offsets[i], next, want)
	}
	r.err = err
}
