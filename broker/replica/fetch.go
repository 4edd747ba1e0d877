package replica

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// Isolation is what a reader may see.
type Isolation int8

// The isolation levels of Fetch and ListOffsets, with Kafka's numbers.
const (
	ReadUncommitted Isolation = iota // up to the high watermark
	ReadCommitted                    // up to the last stable offset
)

// Fetch is one fetch from several partitions. Manager.Fetch takes it and gives it back through Done;
// meanwhile it belongs to the manager.
type Fetch struct {
	Partitions []FetchPartition // served in this order; rotating it is the caller's
	MinBytes   int
	MaxBytes   int
	MaxWait    time.Duration
	Isolation  Isolation
	Version    int16
	Replica    *ReplicaState // who follows; nil: a consumer
	Rack       string        // of a consumer that is to be sent to a replica there (KIP-392); "": none
	// Done is called exactly once: before Manager.Fetch returns, or later from any goroutine. It must
	// not block. The records are then the caller's: sent, or released.
	Done func(*Fetch)
	Tag  any // the caller's
}

// ReplicaState says which broker's replicas fetch, in which life of it (KIP-903).
type ReplicaState struct {
	ID    int32
	Epoch int64
}

// anyReplicaVersion is the first version of Fetch whose clients may be sent to a follower, and may read there (KIP-392).
const anyReplicaVersion = 11

func (f *Fetch) anyReplica() bool { return f.Version >= anyReplicaVersion }

// FetchPartition is what a Fetch asks of one partition, and the answer.
type FetchPartition struct {
	// Partition is nil if the caller could not find it; Err then is the caller's and is left alone.
	Partition          *Partition
	Topic              string
	TopicID            wire.UUID
	Index              int32
	Offset             int64
	MaxBytes           int
	CurrentLeaderEpoch int32 // -1 not given
	LastFetchedEpoch   int32 // -1 not given
	KnownHighWatermark int64 // of a replica: what it knows (KIP-1166); math.MaxInt64 not given
	Tag                any   // the caller's

	// Results.
	Err              error // nil, or wraps a kerr.Error
	HighWatermark    int64
	LastStableOffset int64
	LogStart         int64
	Diverging        *wire.EpochEnd
	Aborted          []wire.AbortedTransaction // nil unless ReadCommitted
	Records          []wire.FileRange
	Size             int   // bytes in Records
	Preferred        int32 // the replica to which the consumer is sent, and then there are no records; -1: none

	end int64 // of the log, for a replica
}

// zstdFetchVersion is the first version of Fetch whose clients are known to read zstd.
const zstdFetchVersion = 10

// reset clears the results of a pass, and gives back what it had found.
func (f *Fetch) reset() {
	for i := range f.Partitions {
		x := &f.Partitions[i]
		if x.Partition == nil {
			continue
		}
		wire.ReleaseRanges(x.Records)
		x.Err, x.HighWatermark, x.LastStableOffset, x.LogStart = nil, -1, -1, -1
		x.Diverging, x.Aborted, x.Records, x.Size, x.Preferred, x.end = nil, nil, nil, 0, -1, 0
	}
}

// outcome is what one pass over the partitions found.
type outcome struct {
	bytes int
	final bool // an error or a divergence: it is answered at once
	ready bool // some of the bytes came from the store, or there are more than the limits allow: min.bytes does not matter then
	cold  []coldAsk
}

// coldAsk is a partition whose offset is in the store and not in the cache, and what to ask for.
type coldAsk struct {
	index   int // in Fetch.Partitions
	key     coldKey
	request tier.ReadRequest
}

func (o *outcome) enough(f *Fetch) bool {
	return o.final || o.bytes >= f.MinBytes || o.ready && o.bytes > 0
}

// Fetch reads from every partition, from the local log or from the store. With fewer than MinBytes it is parked, as an object in
// the partitions' lists, until they are there, MaxWait is over or ctx ends.
//
// Limits are those of KIP-74: the first batch of the first partition that has one is returned even if it exceeds them all, and
// nothing else does. What lies in the store and not in the cache is downloaded meanwhile; the download goes on if it takes longer
// than MaxWait, and the next fetch finds it. It never delays what other partitions have.
func (m *Manager) Fetch(ctx context.Context, f *Fetch) {
	f.reset()
	if f.Replica != nil {
		now := time.Now()
		for i := range f.Partitions {
			if x := &f.Partitions[i]; x.Partition != nil {
				x.Partition.followed(f, x, now)
			}
		}
	}
	found := m.pass(f, nil)
	if found.enough(f) || f.MaxWait <= 0 {
		m.prefetch(found.cold)
		m.finish(f)
		return
	}
	m.wait(ctx, f, found)
}

