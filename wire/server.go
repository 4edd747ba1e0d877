package wire

import (
	"context"
	"net"
)

// Server speaks the Kafka protocol on one listener.
type Server struct{ cfg ServerConfig }

// NewServer returns a server; Serve starts it.
func NewServer(cfg ServerConfig) *Server { return &Server{cfg: cfg} }

// Serve accepts connections until ctx ends, then closes them and returns when
// all have ended, at the latest after ShutdownGrace.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error { <-ctx.Done(); return ctx.Err() }

// Reply answers the request.
func (r *Request) Reply(resp Response) {}

// NoReply ends a request that is not answered (acks=0).
func (r *Request) NoReply() {}

// Fail closes the connection.
func (r *Request) Fail(err error) {}

// Budget admits the memory of requests in flight.
type Budget struct{}

// NewBudget returns a budget of n bytes.
func NewBudget(n int64) *Budget { return &Budget{} }
