package main

import (
	"cmp"
	"fmt"
	"slices"
)

// partition names one, as on the command line: TOPIC:PARTITION.
type partition struct {
	topic string
	index int32
}

func (p partition) String() string { return fmt.Sprintf("%s:%d", p.topic, p.index) }

func comparePartitions(x, y partition) int {
	return cmp.Or(cmp.Compare(x.topic, y.topic), cmp.Compare(x.index, y.index))
}

// placement moves replicas among brokers such that as few as possible move,
// racks stay as different as they can be, and loads even.
type placement struct {
	racks map[int32]string // of every broker that replicas may lie on
	load  map[int32]int    // replicas of each
}

func newPlacement(racks map[int32]string, replicas map[partition][]int32) *placement {
	p := &placement{racks: racks, load: map[int32]int{}}
	for _, list := range replicas {
		for _, id := range list {
			p.load[id]++
		}
	}
	return p
}

// move returns the replicas of a partition without those that lie on none of
// the brokers; each is replaced at its place in the order of preference.
func (p *placement) move(replicas []int32) ([]int32, error) {
	out := slices.Clone(replicas)
	for i, id := range out {
		if _, stays := p.racks[id]; stays {
			continue
		}
		to, ok := p.choose(out)
		if !ok {
			return nil, fmt.Errorf("%d replicas, and only %d brokers to put them on", len(replicas), len(p.racks))
		}
		p.load[id]--
		p.load[to]++
		out[i] = to
	}
	return out, nil
}

// replace returns the replicas with another broker in the place of one.
func (p *placement) replace(replicas []int32, gone int32) ([]int32, error) {
	i := slices.Index(replicas, gone)
	if i < 0 {
		return replicas, nil
	}
	to, ok := p.choose(replicas)
	if !ok {
		return nil, fmt.Errorf("all %d brokers that remain have a replica", len(p.racks))
	}
	p.load[gone]--
	p.load[to]++
	out := slices.Clone(replicas)
	out[i] = to
	return out, nil
}

// choose picks a broker that has no replica yet: of a rack that has none, if
// there is one; of the least load.
func (p *placement) choose(replicas []int32) (int32, bool) {
	used := map[string]bool{}
	for _, id := range replicas {
		if rack, ok := p.racks[id]; ok {
			used[rack] = true
		}
	}
	best, found := int32(-1), false
	for _, id := range sortedKeys(p.racks) {
		switch {
		case slices.Contains(replicas, id):
		case !found, used[p.racks[best]] && !used[p.racks[id]],
			used[p.racks[best]] == used[p.racks[id]] && p.load[id] < p.load[best]:
			best, found = id, true
		}
	}
	return best, found
}
