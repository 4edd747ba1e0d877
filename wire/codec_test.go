package wire

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func ptr[T any](v T) *T { return &v }

// TestProduceRequestDecode compares our decoder with kmsg's for every version.
func TestProduceRequestDecode(t *testing.T) {
	for v := int16(3); v <= 13; v++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version = v
		req.Acks = -1
		req.TimeoutMillis = 1234
		req.TransactionID = ptr("tx")
		req.Topics = []kmsg.ProduceRequestTopic{
			{Topic: "a", TopicID: UUID{1}, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 0, Records: []byte("xyz")}, {Partition: 7, Records: nil}}},
			{Topic: "bb", TopicID: UUID{2}, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 3, Records: bytes.Repeat([]byte("r"), 300)}}},
			{Topic: "none", TopicID: UUID{3}},
		}
		req.UnknownTags.Set(5, []byte("later")) // a tag of the future is skipped
		got, err := decodeProduce(req.AppendTo(nil), v, new(names))
		if err != nil {
			t.Fatalf("v%d: %v", v, err)
		}
		if *got.TransactionalID != "tx" || got.Acks != -1 || got.TimeoutMillis != 1234 {
			t.Errorf("v%d: %+v", v, got)
		}
		for i, want := range req.Topics {
			topic := got.Topics[i]
			if v >= 13 && topic.TopicID != UUID(want.TopicID) || v < 13 && topic.Topic != want.Topic || len(topic.Partitions) != len(want.Partitions) {
				t.Fatalf("v%d topic %d: %+v", v, i, topic)
			}
			for j, p := range want.Partitions {
				if topic.Partitions[j].Partition != p.Partition || !bytes.Equal(topic.Partitions[j].Records, p.Records) {
					t.Errorf("v%d %d/%d: %+v", v, i, j, topic.Partitions[j])
				}
			}
		}
	}
}

func TestProduceResponseEncode(t *testing.T) {
	ours := &ProduceResponse{ThrottleMillis: 9, Topics: []ProduceTopicResponse{{
		Topic: "orders", TopicID: UUID{4, 5}, Partitions: []ProducePartitionResponse{
			{Partition: 1, BaseOffset: 77, LogAppendTimeMs: -1, LogStartOffset: 3},
			{Partition: 2, ErrorCode: 87, BaseOffset: -1, LogAppendTimeMs: -1, LogStartOffset: -1, ErrorMessage: ptr("no"),
				ErrorRecords: []ProduceErrorRecord{{RelativeOffset: 4, ErrorMessage: ptr("bad")}, {RelativeOffset: 5}}},
			{Partition: 3, ErrorCode: 6, BaseOffset: -1, CurrentLeader: &LeaderIDEpoch{2, 8}},
		}}, {Topic: "empty"}},
		NodeEndpoints: []NodeEndpoint{{NodeID: 2, Host: "h", Port: 9092, Rack: ptr("r")}, {NodeID: 3, Host: "i", Port: 1}}}
	theirs := kmsg.NewPtrProduceResponse()
	theirs.ThrottleMillis = 9
	for _, topic := range ours.Topics {
		kt := kmsg.NewProduceResponseTopic()
		kt.Topic, kt.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			kp := kmsg.NewProduceResponseTopicPartition()
			kp.Partition, kp.ErrorCode, kp.BaseOffset, kp.LogAppendTime, kp.LogStartOffset, kp.ErrorMessage = p.Partition, p.ErrorCode, p.BaseOffset, p.LogAppendTimeMs, p.LogStartOffset, p.ErrorMessage
			for _, e := range p.ErrorRecords {
				kp.ErrorRecords = append(kp.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: e.RelativeOffset, ErrorMessage: e.ErrorMessage})
			}
			if p.CurrentLeader != nil {
				kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch
			}
			kt.Partitions = append(kt.Partitions, kp)
		}
		theirs.Topics = append(theirs.Topics, kt)
	}
	for _, n := range ours.NodeEndpoints {
		theirs.Brokers = append(theirs.Brokers, kmsg.ProduceResponseBroker{NodeID: n.NodeID, Host: n.Host, Port: n.Port, Rack: n.Rack})
	}
	for v := int16(3); v <= 13; v++ {
		theirs.Version = v
		want := theirs
		if v < 10 { // kmsg writes these tags in every flexible version
			want = new(kmsg.ProduceResponse)
			*want = *theirs
			want.Brokers = nil
			want.Topics = nil
			for _, topic := range theirs.Topics {
				topic.Partitions = append([]kmsg.ProduceResponseTopicPartition(nil), topic.Partitions...)
				for i := range topic.Partitions {
					topic.Partitions[i].CurrentLeader.Default()
				}
				want.Topics = append(want.Topics, topic)
			}
		}
		if got, want := ours.appendTo(nil, v), want.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("v%d:\n got %x\nwant %x", v, got, want)
		}
	}
}

