package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/varve-io/varve/wire"
)

const (
	maxObservers = 64
	observerLife = 5 * time.Second // after it was last heard of
)

// observers are the controllers of this cluster that wait to be added to its
// quorum, as far as they made themselves known here.
type observers struct {
	mu   sync.Mutex
	byID map[int32]observer
}

type observer struct {
	wire.Introduction
	seen time.Time
}

// note remembers one that waits.
func (o *observers) note(in wire.Introduction, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if in.State != wire.VoterWaiting {
		delete(o.byID, in.NodeID)
		return
	}
	if o.byID == nil {
		o.byID = map[int32]observer{}
	}
	if _, known := o.byID[in.NodeID]; known || len(o.byID) < maxObservers {
		o.byID[in.NodeID] = observer{in, now}
	}
}

// of returns those of a cluster that still wait, by node id.
func (o *observers) of(cluster string, now time.Time) []observer {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []observer
	for id, x := range o.byID {
		switch {
		case now.Sub(x.seen) > observerLife:
			delete(o.byID, id)
		case x.ClusterID == cluster:
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b observer) int { return int(a.NodeID - b.NodeID) })
	return out
}
