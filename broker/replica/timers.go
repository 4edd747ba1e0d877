package replica

import (
	"container/heap"
	"sync"
	"time"
)

// timers ends what has waited too long: one heap and one runtime timer for all parked requests of the
// broker, so that a parked request costs a heap entry and neither a goroutine nor a timer of its own.
type timers struct {
	mu     sync.Mutex
	queue  timerQueue
	timer  *time.Timer
	wakeAt time.Time // what timer is set to; zero: not set
}

// deadline is embedded in what can expire. Its zero value is not queued.
type deadline struct {
	at     time.Time
	index  int // in the heap, plus one; 0: not queued
	expire func()
}

// add has d.expire called at the given time, on a goroutine of its own, unless remove comes before.
func (t *timers) add(d *deadline, at time.Time, expire func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.at, d.expire = at, expire
	heap.Push(&t.queue, d)
	t.arm()
}

// remove takes d out. It reports whether it was queued: if not, expire was called or never will be.
func (t *timers) remove(d *deadline) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.index == 0 {
		return false
	}
	heap.Remove(&t.queue, d.index-1)
	return true
}

// arm sets the timer to the earliest deadline. A timer that fires too early, because its deadline was
// removed, finds nothing due and is set anew: cheaper than a reset for every removal.
func (t *timers) arm() {
	if len(t.queue) == 0 {
		return
	}
	at := t.queue[0].at
	if !t.wakeAt.IsZero() && !at.Before(t.wakeAt) {
		return
	}
	t.wakeAt = at
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(at), t.fire)
		return
	}
	t.timer.Reset(time.Until(at))
}

func (t *timers) fire() {
	now := time.Now()
	var due []func()
	t.mu.Lock()
	for len(t.queue) > 0 && !t.queue[0].at.After(now) {
		due = append(due, heap.Pop(&t.queue).(*deadline).expire)
	}
	t.wakeAt = time.Time{}
	t.arm()
	t.mu.Unlock()
	for _, expire := range due {
		expire()
	}
}

// stop ends the timer; what is queued never expires.
func (t *timers) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	for _, d := range t.queue {
		d.index = 0
	}
	t.queue = nil
}

// timerQueue is a heap by time that tells its elements where they are.
type timerQueue []*deadline

func (q timerQueue) Len() int           { return len(q) }
func (q timerQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q timerQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i+1, j+1
}

func (q *timerQueue) Push(x any) {
	d := x.(*deadline)
	*q = append(*q, d)
	d.index = len(*q)
}

func (q *timerQueue) Pop() any {
	old := *q
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	d.index = 0
	return d
}
