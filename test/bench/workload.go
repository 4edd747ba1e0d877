package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"
)

// workload is one row of the comparison: what is sent, over how many
// connections, with how many requests in flight on each.
type workload struct {
	name        string
	about       string
	partitions  int
	connections int
	depth       int
	records     int // of one batch
	recordSize  int // bytes of a value
	fetch       int // batches taken from each partition by one fetch; 0: a produce workload
	spread      bool
}

// spread fetches read all partitions in one request; others have one partition a connection.

var workloads = []workload{
	{name: "produce-16k", about: "16 KiB batches of 1 KiB records, 4 connections x 4 in flight", partitions: 4, connections: 4, depth: 4, records: 16, recordSize: 1 << 10},
	{name: "produce-1m", about: "1 MB batches of 1 KiB records, 4 connections x 2 in flight", partitions: 4, connections: 4, depth: 2, records: 980, recordSize: 1 << 10},
	{name: "produce-small", about: "one 100 B record a request, 128 connections x 1", partitions: 16, connections: 128, depth: 1, records: 1, recordSize: 100},
	{name: "fetch-1m", about: "1 MiB a response, 4 connections", partitions: 4, connections: 4, depth: 1, records: 16, recordSize: 1 << 10, fetch: 63},
	{name: "fetch-16x16k", about: "16 partitions x 16 KiB a response, 1 connection", partitions: 16, connections: 1, depth: 1, records: 16, recordSize: 1 << 10, fetch: 1, spread: true},
}

// fetchLogBytes is how much there is to fetch: more than the CPUs' caches,
// less than the page cache.
const fetchLogBytes = 1 << 30

// sample is one run of one workload on one side.
type sample struct {
	Side     string
	Run      int
	Result   result
	CPU      time.Duration // of the broker, measured part
	OtherCPU time.Duration // of the idle other broker meanwhile
	PeakRSS  int64
	Settings string // flush settings of the topic
}

// CPUPerGB is broker CPU seconds for 10^9 bytes of records.
func (s sample) CPUPerGB() float64 { return s.CPU.Seconds() / float64(s.Result.Bytes) * 1e9 }

// CPUPerRequest is broker CPU microseconds.
func (s sample) CPUPerRequest() float64 {
	return float64(s.CPU.Microseconds()) / float64(s.Result.Requests)
}

// Throughput is in 10^6 bytes of records a second.
func (s sample) Throughput() float64 {
	return float64(s.Result.Bytes) / 1e6 / s.Result.Elapsed.Seconds()
}

// Rate is in requests a second.
func (s sample) Rate() float64 { return float64(s.Result.Requests) / s.Result.Elapsed.Seconds() }

// measure runs a workload once.
func (w workload) measure(ctx context.Context, s, other *side, d durability, sp span) (sample, error) {
	t, err := s.create(ctx, w.partitions, d)
	if err != nil {
		return sample{}, err
	}
	out := sample{Side: s.kind}
	if out.Settings, err = s.settings(ctx, t); err != nil {
		return sample{}, err
	}
	batch := newBatch(w.records, w.recordSize, time.Now().UnixMilli())
	loads, err := w.loads(ctx, s, t, batch)
	if err != nil {
		return sample{}, err
	}
	var cpu, otherCPU time.Duration
	var probeErr error
	probe := func() (own, others time.Duration) {
		own, err := s.broker.CPU()
		if err != nil {
			probeErr = err
		}
		if other != nil && other.broker != nil {
			others, _ = other.broker.CPU()
		}
		return own, others
	}
	out.Result, err = drive(ctx, s.broker.Addr, loads, w.depth, sp,
		func() { s.broker.ResetPeak(); cpu, otherCPU = probe() },
		func() {
			c, o := probe()
			out.CPU, out.OtherCPU = c-cpu, o-otherCPU
		})
	if err == nil {
		err = probeErr
	}
	if err != nil {
		return sample{}, fmt.Errorf("%s on %s: %w", w.name, s.kind, err)
	}
	if m, err := s.broker.Memory(); err == nil {
		out.PeakRSS = m.Peak
	}
	return out, s.remove(ctx, t)
}

// loads prepares the traffic of every connection; for fetches it fills the
// topic first and reads it once, so that all of it is right and in memory.
func (w workload) loads(ctx context.Context, s *side, t topic, batch []byte) ([]load, error) {
	var loads []load
	if w.fetch == 0 {
		for i := range w.connections {
			loads = append(loads, newProduceLoad(t.name, int32(i%w.partitions), batch, w.depth))
		}
		return loads, nil
	}
	end, err := w.fill(s, t, batch)
	if err != nil {
		return nil, fmt.Errorf("fill the topic: %w", err)
	}
	for p := range w.partitions {
		check := newFetchLoad(t.id, int32(p), []int64{0}, end, batch, 1<<20, 1<<20)
		check.verify = true
		if err := readOnce(s.broker.Addr, check); err != nil {
			return nil, fmt.Errorf("verify the topic on %s: %w", s.kind, err)
		}
	}
	bytes := w.fetch * len(batch)
	if w.spread {
		for range w.connections {
			loads = append(loads, newFetchLoad(t.id, 0, make([]int64, w.partitions), end, batch, bytes, bytes*w.partitions))
		}
		return loads, nil
	}
	for i := range w.connections {
		loads = append(loads, newFetchLoad(t.id, int32(i%w.partitions), []int64{0}, end, batch, bytes, bytes))
	}
	return loads, nil
}

// fill writes the same number of batches to every partition and returns their
// common end offset.
func (w workload) fill(s *side, t topic, batch []byte) (end int64, err error) {
	const depth = 8
	batches := fetchLogBytes / w.partitions / len(batch)
	for p := range w.partitions {
		conn, err := net.Dial("tcp", s.broker.Addr)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		l, r := newProduceLoad(t.name, int32(p), batch, depth), &reader{r: bufio.NewReaderSize(conn, readBuffer)}
		for done := 0; done < batches; {
			n := min(depth, batches-done)
			conn.SetDeadline(time.Now().Add(callTimeout))
			if _, err := conn.Write(l.requests(n)); err != nil {
				return 0, err
			}
			for range n {
				if _, err := l.answer(r); err != nil {
					return 0, err
				}
			}
			done += n
		}
		end = l.last + int64(w.records)
	}
	if want := int64(batches * w.records); end != want {
		return 0, fmt.Errorf("%s wrote %d records, the log ends at %d", s.kind, want, end)
	}
	return end, nil
}

// readOnce reads one partition to its end.
func readOnce(addr string, l *fetchLoad) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := &reader{r: bufio.NewReaderSize(conn, readBuffer)}
	for l.laps == 0 {
		conn.SetDeadline(time.Now().Add(callTimeout))
		if _, err := conn.Write(l.requests(1)); err != nil {
			return err
		}
		if _, err := l.answer(r); err != nil {
			return err
		}
	}
	return nil
}
