package wire

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ClientConfig says whom a Client talks to and how.
type ClientConfig struct {
	Addrs          func() []string                                                   // host:port to try, in order; asked at every connection attempt
	Dial           func(ctx context.Context, network, addr string) (net.Conn, error) // nil: net.Dialer
	ClientID       string
	RequestTimeout time.Duration // per request, if ctx has no earlier end; 30 s
	MaxInFlight    int           // 64
	TLS            *tls.Config
	Logger         *slog.Logger
}

// Client sends requests to one node at a time, pipelined over one connection.
type Client struct{ cfg ClientConfig }

// NewClient returns a client that connects at the first request.
func NewClient(cfg ClientConfig) *Client { return &Client{cfg: cfg} }

// Request sends req at the highest version both sides speak and returns the answer.
func (c *Client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return nil, ErrClosed
}

// Close ends the connection; requests in flight fail with ErrClosed.
func (c *Client) Close() error { return nil }
