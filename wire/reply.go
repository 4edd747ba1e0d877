package wire

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reply answers the request. It may be called from any goroutine; the response
// leaves when all earlier requests of the connection are answered. It must not
// be changed afterwards. File ranges of a *FetchResponse are released when sent
// or dropped.
func (r *Request) Reply(resp Response) { r.finish(resp) }

// NoReply ends a request that gets no answer: produce with acks=0.
func (r *Request) NoReply() { r.finish(nil) }

// Fail closes the connection, without answering.
func (r *Request) Fail(err error) {
	c := r.Conn
	r.finish(nil)
	c.close(fmt.Errorf("%s: %w", r.api.Name, err))
}

// ReplyThrottled answers a request of a client over its quota (KIP-219). The
// response, in which the caller has set the throttle time, leaves at once and
// the connection is not read for d; clients too old to wait by themselves get
// the response itself late.
func (r *Request) ReplyThrottled(resp Response, d time.Duration) {
	c := r.Conn
	if r.Version >= r.api.ThrottleFrom {
		until := time.Now().Add(d).UnixNano()
		for old := c.muteUntil.Load(); old < until && !c.muteUntil.CompareAndSwap(old, until); {
			old = c.muteUntil.Load()
		}
		r.finish(resp)
		return
	}
	time.AfterFunc(d, func() { r.finish(resp) })
}

// unmute waits until a throttled connection may be read again.
func (c *Conn) unmute() error {
	until := c.muteUntil.Load()
	if until == 0 {
		return nil
	}
	if d := time.Until(time.Unix(0, until)); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.reading.Done():
			return errStopped
		}
	}
	c.muteUntil.CompareAndSwap(until, 0)
	return nil
}

// finish marks r answered and, if that is what the connection waits for, has
// the queue written. While the reader handles r's own group it will do so itself.
func (r *Request) finish(resp Response) {
	c := r.Conn
	c.mu.Lock()
	if r.done {
		c.mu.Unlock()
		releaseResponse(resp)
		c.srv.cfg.Logger.Error("request answered twice", "api", r.api.Name, "listener", c.Listener)
		return
	}
	r.done, r.resp = true, resp
	if c.closed {
		c.mu.Unlock()
		r.drop()
		return
	}
	start := c.head == r && !c.writing && c.handling != r.group
	if start {
		c.writing = true
		c.writers.Add(1)
	}
	c.mu.Unlock()
	if start {
		go func() {
			defer c.writers.Done()
			c.drain()
		}()
	}
}

// drop gives back what an answered request holds.
func (r *Request) drop() {
	releaseResponse(r.resp)
	r.resp, r.Body = nil, nil
	r.Conn.srv.cfg.Budget.releaseRequest(r.cost)
}

func releaseResponse(resp Response) {
	if f, ok := resp.(*FetchResponse); ok {
		f.Release()
	}
}

// enqueue appends a group to the queue. It fails when the connection is closed.
func (c *Conn) enqueue(group []*Request) bool {
	for i, r := range group[1:] {
		group[i].next = r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		for _, r := range group {
			c.srv.cfg.Budget.releaseRequest(r.cost)
		}
		return false
	}
	c.groups++
	c.handling = c.groups
	for _, r := range group {
		r.group = c.groups
	}
	if c.tail == nil {
		c.head = group[0]
	} else {
		c.tail.next = group[0]
	}
	c.tail = group[len(group)-1]
	c.inFlight += len(group)
	return true
}

// handled ends the handling of a group: answers that are there are written by the reader.
func (c *Conn) handled() {
	c.mu.Lock()
	c.handling = 0
	start := !c.writing && !c.closed && c.head != nil && c.head.done
	if start {
		c.writing = true
	}
	c.mu.Unlock()
	if start {
		c.drain()
	}
}

// maxBatch is how many answers are encoded before they are written.
const maxBatch = 64

// drain writes answers from the head of the queue until that is unanswered.
// The caller has set writing.
func (c *Conn) drain() {
	for {
		c.mu.Lock()
		first, n := c.head, 0
		for r := first; r != nil && r.done && n < maxBatch; r = r.next {
			c.head = r.next
			n++
		}
		if c.head == nil {
			c.tail = nil
		}
		if n == 0 || c.closed {
			c.writing = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()

		err := c.writeAnswers(first, n)

		c.mu.Lock()
		c.inFlight -= n
		c.mu.Unlock()
		c.signalRoom()
		if err != nil {
			c.close(err)
		}
	}
}

// writeAnswers encodes and sends n answers and gives back all they hold.
func (c *Conn) writeAnswers(first *Request, n int) (err error) {
	r := first
	defer func() {
		for ; n > 0; n-- { // those an error or a panic left
			next := r.next
			r.drop()
			r = next
		}
		c.out.done()
	}()
	defer c.rescue(&err)
	for ; n > 0; n-- {
		if err := c.writeAnswer(r); err != nil {
			return fmt.Errorf("write %s: %w", r.api.Name, err)
		}
		c.srv.metrics.seconds[r.api.slot].Observe(time.Since(r.Received).Seconds())
		next := r.next
		r.drop()
		r = next
	}
	return c.out.flush(c, false)
}

func (c *Conn) writeAnswer(r *Request) error {
	tags := r.flexible && r.Key != keyApiVersions
	switch resp := r.resp.(type) {
	case nil:
		return nil
	case *FetchResponse:
		return c.out.fetch(c, r, resp)
	case *ProduceResponse:
		mark := c.out.begin(r, tags)
		c.out.b = resp.appendTo(c.out.b, r.Version)
		c.out.end(mark, 0)
	case kmsg.Response:
		mark := c.out.begin(r, tags)
		if resp.Key() != r.Key {
			return fmt.Errorf("answer of key %d", resp.Key())
		}
		if r.Version <= r.api.Max {
			resp.SetVersion(r.Version)
		}
		c.out.b = resp.AppendTo(c.out.b)
		c.out.end(mark, 0)
	default:
		return fmt.Errorf("answer of type %T", resp)
	}
	return c.out.limit(c)
}

// awaitRoom waits until fewer than MaxInFlight requests are unanswered and
// returns how many more may be.
func (c *Conn) awaitRoom() (int, error) {
	for {
		c.mu.Lock()
		room, closed := c.srv.cfg.MaxInFlight-c.inFlight, c.closed
		c.mu.Unlock()
		switch {
		case closed:
			return 0, ErrClosed
		case room > 0:
			return room, nil
		case c.stopped():
			return 0, errStopped
		}
		select {
		case <-c.room:
		case <-c.reading.Done():
		}
	}
}

func (c *Conn) signalRoom() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// awaitReplies lets answers in flight leave, for at most ShutdownGrace.
func (c *Conn) awaitReplies() {
	t := time.NewTimer(c.srv.cfg.ShutdownGrace)
	defer t.Stop()
	for {
		c.mu.Lock()
		idle := c.inFlight == 0 || c.closed
		c.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-c.room:
		case <-t.C:
			return
		}
	}
}
