package tier

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/varve-io/varve/wire/record"
)

// timedRun makes a run whose batches hold records with the given timestamps, compressed by turns.
func timedRun(t testing.TB, base int64, batches [][]int64, control map[int]bool) Run {
	t.Helper()
	codecs := []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}
	run := Run{Topic: "orders", Base: base, MinTimestamp: 1 << 60, MaxTimestamp: -1}
	var data []byte
	offset := base
	for i, times := range batches {
		o := record.Options{BaseOffset: offset, LeaderEpoch: int32(i), Codec: codecs[i%len(codecs)]}
		if control[i] {
			o.Codec, o.Control, o.ProducerID = record.None, true, 5
		}
		b := record.NewBuilder(o)
		for _, ts := range times {
			b.Append(ts, []byte("key"), bytes.Repeat([]byte{byte(ts)}, 3000))
			run.MinTimestamp, run.MaxTimestamp = min(run.MinTimestamp, ts), max(run.MaxTimestamp, ts)
		}
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, batch...)
		offset = batch.NextOffset()
	}
	run.End, run.Size, run.Data = offset, int64(len(data)), bytes.NewReader(data)
	run.Epochs = []record.EpochStart{{StartOffset: base}}
	return run
}

// flat is every record of some runs, for comparison.
type flat struct{ offset, timestamp int64 }

func flatten(base int64, batches [][]int64) (all []flat, end int64) {
	for _, times := range batches {
		for _, ts := range times {
			all = append(all, flat{base, ts})
			base++
		}
	}
	return all, base
}

// TestTimes compares lookups with a walk over all records: unordered timestamps, control batches, log starts inside
// segments.
func TestTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	r := newRig(t)
	id := r.ctl.topic(t, "orders", 1)
	var all []flat
	base := int64(0)
	for n := range 4 {
		batches, control := make([][]int64, 60), map[int]bool{}
		for i := range batches {
			batches[i] = make([]int64, 1+rng.IntN(6))
			for j := range batches[i] {
				batches[i][j] = int64(n*40+i) + rng.Int64N(60)
			}
			if rng.IntN(10) == 0 {
				batches[i], control[i] = batches[i][:1], true
			}
		}
		run := timedRun(t, base, batches, control)
		run.TopicID = id
		if _, _, err := r.Upload(context.Background(), run); err != nil {
			t.Fatal(err)
		}
		var more []flat
		more, base = flatten(base, batches)
		all = append(all, more...)
	}
	for range 400 {
		ts, from := rng.Int64N(320), rng.Int64N(base)
		checkTime(t, r, all, ts, from)
	}
	checkTime(t, r, all, 0, 0)
	r.balanced()
}

func checkTime(t *testing.T, r *rig, all []flat, ts, from int64) {
	t.Helper()
	id := r.ctl.image().Topic("orders").ID
	var hit, top *flat
	for i := range all {
		f := &all[i]
		if f.offset < from {
			continue
		}
		if hit == nil && f.timestamp >= ts {
			hit = f
		}
		if top == nil || f.timestamp > top.timestamp {
			top = f
		}
	}
	compare := func(what string, want *flat, offset, timestamp int64, found bool, err error) {
		if err != nil || found != (want != nil) || found && (offset != want.offset || timestamp != want.timestamp) {
			t.Fatalf("%s of %d from %d: (%d, %d) %v %v, want %+v", what, ts, from, offset, timestamp, found, err, want)
		}
	}
	offset, timestamp, _, found, err := r.OffsetForTime(context.Background(), id, 0, ts, from)
	compare("offset", hit, offset, timestamp, found, err)
	offset, timestamp, _, found, err = r.MaxTimestamp(context.Background(), id, 0, from)
	compare("maximum", top, offset, timestamp, found, err)
}

