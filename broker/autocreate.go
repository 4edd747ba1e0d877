package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
)

// autoCreateWait is how long a Metadata request waits for the topics that it
// made to be created. Usually that is enough to answer with them; a client that
// is told UNKNOWN_TOPIC_OR_PARTITION instead asks again, and meanwhile the
// reader of its connection, which may carry produce requests too, goes on.
const autoCreateWait = time.Second

// creations are the topics that are being created because somebody asked for
// them. However many clients ask, one request goes to the controller.
type creations struct {
	broker *Broker
	mu     sync.Mutex
	topics map[string]chan struct{} // closed when the attempt has ended
}

// create has topics created and waits for them for a moment.
func (c *creations) create(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, autoCreateWait)
	defer cancel()
	for _, done := range c.start(names) {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// start begins what nobody has begun and returns what to wait for.
func (c *creations) start(names []string) []chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics == nil {
		c.topics = map[string]chan struct{}{}
	}
	var all []chan struct{}
	var mine []string
	for _, n := range names {
		done := c.topics[n]
		if done == nil {
			done = make(chan struct{})
			c.topics[n] = done
			mine = append(mine, n)
		}
		all = append(all, done)
	}
	if len(mine) > 0 && !c.broker.tasks.run(func() { c.run(mine) }) {
		c.end(mine)
	}
	return all
}

// run creates topics: with the cluster's defaults, or as an internal topic must be.
func (c *creations) run(names []string) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end(names)
	}()
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, n := range names {
		req.Topics = append(req.Topics, c.broker.newTopic(n))
	}
	f := c.broker.follower
	ctx, cancel := context.WithTimeout(c.broker.ctx, f.cfg.RequestTimeout)
	defer cancel()
	r, err := f.forward(ctx, req, 0, createNotController)
	if err != nil {
		c.broker.log.Warn("topics cannot be created", "topics", names, "err", err)
		return
	}
	for _, t := range r.(*kmsg.CreateTopicsResponse).Topics {
		if t.ErrorCode != 0 && t.ErrorCode != kerr.TopicAlreadyExists.Code {
			c.broker.log.Warn("topic cannot be created", "topic", t.Topic, "err", responseError(t.ErrorCode, t.ErrorMessage))
			continue
		}
		f.waitFor(ctx, func(m *metadata.Image) bool { return m.Topic(t.Topic) != nil })
	}
}

// end tells all who wait that the attempt has ended. The caller holds mu.
func (c *creations) end(names []string) {
	for _, n := range names {
		close(c.topics[n])
		delete(c.topics, n)
	}
}
