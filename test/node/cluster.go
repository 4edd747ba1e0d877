package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Cluster is several Varve nodes of one cluster, each broker and controller at
// once. Nodes have the ids 1 to N and the indexes 0 to N-1.
type Cluster struct {
	cfg    VarveConfig
	voters string
	nodes  []*Broker
}

// NewCluster prepares n nodes below cfg.Dir and starts none. They share one
// store; cfg.Settings are those of every node.
func NewCluster(cfg VarveConfig, n int) (*Cluster, error) {
	if cfg.StoreURL == "" {
		folder := filepath.Join(cfg.Dir, "store")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		cfg.StoreURL = "file://" + folder
	}
	c := &Cluster{cfg: cfg, nodes: make([]*Broker, n)}
	var voters []string
	for i := range n {
		if err := os.MkdirAll(c.Dir(i), 0o755); err != nil {
			return nil, err
		}
		address, err := ControllerAddr(c.Dir(i))
		if err != nil {
			return nil, err
		}
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, address))
	}
	c.voters = strings.Join(voters, ",")
	return c, nil
}

// StartCluster starts n combined nodes at once and waits until all serve clients.
func StartCluster(ctx context.Context, cfg VarveConfig, n int) (*Cluster, error) {
	c, err := NewCluster(cfg, n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		if _, err := c.Launch(i); err != nil {
			return nil, errors.Join(err, c.Stop(0))
		}
	}
	for i := range n {
		if err := c.Await(ctx, i); err != nil {
			return nil, errors.Join(err, c.Stop(0))
		}
	}
	return c, nil
}

// Dir is the folder of a node; it may be wiped while the node is down, but for
// ports.json, by which it keeps its addresses.
func (c *Cluster) Dir(i int) string { return filepath.Join(c.cfg.Dir, fmt.Sprintf("node-%d", i+1)) }

// Node is the present or last process of a node, nil before the first.
func (c *Cluster) Node(i int) *Broker { return c.nodes[i] }

// Size is the number of nodes.
func (c *Cluster) Size() int { return len(c.nodes) }

// Addrs are the client addresses of all nodes that were started.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, b := range c.nodes {
		if b != nil {
			out = append(out, b.Addr)
		}
	}
	return out
}

// Launch starts a node and does not wait for it. Settings are added to those of
// the cluster.
func (c *Cluster) Launch(i int, settings ...string) (*Broker, error) {
	cfg := c.cfg
	cfg.Dir = c.Dir(i)
	cfg.Settings = append([]string{
		fmt.Sprintf("node.id=%d", i+1),
		"controller.quorum.voters=" + c.voters,
	}, append(cfg.Settings, settings...)...)
	b, err := LaunchVarve(cfg)
	if err == nil {
		c.nodes[i] = b
	}
	return b, err
}

// Await waits until a node that was launched serves clients.
func (c *Cluster) Await(ctx context.Context, i int) error {
	return c.nodes[i].Await(ctx)
}

// Start starts a node, again or for the first time, and waits until it serves
// clients; for that a majority of the nodes must be up.
func (c *Cluster) Start(ctx context.Context, i int) error {
	if _, err := c.Launch(i); err != nil {
		return err
	}
	return c.Await(ctx, i)
}

// Stop stops all nodes at once, killing those that take longer than grace.
func (c *Cluster) Stop(grace time.Duration) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, b := range c.nodes {
		if b != nil {
			wg.Go(func() { errs[i] = b.Stop(grace) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}
