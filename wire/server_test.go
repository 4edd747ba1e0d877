package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// start runs a server on a free port until the test ends.
func start(t testing.TB, cfg ServerConfig) string {
	t.Helper()
	if cfg.Role == 0 {
		cfg.Role = Broker
	}
	cfg.Listener = "PLAINTEXT"
	cfg.Logger = slog.New(slog.DiscardHandler)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(cfg).Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			stacks := make([]byte, 1<<20)
			t.Errorf("server does not end\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	})
	return ln.Addr().String()
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c
}

func mustFrame(t testing.TB, c net.Conn) []byte {
	t.Helper()
	b, err := readFrame(c, 64<<20)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return b
}

func wantClosed(t testing.TB, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Fatalf("connection is not closed: %d, %v", n, err)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// echo answers every request at once: Metadata with the correlation id as
// controller id, Produce with the record size as base offset.
var echo = HandlerFunc(func(_ context.Context, group []*Request) {
	for _, r := range group {
		answer(r)
	}
})

func answer(r *Request) {
	switch r.Key {
	case 0:
		p := r.Produce.Topics[0].Partitions[0]
		if r.Produce.Acks == 0 {
			r.NoReply()
			return
		}
		r.Reply(&ProduceResponse{Topics: []ProduceTopicResponse{{Topic: r.Produce.Topics[0].Topic, Partitions: []ProducePartitionResponse{{
			Partition: p.Partition, BaseOffset: int64(len(p.Records))}}}}})
	case 3:
		m := kmsg.NewPtrMetadataResponse()
		m.ControllerID = r.CorrelationID
		r.Reply(m)
	default:
		resp := r.Body.ResponseKind()
		r.Reply(resp)
	}
}

func metadataFrame(id int32) []byte {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	req.Topics = []kmsg.MetadataRequestTopic{}
	return appendRequest(nil, req, id, "client")
}

func produceFrame(id int32, acks int16, records int) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	req.Acks = acks
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, records)}}}}
	return appendRequest(nil, req, id, "client")
}

func correlation(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }

// G2: a version of ApiVersions that is not known is answered in version 0 form
// with our own range, whatever the body, and the connection stays open.
func TestApiVersionsUnknownVersionG2(t *testing.T) {
	c := dial(t, start(t, ServerConfig{Handler: echo}))
	for _, body := range [][]byte{nil, {0, 1, 'x', 0}, bytes.Repeat([]byte{0xff}, 40)} {
		frame := append([]byte{0, 0, 0, byte(8 + len(body)), 0, 18, 0, 99, 0, 0, 0, 7}, body...)
		c.Write(frame)
		if got, want := mustFrame(t, c), []byte{0, 0, 0, 7, 0, 0x23, 0, 0, 0, 1, 0, 0x12, 0, 0, 0, 5}; !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	}
	c.Write(metadataFrame(8))
	if id := correlation(mustFrame(t, c)); id != 8 {
		t.Fatalf("answer to %d", id)
	}
}

func apiVersions(t *testing.T, c net.Conn, v int16, change func(*kmsg.ApiVersionsRequest)) *kmsg.ApiVersionsResponse {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = v
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1.0"
	if change != nil {
		change(req)
	}
	c.Write(appendRequest(nil, req, 3, "id"))
	b := mustFrame(t, c)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = v
	if err := resp.ReadFrom(b[4:]); err != nil { // G3: no tag section in the header
		t.Fatalf("v%d: %v in %x", v, err, b)
	}
	return resp
}

// G1, G3: Produce is advertised from 0; the header has no tags at any version;
// nothing is advertised that is not served.
func TestApiVersionsG1G3(t *testing.T) {
	c := dial(t, start(t, ServerConfig{Handler: echo}))
	for v := int16(0); v <= 5; v++ {
		resp := apiVersions(t, c, v, nil)
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(APIs(Broker)) {
			t.Fatalf("v%d: error %d, %d keys", v, resp.ErrorCode, len(resp.ApiKeys))
		}
		for _, k := range resp.ApiKeys {
			a, ok := LookupAPI(Broker, k.ApiKey)
			if !ok || k.MaxVersion != a.Max || k.ApiKey != 0 && k.MinVersion != a.Min {
				t.Errorf("v%d: key %d versions %d-%d", v, k.ApiKey, k.MinVersion, k.MaxVersion)
			}
			if k.ApiKey == 0 && k.MinVersion != 0 {
				t.Errorf("v%d: Produce from %d", v, k.MinVersion)
			}
		}
	}
}

