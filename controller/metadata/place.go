package metadata

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// place spreads the replicas of count partitions, the first of which has the
// number first: leaders go round all brokers, the replicas of a partition go
// into as many racks as there are, and brokers that are out of service take
// part only where the others do not suffice.
func (p *Planner) place(first, count, factor int) ([][]int32, error) {
	alive, fenced := ring(p.Image, (*Broker).Active), ring(p.Image, func(b *Broker) bool { return !b.Active() })
	switch total := len(alive) + len(fenced); {
	case len(alive) == 0:
		return nil, Refuse(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): All brokers are currently fenced.", factor)
	case factor > total:
		return nil, Refuse(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.", factor, factor, total)
	}
	assignments := make([][]int32, count)
	for i := range assignments {
		turn := p.Seed + uint64(first+i)
		replicas := pick(nil, alive, turn, factor)
		replicas = pick(replicas, fenced, turn, factor)
		for _, b := range replicas {
			assignments[i] = append(assignments[i], b.ID)
		}
	}
	return assignments, nil
}

// ring lists brokers so that neighbours are of different racks where that is
// possible: one of each rack, then the next of each.
func ring(m *Image, want func(*Broker) bool) []*Broker {
	racks := map[string][]*Broker{}
	var names []string
	for b := range m.Brokers() {
		if !want(b) {
			continue
		}
		if racks[b.Rack] == nil {
			names = append(names, b.Rack)
		}
		racks[b.Rack] = append(racks[b.Rack], b)
	}
	slices.Sort(names)
	var all []*Broker
	for depth, more := 0, true; more; depth++ {
		more = false
		for _, name := range names {
			if depth < len(racks[name]) {
				all, more = append(all, racks[name][depth]), true
			}
		}
	}
	return all
}

// pick extends chosen to factor brokers of the ring. The first follows the
// turn; the others come from racks that are not yet used, as long as there
// are any. They begin further on with every full turn, so that one broker's
// partitions do not all have the same followers.
func pick(chosen, ring []*Broker, turn uint64, factor int) []*Broker {
	n := uint64(len(ring))
	if n == 0 {
		return chosen
	}
	if len(chosen) == 0 {
		chosen = append(chosen, ring[turn%n])
	}
	shift := turn / n
	for _, newRackOnly := range []bool{true, false} {
		for i := range n {
			b := ring[(turn+1+(shift+i)%max(n-1, 1))%n]
			if len(chosen) == factor {
				return chosen
			}
			taken := func(c *Broker) bool { return c.ID == b.ID || newRackOnly && c.Rack == b.Rack }
			if !slices.ContainsFunc(chosen, taken) {
				chosen = append(chosen, b)
			}
		}
	}
	return chosen
}
