package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varve-io/varve/test/lan"
	"github.com/varve-io/varve/test/proxy"
)

// aim is who a fault strikes.
type aim int

const (
	aimNode       aim = iota // some node, rather one that leads
	aimController            // the node with the active controller
	aimStore                 // no node: what all have in common
)

// kind is a way to break something. strike does it to the node of an index and gives what mends it, which is called
// exactly once, also when the run is cancelled.
type kind struct {
	name    string
	aim     aim
	least   time.Duration // that it holds
	most    time.Duration
	strike  func(r *rig, i int) (heal func(context.Context) error, err error)
	lossy   bool // what was not synced is gone: only when all replicas are in sync
	deposes bool // a leader that is struck cannot stay one
	fatal   bool // the node may end by itself, and is started again
}

const (
	lossPercent = 20
	slowKbit    = 1000
	// slowStore is what the store's network lets through, in bytes a second, where it is slow.
	slowStore = 64 << 10
)

// haltLimit is how long a node may take to stop.
const haltLimit = 5 * time.Second

var allKinds = []kind{
	{name: "kill", least: 0, most: 2 * session, strike: kill},
	{name: "pause", least: session + time.Second, most: 2*session + time.Second, strike: pause, deposes: true},
	{name: "partition", least: session, most: 3 * session, strike: partitioned, deposes: true},
	{name: "oneway", least: session, most: 3 * session, strike: oneWay},
	{name: "loss", least: session, most: 3 * session, strike: lossyNetwork},
	{name: "slow", least: session, most: 3 * session, strike: slowNetwork},
	{name: "power", least: 0, most: 2 * session, strike: powerCut, lossy: true},
	{name: "full", least: session, most: 3 * session, strike: diskFull, fatal: true},
	{name: "hang", least: session, most: 4 * session, strike: diskHang, fatal: true},
	{name: "store", aim: aimStore, least: session, most: 4 * session, strike: storeOutage},
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

// partitioned cuts a node off from the others: half of the time from the clients and the store too, else they still reach it, and it does not
// know better than that it leads.
func partitioned(r *rig, i int) (func(context.Context) error, error) {
	var errs []error
	for j := range nodes {
		if j != i {
			errs = append(errs, r.lan.Drop(i, j), r.lan.Drop(j, i))
		}
	}
	if r.rng.IntN(2) == 0 {
		errs = append(errs, r.lan.Drop(lan.Outside, i))
	}
	return r.healNetwork, errors.Join(errs...)
}

// oneWay lets a node hear nobody of the others, or nobody hear it.
func oneWay(r *rig, i int) (func(context.Context) error, error) {
	deaf := r.rng.IntN(2) == 0
	var errs []error
	for j := range nodes {
		switch {
		case j == i:
		case deaf:
			errs = append(errs, r.lan.Drop(j, i))
		default:
			errs = append(errs, r.lan.Drop(i, j))
		}
	}
	return r.healNetwork, errors.Join(errs...)
}

// lossyNetwork loses packets on their way to a node.
func lossyNetwork(r *rig, i int) (func(context.Context) error, error) {
	return r.healNetwork, r.lan.Lose(i, lossPercent)
}

// slowNetwork lets a node send less than it has to.
func slowNetwork(r *rig, i int) (func(context.Context) error, error) {
	return r.healNetwork, r.lan.Slow(i, slowKbit)
}

func (r *rig) healNetwork(context.Context) error {
	var errs []error
	for i := range nodes {
		errs = append(errs, r.lan.Heal(i))
	}
	return errors.Join(errs...)
}

// powerCut stops a node, lets its disk forget what was not synced, and kills it. The disk comes back before the node.
func powerCut(r *rig, i int) (func(context.Context) error, error) {
	b := r.cluster.Node(i)
	err := b.Halt(haltLimit)
	if err == nil {
		err = r.disks[i].Cut()
	}
	b.Kill()
	return func(ctx context.Context) error {
		if err := r.disks[i].Remount(); err != nil {
			return err
		}
		return r.restart(ctx, i)
	}, err
}

// diskFull takes all the space that is left on a node's disk.
func diskFull(r *rig, i int) (func(context.Context) error, error) {
	name := filepath.Join(r.disks[i].Dir, "ballast")
	return func(context.Context) error { return os.Remove(name) }, fill(name)
}

// fill makes a file that leaves no block of its file system free.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	const block = 4 << 10
	size := int64(0)
	for step := int64(64 << 20); step >= block; {
		err := unix.Fallocate(int(f.Fd()), 0, size, step)
		switch {
		case err == nil:
			size += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("fill the disk: %w", err)
		}
	}
	return nil
}

// diskHang lets every write of a node wait. Thawing is all that ends it, for SIGKILL too.
func diskHang(r *rig, i int) (func(context.Context) error, error) {
	return func(context.Context) error { return r.disks[i].Thaw() }, r.disks[i].Freeze()
}

// storeOutage takes the store away from all: connections are refused, or hang, or are slow.
func storeOutage(r *rig, _ int) (func(context.Context) error, error) {
	switch r.rng.IntN(3) {
	case 0:
		r.store.Cut()
	case 1:
		r.store.Set(proxy.BlackHole)
	case 2:
		r.store.Set(proxy.Faults{Up: proxy.Way{Rate: slowStore}, Down: proxy.Way{Rate: slowStore}})
	}
	return func(context.Context) error {
		r.store.Heal()
		return nil
	}, nil
}