// G4: names and versions of software that match Kafka's pattern pass, others are INVALID_REQUEST.
func TestApiVersionsSoftwareG4(t *testing.T) {
	c := dial(t, start(t, ServerConfig{Handler: echo}))
	for name, ok := range map[string]bool{"a": true, "apache-kafka-java": true, "A.b-9": true, "9": true, "": false, "-a": false, "a-": false, ".": false, "a b": false, "a_b": false, "ä": false} {
		for v := int16(3); v <= 5; v++ {
			resp := apiVersions(t, c, v, func(r *kmsg.ApiVersionsRequest) { r.ClientSoftwareName = name })
			if got := resp.ErrorCode == 0; got != ok || !ok && resp.ErrorCode != kerr.InvalidRequest.Code {
				t.Errorf("%q v%d: error %d", name, v, resp.ErrorCode)
			}
		}
	}
}

// KIP-1242: version 5 says whom the client believes to speak to.
func TestApiVersionsIdentity(t *testing.T) {
	c := dial(t, start(t, ServerConfig{Handler: echo, Identity: func() (string, int32) { return "cluster", 7 }}))
	for _, k := range []struct {
		cluster *string
		node    int32
		want    int16
	}{
		{nil, -1, 0}, {ptr("cluster"), 7, 0}, {ptr("other"), 7, kerr.RebootstrapRequired.Code}, {ptr("cluster"), 8, kerr.RebootstrapRequired.Code},
		{ptr("cluster"), -1, kerr.InvalidRequest.Code}, {nil, 7, kerr.InvalidRequest.Code},
	} {
		resp := apiVersions(t, c, 5, func(r *kmsg.ApiVersionsRequest) { r.ClusterID, r.NodeID = k.cluster, k.node })
		if resp.ErrorCode != k.want {
			t.Errorf("%v: error %d", k, resp.ErrorCode)
		}
	}
}

// KAFKA-17492: supported features from level 0 are told from version 4 only.
func TestApiVersionsFeatures(t *testing.T) {
	c := dial(t, start(t, ServerConfig{Handler: echo, Features: func() Features {
		return Features{Supported: []FeatureRange{{"metadata.version", 7, 30}, {"group.version", 0, 1}}, FinalizedEpoch: 4,
			Finalized: []FeatureRange{{"metadata.version", 30, 30}, {"group.version", 0, 0}}}
	}}))
	for v := int16(3); v <= 5; v++ {
		resp := apiVersions(t, c, v, nil)
		want := 1
		if v >= 4 {
			want = 2
		}
		if len(resp.SupportedFeatures) != want || resp.FinalizedFeaturesEpoch != 4 || len(resp.FinalizedFeatures) != 1 {
			t.Errorf("v%d: %+v", v, resp)
		}
	}
}

// G20: a null client id in a flexible request is followed by tags, unknown ones are skipped.
func TestFlexibleHeaderG20(t *testing.T) {
	c := dial(t, start(t, ServerConfig{Handler: echo}))
	body := kmsg.NewPtrMetadataRequest()
	body.Version = 9
	for _, head := range [][]byte{{0xff, 0xff, 0}, {0, 0, 0}, {0, 2, 'i', 'd', 1, 9, 3, 'a', 'b', 'c'}} {
		b := append([]byte{0, 0, 0, 0, 0, 3, 0, 9, 0, 0, 0, 5}, head...)
		b = body.AppendTo(b)
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		c.Write(b)
		if id := correlation(mustFrame(t, c)); id != 5 {
			t.Fatalf("%x: answer to %d", head, id)
		}
	}
}

