package wire

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Handler answers requests.
type Handler interface {
	// Handle is given all complete requests that one read of a connection
	// brought, in order, on the connection's reader goroutine, one call at a
	// time. Effects happen before it returns, so that requests start in
	// order; a request may be answered later, from any goroutine. Byte slices
	// inside bodies alias the connection's pooled buffer: valid until Handle
	// returns, and so is group itself. ctx ends with the connection.
	Handle(ctx context.Context, group []*Request)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, group []*Request)

// Handle implements Handler.
func (f HandlerFunc) Handle(ctx context.Context, group []*Request) { f(ctx, group) }

// Response is what a request is answered with: any kmsg.Response,
// *FetchResponse or *ProduceResponse.
type Response interface{ Key() int16 }

// Request is one request of a connection. Exactly one of Reply, NoReply and
// Fail must be called, once, from any goroutine; the request must not be used
// after that.
type Request struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string
	Conn          *Conn
	Received      time.Time

	Body    kmsg.Request    // every API but Produce; decoded at Version
	Produce *ProduceRequest // Produce

	api      *API
	flexible bool
	resp     Response // set when answered; nil: nothing to send
	next     *Request // younger neighbour in the connection's queue
	group    uint64   // requests of one Handle call
	cost     int64    // bytes charged to the budget until written
	done     bool     // guarded by Conn.mu
}
