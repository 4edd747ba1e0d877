package wire

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzConnection: whatever bytes arrive in whatever pieces, the connection
// answers or ends; it never panics, and gives back all memory that it charged.
func FuzzConnection(f *testing.F) {
	for _, a := range apis {
		for v := a.Min; v <= a.Max; v++ {
			var req kmsg.Request = kmsg.NewPtrProduceRequest()
			if a.NewRequest != nil {
				req = a.NewRequest()
			}
			req.SetVersion(v)
			f.Add(appendRequest(nil, req, 1, "c"), uint8(7))
		}
	}
	f.Add(append(metadataFrame(1), produceFrame(2, 1, 100)...), uint8(1))
	budget := NewBudget(64 << 20)
	reg := prometheus.NewRegistry()
	both := NewServer(ServerConfig{Listener: "FUZZ", Role: Broker | Controller, Handler: echoAny, Budget: budget, Registerer: reg, MaxRequestBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		ours, theirs := net.Pipe()
		c, err := both.admit(theirs)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { c.serve(); close(ended) }()
		drained := make(chan struct{})
		go func() { io.Copy(io.Discard, ours); close(drained) }()
		ours.SetWriteDeadline(time.Now().Add(5 * time.Second))
		for n := int(piece) + 1; len(b) > 0; {
			k, err := ours.Write(b[:min(n, len(b))])
			if err != nil {
				break
			}
			b = b[k:]
		}
		ours.Close()
		<-ended
		<-drained
		if !budget.frames.TryAcquire(budget.half) || !budget.requests.TryAcquire(budget.half) {
			t.Fatal("memory is still charged")
		}
		budget.frames.Release(budget.half)
		budget.requests.Release(budget.half)
		if counter(t, reg, "varve_wire_panics_total") != 0 {
			t.Fatal("panic")
		}
	})
}

// echoAny answers every request with an empty response.
var echoAny = HandlerFunc(echoAll)

func echoAll(_ context.Context, group []*Request) {
	for _, r := range group {
		switch {
		case r.Produce != nil && r.Produce.Acks == 0:
			r.NoReply()
		case r.Produce != nil:
			r.Reply(&ProduceResponse{})
		case r.Key == 1:
			r.Reply(&FetchResponse{})
		default:
			r.Reply(r.Body.ResponseKind())
		}
	}
}

// FuzzResponse: a client survives any answer.
func FuzzResponse(f *testing.F) {
	resp := &FetchMetadataResponse{Entries: []MetadataEntry{{1, 2, 3, []byte("r")}}}
	f.Add(resp.AppendTo([]byte{0, 0, 0, 1, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		c := newClientConn(theirs, "a", "c", 1)
		c.versions = map[int16][2]int16{KeyFetchMetadata: {0, 0}}
		done := make(chan struct{}, 2)
		go func() { c.write(); done <- struct{}{} }()
		go func() { c.read(); done <- struct{}{} }()
		go func() {
			readFrame(ours, 1<<20)
			ours.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
			ours.Write(b)
			ours.Close()
		}()
		c.request(t.Context(), &FetchMetadataRequest{})
		c.fail(ErrClosed)
		<-done
		<-done
	})
}