// G10, G21 and reliability 5.1: what is not a request closes its connection and
// only that; memory is never taken by what a length claims.
func TestHostileInput(t *testing.T) {
	addr := start(t, ServerConfig{Handler: echo, MaxRequestBytes: 1 << 20, FrameTimeout: 300 * time.Millisecond})
	frame := func(b ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	}
	tagBomb := []byte{0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x7f} // header with 16383 tags
	for i := range 1000 {
		tagBomb = append(tagBomb, byte(i), 0)
	}
	arrayBomb := []byte{0, 3, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff} // Metadata v0, 2^31-1 topics
	for name, b := range map[string][]byte{
		"negative length":       {0xff, 0xff, 0xff, 0xff},
		"zero length":           {0, 0, 0, 0},
		"length above limit":    {0x7f, 0xff, 0xff, 0xff},
		"http":                  []byte("GET / HTTP/1.1\r\n\r\n"),
		"tls":                   {22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"unknown key":           frame(0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"negative key":          frame(0xff, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"controller's key":      frame(0, 62, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0),
		"version too high":      frame(0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff),
		"version too low":       frame(0, 1, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"produce version 2":     frame(0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
		"short header":          frame(0, 3, 0, 0, 0, 0, 0, 1, 0),
		"client id too long":    frame(0, 3, 0, 0, 0, 0, 0, 1, 0x7f, 0xff, 'x'),
		"negative client id":    frame(0, 3, 0, 0, 0, 0, 0, 1, 0xff, 0xfe, 'x'),
		"array bomb":            frame(arrayBomb...),
		"tag bomb":              frame(tagBomb...),
		"truncated body":        frame(0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 5),
		"truncated, silent":     {0, 0, 0x0f, 0, 0, 3, 0, 1},
		"too large for its api": {0, 2, 0, 0, 0, 18, 0, 3, 0, 0, 0, 1}, // closed before it has arrived
		"produce lying array":   frame(0, 0, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, addr)
			c.Write(b)
			wantClosed(t, c)
		})
	}
	c := dial(t, addr)
	c.Write(metadataFrame(1))
	mustFrame(t, c)
}

// Every prefix of a request, and every request cut into single bytes, is one request or none.
func TestDripped(t *testing.T) {
	addr := start(t, ServerConfig{Handler: echo})
	c := dial(t, addr)
	var all []byte
	for i := range int32(5) {
		all = append(all, metadataFrame(i)...)
	}
	for _, b := range all {
		c.Write([]byte{b})
	}
	for i := range int32(5) {
		if id := correlation(mustFrame(t, c)); id != i {
			t.Fatalf("answer to %d, want %d", id, i)
		}
	}
}

// A peer that drips holds its connection no longer than FrameTimeout, and only a small buffer.
func TestDripTimesOut(t *testing.T) {
	addr := start(t, ServerConfig{Handler: echo, FrameTimeout: 200 * time.Millisecond})
	c := dial(t, addr)
	begin := time.Now()
	c.Write([]byte{0, 0x10, 0, 0})
	for time.Since(begin) < 10*time.Second {
		if _, err := c.Write([]byte{0}); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("dripped for %v", d)
	}
}

// Answers leave in the order of the requests, whoever gives them when; large
// and small frames come through whole.
func TestPipelineInOrder(t *testing.T) {
	h := HandlerFunc(func(_ context.Context, group []*Request) {
		for _, r := range group {
			switch {
			case r.Key == 0 && r.CorrelationID%3 == 0:
				size := len(r.Produce.Topics[0].Partitions[0].Records)
				go func() {
					time.Sleep(time.Duration(r.CorrelationID%7) * time.Millisecond)
					r.Reply(&ProduceResponse{Topics: []ProduceTopicResponse{{Topic: "t", Partitions: []ProducePartitionResponse{{BaseOffset: int64(size)}}}}})
				}()
			default:
				answer(r)
			}
		}
	})
	c := dial(t, start(t, ServerConfig{Handler: h, MaxInFlight: 7}))
	const n = 300
	size := func(i int32) int { return int(i) * int(i) * 7 % 300_000 }
	go func() {
		for i := range int32(n) {
			acks := int16(-1)
			if i%10 == 4 {
				acks = 0
			}
			c.Write(produceFrame(i, acks, size(i)))
		}
	}()
	for i := range int32(n) {
		if i%10 == 4 {
			if i%3 == 0 { // the handler above answers these even so
			} else {
				continue // G10: acks=0 gets no answer and leaves no gap
			}
		}
		b := mustFrame(t, c)
		if correlation(b) != i {
			t.Fatalf("answer to %d, want %d", correlation(b), i)
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = 9
		if err := resp.ReadFrom(b[5:]); err != nil {
			t.Fatal(err)
		}
		if got := resp.Topics[0].Partitions[0].BaseOffset; got != int64(size(i)) {
			t.Fatalf("request %d: %d bytes arrived, want %d", i, got, size(i))
		}
	}
}

// A panic closes its connection, is counted, and nobody else notices.
func TestPanic(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := HandlerFunc(func(ctx context.Context, group []*Request) {
		if group[0].Version == 1 {
			panic("boom")
		}
		echo(ctx, group)
	})
	addr := start(t, ServerConfig{Handler: h, Registerer: reg})
	other := dial(t, addr)
	c := dial(t, addr)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 1
	c.Write(appendRequest(nil, req, 1, "x"))
	wantClosed(t, c)
	other.Write(metadataFrame(2))
	mustFrame(t, other)
	if n := counter(t, reg, "varve_wire_panics_total"); n != 1 {
		t.Errorf("%v panics counted", n)
	}
}

// counter sums a metric over its labels.
func counter(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// Too many connections, in all or from one address, are closed at once.
func TestConnectionLimits(t *testing.T) {
	for _, cfg := range []ServerConfig{{MaxConnections: 2}, {MaxConnectionsIP: 2}} {
		cfg.Handler = echo
		addr := start(t, cfg)
		a, b := dial(t, addr), dial(t, addr)
		for _, c := range []net.Conn{a, b} {
			c.Write(metadataFrame(1))
			mustFrame(t, c)
		}
		wantClosed(t, dial(t, addr))
		a.Close()
		for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			c := dial(t, addr)
			c.Write(metadataFrame(1))
			if _, err := readFrame(c, 1<<20); err == nil {
				break
			}
			if time.Since(begin) > 5*time.Second {
				t.Fatal("a closed connection is still counted")
			}
		}
	}
}

// Before authentication a frame has 64 KiB, nothing but the authenticator sees
// it, and there is only so much time.
func TestPreAuthentication(t *testing.T) {
	cfg := ServerConfig{Handler: echo, HandshakeTimeout: 300 * time.Millisecond,
		Authenticate: func(_ context.Context, r *Request) (Principal, bool, error) {
			answer(r)
			return Principal{"User", "alice"}, r.CorrelationID == 2, nil
		}}
	addr := start(t, cfg)
	c := dial(t, addr)
	c.Write(produceFrame(1, 1, 100<<10))
	wantClosed(t, c)

	c = dial(t, addr)
	apiVersions(t, c, 3, nil)
	for id := int32(1); id <= 2; id++ {
		c.Write(metadataFrame(id))
		mustFrame(t, c)
	}
	c.Write(produceFrame(3, 1, 100<<10))
	mustFrame(t, c)
	time.Sleep(400 * time.Millisecond)
	c.Write(metadataFrame(4)) // authenticated connections may be idle
	mustFrame(t, c)

	begin := time.Now()
	c = dial(t, addr)
	wantClosed(t, c)
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("silent for %v before authentication", d)
	}
}

// An idle connection is closed quietly; one that waits for an answer is not idle.
func TestIdle(t *testing.T) {
	release := make(chan struct{})
	h := HandlerFunc(func(_ context.Context, group []*Request) {
		r := group[0]
		go func() { <-release; answer(r) }()
	})
	addr := start(t, ServerConfig{Handler: h, IdleTimeout: 200 * time.Millisecond})
	wantClosed(t, dial(t, addr))
	c := dial(t, addr)
	c.Write(metadataFrame(1))
	time.Sleep(600 * time.Millisecond)
	close(release)
	mustFrame(t, c)
	wantClosed(t, c)
}

// A peer that does not read is cut off, its ranges released exactly once.
func TestSlowReader(t *testing.T) {
	var mu sync.Mutex
	released, handled := map[int32]int{}, 0
	data := make([]byte, 1<<20)
	h := HandlerFunc(func(_ context.Context, group []*Request) {
		for _, r := range group {
			id := r.CorrelationID
			mu.Lock()
			handled++
			mu.Unlock()
			r.Reply(&FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{{Records: []FileRange{{
				ReaderAt: bytes.NewReader(data), FD: -1, Size: int64(len(data)),
				Release: func() { mu.Lock(); released[id]++; mu.Unlock() }}}}}}}})
		}
	})
	addr := start(t, ServerConfig{Handler: h, WriteTimeout: 300 * time.Millisecond, SendBuffer: 64 << 10})
	c := dial(t, addr)
	c.(*net.TCPConn).SetReadBuffer(64 << 10)
	const n = 40
	for i := range int32(n) {
		c.Write(fetchFrame(i))
	}
	time.Sleep(2 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	if handled == 0 || len(released) != handled {
		t.Errorf("%d of %d released", len(released), handled)
	}
	for id, k := range released {
		if k != 1 {
			t.Errorf("response %d released %d times", id, k)
		}
	}
}

func fetchFrame(id int32) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	return appendRequest(nil, req, id, "c")
}

