package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Cluster is several nodes of one cluster, of Varve or of Apache Kafka, each broker and controller at
// once unless Roles says otherwise. Nodes have the ids 1 to N and the indexes 0 to N-1.
type Cluster struct {
	// Roles are the process.roles of each node, "" for both. Set it before the
	// first Launch; only nodes with the controller role are voters.
	Roles []string
	// Hosts are where each node of Varve runs; set it before the first Launch.
	Hosts []Host

	dir    string
	common []string // settings of every node
	launch func(dir string, host Host, settings []string) (*Broker, error)
	nodes  []*Broker
}

// Roles of a node.
const (
	OnlyBroker     = "broker"
	OnlyController = "controller"
)

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
	return newCluster(cfg.Dir, n, cfg.Settings, func(dir string, host Host, settings []string) (*Broker, error) {
		cfg := cfg
		cfg.Dir, cfg.Host, cfg.Settings = dir, host, settings
		return LaunchVarve(cfg)
	})
}

// NewKafkaCluster prepares n nodes of Apache Kafka, each broker and controller at once, below cfg.Dir and starts
// none. cfg.Settings are those of every node; Launch formats an empty folder.
func NewKafkaCluster(j Java, cfg KafkaConfig, n int) (*Cluster, error) {
	return newCluster(cfg.Dir, n, cfg.Settings, func(dir string, _ Host, settings []string) (*Broker, error) {
		return LaunchKafka(context.Background(), j, KafkaConfig{Dir: dir, Settings: settings})
	})
}

func newCluster(dir string, n int, common []string, launch func(string, Host, []string) (*Broker, error)) (*Cluster, error) {
	c := &Cluster{Roles: make([]string, n), Hosts: make([]Host, n), dir: dir, common: common, launch: launch, nodes: make([]*Broker, n)}
	for i := range n {
		if err := os.MkdirAll(c.Dir(i), 0o755); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Voters is the controller.quorum.voters of every node.
func (c *Cluster) Voters() (string, error) {
	var voters []string
	for i := range c.nodes {
		if c.Roles[i] == OnlyBroker {
			continue
		}
		ports, err := portsOf(c.Dir(i), varvePorts)
		if err != nil {
			return "", err
		}
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, c.Hosts[i].addr(ports[1])))
	}
	return strings.Join(voters, ","), nil
}

// settings are those of one node.
func (c *Cluster) settings(i int) ([]string, error) {
	voters, err := c.Voters()
	if err != nil {
		return nil, err
	}
	ports, err := portsOf(c.Dir(i), varvePorts)
	if err != nil {
		return nil, err
	}
	out := []string{fmt.Sprintf("node.id=%d", i+1), "controller.quorum.voters=" + voters}
	switch c.Roles[i] {
	case OnlyBroker:
		out = append(out, "process.roles=broker", "listeners=PLAINTEXT://"+c.Hosts[i].addr(ports[0]))
	case OnlyController:
		out = append(out, "process.roles=controller", "listeners=CONTROLLER://"+c.Hosts[i].addr(ports[1]))
	}
	return out, nil
}

// StartCluster starts n combined nodes at once and waits until all serve clients.
func StartCluster(ctx context.Context, cfg VarveConfig, n int) (*Cluster, error) {
	c, err := NewCluster(cfg, n)
	if err != nil {
		return nil, err
	}
	if err := c.StartAll(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// StartAll starts all nodes at once and waits until all serve clients; on failure none runs.
func (c *Cluster) StartAll(ctx context.Context) error {
	for i := range c.nodes {
		if _, err := c.Launch(i); err != nil {
			return errors.Join(err, c.Stop(0))
		}
	}
	for i := range c.nodes {
		if err := c.Await(ctx, i); err != nil {
			return errors.Join(err, c.Stop(0))
		}
	}
	return nil
}

// Dir is the folder of a node; it may be wiped while the node is down, but for
// ports.json, by which it keeps its addresses.
func (c *Cluster) Dir(i int) string { return filepath.Join(c.dir, fmt.Sprintf("node-%d", i+1)) }

// Node is the present or last process of a node, nil before the first.
func (c *Cluster) Node(i int) *Broker { return c.nodes[i] }

// Size is the number of nodes.
func (c *Cluster) Size() int { return len(c.nodes) }

// Addrs are the client addresses of all brokers that were started.
func (c *Cluster) Addrs() []string {
	var out []string
	for i, b := range c.nodes {
		if b != nil && c.Roles[i] != OnlyController {
			out = append(out, b.Addr)
		}
	}
	return out
}

// Launch starts a node and does not wait for it. Settings are added to those of
// the cluster.
func (c *Cluster) Launch(i int, settings ...string) (*Broker, error) {
	own, err := c.settings(i)
	if err != nil {
		return nil, err
	}
	b, err := c.launch(c.Dir(i), c.Hosts[i], slices.Concat(own, c.common, settings))
	if err == nil {
		c.nodes[i] = b
	}
	return b, err
}

// Await waits until a node that was launched serves clients; one that is only
// a controller is not waited for.
func (c *Cluster) Await(ctx context.Context, i int) error {
	if c.Roles[i] == OnlyController {
		return nil
	}
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
