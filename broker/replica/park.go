package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/tier"
	"github.com/varve-io/varve/wire"
)

// fetchWait is a parked Fetch. It is looked at anew whenever something happens that could complete it, by one goroutine at a
// time; that one owns all that is not guarded.
type fetchWait struct {
	m      *Manager
	f      *Fetch
	until  time.Time
	stop   func() bool // watch the request's context no longer
	nodes  []fetchNode
	cold   []coldRead   // by partition
	wanted atomic.Int64 // bytes that must still arrive
	timer  deadline

	mu      sync.Mutex
	running bool // a look is queued or under way
	again   bool // something happened since it began
	ended   bool // the time is over, or the client gone
	done    bool // answered
	arrived []arrival
}

// fetchNode is the place of a parked fetch in the list of one partition. Guarded by that partition's mutex while listed.
type fetchNode struct {
	wait       *fetchWait
	p          *Partition
	hw, stable int64 // of the partition when the fetch looked
	bytes      int64 // below the high watermark then, by the partition's count
	committed  bool  // only what is below the last stable offset counts
	prev, next *fetchNode
}

// coldRead is what became of the download for one partition.
type coldRead struct {
	started bool
	done    bool
	result  tier.ReadResult
}

type arrival struct {
	index  int
	result tier.ReadResult
}

// take takes the bytes out. An error stays, for there will be nothing else within this fetch.
func (c *coldRead) take() tier.ReadResult {
	r := c.result
	if r.Err == nil {
		c.done, c.result = false, tier.ReadResult{}
	}
	return r
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
		w.collect()
		if w.settled(w.m.pass(w.f, w.cold)) {
			return
		}
	}
}

// collect takes over what downloads have brought.
func (w *fetchWait) collect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = false
	for _, a := range w.arrived {
		w.cold[a.index] = coldRead{started: true, done: true, result: a.result}
	}
	w.arrived = nil
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
	w.download(found.cold)
	w.park(found)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again || w.ended {
		return false
	}
	w.running = false
	return true
}

// answer gives the fetch back.
func (w *fetchWait) answer(found outcome) {
	w.stop()
	w.mu.Lock()
	w.done = true
	late := w.arrived
	w.arrived = nil
	w.mu.Unlock()
	for _, a := range late {
		wire.ReleaseRanges(a.result.Ranges)
	}
	for i := range w.cold {
		wire.ReleaseRanges(w.cold[i].result.Ranges)
	}
	w.m.prefetch(w.missing(found.cold))
	w.f.Done(w.f)
}

// missing are the asks without a download of this fetch.
func (w *fetchWait) missing(asks []coldAsk) []coldAsk {
	var list []coldAsk
	for _, ask := range asks {
		if w.cold == nil || !w.cold[ask.index].started {
			list = append(list, ask)
		}
	}
	return list
}

// download starts what is not under way.
func (w *fetchWait) download(asks []coldAsk) {
	for _, ask := range w.missing(asks) {
		if w.cold == nil {
			w.cold = make([]coldRead, len(w.f.Partitions))
		}
		w.cold[ask.index].started = true
		w.m.tier.Read(w.m.life, ask.request, func(r tier.ReadResult) { w.arrive(ask.index, r) })
	}
}

// arrive takes the result of a download; after the answer it is only left in the cache.
func (w *fetchWait) arrive(index int, r tier.ReadResult) {
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		wire.ReleaseRanges(r.Ranges)
		return
	}
	w.arrived = append(w.arrived, arrival{index, r})
	w.mu.Unlock()
	w.wake()
}

// prefetch downloads for the next fetch of the same reader what this one did not wait for.
func (m *Manager) prefetch(asks []coldAsk) {
	for _, ask := range asks {
		m.tier.Read(m.life, ask.request, func(r tier.ReadResult) { wire.ReleaseRanges(r.Ranges) })
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
			committed: w.f.Isolation == ReadCommitted})
		x.Partition.parkFetch(&w.nodes[len(w.nodes)-1], x.CurrentLeaderEpoch)
	}
	w.m.timers.add(&w.timer, w.until, w.end)
}

func (w *fetchWait) unpark() {
	w.m.timers.remove(&w.timer)
	for i := range w.nodes {
		n := &w.nodes[i]
		n.p.mu.Lock()
		n.p.mu.fetches.remove(n)
		n.p.mu.Unlock()
	}
	w.nodes = w.nodes[:0]
}

// parkFetch adds a node, has what it waits for made durable, and wakes it if something happened since it looked.
func (p *Partition) parkFetch(n *fetchNode, epoch int32) {
	p.mu.Lock()
	n.bytes = p.mu.marks.reached
	p.mu.fetches.add(n)
	missed := p.HighWatermark() > n.hw || n.committed && p.LastStableOffset() > n.stable
	p.mu.Unlock()
	lead, l, err := p.leading(epoch)
	if missed || err != nil {
		n.wait.wake()
		return
	}
	if p.durable(lead) && l.EndOffset() > n.hw {
		p.wantSync(true)
	}
}

// fetchList holds the parked fetches of one partition, in no order.
type fetchList struct {
	head  *fetchNode
	count int
}

func (l *fetchList) len() int { return l.count }

func (l *fetchList) add(n *fetchNode) {
	n.prev, n.next = nil, l.head
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

func (l *fetchList) all(woken []*fetchWait) []*fetchWait {
	for n := l.head; n != nil; n = n.next {
		woken = append(woken, n.wait)
	}
	return woken
}
