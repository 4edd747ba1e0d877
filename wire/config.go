package wire

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ServerConfig says how a listener treats its connections. Zero values mean the
// default named at each field.
type ServerConfig struct {
	Listener string // name, e.g. PLAINTEXT: in Conn.Listener, logs and metrics
	Role     Role
	Handler  Handler
	Logger   *slog.Logger
	// Registerer takes the listener's metrics, labelled by listener. May be nil.
	Registerer prometheus.Registerer

	TLS *tls.Config // nil: plaintext
	// Authenticate is given every request but ApiVersions, one at a time, until it
	// says that the connection is authenticated; it answers them. Frames are capped
	// at 64 KiB and HandshakeTimeout runs meanwhile. Nil: everyone is Anonymous.
	Authenticate func(ctx context.Context, r *Request) (p Principal, done bool, err error)
	// Authorize is asked before a request is handled; an error closes the connection. Nil: allow.
	Authorize func(*Request) error
	// Preface is offered every new connection whose first eight bytes (already read)
	// are PrefaceMagic, and takes it over or returns false. Nil: such connections are closed.
	Preface func(net.Conn) bool

	// Identity returns the cluster id and node id that ApiVersions 5 checks. Nil: no check.
	Identity func() (clusterID string, nodeID int32)
	// Features returns what ApiVersions tells of features (KIP-584). Nil: none.
	Features func() Features

	MaxRequestBytes  int           // socket.request.max.bytes; 100 MiB
	MaxInFlight      int           // unanswered requests of a connection; 128
	MaxConnections   int           // max.connections; 0: no limit
	MaxConnectionsIP int           // max.connections.per.ip; 0: no limit
	Budget           *Budget       // memory of requests in flight, shared by listeners; nil: 512 MiB of its own
	IdleTimeout      time.Duration // connections.max.idle.ms; 10 min
	HandshakeTimeout time.Duration // TLS and authentication; 10 s
	FrameTimeout     time.Duration // for each 64 KiB of a frame that has begun; 30 s
	WriteTimeout     time.Duration // for each 4 KiB of what is being written; 30 s
	ShutdownGrace    time.Duration // for answers in flight when ctx ends; 5 s
	SendBuffer       int           // SO_SNDBUF, socket.send.buffer.bytes; 0 or -1: the system's
	RecvBuffer       int           // SO_RCVBUF, socket.receive.buffer.bytes; 0 or -1: the system's
	ColdReaders      int           // workers that page in slices which are not resident; 4
}

// Features is what a node supports and what the cluster finalised.
type Features struct {
	Supported      []FeatureRange
	Finalized      []FeatureRange
	FinalizedEpoch int64 // -1: none
}

// FeatureRange is a feature with its lowest and highest level.
type FeatureRange struct {
	Name     string
	Min, Max int16
}

// Principal is who a connection speaks for.
type Principal struct {
	Type string // "User"
	Name string
}

// Anonymous is the principal of connections that need not authenticate.
var Anonymous = Principal{Type: "User", Name: "ANONYMOUS"}

// String returns Type:Name.
func (p Principal) String() string { return p.Type + ":" + p.Name }

// PrefaceMagic begins a connection of the controllers' Raft transport. As a
// frame length it would be negative, so no Kafka client sends it.
var PrefaceMagic = [8]byte{0xff, 'V', 'A', 'R', 'V', 'E', 'R', 1}