// finish gives a fetch back.
func (m *Manager) finish(f *Fetch) {
	if f.Replica != nil {
		for i := range f.Partitions {
			m.metrics.bytesOut.Add(float64(f.Partitions[i].Size))
		}
	}
	f.Done(f)
}

// pass reads every partition once. failed holds, by partition, errors of the store that this fetch has met.
func (m *Manager) pass(f *Fetch, failed []error) outcome {
	var o outcome
	room := f.MaxBytes // what is left for partitions to come; downloads under way have their share
	for i := range f.Partitions {
		x := &f.Partitions[i]
		if x.Partition == nil {
			o.final = o.final || x.Err != nil
			continue
		}
		v := visit{f: f, limit: min(room, x.MaxBytes), first: o.bytes == 0}
		if failed != nil {
			v.failed = failed[i]
		}
		x.read(&v)
		if v.cold != nil {
			v.cold.MinOneBatch = v.first && len(o.cold) == 0
			o.cold = append(o.cold, coldAsk{i, v.key, *v.cold})
			room -= v.limit
			continue
		}
		o.bytes += x.Size
		room -= min(room, x.Size)
		o.ready = o.ready || v.ready
		o.final = o.final || x.Err != nil && !patient(x.Err) || x.Diverging != nil || x.Preferred >= 0 ||
			f.Replica != nil && x.KnownHighWatermark < x.HighWatermark
	}
	return o
}

// visit is one pass's dealing with one partition.
type visit struct {
	f      *Fetch
	limit  int   // bytes
	first  bool  // nothing was found yet: one batch may exceed the limit
	failed error // the store's answer to this fetch before

	// Results.
	ready bool              // the store answered, or the limit kept something back
	cold  *tier.ReadRequest // not nil: this must be downloaded
	key   coldKey
}

// errPatient marks an error of the store that time may heal. It is answered only when MaxWait is over, for a
// client told at once would be back at once (KAFKA-19599).
var errPatient = errors.New("the store does not answer")

func patient(err error) bool { return errors.Is(err, errPatient) }

// read reads the partition into x and v.
func (x *FetchPartition) read(v *visit) {
	if v.f.Replica != nil {
		x.readAsReplica(v)
		return
	}
	p := x.Partition
	l, err := p.reading(x.CurrentLeaderEpoch, v.f.anyReplica())
	if err != nil {
		x.Err = err
		return
	}
	x.HighWatermark, x.LastStableOffset, x.LogStart = p.HighWatermark(), p.LastStableOffset(), l.LogStart()
	if v.f.Version < zstdFetchVersion && p.config.Load().CompressionType == record.Zstd.String() {
		x.Err = refuse(kerr.UnsupportedCompressionType, "zstd needs Fetch version %d", zstdFetchVersion)
		return
	}
	if x.diverges(l) {
		return
	}
	if v.f.Rack != "" && v.f.anyReplica() {
		if x.Preferred = p.preferred(l, v.f.Rack, x.Offset); x.Preferred >= 0 {
			return
		}
	}
	end := x.HighWatermark
	if v.f.Isolation == ReadCommitted {
		end = x.LastStableOffset
		x.Aborted = []wire.AbortedTransaction{}
	}
	// A segment may leave the local disk between the look at the local start and the read: then look again.
	for range maxMoves {
		if x.Offset >= l.LogStart() && x.Offset < l.LocalStart() {
			x.readCold(v, end)
			return
		}
		err = x.readLocal(v, l, end)
		if !errors.Is(err, kerr.OffsetOutOfRange) || x.Offset < l.LogStart() || x.Offset >= l.LocalStart() {
			break
		}
	}
	x.LogStart = l.LogStart()
	if err != nil {
		x.fails(err)
	}
}

