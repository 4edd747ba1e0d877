package record_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire/record"
)

// fakeBroker answers what a kgo producer asks and keeps the record sets it sends.
type fakeBroker struct {
	t    *testing.T
	sets chan []byte
}

func (f *fakeBroker) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go f.serve(server)
	return client, nil
}

func (f *fakeBroker) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
		body := frame[10+max(0, int(int16(binary.BigEndian.Uint16(frame[8:])))):]
		response := f.answer(key, version, body)
		out := append([]byte{0, 0, 0, 0}, frame[4:8]...)
		if response.IsFlexible() && key != 18 {
			out = append(out, 0)
		}
		out = response.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (f *fakeBroker) answer(key, version int16, body []byte) kmsg.Response {
	request := kmsg.RequestForKey(key)
	request.SetVersion(version)
	if request.IsFlexible() {
		body = body[1:] // no tags in the header
	}
	if err := request.ReadFrom(body); err != nil {
		f.t.Error(err)
	}
	response := request.ResponseKind()
	switch r := response.(type) {
	case *kmsg.ApiVersionsResponse:
		r.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 0, MaxVersion: 9}, {ApiKey: 3, MaxVersion: 9}, {ApiKey: 18, MaxVersion: 3}, {ApiKey: 22, MaxVersion: 4}}
	case *kmsg.MetadataResponse:
		r.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "broker", Port: 9092}}
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Leader = 1
		r.Topics = []kmsg.MetadataResponseTopic{{Topic: kmsg.StringPtr("t"), Partitions: []kmsg.MetadataResponseTopicPartition{partition}}}
	case *kmsg.InitProducerIDResponse:
		r.ProducerID, r.ProducerEpoch = 4711, 2
	case *kmsg.ProduceResponse:
		for _, topic := range request.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				f.sets <- slices.Clone(p.Records)
			}
			r.Topics = []kmsg.ProduceResponseTopic{{Topic: topic.Topic, Partitions: []kmsg.ProduceResponseTopicPartition{kmsg.NewProduceResponseTopicPartition()}}}
		}
	}
	return response
}

// kgoBatch has kgo encode the records into one batch.
func kgoBatch(t *testing.T, codec kgo.CompressionCodec, records []*kgo.Record) []byte {
	t.Helper()
	f := &fakeBroker{t, make(chan []byte, 1)}
	client, err := kgo.NewClient(kgo.SeedBrokers("broker:9092"), kgo.Dialer(f.dial), kgo.DefaultProduceTopic("t"),
		kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, r := range records {
		client.Produce(context.Background(), r, nil)
	}
	if err := client.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	return <-f.sets
}

var kgoCodecs = map[record.Codec]kgo.CompressionCodec{
	record.None: kgo.NoCompression(), record.Gzip: kgo.GzipCompression(), record.Snappy: kgo.SnappyCompression(),
	record.LZ4: kgo.Lz4Compression(), record.Zstd: kgo.ZstdCompression(),
}

// sample makes records with every shape of key, value and headers, large enough for every codec to bother.
func sample(n int) (ours []record.Record, theirs []*kgo.Record) {
	for i := range n {
		r := record.Record{Offset: int64(i), Timestamp: 1_700_000_000_000 + int64(i*i%97)}
		switch i % 4 {
		case 0:
			r.Key, r.Value = fmt.Appendf(nil, "key-%d", i), bytes.Repeat(fmt.Appendf(nil, "value %d,", i), i%50)
		case 1:
			r.Value = []byte{}
		case 2:
			r.Key = []byte{}
		case 3:
			r.Headers = []record.Header{{Key: "a", Value: []byte("1")}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}}}
			r.Value = bytes.Repeat([]byte{byte(i)}, 300)
		}
		k := &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		ours, theirs = append(ours, r), append(theirs, k)
	}
	return ours, theirs
}

func same(a, b record.Record) bool {
	equal := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && equal(a.Key, b.Key) && equal(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(g, h record.Header) bool { return g.Key == h.Key && equal(g.Value, h.Value) })
}

