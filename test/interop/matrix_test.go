package interop

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var clients = []client{kcat{}, franz{}, confluent{}, javaConsole{}}

const (
	partitions  = 2
	stepTimeout = 3 * time.Minute
)

// TestEveryByte: what any client produces with any codec, every client reads,
// byte for byte; and the stored batches are compressed as the producer wanted.
func TestEveryByte(t *testing.T) {
	sent := map[string]map[string]event{} // producer -> key -> record
	for _, p := range clients {
		sent[p.name()] = map[string]event{}
		for _, codec := range codecs {
			for _, r := range newRecords(p.name(), codec, p.text()) {
				sent[p.name()][string(r.key)] = r
			}
		}
	}
	t.Run("produce", func(t *testing.T) {
		for _, p := range clients {
			t.Run(p.name(), func(t *testing.T) {
				t.Parallel()
				createTopic(t, "every-byte-"+p.name(), partitions, nil)
				for _, codec := range codecs {
					ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
					defer cancel()
					if err := p.produce(ctx, "every-byte-"+p.name(), codec, newRecords(p.name(), codec, p.text())); err != nil {
						t.Fatalf("%s: %v", codec, err)
					}
				}
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	for _, p := range clients {
		awaitTiers(t, "every-byte-"+p.name(), partitions)
	}
	t.Run("consume", func(t *testing.T) {
		for _, p := range clients {
			for _, c := range clients {
				t.Run(p.name()+" to "+c.name(), func(t *testing.T) {
					t.Parallel()
					consumeAll(t, c, "every-byte-"+p.name(), sent[p.name()])
				})
			}
		}
	})
	for _, p := range clients {
		t.Run("codecs/"+p.name(), func(t *testing.T) { checkCodecs(t, "every-byte-"+p.name()) })
	}
}

// consumeAll reads a topic with one client and compares it with what was sent.
func consumeAll(t *testing.T, c client, topic string, want map[string]event) {
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	ends, err := target.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for p := range int32(partitions) {
		end, _ := ends.Lookup(topic, p)
		got, err := c.consume(ctx, topic, p, 0, int(end.Offset))
		if err != nil {
			t.Fatalf("partition %d: %v", p, err)
		}
		if len(got) != int(end.Offset) {
			t.Fatalf("partition %d: %d records, want %d", p, len(got), end.Offset)
		}
		for i, r := range got {
			if r.offset != int64(i) {
				t.Fatalf("partition %d: offset %d where %d was expected", p, r.offset, i)
			}
			w, ok := want[string(r.key)]
			if !ok || seen[string(r.key)] {
				t.Fatalf("partition %d offset %d: key %q was never sent, or came twice", p, r.offset, r.key)
			}
			if !bytes.Equal(r.value, w.value) {
				t.Fatalf("partition %d offset %d key %s: %d bytes differ from the %d that were sent", p, r.offset, r.key, len(r.value), len(w.value))
			}
			seen[string(r.key)] = true
		}
	}
	if len(seen) != len(want) {
		t.Fatalf("%d of %d records came back", len(seen), len(want))
	}
}

// awaitTiers waits until every partition lies in both tiers: something only in
// the store, something only on the local disk.
func awaitTiers(t *testing.T, topic string, partitions int32) {
	t.Helper()
	if !target.tiered {
		return
	}
	deadline := time.Now().Add(time.Minute)
	for {
		var o [4]int64
		lies := ""
		for p := range partitions {
			for i, ts := range []int64{earliest, earliestLocal, latestTiered, latest} {
				o[i] = listOffset(t, topic, p, ts)
			}
			if !(o[0] == 0 && o[1] > 0 && o[2]+1 >= o[1] && o[3] > o[1]) {
				lies = fmt.Sprintf("%s-%d: start %d, local start %d, latest tiered %d, end %d", topic, p, o[0], o[1], o[2], o[3])
			}
		}
		if lies == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in both tiers: %s", lies)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// Timestamps that ListOffsets takes for something else.
const (
	latest        = -1
	earliest      = -2
	maxTimestamp  = -3
	earliestLocal = -4
	latestTiered  = -5
)

func listOffset(t *testing.T, topic string, partition int32, timestamp int64) int64 {
	t.Helper()
	r := kmsg.NewPtrListOffsetsRequest()
	r.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, p)
	r.Topics = append(r.Topics, rt)
	resp, err := r.RequestWith(t.Context(), rawClient(t))
	if err != nil {
		t.Fatalf("ListOffsets %d: %v", timestamp, err)
	}
	got := resp.Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		t.Fatalf("ListOffsets %s-%d at %d: error %d", topic, partition, timestamp, got.ErrorCode)
	}
	return got.Offset
}

// rawClient sends single requests to the node.
func rawClient(t *testing.T) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(target.addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// storedBatch is a batch as a fetch delivers it, not decompressed.
type storedBatch struct {
	base    int64
	codec   string
	records int32
	size    int
}

// compressible is the size of records from which every client compresses:
// librdkafka and franz-go store a batch as it is if it would grow.
const compressible = 1 << 10

// checkCodecs reads the codec bits of every batch and compares them with what
// its producer was told to use, which the key of its first record says.
func checkCodecs(t *testing.T, topic string) {
	found := map[string]int{}
	for p := range int32(partitions) {
		end := listOffset(t, topic, p, latest)
		records, err := franz{}.consume(t.Context(), topic, p, 0, int(end))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range fetchBatches(t, topic, p, end) {
			want := codecOf(records[b.base].key)
			found[b.codec]++
			plain := 0
			for _, r := range records[b.base : b.base+int64(b.records)] {
				plain += len(r.value)
			}
			if b.codec != want && !(b.codec == "none" && plain < compressible) {
				t.Errorf("partition %d offset %d: %d records of %d bytes stored with codec %s, produced with %s", p, b.base, b.records, plain, b.codec, want)
			}
			if want != "none" && plain >= 64<<10 && b.size > plain*9/10 {
				t.Errorf("partition %d offset %d: %d bytes of records take %d with codec %s", p, b.base, plain, b.size, b.codec)
			}
		}
	}
	if got := slices.Sorted(maps.Keys(found)); len(got) != len(codecs) {
		t.Errorf("codecs %v stored, want all of %v", got, codecs)
	}
	t.Logf("batches by codec: %v", found)
}

// fetchBatches reads a partition with bare Fetch requests.
func fetchBatches(t *testing.T, topic string, partition int32, end int64) []storedBatch {
	t.Helper()
	meta, err := target.admin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	c := rawClient(t)
	var out []storedBatch
	for offset := int64(0); offset < end; {
		r := kmsg.NewPtrFetchRequest()
		r.MaxWaitMillis, r.MinBytes, r.MaxBytes = 1000, 1, 4<<20
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, 1<<20, -1
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID, rt.Partitions = topic, meta[topic].ID, append(rt.Partitions, p)
		r.Topics = append(r.Topics, rt)
		resp, err := r.RequestWith(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("fetch %s-%d at %d: %+v", topic, partition, offset, resp)
		}
		before := offset
		for b := resp.Topics[0].Partitions[0].RecordBatches; len(b) > 12; {
			size := 12 + int(uint32(b[8])<<24|uint32(b[9])<<16|uint32(b[10])<<8|uint32(b[11]))
			if size > len(b) {
				break
			}
			var rb kmsg.RecordBatch
			if err := rb.ReadFrom(b[:size]); err != nil {
				t.Fatalf("fetch %s-%d at %d: %v", topic, partition, offset, err)
			}
			if rb.FirstOffset+int64(rb.LastOffsetDelta) >= before {
				if rb.FirstOffset != offset {
					t.Fatalf("%s-%d: batch at %d where %d was expected", topic, partition, rb.FirstOffset, offset)
				}
				out = append(out, storedBatch{base: rb.FirstOffset, codec: codecs[rb.Attributes&7], records: rb.NumRecords, size: size})
				offset = rb.FirstOffset + int64(rb.LastOffsetDelta) + 1
			}
			b = b[size:]
		}
		if offset == before {
			t.Fatalf("fetch %s-%d at %d brought nothing, the end is %d", topic, partition, offset, end)
		}
	}
	return out
}

// TestFromTimestamp: offsets by time are right on both sides of the seam.
func TestFromTimestamp(t *testing.T) {
	const topic, n = "by-time", 3000
	createTopic(t, topic, 1, nil)
	c, err := kgo.NewClient(kgo.SeedBrokers(target.addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(50_000))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var all []*kgo.Record
	for i := range n {
		all = append(all, &kgo.Record{Timestamp: start.Add(time.Duration(i) * time.Second), Value: []byte(strings.Repeat("x", 1000))})
	}
	if err := c.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	awaitTiers(t, topic, 1)
	for _, i := range []int64{0, 1, 17, n / 3, n / 2, n - 2, n - 1} {
		at := start.UnixMilli() + i*1000
		for _, ms := range []int64{at, at - 1, at - 999} {
			if got := listOffset(t, topic, 0, ms); got != i {
				t.Errorf("offset at %d is %d, want %d", ms, got, i)
			}
		}
	}
	if got := listOffset(t, topic, 0, start.UnixMilli()+n*1000); got != -1 {
		t.Errorf("offset after the last record is %d, want -1", got)
	}
	if got := listOffset(t, topic, 0, maxTimestamp); got != n-1 {
		t.Errorf("offset of the highest timestamp is %d, want %d", got, n-1)
	}
	kept, err := target.admin.ListOffsetsAfterMilli(t.Context(), start.UnixMilli()+500, topic)
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := kept.Lookup(topic, 0); o.Offset != 1 || o.Timestamp != start.UnixMilli()+1000 {
		t.Errorf("first record after a time is %+v, want offset 1", o)
	}
}
