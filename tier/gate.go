package tier

import (
	"context"
	"sync"

	"github.com/varve-io/varve/wire"
)

// lane is whom work is done for. Lanes take turns, so that one busy partition does not starve the others.
type lane struct {
	topic     wire.UUID
	partition int32
}

// gate admits work by the bytes of memory it takes. What a reader waits for is urgent
// and goes first; reading ahead leaves a part of the memory free for it.
type gate struct {
	mu       sync.Mutex
	capacity int64
	free     int64
	urgent   queue
	ahead    queue

	pressed chan struct{} // capacity 1: somebody may wait for memory that a chunk keeps
}

func newGate(capacity int64) *gate {
	return &gate{capacity: capacity, free: capacity, pressed: make(chan struct{}, 1)}
}

// press has those who keep memory look whether it is wanted.
func (g *gate) press() {
	select {
	case g.pressed <- struct{}{}:
	default:
	}
}

// crowded reports whether somebody waits for memory.
func (g *gate) crowded() bool {
	_, waiting := g.used()
	return waiting > 0
}

// reserve is the part of the memory that reading ahead leaves to what is urgent.
func (g *gate) reserve() int64 { return g.capacity / 4 }

// ticket is a place in the gate's queue, then the right to use bytes of memory. Its owner must
// call leave, once or more often, whatever happened.
type ticket struct {
	gate   *gate
	bytes  int64
	lane   lane
	urgent bool
	state  ticketState
	in     chan struct{} // closed once admitted
}

type ticketState int

const (
	waiting ticketState = iota
	admitted
	left
)

// enter asks for bytes of memory. More than there is counts as all there is.
func (g *gate) enter(bytes int64, l lane, urgent bool) *ticket {
	t := &ticket{gate: g, bytes: min(bytes, g.capacity), lane: l, urgent: urgent, in: make(chan struct{})}
	if !urgent {
		t.bytes = min(t.bytes, g.capacity-g.reserve())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue(t).push(t)
	if g.admit(); t.state == waiting {
		g.press()
	}
	return t
}

// wait returns once the ticket is admitted, or ctx has ended; then it has left.
func (t *ticket) wait(ctx context.Context) error {
	select {
	case <-t.in:
		return nil
	case <-ctx.Done():
		t.leave()
		return context.Cause(ctx)
	}
}

// hurry makes a waiting ticket urgent.
func (t *ticket) hurry() {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	if t.urgent || t.state != waiting {
		return
	}
	t.gate.ahead.remove(t)
	t.urgent = true
	t.gate.urgent.push(t)
	t.gate.admit()
}

// leave gives the memory, or the place in the queue, back.
func (t *ticket) leave() {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch t.state {
	case waiting:
		g.queue(t).remove(t)
	case admitted:
		g.free += t.bytes
	}
	t.state = left
	g.admit()
}

func (g *gate) queue(t *ticket) *queue {
	if t.urgent {
		return &g.urgent
	}
	return &g.ahead
}

// admit lets in whoever fits, urgent ones first. Nobody overtakes the first in a queue, or a large
// one would wait for ever.
func (g *gate) admit() {
	for t := g.urgent.first(); t != nil && t.bytes <= g.free; t = g.urgent.first() {
		g.let(&g.urgent, t)
	}
	if g.urgent.first() != nil {
		return
	}
	for t := g.ahead.first(); t != nil && t.bytes <= g.free-g.reserve(); t = g.ahead.first() {
		g.let(&g.ahead, t)
	}
}

func (g *gate) let(q *queue, t *ticket) {
	q.pop()
	t.state = admitted
	g.free -= t.bytes
	close(t.in)
}

// used returns the bytes admitted and how many tickets wait.
func (g *gate) used() (bytes int64, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.capacity - g.free, g.urgent.count + g.ahead.count
}

// queue holds tickets by lane; lanes take turns.
type queue struct {
	lanes map[lane][]*ticket
	turns []lane
	count int
}

func (q *queue) push(t *ticket) {
	if q.lanes == nil {
		q.lanes = make(map[lane][]*ticket)
	}
	if len(q.lanes[t.lane]) == 0 {
		q.turns = append(q.turns, t.lane)
	}
	q.lanes[t.lane] = append(q.lanes[t.lane], t)
	q.count++
}

func (q *queue) first() *ticket {
	if len(q.turns) == 0 {
		return nil
	}
	return q.lanes[q.turns[0]][0]
}

// pop removes the first ticket and passes the turn on.
func (q *queue) pop() {
	l := q.turns[0]
	q.turns = q.turns[1:]
	q.count--
	if rest := q.lanes[l][1:]; len(rest) > 0 {
		q.lanes[l] = rest
		q.turns = append(q.turns, l)
	} else {
		delete(q.lanes, l)
	}
}

func (q *queue) remove(t *ticket) {
	tickets := q.lanes[t.lane]
	for i := range tickets {
		if tickets[i] == t {
			tickets = append(tickets[:i:i], tickets[i+1:]...)
			q.count--
			break
		}
	}
	if len(tickets) > 0 {
		q.lanes[t.lane] = tickets
		return
	}
	delete(q.lanes, t.lane)
	for i := range q.turns {
		if q.turns[i] == t.lane {
			q.turns = append(q.turns[:i:i], q.turns[i+1:]...)
			break
		}
	}
}
