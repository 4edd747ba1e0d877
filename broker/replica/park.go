package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// fetchWait is a parked Fetch. It is looked at anew whenever something happens that could complete it, by one goroutine at a
// time; that one owns all that is not guarded.
type fetchWait struct {
	m      *Manager
	f      *Fetch
	until  time.Time
	stop   func() bool // watch the request's context no longer
	nodes  []fetchNode
	failed []error      // by partition: what the store answered; this fetch does not ask it again
	wanted atomic.Int64 // bytes that must still arrive
	timer  deadline

	mu      sync.Mutex
	running bool // a look is queued or under way
	again   bool // something happened since it began
	ended   bool // the time is over, or the client gone
	done    bool // answered
}

// fetchNode is the place of a parked fetch in the list of one partition. Guarded by that partition's mutex while listed.
type fetchNode struct {
	wait       *fetchWait
	p          *Partition
	list       *fetchList
	hw, stable int64 // of the partition when the fetch looked
	end        int64 // of the log then; of a replica's fetch
	bytes      int64 // below the high watermark then, by the partition's count; of a replica's fetch: in the log
	committed  bool  // only what is below the last stable offset counts
	prev, next *fetchNode
}

// wait parks a fetch that has been looked at and has not enough.
func (m *Manager) wait(ctx context.Context, f *Fetch, found outcome) {
	w := &fetchWait{m: m, f: f, until: time.Now().Add(f.MaxWait), running: true}
	w.stop = context.AfterFunc(ctx, w.end)
	if !w.settled(found) {
		w.look()
	}
}

// wake has the fetch looked at by a worker: reading may need the disk, and whoever wakes holds up appends.
func (w *fetchWait) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.done:
	case w.running:
		w.again = true
	case w.m.readers.submit(w.look):
		w.running = true
	}
}

// end has the fetch answered with what there is.
func (w *fetchWait) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.wake()
}

// look reads again until the fetch is answered, or parked with nothing having happened meanwhile.
func (w *fetchWait) look() {
	for {
		w.unpark()
		w.f.reset()
		w.mu.Lock()
		w.again = false
		w.mu.Unlock()
		if w.settled(w.m.pass(w.f, w.failed)) {
			return
		}
	}
}