// bytesRange is a file range over memory that counts its releases.
func bytesRange(b []byte, released *int) FileRange {
	return FileRange{ReaderAt: bytes.NewReader(b), FD: -1, Size: int64(len(b)), Release: func() { *released++ }}
}

// flat encodes a fetch response with its ranges read in.
func flat(t *testing.T, r *FetchResponse, v int16) []byte {
	head, cuts := r.appendTo(nil, nil, v)
	var out []byte
	at := 0
	for _, k := range cuts {
		out = append(out, head[at:k.pos]...)
		at = k.pos
		for _, fr := range k.ranges {
			b := make([]byte, fr.Size)
			if _, err := fr.ReaderAt.ReadAt(b, fr.Off); err != nil {
				t.Fatal(err)
			}
			out = append(out, b...)
		}
	}
	return append(out, head[at:]...)
}

func sampleFetch(released *int) (*FetchResponse, *kmsg.FetchResponse) {
	ours := &FetchResponse{ThrottleMillis: 5, ErrorCode: 0, SessionID: 42, Topics: []FetchTopic{{
		Topic: "orders", TopicID: UUID{4, 5}, Partitions: []FetchPartition{
			{Partition: 1, HighWatermark: 10, LastStableOffset: 9, LogStartOffset: 2, PreferredReadReplica: -1,
				Records: []FileRange{bytesRange([]byte("abc"), released), bytesRange([]byte("defgh"), released)}},
			{Partition: 2, ErrorCode: 6, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: 3,
				CurrentLeader: &LeaderIDEpoch{2, 8}, DivergingEpoch: &EpochEnd{3, 99}},
			{Partition: 3, HighWatermark: 1, LastStableOffset: 1, PreferredReadReplica: -1, AbortedTransactions: []AbortedTransaction{{7, 8}, {9, 10}},
				Records: []FileRange{bytesRange(bytes.Repeat([]byte("z"), 200), released)}},
			{Partition: 4, AbortedTransactions: []AbortedTransaction{}, PreferredReadReplica: -1},
		}}, {Topic: "empty"}},
		NodeEndpoints: []NodeEndpoint{{NodeID: 2, Host: "h", Port: 9092}}}
	theirs := kmsg.NewPtrFetchResponse()
	theirs.ThrottleMillis, theirs.SessionID = 5, 42
	for _, topic := range ours.Topics {
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic, kt.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			kp := kmsg.NewFetchResponseTopicPartition()
			kp.Partition, kp.ErrorCode, kp.HighWatermark, kp.LastStableOffset, kp.LogStartOffset, kp.PreferredReadReplica = p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica
			if p.AbortedTransactions != nil {
				kp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			}
			for _, a := range p.AbortedTransactions {
				kp.AbortedTransactions = append(kp.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
			}
			if p.CurrentLeader != nil {
				kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch
			}
			if p.DivergingEpoch != nil {
				kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset = p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset
			}
			kp.RecordBatches = []byte{}
			for _, r := range p.Records {
				b := make([]byte, r.Size)
				r.ReaderAt.ReadAt(b, 0)
				kp.RecordBatches = append(kp.RecordBatches, b...)
			}
			kt.Partitions = append(kt.Partitions, kp)
		}
		theirs.Topics = append(theirs.Topics, kt)
	}
	for _, n := range ours.NodeEndpoints {
		theirs.Brokers = append(theirs.Brokers, kmsg.FetchResponseBroker{NodeID: n.NodeID, Host: n.Host, Port: n.Port})
	}
	return ours, theirs
}

