package controller

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/varve-io/varve/controller/metadata"
)

const (
	watchInterval  = 250 * time.Millisecond
	expireInterval = time.Second
	watchTimeout   = 5 * time.Second
	probeTimeout   = time.Second
	probeDelay     = 20 * time.Millisecond // a process that ends closes its connections before its listeners
)

// watch does what time asks for while this node is active: it fences brokers
// whose sessions ended, lets reservations expire and elects leaders that the
// configuration asks for.
func (c *Controller) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var lastExpiry time.Time
	var leaders elections
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if c.reign.Load() == nil {
			leaders = elections{}
			continue
		}
		now, img := time.Now(), c.Image()
		var cmds []metadata.Command
		for _, b := range c.sessions.expired(img, now) {
			c.logger.Warn("broker fenced: not heard of for its session", "broker", b.ID, "epoch", b.Epoch, "timeout", c.cfg.SessionTimeout)
			c.metrics.fenced.Inc()
			cmds = append(cmds, &metadata.FenceBroker{ID: b.ID, Epoch: b.Epoch})
		}
		if now.Sub(lastExpiry) >= expireInterval && expiredReservations(img, now.UnixMilli()) {
			lastExpiry = now
			cmds = append(cmds, &metadata.ExpireReservations{})
		}
		cmds = append(cmds, leaders.due(c, img, now)...)
		if len(cmds) > 0 {
			pctx, cancel := context.WithTimeout(ctx, watchTimeout)
			c.propose(pctx, cmds...) // if it was not done, it is still due the next time
			cancel()
		}
	}
}

func expiredReservations(img *metadata.Image, nowMs int64) bool {
	for r := range img.Reservations() {
		if r.ExpiresMs <= nowMs {
			return true
		}
	}
	return false
}

// connectionEnded has a look at a broker whose heartbeats came over a
// connection that ended.
func (c *Controller) connectionEnded(id int32, epoch int64, conn uint64) {
	if c.sessions.left(id, epoch, conn) && c.reign.Load() != nil {
		c.probe(id, epoch)
	}
}

// probeAll has a look at all brokers in service, at the beginning of a reign:
// those that died with the former controller need not be waited for.
func (c *Controller) probeAll() {
	for b := range c.Image().Brokers() {
		if !b.Fenced {
			c.probe(b.ID, b.Epoch)
		}
	}
}

// probe asks whether a broker's process still lives: a dead one refuses
// connections, and is fenced at once rather than after its session. Whatever
// else the answer is, the session decides.
func (c *Controller) probe(id int32, epoch int64) {
	c.answer(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		b := c.Image().Broker(id)
		if b == nil || b.Epoch != epoch || b.Fenced || !c.refuses(ctx, b) || c.sessions.connected(id, epoch) {
			return
		}
		c.logger.Warn("broker fenced: its process is gone", "broker", id, "epoch", epoch)
		c.metrics.fenced.Inc()
		c.propose(ctx, &metadata.FenceBroker{ID: id, Epoch: epoch})
	})
}

// refuses reports whether nobody listens where the broker said it does.
func (c *Controller) refuses(ctx context.Context, b *metadata.Broker) bool {
	select {
	case <-time.After(probeDelay):
	case <-ctx.Done():
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	l := b.Listeners[0]
	nc, err := c.cfg.dial(ctx, "tcp", net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
	if err == nil {
		nc.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// answer runs fn in a goroutine that Run waits for; fn's context ends with
// Run. After Run it has ended already.
func (c *Controller) answer(fn func(ctx context.Context)) {
	c.ending.RLock()
	defer c.ending.RUnlock()
	if c.life.Err() != nil {
		go fn(c.life)
		return
	}
	c.inFlight.Go(func() { fn(c.life) })
}
