package replica

import (
	"errors"
	"time"

	"github.com/varve-io/varve/broker/log"
)

// syncWork is the group commit of one partition. At most one fdatasync is under way or queued; whoever asks
// meanwhile is served by the next, which so covers all that was appended before it began. Nobody waits in it:
// acknowledgements are parked, and completed by what the sync achieved.
type syncWork struct {
	// Guarded by Partition.mu.
	active bool // queued or under way
	again  bool // asked for since it began
	armed  bool // the lazy timer runs
	lazy   deadline
}

// wantSync has everything appended so far made durable: at once, or within lazySync, so that appends that wait for
// nobody share one sync. The caller does not hold p.mu.
func (p *Partition) wantSync(urgent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case urgent && p.sync.active:
		p.sync.again = true
	case urgent:
		p.startSync()
	case !p.sync.armed:
		p.sync.armed = true
		p.m.timers.add(&p.sync.lazy, time.Now().Add(lazySync), p.lazyDue)
	}
}

// startSync queues the sync. The caller holds p.mu.
func (p *Partition) startSync() {
	p.sync.active, p.sync.again = true, false
	if p.sync.armed {
		p.m.timers.remove(&p.sync.lazy)
		p.sync.armed = false
	}
	if !p.life.syncs().submit(p.syncOnce) {
		p.sync.active = false // shutting down
	}
}

func (p *Partition) lazyDue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sync.armed {
		return
	}
	p.sync.armed = false
	if p.sync.active {
		p.sync.again = true
		return
	}
	p.startSync()
}

func (p *Partition) syncOnce() {
	l := p.log.Load()
	if l == nil {
		return
	}
	p.mu.Lock()
	p.sync.again = false // whoever appended before this is served by what comes now
	p.mu.Unlock()
	_, err := l.Sync()
	if err == nil {
		p.advance()
	}
	p.mu.Lock()
	p.sync.active = false
	if p.sync.again && err == nil {
		p.startSync()
	}
	p.mu.Unlock()
	if err != nil && !errors.Is(err, log.ErrClosed) { // a deleted partition has lost nothing
		p.fail(err)
	}
}