func TestFetchResponseEncode(t *testing.T) {
	var released int
	ours, theirs := sampleFetch(&released)
	for v := int16(4); v <= 18; v++ {
		theirs.Version = v
		want := *theirs
		if v < 16 {
			want.Brokers = nil
		}
		if got, want := flat(t, ours, v), want.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("v%d:\n got %x\nwant %x", v, got, want)
		}
	}
	ours.Release()
	ours.Release()
	if released != 3 {
		t.Errorf("released %d times, want 3", released)
	}
}

// TestOwnMessages: what is written is read back, whatever it is.
func TestOwnMessages(t *testing.T) {
	for _, m := range []interface {
		AppendTo([]byte) []byte
		ReadFrom([]byte) error
	}{
		&FetchMetadataRequest{BrokerID: 1, BrokerEpoch: 2, ClusterID: "c", Index: 3, Term: 4, MaxWaitMillis: 5},
		&FetchMetadataResponse{ErrorCode: 1, ErrorMessage: ptr("e"), ControllerEpoch: 2, ControllerID: 3, CommittedIndex: 4, LeaderMillis: -1, Snapshot: []byte{}, SnapshotIndex: 5, SnapshotTerm: 6},
		&FetchMetadataResponse{Entries: []MetadataEntry{{1, 2, 3, []byte("r")}, {2, 3, 3, []byte("rr")}}},
		&IntroduceRequest{From: Introduction{NodeID: 1, MemberID: "m", ClusterID: "c", Address: "h:1", State: VoterWaiting, LogEnd: 2, Voters: []Voter{{3, "n", "h:2"}, {4, "", ""}}}},
		&IntroduceResponse{ErrorCode: 1, ErrorMessage: ptr("e"), From: Introduction{NodeID: 1, MemberID: "m"}},
		&SubmitCommandsRequest{BrokerID: 1, BrokerEpoch: 2, ClusterID: "c", TimeoutMillis: 3, Commands: [][]byte{[]byte("a"), []byte("bb")}},
		&SubmitCommandsResponse{ErrorCode: 1, ErrorMessage: ptr("e"), ControllerEpoch: 2, Index: 9, Results: []CommandResult{{1, ptr("x"), nil}, {0, nil, []byte("d")}}},
	} {
		b := m.AppendTo(nil)
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(interface{ ReadFrom([]byte) error })
		if err := got.ReadFrom(b); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%T: got %+v, want %+v", m, got, m)
		}
		for n := range b {
			if err := got.ReadFrom(b[:n]); err == nil {
				t.Errorf("%T: truncated to %d of %d bytes is accepted", m, n, len(b))
			}
		}
		if err := got.ReadFrom(append(b, 0)); err == nil {
			t.Errorf("%T: trailing byte is accepted", m)
		}
	}
}

func FuzzDecodeProduce(f *testing.F) {
	for v := int16(3); v <= 13; v++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version = v
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: "a", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte("xyz")}}}}
		f.Add(v, req.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, v int16, b []byte) {
		v = 3 + int16(uint16(v)%11)
		r, err := decodeProduce(b, v, new(names))
		if err != nil {
			return
		}
		// What we accept kmsg accepts too, with the same meaning.
		want := kmsg.NewPtrProduceRequest()
		want.Version = v
		if err := want.ReadFrom(b); err != nil {
			t.Fatalf("v%d: kmsg refuses what we accept: %v", v, err)
		}
		if r.Acks != want.Acks || len(r.Topics) != len(want.Topics) {
			t.Fatalf("v%d: %+v, want %+v", v, r, want)
		}
		for i := range r.Topics {
			if len(r.Topics[i].Partitions) != len(want.Topics[i].Partitions) {
				t.Fatalf("v%d: %+v, want %+v", v, r, want)
			}
			for j, p := range r.Topics[i].Partitions {
				if q := want.Topics[i].Partitions[j]; p.Partition != q.Partition || !bytes.Equal(p.Records, q.Records) {
					t.Fatalf("v%d: %+v, want %+v", v, p, q)
				}
			}
		}
	})
}

