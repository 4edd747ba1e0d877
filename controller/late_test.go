package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/wire"
)

// memoryNet is a network of pipes.
type memoryNet struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
}

type memoryListener struct {
	name string
	come chan net.Conn
	done chan struct{}
	once sync.Once
}

func (n *memoryNet) listen(name string) net.Listener {
	l := &memoryListener{name: name, come: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[name] = l
	return l
}

func (n *memoryNet) dial(ctx context.Context, _, name string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[name]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	select {
	case l.come <- theirs:
		return ours, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.come:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return raftAddr(l.name) }

// TestOneMinuteLate: two of three wait for the third, however long it takes.
func TestOneMinuteLate(t *testing.T) {
	for _, late := range []int32{1, 3} {
		t.Run(fmt.Sprintf("node %d", late), func(t *testing.T) {
			dirs := map[int32]string{1: t.TempDir(), 2: t.TempDir(), 3: t.TempDir()}
			synctest.Test(t, func(t *testing.T) {
				network := &memoryNet{listeners: map[string]*memoryListener{}}
				list := []Voter{{1, "a:1"}, {2, "b:2"}, {3, "c:3"}}
				ctx, cancel := context.WithCancel(context.Background())
				var wg sync.WaitGroup
				nodes := map[int32]*Controller{}
				start := func(id int32) {
					c, err := New(Config{NodeID: id, Dir: dirs[id], Voters: list, Dial: network.dial})
					if err != nil {
						t.Fatal(err)
					}
					nodes[id] = c
					srv := wire.NewServer(wire.ServerConfig{Listener: "CONTROLLER", Role: wire.Controller, Handler: c.Handler(), Preface: c.Preface})
					ln := network.listen(list[id-1].Address)
					wg.Go(func() { srv.Serve(ctx, ln) })
					wg.Go(func() { c.Run(ctx) })
				}
				for id := range int32(3) {
					if id+1 != late {
						start(id + 1)
					}
				}
				time.Sleep(time.Minute)
				for id, c := range nodes {
					if c.ClusterID() != "" || c.Ready() == nil {
						t.Errorf("node %d is of cluster %q after a minute without node %d", id, c.ClusterID(), late)
					}
				}
				start(late)
				time.Sleep(10 * time.Second)
				active := 0
				for id, c := range nodes {
					if c.reign.Load() != nil {
						active++
					}
					if err := c.Ready(); err != nil || c.Image().ClusterID() == "" || c.Image().ClusterID() != nodes[late].ClusterID() {
						t.Errorf("node %d: %v, cluster %q", id, err, c.Image().ClusterID())
					}
				}
				if active != 1 {
					t.Errorf("%d are active", active)
				}
				cancel()
				wg.Wait()
			})
		})
	}
}