func TestReadWhatKgoWrites(t *testing.T) {
	ours, theirs := sample(400)
	for codec, kgoCodec := range kgoCodecs {
		t.Run(codec.String(), func(t *testing.T) {
			b, rest, err := record.Next(kgoBatch(t, kgoCodec, theirs))
			if err != nil || len(rest) > 0 {
				t.Fatal(err, len(rest))
			}
			if err := b.Check(); err != nil {
				t.Error(err)
			}
			if err := b.VerifyCRC(); err != nil {
				t.Error(err)
			}
			if b.Codec() != codec || b.ProducerID() != 4711 || b.ProducerEpoch() != 2 || b.BaseSequence() != 0 || b.LastSequence() != 399 {
				t.Error(b.Codec(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
			}
			i := 0
			if err := b.Each(math.MaxInt32, func(r record.Record) (bool, error) {
				if !same(r, ours[i]) {
					t.Errorf("record %d: %+v, want %+v", i, r, ours[i])
				}
				i++
				return true, nil
			}); err != nil {
				t.Error(err)
			}
			if i != len(ours) {
				t.Errorf("%d records", i)
			}
		})
	}
}

func TestKgoReadsWhatWeWrite(t *testing.T) {
	ours, theirs := sample(400)
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			builder := record.NewBuilder(record.Options{BaseOffset: 1000, Codec: codec})
			for _, r := range ours {
				builder.Append(r.Timestamp, r.Key, r.Value, r.Headers...)
			}
			b, err := builder.Build()
			if err != nil {
				t.Fatal(err)
			}
			if codec != record.None && b.Size() >= builder.Len() {
				t.Errorf("%d bytes of %d", b.Size(), builder.Len())
			}
			got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: 1000},
				&kmsg.FetchResponseTopicPartition{RecordBatches: b}, kgo.DefaultDecompressor(), nil)
			if got.Err != nil || len(got.Records) != len(ours) {
				t.Fatal(got.Err, len(got.Records))
			}
			for i, k := range got.Records {
				r := record.Record{Offset: k.Offset - 1000, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
				for _, h := range k.Headers {
					r.Headers = append(r.Headers, record.Header{Key: h.Key, Value: h.Value})
				}
				if !same(r, ours[i]) {
					t.Fatalf("record %d: %+v, want %+v (%v)", i, r, ours[i], theirs[i])
				}
			}
		})
	}
}

func TestKgoSeesMarkers(t *testing.T) {
	for _, kind := range []record.ControlType{record.Abort, record.Commit} {
		want := record.Marker{Type: kind, ProducerID: 9, ProducerEpoch: 4, CoordinatorEpoch: 11, Timestamp: 77, BaseOffset: 5, LeaderEpoch: 2}
		b := record.EndTxnMarker(want)
		got, err := record.ParseMarker(b)
		if err != nil || got != want {
			t.Errorf("got %+v %v, want %+v", got, err, want)
		}
		if !b.IsControl() || !b.IsTransactional() || b.BaseSequence() != -1 || b.Check() != nil || b.VerifyCRC() != nil {
			t.Error("flags of a marker", b.Check())
		}
		p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: 5, KeepControlRecords: true},
			&kmsg.FetchResponseTopicPartition{RecordBatches: b}, kgo.DefaultDecompressor(), nil)
		if p.Err != nil || len(p.Records) != 1 || !p.Records[0].Attrs.IsControl() {
			t.Fatal(p.Err, len(p.Records))
		}
		var key kmsg.ControlRecordKey
		var value kmsg.EndTxnMarker
		if err := key.ReadFrom(p.Records[0].Key); err != nil || int16(key.Type) != int16(kind) {
			t.Error(key, err)
		}
		if err := value.ReadFrom(p.Records[0].Value); err != nil || value.CoordinatorEpoch != 11 {
			t.Error(value, err)
		}
	}
}
