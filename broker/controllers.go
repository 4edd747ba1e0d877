package broker

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

const (
	maxControllers = 32              // that a broker remembers beside those of its configuration
	learnTimeout   = 2 * time.Second // of the question which controller is active
	// dialTimeout is how long a controller may take to say what it speaks; one
	// that hangs must not keep a broker from the others.
	dialTimeout = 2 * time.Second
)

// controllers is what a broker knows of its controllers: where they are, and
// which one is active. Metadata comes from any; writes and heartbeats go to
// the active one.
type controllers struct {
	configured func() []string // host:port

	mu     sync.Mutex
	told   []string  // as the last controller that was asked says
	active string    // "": unknown
	since  time.Time // when active became what it is
}

// addrs are all that are known, those of the configuration first.
func (c *controllers) addrs() []string {
	all := slices.Clone(c.configured())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range c.told {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// preferred is the active one, "" if that is not known.
func (c *controllers) preferred() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}

// forget says that the active one gave no answer: it may hang, or be active no more.
func (c *controllers) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = ""
}

// learn asks a controller which one is active (KIP-919), and reports whether it
// knows.
func (c *controllers) learn(ctx context.Context, controller *wire.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = controllerEndpoints
	r, err := controller.Request(ctx, req)
	resp, ok := r.(*kmsg.DescribeClusterResponse)
	if err != nil || !ok || resp.ErrorCode != 0 {
		c.forget()
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.active
	c.told, c.active = nil, ""
	for _, n := range resp.Brokers[:min(len(resp.Brokers), maxControllers)] {
		addr := net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
		c.told = append(c.told, addr)
		if n.NodeID == resp.ControllerID {
			c.active = addr
		}
	}
	if c.active != before {
		c.since = time.Now()
	}
	return c.active != ""
}

// moveGrace is how long requests may still be answered by a controller that is
// active no more: it knows best what became of them, unless it hangs.
const moveGrace = time.Second

// settle ends connections to a controller that is active no more: that of
// heartbeats at once, those of writes after a grace.
func (f *Follower) settle() {
	f.controllers.mu.Lock()
	active, since := f.controllers.active, f.controllers.since
	f.controllers.mu.Unlock()
	if active == "" {
		return
	}
	f.heartbeat.Move(active)
	if time.Since(since) > moveGrace {
		f.commands.Move(active)
		f.admin.Move(active)
	}
}
