package replica_test

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/wire/record"
)

// slowDisk takes a while for every sync, counts them, and fails them on demand.
type slowDisk struct {
	vfs.FS
	took  atomic.Int64
	syncs atomic.Int64
	fail  atomic.Bool
}

type slowFile struct {
	vfs.File
	disk *slowDisk
}

func (d *slowDisk) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	return &slowFile{f, d}, err
}

func (d *slowDisk) OpenReadWrite(name string) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name)
	return &slowFile{f, d}, err
}

func (f *slowFile) Sync() error {
	if !bytes.HasSuffix([]byte(f.Name()), []byte(".log")) {
		return f.File.Sync()
	}
	f.disk.syncs.Add(1)
	time.Sleep(time.Duration(f.disk.took.Load()))
	if f.disk.fail.Load() {
		return errors.New("I/O error")
	}
	return f.File.Sync()
}

func withSlowDisk(n *node) *slowDisk {
	d := &slowDisk{FS: n.fs}
	n.fs = d
	return d
}

func TestProduceAndFetch(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", nil)
		n.fill(p, 0, 500)
		if p.HighWatermark() != 500 || p.EndOffset() != 500 {
			t.Error(p.HighWatermark(), p.EndOffset())
		}
		n.consume(p, 0, 500)
	})
}

// In an fsync topic nothing is acknowledged, and nothing is readable, before the disk has it; acks=0 is not waited for.
func TestFsyncTopicWaitsForTheDisk(t *testing.T) {
	synctestNode(t, withSlowDisk, func(t *testing.T, n *node, d *slowDisk) {
		p := n.topic("t", nil)
		n.produce(p, batch(0, 1, 10))
		d.took.Store(int64(100 * time.Millisecond))
		for _, acks := range []int16{1, -1} {
			start := time.Now()
			r := <-send(p, batch(0, 1, 10), acks, time.Second)
			if waited := time.Since(start); r.Err != nil || waited != 100*time.Millisecond {
				t.Errorf("acks=%d: %v after %v", acks, r.Err, waited)
			}
		}
		start := time.Now()
		done := send(p, batch(0, 1, 10), 0, 0)
		if r := <-done; r.Err != nil || time.Since(start) != 0 {
			t.Errorf("acks=0: %v after %v", r.Err, time.Since(start))
		}
		if p.HighWatermark() != 3 || p.EndOffset() != 4 {
			t.Errorf("high watermark %d, end %d", p.HighWatermark(), p.EndOffset())
		}
		n.eventually("the record is on the disk by itself", 200*time.Millisecond, func() bool { return p.HighWatermark() == 4 })
	})
}

// In a replicated topic acks=1 answers from the page cache. With one replica in sync the end counts for the high watermark only
// up to what the disk has: syncs then are shared by many appends, and made at once only for those who wait.
func TestReplicatedTopicDoesNotWait(t *testing.T) {
	synctestNode(t, withSlowDisk, func(t *testing.T, n *node, d *slowDisk) {
		p := n.topic("t", map[string]string{"varve.durability": "replicated"})
		time.Sleep(time.Second)
		d.took.Store(int64(time.Millisecond))
		d.syncs.Store(0)
		for range 1000 {
			start := time.Now()
			if r := <-send(p, batch(0, 1, 10), 1, time.Second); r.Err != nil || time.Since(start) != 0 {
				t.Fatalf("%v after %v", r.Err, time.Since(start))
			}
			time.Sleep(100 * time.Microsecond)
		}
		// 1000 appends within 100 ms: one sync in ten milliseconds or so.
		if got := d.syncs.Load(); got > 12 || got < 5 {
			t.Errorf("%d syncs of the segment", got)
		}
		n.eventually("all of it is committed", 50*time.Millisecond, func() bool { return p.HighWatermark() == 1000 })
		// acks=all waits for one sync, not for the lazy one.
		start := time.Now()
		if r := <-send(p, batch(0, 1, 10), -1, time.Second); r.Err != nil || time.Since(start) > 2*time.Millisecond {
			t.Errorf("acks=all: %v after %v", r.Err, time.Since(start))
		}
		// So does a parked reader.
		done := n.fetchAsync(t.Context(), newFetch(time.Minute, part(p, 1001)))
		time.Sleep(time.Second)
		start = time.Now()
		send(p, batch(0, 1, 10), 1, time.Second)
		if r := <-done; len(r.data[0]) == 0 || r.at.Sub(start) > 2*time.Millisecond {
			t.Errorf("a reader got %d bytes after %v", len(r.data[0]), r.at.Sub(start))
		}
	})
}

