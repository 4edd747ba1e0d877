package system

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

const (
	recordSize      = 1 << 10
	recordsPerBatch = 16
	stableBatches   = 400 // never cut off: 6.4 MiB
	tailBatches     = 64  // cut off and written anew with other bytes, again and again
	readers         = 64
	truncations     = 40
)

// value is what offset holds in the given version of the log's tail.
func value(offset int64, version uint64) []byte {
	p := make([]byte, recordSize)
	binary.BigEndian.PutUint64(p, version)
	source := rand.NewPCG(uint64(offset), version)
	for i := 8; i+8 <= len(p); i += 8 {
		binary.BigEndian.PutUint64(p[i:], source.Uint64())
	}
	return p
}

// appendBatches appends n batches at the log's end.
func appendBatches(l *log.Log, n int, version uint64) error {
	for range n {
		b := record.NewBuilder(record.Options{})
		for i := range int64(recordsPerBatch) {
			b.Append(time.Now().UnixMilli(), nil, value(l.EndOffset()+i, version))
		}
		batch, err := b.Build()
		if err != nil {
			return err
		}
		item := &log.Append{Batch: batch}
		if err := l.AppendAsLeader([]*log.Append{item}, int32(version)); err != nil {
			return err
		}
		if item.Err != nil {
			return item.Err
		}
	}
	return nil
}

// serveLog answers every Fetch from l by file ranges, as a broker does.
func serveLog(t *testing.T, l *log.Log) (addr string) {
	t.Helper()
	handler := wire.HandlerFunc(func(_ context.Context, group []*wire.Request) {
		for _, r := range group {
			fetch := r.Body.(*kmsg.FetchRequest)
			p := fetch.Topics[0].Partitions[0]
			part := wire.FetchPartition{HighWatermark: l.EndOffset(), LastStableOffset: -1, PreferredReadReplica: -1}
			read, err := l.Read(p.FetchOffset, int(p.PartitionMaxBytes), l.EndOffset(), true)
			switch {
			case err != nil: // the tail was just cut off below the reader
				part.ErrorCode = 1
			case read.Range.Size > 0:
				part.Records = []wire.FileRange{read.Range}
			}
			r.Reply(&wire.FetchResponse{Topics: []wire.FetchTopic{{Topic: fetch.Topics[0].Topic, Partitions: []wire.FetchPartition{part}}}})
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- wire.NewServer(wire.ServerConfig{Listener: "TEST", Role: wire.Broker, Handler: handler}).Serve(ctx, listener)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return listener.Addr().String()
}

// fetchSlowly asks for one response and begins to read it only after a while,
// so that its pages wait in the socket while the file changes.
func fetchSlowly(c net.Conn, offset int64, wait time.Duration) (kmsg.FetchResponseTopicPartition, error) {
	request := kmsg.NewPtrFetchRequest()
	request.SetVersion(11)
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "t"
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = offset, 256<<10
	topic.Partitions = append(topic.Partitions, part)
	request.Topics = append(request.Topics, topic)
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, request, 1)
	if _, err := c.Write(frame); err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	time.Sleep(wait)
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	response := kmsg.NewPtrFetchResponse()
	response.SetVersion(11)
	if err := response.ReadFrom(body[4:]); err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	return response.Topics[0].Partitions[0], nil
}

// reader follows the log from an offset and knows what every record must be.
type reader struct {
	addr    string
	from    int64
	stable  int64 // offsets below hold version 1 for ever
	records atomic.Int64
	sum     [sha256.Size]byte // of the stable values from "from" on
}

func (r *reader) run(done <-chan struct{}) error {
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	sum := sha256.New()
	next := r.from
	for next < r.stable || !ended(done) {
		part, err := fetchSlowly(c, next, time.Duration(rand.IntN(20))*time.Millisecond)
		if err != nil {
			return err
		}
		if part.ErrorCode != 0 {
			next = r.stable // cut off below us: what a consumer does, too
			continue
		}
		for rest := part.RecordBatches; len(rest) > 0; {
			var batch record.Batch
			if batch, rest, err = record.Next(rest); err != nil {
				return fmt.Errorf("at %d: %w", next, err)
			}
			if err := batch.VerifyCRC(); err != nil {
				return fmt.Errorf("batch at %d: %w", batch.BaseOffset(), err)
			}
			err := batch.Each(1<<20, func(rec record.Record) (bool, error) {
				if rec.Offset < next {
					return true, nil
				}
				version := binary.BigEndian.Uint64(rec.Value)
				if string(rec.Value) != string(value(rec.Offset, version)) {
					return false, fmt.Errorf("offset %d holds bytes that were never written there (version %d)", rec.Offset, version)
				}
				if rec.Offset < r.stable {
					sum.Write(rec.Value)
				}
				r.records.Add(1)
				next = rec.Offset + 1
				return true, nil
			})
			if err != nil {
				return err
			}
		}
		if len(part.RecordBatches) == 0 {
			next = r.stable // at the end: read the tail again
		}
	}
	sum.Sum(r.sum[:0])
	return nil
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestReadersOfAChangingSegment: 64 consumers at different offsets of one local segment
// get the bytes that were written, while the segment is truncated and appended to. Their
// sockets are read late, so pages of the file wait in the kernel while it changes.
func TestReadersOfAChangingSegment(t *testing.T) {
	config := log.DefaultConfig()
	l, err := log.Open(log.Options{FS: vfs.OS(), Dir: filepath.Join(t.TempDir(), "t-0"), Topic: "t", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(true)
	if err := appendBatches(l, stableBatches, 1); err != nil {
		t.Fatal(err)
	}
	stable := l.EndOffset()
	addr := serveLog(t, l)

	done := make(chan struct{})
	var all [readers]*reader
	var group sync.WaitGroup
	failures := make(chan error, readers)
	for i := range all {
		all[i] = &reader{addr: addr, from: stable * int64(i) / readers, stable: stable}
		group.Go(func() {
			if err := all[i].run(done); err != nil {
				failures <- fmt.Errorf("reader from %d: %w", all[i].from, err)
			}
		})
	}
	for version := range uint64(truncations) {
		if err := appendBatches(l, tailBatches, version+2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // readers get to the tail
		if err := l.Truncate(stable); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	group.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	if n := len(l.Segments()); n != 1 {
		t.Fatalf("the log has %d segments, want one", n)
	}

	want := sha256.New()
	var total int64
	for _, r := range all {
		want.Reset()
		for o := r.from; o < stable; o++ {
			want.Write(value(o, 1))
		}
		var sum [sha256.Size]byte
		want.Sum(sum[:0])
		if r.sum != sum {
			t.Errorf("reader from %d: SHA-256 %x, want %x", r.from, r.sum, sum)
		}
		total += r.records.Load()
	}
	t.Logf("%d readers, %d records, %d truncations of one segment", readers, total, truncations)
}
