package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// aim is who a fault strikes.
type aim int

const (
	aimNode       aim = iota // some node, rather one that leads
	aimController            // the node with the active controller
)

// kind is a way to break something. strike does it to the node of an index and gives what mends it, which is called
// exactly once, also when the run is cancelled.
type kind struct {
	name   string
	aim    aim
	least  time.Duration // that it holds
	most   time.Duration
	strike func(r *rig, i int) (heal func(context.Context) error, err error)
	lossy  bool // what was not synced is gone: only when all replicas are in sync
}

// haltLimit is how long a node may take to stop.
const haltLimit = 5 * time.Second

var allKinds = []kind{
	{name: "kill", least: 0, most: 2 * session, strike: kill},
	{name: "pause", least: session + time.Second, most: 2*session + time.Second, strike: pause},
	{name: "controller", aim: aimController, least: 0, most: session, strike: kill},
}

// kindsOf gives those of the names, all for none.
func kindsOf(names []string) ([]kind, error) {
	if len(names) == 0 {
		return allKinds, nil
	}
	var found []kind
	for _, name := range names {
		at := -1
		for i, k := range allKinds {
			if k.name == name {
				at = i
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("no kind of fault is called %q: there are %s", name, strings.Join(KindNames(), ", "))
		}
		found = append(found, allKinds[at])
	}
	return found, nil
}

// KindNames are the names of all kinds.
func KindNames() (names []string) {
	for _, k := range allKinds {
		names = append(names, k.name)
	}
	return names
}

// kill is SIGKILL.
func kill(r *rig, i int) (func(context.Context) error, error) {
	r.cluster.Node(i).Kill()
	return func(ctx context.Context) error { return r.restart(ctx, i) }, nil
}

// pause is SIGSTOP for longer than the session: the node comes back and does not know that it was deposed.
func pause(r *rig, i int) (func(context.Context) error, error) {
	b := r.cluster.Node(i)
	err := b.Halt(haltLimit)
	return func(context.Context) error {
		b.Thaw()
		return nil
	}, err
}
