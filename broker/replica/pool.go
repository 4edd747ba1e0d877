package replica

import "sync"

// pool runs tasks on at most limit goroutines, which live while there is work and are waited for by close.
// Its queue has no bound of its own: whoever submits has one (partitions, parked fetches, admitted lookups).
type pool struct {
	limit int

	mu      sync.Mutex
	queue   []func() // a ring would save little: it is empty most of the time
	running int
	closed  bool
	work    sync.WaitGroup
}

// submit has the task run soon. After close it is refused.
func (p *pool) submit(task func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.running >= p.limit {
		p.queue = append(p.queue, task)
		return true
	}
	p.running++
	p.work.Go(func() { p.run(task) })
	return true
}

func (p *pool) run(task func()) {
	for task != nil {
		task()
		task = p.next()
	}
}

func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.running--
		return nil
	}
	task := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	return task
}

// waiting is the number of tasks that no goroutine has taken yet.
func (p *pool) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// close refuses further tasks and waits for those it has.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.work.Wait()
}