// settled answers the fetch or parks it. It reports false if it must be looked at again.
func (w *fetchWait) settled(found outcome) bool {
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if found.enough(w.f) || ended || !time.Now().Before(w.until) {
		w.answer(found)
		return true
	}
	w.noteFailures()
	w.park(found)
	for _, ask := range found.cold {
		w.m.cold.start(ask.key, ask.request, w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again || w.ended {
		return false
	}
	w.running = false
	return true
}

// answer gives the fetch back. What it did not wait for is read for the next one.
func (w *fetchWait) answer(found outcome) {
	w.stop()
	w.mu.Lock()
	w.done = true
	w.mu.Unlock()
	w.m.prefetch(found.cold)
	w.m.finish(w.f)
}

// noteFailures remembers what the store could not do, for the fetch waits on: within its time it is not told.
func (w *fetchWait) noteFailures() {
	for i := range w.f.Partitions {
		if err := w.f.Partitions[i].Err; patient(err) {
			if w.failed == nil {
				w.failed = make([]error, len(w.f.Partitions))
			}
			w.failed[i] = err
		}
	}
}

// prefetch reads what a fetch is answered without.
func (m *Manager) prefetch(asks []coldAsk) {
	for _, ask := range asks {
		m.cold.start(ask.key, ask.request, nil)
	}
}

// park puts the fetch into the list of every partition that may bring bytes.
func (w *fetchWait) park(found outcome) {
	w.wanted.Store(int64(w.f.MinBytes - found.bytes))
	isCold := func(i int) bool {
		for _, ask := range found.cold {
			if ask.index == i {
				return true
			}
		}
		return false
	}
	w.nodes = w.nodes[:0]
	if cap(w.nodes) < len(w.f.Partitions) {
		w.nodes = make([]fetchNode, 0, len(w.f.Partitions)) // nodes are linked: the array must not move
	}
	for i := range w.f.Partitions {
		x := &w.f.Partitions[i]
		if x.Partition == nil || isCold(i) {
			continue
		}
		w.nodes = append(w.nodes, fetchNode{wait: w, p: x.Partition, hw: x.HighWatermark, stable: x.LastStableOffset,
			end: x.end, committed: w.f.Isolation == ReadCommitted})
		if n := &w.nodes[len(w.nodes)-1]; w.f.Replica != nil {
			x.Partition.parkReplica(n, x.CurrentLeaderEpoch)
		} else {
			x.Partition.parkFetch(n, x.CurrentLeaderEpoch, w.f.anyReplica())
		}
	}
	w.m.timers.add(&w.timer, w.until, w.end)
}

func (w *fetchWait) unpark() {
	w.m.timers.remove(&w.timer)
	for i := range w.nodes {
		n := &w.nodes[i]
		n.p.mu.Lock()
		n.list.remove(n)
		n.p.mu.Unlock()
	}
	w.nodes = w.nodes[:0]
}

// parkFetch adds a node, has what it waits for made durable, and wakes it if something happened since it looked.
func (p *Partition) parkFetch(n *fetchNode, epoch int32, anyReplica bool) {
	p.mu.Lock()
	n.bytes = p.mu.marks.reached
	p.mu.fetches.add(n)
	hw := n.hw // once it is listed the node is guarded
	missed := p.HighWatermark() > n.hw || n.committed && p.LastStableOffset() > n.stable
	p.mu.Unlock()
	l, err := p.reading(epoch, anyReplica)
	if missed || err != nil {
		n.wait.wake()
		return
	}
	if lead := p.lead.Load(); lead != nil && lead.here && p.durable(lead) && l.EndOffset() > hw {
		p.wantSync(true)
	}
}

// parkReplica adds a node of a replica's fetch, and wakes it if something happened since it looked.
func (p *Partition) parkReplica(n *fetchNode, epoch int32) {
	p.mu.Lock()
	n.bytes = p.mu.marks.appended
	p.mu.replicas.add(n)
	missed := p.HighWatermark() > n.hw
	p.mu.Unlock()
	_, l, err := p.leading(epoch)
	if err != nil || missed || l.EndOffset() > n.end {
		n.wait.wake()
	}
}

// fetchList holds the parked fetches of one partition, in no order.
type fetchList struct {
	head  *fetchNode
	count int
}

func (l *fetchList) len() int { return l.count }

func (l *fetchList) add(n *fetchNode) {
	n.list, n.prev, n.next = l, nil, l.head
	if l.head != nil {
		l.head.prev = n
	}
	l.head = n
	l.count++
}

func (l *fetchList) remove(n *fetchNode) {
	if n.prev == nil {
		l.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
	l.count--
}

// reached appends the fetches that have enough now that there are so many bytes below the high watermark. The caller holds
// the partition's mutex.
func (l *fetchList) reached(p *Partition, hw, bytes int64, woken []*fetchWait) []*fetchWait {
	stable := p.LastStableOffset()
	for n := l.head; n != nil; n = n.next {
		if hw <= n.hw || n.committed && stable <= n.stable {
			continue
		}
		more := bytes - n.bytes
		n.bytes, n.hw, n.stable = bytes, hw, stable
		// Bytes from before the partition was opened are not counted: then the fetch looks for itself.
		if left := n.wait.wanted.Add(-more); left <= 0 || more == 0 {
			woken = append(woken, n.wait)
		}
	}
	return woken
}

// grown appends the fetches of replicas that have enough now that so many bytes were appended. The caller holds the partition's mutex.
func (l *fetchList) grown(bytes int64, woken []*fetchWait) []*fetchWait {
	for n := l.head; n != nil; n = n.next {
		more := bytes - n.bytes
		n.bytes = bytes
		if n.wait.wanted.Add(-more) <= 0 {
			woken = append(woken, n.wait)
		}
	}
	return woken
}

// older appends the fetches of replicas to which a high watermark is news (KIP-1166). The caller holds the partition's mutex.
func (l *fetchList) older(hw int64, woken []*fetchWait) []*fetchWait {
	for n := l.head; n != nil; n = n.next {
		if n.hw < hw {
			n.hw = hw
			woken = append(woken, n.wait)
		}
	}
	return woken
}

func (l *fetchList) all(woken []*fetchWait) []*fetchWait {
	for n := l.head; n != nil; n = n.next {
		woken = append(woken, n.wait)
	}
	return woken
}