// TestTimeGETs counts what lookups cost.
func TestTimeGETs(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ChunkBytes = 1 << 20 })
	w := r.fill("orders", 3, 1000, 3<<20, 3<<20, 3<<20)
	last := w.runs[2]
	for _, c := range []struct {
		name string
		ts   int64
		gets int
		cold bool
	}{
		{"beyond the last record", last.MaxTimestamp + 1, 0, true},
		{"cold", w.runs[1].MinTimestamp + 10, 2, true},
		{"the same again", w.runs[1].MinTimestamp + 10, 0, false},
		{"another chunk, index cached", w.runs[1].MaxTimestamp - 10, 1, false},
	} {
		if c.cold {
			r.cold()
		}
		before := r.store.count()
		_, _, epoch, found, err := r.OffsetForTime(context.Background(), w.id, 0, c.ts, 0)
		if err != nil || found == (c.gets == 0 && c.cold) || found && epoch != 7 {
			t.Errorf("%s: found %v, epoch %d, %v", c.name, found, epoch, err)
		}
		if gets := r.store.count() - before; gets != c.gets {
			t.Errorf("%s: %d GETs, want %d", c.name, gets, c.gets)
		}
	}
}

// TestOpaqueBatch: a batch that cannot be decompressed is answered by its header.
func TestOpaqueBatch(t *testing.T) {
	r := newRig(t)
	id := r.ctl.topic(t, "orders", 1)
	run := timedRun(t, 0, [][]int64{{1, 2, 3}, {10, 20, 30}, {40}}, nil)
	data := dataOf(t, run)
	_, rest, _ := record.Next(data)
	b, _, _ := record.Next(rest)
	for i := record.HeaderSize; i < len(b); i++ {
		b[i] = 0xee
	}
	b.SetMaxTimestamp(30) // a sound checksum over nonsense
	run.TopicID, run.Data = id, bytes.NewReader(data)
	if _, _, err := r.Upload(context.Background(), run); err != nil {
		t.Fatal(err)
	}
	offset, _, _, found, err := r.OffsetForTime(context.Background(), id, 0, 15, 0)
	if err != nil || !found || offset != 3 {
		t.Errorf("offset %d, %v, %v", offset, found, err)
	}
	if offset, _, _, _, err := r.OffsetForTime(context.Background(), id, 0, 35, 0); err != nil || offset != 6 {
		t.Errorf("behind it: offset %d, %v", offset, err)
	}
}

func TestAbortedTxns(t *testing.T) {
	r := newRig(t)
	w := &wrote{id: r.ctl.topic(t, "orders", 1)}
	txns := []record.AbortedTxn{
		{ProducerID: 1, FirstOffset: 5, LastOffset: 20},
		{ProducerID: 2, FirstOffset: 10, LastOffset: 1500}, // over three segments
		{ProducerID: 3, FirstOffset: 1400, LastOffset: 1401},
	}
	base := int64(0)
	for n := range 4 {
		run := r.run(w, base, 600<<10, 3, 1000)
		for _, x := range txns {
			if n != 3 && x.FirstOffset < run.End && x.LastOffset >= run.Base {
				run.Aborted = append(run.Aborted, x)
			}
		}
		if _, _, err := r.Upload(context.Background(), run); err != nil {
			t.Fatal(err)
		}
		w.add(t, run)
		base = run.End
	}
	got, err := r.AbortedTxns(context.Background(), w.id, 0, 0, w.end())
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	r.cold()
	before := r.store.count()
	if got, err := r.AbortedTxns(context.Background(), w.id, 0, w.runs[3].Base, w.end()); err != nil || len(got) != 0 || r.store.count() != before {
		t.Errorf("segments without any: %v, %v, %d GETs", got, err, r.store.count()-before)
	}
	for offset := int64(0); offset < w.end(); {
		res := r.get(context.Background(), ReadRequest{TopicID: w.id, Offset: offset, MaxBytes: 50_000, EndOffset: w.end(), MinOneBatch: true, ReadCommitted: true})
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		want := 0
		for _, x := range txns {
			if x.FirstOffset < res.NextOffset && x.LastOffset >= offset && offset < w.runs[3].Base {
				want++
			}
		}
		if len(res.Aborted) != want {
			t.Errorf("[%d, %d): %v, want %d", offset, res.NextOffset, res.Aborted, want)
		}
		bytesOfRanges(t, res.Ranges)
		offset = res.NextOffset
	}
}
