package broker

import "sync"

// tasks are goroutines that work on requests. Once stopped no new one starts,
// so that waiting for those that run comes to an end.
type tasks struct {
	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

// run starts fn, or reports that it is too late for that.
func (t *tasks) run(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.running.Go(fn)
	return true
}

// stop waits for all that run and lets none start.
func (t *tasks) stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.running.Wait()
}