// maxMoves bounds how often one read follows a local start that moves.
const maxMoves = 8

// fails notes an error of this broker's: what says nothing to a client is a storage error.
func (x *FetchPartition) fails(err error) {
	if _, ok := errors.AsType[*kerr.Error](err); !ok {
		err = refuse(kerr.KafkaStorageError, "%v", err)
	}
	x.Err, x.Aborted = err, nil
}

// diverges compares the epoch that the reader fetched last with the log (KIP-595, KIP-320). It reports true if there is
// nothing to read.
func (x *FetchPartition) diverges(l *log.Log) bool {
	if x.LastFetchedEpoch < 0 {
		return false
	}
	if epoch, end := l.EndOffsetForEpoch(x.LastFetchedEpoch); epoch < 0 || end < 0 {
		x.Err = refuse(kerr.OffsetOutOfRange, "epoch %d is older than the log of %s-%d", x.LastFetchedEpoch, x.Topic, x.Index)
		return true
	}
	x.Diverging = divergence(l, x.LastFetchedEpoch, x.Offset, false)
	return x.Diverging != nil
}

func (x *FetchPartition) readLocal(v *visit, l *log.Log, end int64) error {
	if v.limit <= 0 && !v.first {
		if x.Offset > l.EndOffset() {
			return refuse(kerr.OffsetOutOfRange, "offset %d is above the end of %s-%d", x.Offset, x.Topic, x.Index)
		}
		return nil
	}
	r, err := l.Read(x.Offset, v.limit, end, v.first)
	if err != nil || r.Range.Size == 0 {
		return err
	}
	x.Records, x.Size = append(x.Records, r.Range), int(r.Range.Size)
	v.ready = r.NextOffset < end
	if v.f.Isolation != ReadCommitted {
		return nil
	}
	txns, err := l.AbortedTxns(x.Offset, r.NextOffset)
	if err != nil {
		wire.ReleaseRanges(x.Records)
		x.Records, x.Size = nil, 0
		return err
	}
	x.Aborted = aborted(txns)
	return nil
}

// aborted is what the response says of aborted transactions, in the order of their first offsets.
func aborted(txns []record.AbortedTxn) []wire.AbortedTransaction {
	list := make([]wire.AbortedTransaction, len(txns))
	for i, t := range txns {
		list[i] = wire.AbortedTransaction{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset}
	}
	slices.SortStableFunc(list, func(a, b wire.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return list
}

// readCold takes what a read from the store brought, or what is in the cache; otherwise it must be read.
func (x *FetchPartition) readCold(v *visit, end int64) {
	m := x.Partition.m
	if m.tier == nil {
		x.fails(refuse(kerr.KafkaStorageError, "offset %d of %s-%d is in the store, and varve.store.url is not set", x.Offset, x.Topic, x.Index))
		return
	}
	if v.limit <= 0 && !v.first {
		return
	}
	if v.failed != nil {
		x.fails(v.failed)
		return
	}
	v.key = coldKey{x.Partition, x.Offset, v.f.Isolation == ReadCommitted}
	if r, ok := m.cold.take(v.key, v.limit, v.first); ok {
		x.takeCold(v, r)
		return
	}
	request := tier.ReadRequest{TopicID: x.Partition.id, Partition: x.Partition.index, Offset: x.Offset, MaxBytes: v.limit,
		EndOffset: end, MinOneBatch: v.first, ReadCommitted: v.f.Isolation == ReadCommitted}
	if r, ok := m.tier.TryRead(request); ok {
		x.takeCold(v, r)
		return
	}
	v.cold = &request
}

func (x *FetchPartition) takeCold(v *visit, r tier.ReadResult) {
	v.ready = true
	switch {
	case r.Err == nil:
		x.Records, x.Size = r.Ranges, sizeOf(r.Ranges)
		if v.f.Isolation == ReadCommitted {
			x.Aborted = aborted(r.Aborted)
		}
	case errors.Is(r.Err, kerr.OffsetOutOfRange):
		x.fails(r.Err)
	default:
		x.fails(refuse(kerr.KafkaStorageError, "%w: %w", errPatient, r.Err))
	}
}

func sizeOf(ranges []wire.FileRange) int { return int(wire.RangesSize(ranges)) }
