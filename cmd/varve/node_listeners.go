package main

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/varve-io/varve/broker"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

func listen(ctx context.Context, l config.Listener) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", l.Addr())
	if err != nil {
		return nil, &problem{"listener " + l.String(), innermost(err), "another process may have the port, or the address is not this host's: change listeners"}
	}
	return ln, nil
}

// serverConfig adds to a listener's own what all have in common.
func (n *node) serverConfig(l config.Listener, role wire.Role, own wire.ServerConfig) wire.ServerConfig {
	own.Listener, own.Role = l.Name, role
	own.Logger, own.Registerer, own.Budget = n.logger, n.registry, n.budget
	own.MaxRequestBytes = n.cfg.Net.MaxRequestBytes
	own.IdleTimeout = n.cfg.Net.IdleTimeout
	own.SendBuffer, own.RecvBuffer = n.cfg.Net.SendBuffer, n.cfg.Net.RecvBuffer
	if role == wire.Broker {
		own.MaxConnections, own.MaxConnectionsIP = n.cfg.Net.MaxConnections, n.cfg.Net.MaxConnectionsPerIP
	}
	return own
}

// bindClients takes the client ports before the broker tells the controller of
// them: port 0 is any.
func (n *node) bindClients(ctx context.Context) error {
	for i, l := range n.cfg.Listeners {
		ln, err := listen(ctx, l)
		if err != nil {
			return err
		}
		n.bound = append(n.bound, ln)
		port := ln.Addr().(*net.TCPAddr).Port
		n.cfg.Listeners[i].Port = port
		for j, a := range n.cfg.Advertised {
			if a.Name != l.Name {
				continue
			}
			if a.Port == 0 {
				n.cfg.Advertised[j].Port = port
			}
			if a.Host == "" {
				n.cfg.Advertised[j].Host = hostName(ctx)
			}
		}
	}
	return nil
}

// serveClients begins to accept what bindClients bound.
func (n *node) serveClients(context.Context) error {
	for i, ln := range n.bound {
		l := n.cfg.Listeners[i]
		server := wire.NewServer(n.serverConfig(l, wire.Broker, wire.ServerConfig{
			Handler: n.broker.Handler(l.Name), Features: n.broker.Features,
			Identity: func() (string, int32) { return n.clusterID, n.cfg.NodeID },
		}))
		n.services.start("listener "+l.Name, func(ctx context.Context) error { return server.Serve(ctx, ln) })
	}
	n.bound = nil // theirs now
	return nil
}

// advertised is what clients are told to connect to.
func (n *node) advertised() []broker.Listener {
	var all []broker.Listener
	for _, l := range n.cfg.Advertised {
		all = append(all, broker.Listener{Name: l.Name, Protocol: l.Protocol, Host: l.Host, Port: int32(l.Port)})
	}
	return all
}

// lookupTimeout bounds the question whether this host's name resolves.
const lookupTimeout = 2 * time.Second

// hostName is what a listener on every address advertises: the host's name if
// it resolves, else the loopback address.
func hostName(ctx context.Context) string {
	const loopback = "127.0.0.1"
	name, err := os.Hostname()
	if err != nil {
		return loopback
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, name); err != nil {
		return loopback
	}
	return name
}

// reachable turns the address of a listener into one to connect to.
func reachable(a net.Addr) string {
	tcp := a.(*net.TCPAddr)
	if tcp.IP.IsUnspecified() {
		return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}).String()
	}
	return tcp.String()
}