// Sixty-four producers share their syncs: each is acknowledged by the one after its append at the latest.
func TestGroupCommit(t *testing.T) {
	synctestNode(t, withSlowDisk, func(t *testing.T, n *node, d *slowDisk) {
		p := n.topic("t", nil)
		n.produce(p, batch(0, 1, 10))
		d.took.Store(int64(time.Millisecond))
		d.syncs.Store(0)
		const producers, rounds = 64, 20
		start := time.Now()
		done := make(chan error)
		for range producers {
			go func() {
				var err error
				for range rounds {
					err = errors.Join(err, (<-send(p, batch(0, 1, 10), -1, time.Second)).Err)
				}
				done <- err
			}()
		}
		for range producers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := d.syncs.Load(); got > 2*rounds+2 {
			t.Errorf("%d syncs for %d acknowledgements", got, producers*rounds)
		}
		if took := time.Since(start); took > (2*rounds+2)*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestAcknowledgementTimesOut(t *testing.T) {
	synctestNode(t, withSlowDisk, func(t *testing.T, n *node, d *slowDisk) {
		p := n.topic("t", nil)
		n.produce(p, batch(0, 1, 10))
		d.took.Store(int64(5 * time.Second))
		start := time.Now()
		late, patient := make(chan *replica.Produce, 1), make(chan *replica.Produce, 1)
		p.Append([]*replica.Produce{
			{Records: batch(0, 1, 10), Acks: -1, Deadline: start.Add(time.Second), Version: 9, Done: func(x *replica.Produce) { late <- x }},
			{Records: batch(0, 1, 10), Acks: -1, Deadline: start.Add(time.Minute), Version: 9, Done: func(x *replica.Produce) { patient <- x }},
		})
		if r := <-late; !errors.Is(r.Err, kerr.RequestTimedOut) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", r.Err, time.Since(start))
		}
		if r := <-patient; r.Err != nil || time.Since(start) != 5*time.Second || r.BaseOffset != 2 {
			t.Errorf("%v after %v at %d", r.Err, time.Since(start), r.BaseOffset)
		}
	})
}

// P17: after a failed sync nothing is acknowledged any more, by no partition of the directory; reads go on.
func TestFailedSyncIsFinal(t *testing.T) {
	synctestNode(t, withSlowDisk, func(t *testing.T, n *node, d *slowDisk) {
		p, other := n.topic("t", nil), n.topic("other", nil)
		n.fill(p, 0, 20)
		d.fail.Store(true)
		if r := <-send(p, batch(20, 1, 10), -1, time.Minute); !errors.Is(r.Err, kerr.KafkaStorageError) {
			t.Errorf("acknowledged after a failed sync: %v", r.Err)
		}
		d.fail.Store(false)
		time.Sleep(time.Second)
		for _, p := range []*replica.Partition{p, other} {
			for _, acks := range []int16{1, -1} {
				if r := <-send(p, batch(0, 1, 10), acks, time.Minute); !errors.Is(r.Err, kerr.KafkaStorageError) {
					t.Errorf("%s acks=%d: %v", p.Topic(), acks, r.Err)
				}
			}
		}
		if p.HighWatermark() != 20 {
			t.Errorf("high watermark %d", p.HighWatermark())
		}
		n.consume(p, 0, 20)
		n.stop(false)
		n.start()
	})
}

// G11, G12 and Kafka's admission rules, each by the error that a client sees.
func TestRefusedRecordSets(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", nil)
		one := func(o record.Options) record.Batch {
			b := record.NewBuilder(o)
			b.Append(time.Now().UnixMilli(), nil, []byte("v"))
			out, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		patched := func(pos int, v byte) []byte {
			b := one(record.Options{})
			b[pos] = v
			return b
		}
		for _, c := range []struct {
			name    string
			item    replica.Produce
			want    error
			records []byte
		}{
			{"nothing", replica.Produce{}, kerr.InvalidRecord, nil},
			{"two batches", replica.Produce{}, kerr.InvalidRecord, append(append([]byte{}, one(record.Options{})...), one(record.Options{})...)},
			{"magic 1", replica.Produce{}, kerr.InvalidRecord, patched(16, 1)},
			{"half a batch", replica.Produce{}, kerr.CorruptMessage, one(record.Options{})[:60]},
			{"wrong checksum", replica.Produce{}, kerr.CorruptMessage, patched(20, 0x55)},
			{"zstd at version 6", replica.Produce{Version: 6}, kerr.UnsupportedCompressionType, one(record.Options{Codec: record.Zstd})},
			{"zstd at version 7", replica.Produce{Version: 7}, nil, one(record.Options{Codec: record.Zstd})},
			{"acks 2", replica.Produce{Acks: 2}, kerr.InvalidRequiredAcks, one(record.Options{})},
			{"transaction without its id", replica.Produce{}, kerr.InvalidRecord, one(record.Options{ProducerID: 7, Transactional: true})},
		} {
			done := make(chan *replica.Produce, 1)
			item := c.item
			item.Records, item.Done, item.Deadline = c.records, func(x *replica.Produce) { done <- x }, time.Now().Add(time.Second)
			if item.Acks == 0 {
				item.Acks = -1
			}
			if item.Version == 0 {
				item.Version = 9
			}
			p.Append([]*replica.Produce{&item})
			if r := <-done; !errors.Is(r.Err, c.want) || r.Err != nil && r.BaseOffset != -1 {
				t.Errorf("%s: got %v at %d, want %v", c.name, r.Err, r.BaseOffset, c.want)
			}
		}
	})
}

// A refused batch of a group is left out and answered by itself; the others keep their order.
func TestGroupWithRefusedBatch(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", nil)
		results := make(chan *replica.Produce, 3)
		var items []*replica.Produce
		for i := range 3 {
			b := batch(i, 1, 10)
			if i == 1 {
				b[len(b)-1] ^= 1
			}
			items = append(items, &replica.Produce{Records: b, Acks: -1, Deadline: time.Now().Add(time.Second), Version: 9, Tag: i, Done: func(x *replica.Produce) { results <- x }})
		}
		p.Append(items)
		for range 3 {
			r := <-results
			switch r.Tag {
			case 0:
				if r.Err != nil || r.BaseOffset != 0 {
					t.Error(r.Tag, r.Err, r.BaseOffset)
				}
			case 1:
				if !errors.Is(r.Err, kerr.CorruptMessage) {
					t.Error(r.Tag, r.Err)
				}
			case 2:
				if r.Err != nil || r.BaseOffset != 1 {
					t.Error(r.Tag, r.Err, r.BaseOffset)
				}
			}
		}
	})
}