// Requests answered after their connection ended are dropped and released.
func TestReplyAfterClose(t *testing.T) {
	reqs := make(chan *Request, 1)
	ended := make(chan struct{})
	h := HandlerFunc(func(ctx context.Context, group []*Request) {
		context.AfterFunc(ctx, func() { close(ended) })
		reqs <- group[0]
	})
	c := dial(t, start(t, ServerConfig{Handler: h}))
	c.Write(fetchFrame(1))
	r := <-reqs
	c.Close()
	<-ended
	var released int
	resp := &FetchResponse{Topics: []FetchTopic{{Partitions: []FetchPartition{{Records: []FileRange{bytesRange([]byte("x"), &released)}}}}}}
	r.Reply(resp)
	r.Reply(resp) // a handler's mistake does no harm
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}

// Answers in flight leave before the server ends.
func TestGracefulEnd(t *testing.T) {
	reqs := make(chan *Request, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s := NewServer(ServerConfig{Role: Broker, Handler: HandlerFunc(func(_ context.Context, g []*Request) { reqs <- g[0] })})
	go func() { s.Serve(ctx, ln); close(done) }()
	c := dial(t, ln.Addr().String())
	c.Write(metadataFrame(6))
	r := <-reqs
	cancel()
	time.Sleep(20 * time.Millisecond)
	answer(r)
	if id := correlation(mustFrame(t, c)); id != 6 {
		t.Fatal(id)
	}
	<-done
	wantClosed(t, c)
}

// A throttled client of a version that waits by itself is answered at once and
// then not read; an older one gets its answer late (KIP-219).
func TestThrottleG19(t *testing.T) {
	const d = 200 * time.Millisecond
	h := HandlerFunc(func(_ context.Context, group []*Request) {
		for _, r := range group {
			m := kmsg.NewPtrMetadataResponse()
			r.ReplyThrottled(m, d)
		}
	})
	addr := start(t, ServerConfig{Handler: h})
	c := dial(t, addr)
	begin := time.Now()
	c.Write(metadataFrame(1))
	mustFrame(t, c)
	if e := time.Since(begin); e > d/2 {
		t.Errorf("answer after %v", e)
	}
	c.Write(metadataFrame(2))
	mustFrame(t, c)
	if e := time.Since(begin); e < d {
		t.Errorf("read again after %v", e)
	}
	c = dial(t, addr)
	begin = time.Now()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 5
	c.Write(appendRequest(nil, req, 1, "x"))
	mustFrame(t, c)
	if e := time.Since(begin); e < d {
		t.Errorf("old client answered after %v", e)
	}
}

// Raft connections are told from Kafka's by their first bytes.
func TestPreface(t *testing.T) {
	taken := make(chan net.Conn, 1)
	addr := start(t, ServerConfig{Role: Controller, Handler: echo, Preface: func(c net.Conn) bool { taken <- c; return true }})
	c := dial(t, addr)
	c.Write(append(PrefaceMagic[:], "raft"...))
	nc := <-taken
	b := make([]byte, 4)
	if _, err := io.ReadFull(nc, b); err != nil || string(b) != "raft" {
		t.Fatalf("%q %v", b, err)
	}
	nc.Close()
	c = dial(t, addr)
	apiVersions(t, c, 3, nil)
}

// Memory of requests in flight is one budget: too little of it delays, it does not fail.
func TestBudget(t *testing.T) {
	budget := NewBudget(1 << 20)
	addr := start(t, ServerConfig{Handler: echo, Budget: budget})
	var wg sync.WaitGroup
	for range 8 {
		c := dial(t, addr)
		wg.Go(func() {
			for i := range int32(30) {
				c.Write(produceFrame(i, 1, 200<<10))
				if id := correlation(mustFrame(t, c)); id != i {
					t.Errorf("answer to %d, want %d", id, i)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(20 * time.Millisecond)
	if !budget.frames.TryAcquire(budget.half) || !budget.requests.TryAcquire(budget.half) {
		t.Error("budget is not whole afterwards")
	}
	budget.frames.Release(budget.half)
	budget.requests.Release(budget.half)
}

// Idle connections hold no buffer.
func TestIdleMemory(t *testing.T) {
	const n = 2000
	addr := start(t, ServerConfig{Handler: echo})
	before := memory()
	for range n {
		c := dial(t, addr)
		c.Write(metadataFrame(1))
		mustFrame(t, c)
	}
	runtime.GC()
	runtime.GC()
	per := (memory() - before) / n
	t.Logf("%d bytes for each idle connection, both sides", per)
	if per > 24<<10 {
		t.Errorf("%d bytes for each idle connection, both sides", per)
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func TestClient(t *testing.T) {
	block := make(chan struct{})
	h := HandlerFunc(func(_ context.Context, group []*Request) {
		for _, r := range group {
			if r.Key == KeyFetchMetadata {
				m := r.Body.(*FetchMetadataRequest)
				if m.Index == 13 {
					<-block
				}
				if m.Index == 14 {
					r.Fail(errors.New("on purpose"))
					continue
				}
				r.Reply(&FetchMetadataResponse{CommittedIndex: m.Index, Snapshot: []byte(strings.Repeat("s", int(m.Term)))})
				continue
			}
			answer(r)
		}
	})
	addr := start(t, ServerConfig{Role: Controller, Handler: h})
	t.Cleanup(func() { close(block) })
	client := NewClient(ClientConfig{Addrs: func() []string { return []string{"127.0.0.1:1", addr} }})
	defer client.Close()
	ask := func(ctx context.Context, index, size uint64) (*FetchMetadataResponse, error) {
		r, err := client.Request(ctx, &FetchMetadataRequest{Index: index, Term: size})
		if err != nil {
			return nil, err
		}
		return r.(*FetchMetadataResponse), nil
	}
	var wg sync.WaitGroup
	for i := range uint64(100) {
		if i == 13 || i == 14 {
			continue
		}
		wg.Go(func() {
			r, err := ask(context.Background(), i, i*10_000)
			if err != nil || r.CommittedIndex != i || uint64(len(r.Snapshot)) != i*10_000 {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if _, err := ask(context.Background(), 14, 0); !errors.Is(err, ErrDisconnected) {
		t.Errorf("closed connection: %v", err)
	}
	if _, err := ask(context.Background(), 1, 0); err != nil {
		t.Errorf("after it: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := ask(ctx, 13, 0); !errors.Is(err, ErrDisconnected) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	if _, err := ask(context.Background(), 1, 0); err != nil {
		t.Errorf("after a deadline: %v", err)
	}
	if _, err := client.Request(context.Background(), kmsg.NewPtrProduceRequest()); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("API of another role: %v", err)
	}
	client.Close()
	if _, err := ask(context.Background(), 1, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
