package broker

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// Peers makes connections to other brokers, where the metadata says that they listen.
type Peers struct {
	NodeID   int32
	Image    func() *metadata.Image
	Listener string // inter.broker.listener.name; "": the first plaintext one of each broker
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	TLS      *tls.Config
	Logger   *slog.Logger
}

// Client connects at its first request, and anew wherever the broker is then.
func (p *Peers) Client(node int32) replica.Peer {
	return wire.NewClient(wire.ClientConfig{
		Addrs:    func() []string { return p.addresses(node) },
		Dial:     p.Dial,
		TLS:      p.TLS,
		ClientID: fmt.Sprintf("broker-%d-fetcher", p.NodeID),
		Logger:   p.Logger,
	})
}

func (p *Peers) addresses(node int32) []string {
	b := p.Image().Broker(node)
	if b == nil {
		return nil
	}
	l, ok := b.Listener(p.Listener)
	for i := 0; p.Listener == "" && !ok && i < len(b.Listeners); i++ {
		l, ok = b.Listeners[i], b.Listeners[i].Security == 0
	}
	if !ok {
		return nil
	}
	return []string{net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))}
}