// G29: a repeated batch gets its first offset, but no acknowledgement before the first is durable.
func TestDuplicateWaitsForTheFirst(t *testing.T) {
	synctestNode(t, withSlowDisk, func(t *testing.T, n *node, d *slowDisk) {
		p := n.topic("t", nil)
		n.produce(p, batch(0, 1, 10))
		d.took.Store(int64(time.Second))
		make := func() record.Batch {
			b := record.NewBuilder(record.Options{ProducerID: 5, Idempotent: true})
			b.Append(time.Now().UnixMilli(), nil, []byte("v"))
			out, _ := b.Build()
			return out
		}
		start := time.Now()
		first := send(p, make(), -1, time.Minute)
		time.Sleep(100 * time.Millisecond)
		again := <-send(p, make(), -1, time.Minute)
		if again.Err != nil || again.BaseOffset != 1 || time.Since(start) < time.Second {
			t.Errorf("%v, offset %d, after %v", again.Err, again.BaseOffset, time.Since(start))
		}
		if r := <-first; r.Err != nil || r.BaseOffset != 1 || p.EndOffset() != 2 {
			t.Error(r.Err, r.BaseOffset, p.EndOffset())
		}
	})
}

// min.insync.replicas above the number of replicas is taken for that number, as Kafka does.
func TestMinInSyncReplicas(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", map[string]string{"min.insync.replicas": "2"})
		n.produce(p, batch(0, 1, 10))
	})
}

// producer.id.expiration.ms: a producer that was silent for longer may begin at any sequence, and none before.
func TestProducerIDExpiration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.tune = func(c *replica.Config) { c.ProducerIDExpiration = 10 * time.Minute }
		n.start()
		defer func() { n.stop(true) }()
		p := n.topic("t", nil)
		at := func(sequence int32) error {
			b := record.NewBuilder(record.Options{ProducerID: 5, BaseSequence: sequence, Idempotent: true})
			b.Append(time.Now().UnixMilli(), nil, []byte("v"))
			records, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			return (<-send(p, records, -1, time.Second)).Err
		}
		if err := at(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Minute)
		if err := at(7); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
			t.Errorf("before its time: %v", err)
		}
		time.Sleep(4 * time.Minute)
		if err := at(7); err != nil {
			t.Errorf("after its time: %v", err)
		}
	})
}