func FuzzRequestHeader(f *testing.F) {
	f.Add([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0}, true)
	f.Add([]byte{0, 3, 0, 0, 0, 0, 0, 1, 0, 2, 'i', 'd'}, false)
	f.Fuzz(func(t *testing.T, b []byte, flexible bool) {
		if h, err := parseKey(b); err == nil {
			h.parseClientID(flexible)
		}
	})
}

func FuzzOwnMessages(f *testing.F) {
	f.Add(uint8(0), (&FetchMetadataRequest{ClusterID: "c"}).AppendTo(nil))
	f.Add(uint8(1), (&FetchMetadataResponse{Entries: []MetadataEntry{{1, 2, 3, []byte("r")}}}).AppendTo(nil))
	f.Add(uint8(2), (&SubmitCommandsRequest{Commands: [][]byte{[]byte("a")}}).AppendTo(nil))
	f.Add(uint8(3), (&SubmitCommandsResponse{Results: []CommandResult{{1, ptr("x"), nil}}}).AppendTo(nil))
	f.Add(uint8(4), (&IntroduceRequest{From: Introduction{Voters: []Voter{{1, "m", "h:1"}}}}).AppendTo(nil))
	f.Add(uint8(5), (&IntroduceResponse{From: Introduction{Voters: []Voter{{1, "m", "h:1"}}}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		m := []interface {
			AppendTo([]byte) []byte
			ReadFrom([]byte) error
		}{new(FetchMetadataRequest), new(FetchMetadataResponse), new(SubmitCommandsRequest), new(SubmitCommandsResponse), new(IntroduceRequest), new(IntroduceResponse)}[kind%6]
		if m.ReadFrom(b) != nil {
			return
		}
		first := m.AppendTo(nil)
		if err := m.ReadFrom(first); err != nil {
			t.Fatalf("own bytes refused: %v", err)
		}
		if second := m.AppendTo(nil); !bytes.Equal(first, second) {
			t.Fatalf("%x became %x", first, second)
		}
	})
}

func TestUUID(t *testing.T) {
	for range 1000 {
		u := NewUUID()
		s := u.String()
		if got, err := ParseUUID(s); err != nil || got != u || s[0] == '-' || len(s) != 22 {
			t.Fatalf("%s: %v %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "short", "AAAAAAAAAAAAAAAAAAAAA!", "AAAAAAAAAAAAAAAAAAAAAAAA"} {
		if _, err := ParseUUID(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestBufferClasses(t *testing.T) {
	var p buffers
	for _, n := range []int{0, 1, 4096, 8192, 8193, 64 << 10, 256 << 10, 1<<20 + 100, 1<<20 + 4096, 1<<20 + 4097, 100 << 20} {
		b := p.get(n)
		if len(b.b) < n || n > 16<<10 && len(b.b) > 2*n+bufferSlack {
			t.Errorf("%d bytes: got %d", n, len(b.b))
		}
		p.put(b)
	}
}

// TestTable: the table is consistent with the message library and with itself.
func TestTable(t *testing.T) {
	last := int16(-1)
	for _, a := range apis {
		if a.Key <= last {
			t.Errorf("%s: keys must ascend", a.Name)
		}
		last = a.Key
		if a.Min > a.Max || a.AdvertiseMin > a.Min || a.Roles == 0 {
			t.Errorf("%s: %+v", a.Name, a)
		}
		if a.AdvertiseMin != a.Min && a.Name != "Produce" {
			t.Errorf("%s: versions are advertised that are not served", a.Name)
		}
		if a.NewRequest == nil {
			continue
		}
		req := a.NewRequest()
		if req.Key() != a.Key || req.MaxVersion() < a.Max {
			t.Errorf("%s: key %d, max %d", a.Name, req.Key(), req.MaxVersion())
		}
		for v := a.Min; v <= a.Max; v++ {
			resp := req.ResponseKind()
			resp.SetVersion(v)
			if th, ok := resp.(kmsg.ThrottleResponse); ok {
				if _, client := th.Throttle(); client != (v >= a.ThrottleFrom) {
					t.Errorf("%s v%d: client waits is %v", a.Name, v, client)
				}
			}
		}
	}
}

func TestDecoderNeverPanics(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20000 {
		b := make([]byte, rng.IntN(64))
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		decodeProduce(b, int16(3+i%11), new(names))
	}
}
