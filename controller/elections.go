package controller

import (
	"time"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire/config"
)

// maxElections bounds what one entry elects by itself; the rest follows.
const maxElections = 1000

// elections proposes leaders that the operator's configuration asks for: any
// replica that lives where nobody is eligible and the topic allows it, and
// every so often the preferred ones.
type elections struct {
	looked   uint64    // index of the image last looked at for who has no leader
	balanced time.Time // last look at who leads what
}

func (e *elections) due(c *Controller, img *metadata.Image, now time.Time) []metadata.Command {
	var cmds []metadata.Command
	if img.Index() != e.looked {
		if cmds = c.uncleanElections(img); len(cmds) == 0 {
			e.looked = img.Index()
		}
	}
	if e.balanced.IsZero() {
		e.balanced = now
	}
	if every := c.cfg.BalanceInterval; every > 0 && now.Sub(e.balanced) >= every && len(cmds) < maxElections {
		e.balanced = now
		preferred := preferredElections(img, c.cfg.ImbalancePercent)
		if len(preferred) > 0 {
			c.logger.Info("leaders go back to preferred replicas", "partitions", len(preferred))
		}
		cmds = append(cmds, preferred...)
	}
	return cmds
}

// uncleanElections lists the partitions without a leader of topics that set
// unclean.leader.election.enable, where a replica lives.
func (c *Controller) uncleanElections(img *metadata.Image) []metadata.Command {
	var cmds []metadata.Command
	for t := range img.Topics() {
		allowed, asked := false, false
		for p := range img.Partitions(t.ID) {
			if p.Leader != metadata.NoLeader || len(cmds) >= maxElections || !lives(img, p) {
				continue
			}
			if !asked {
				settings, err := config.ForTopic(img.TopicLayers(t.Name, c.cfg.NodeID, c.cfg.Properties))
				allowed, asked = err == nil && settings.UncleanElection, true
			}
			if allowed {
				cmds = append(cmds, &metadata.ElectLeader{TopicID: p.TopicID, Partition: p.Index, Unclean: true})
			}
		}
	}
	return cmds
}

func lives(img *metadata.Image, p *metadata.Partition) bool {
	for _, r := range p.Replicas {
		if img.Broker(r).Active() {
			return true
		}
	}
	return false
}

// preferredElections lists what brokers could lead and do not, of those brokers
// that lead less than they are preferred for by more than percent of it.
func preferredElections(img *metadata.Image, percent int) []metadata.Command {
	preferred, away := map[int32]int{}, map[int32]int{}
	for p := range img.AllPartitions() {
		preferred[p.Replicas[0]]++
		if p.Leader != p.Replicas[0] {
			away[p.Replicas[0]]++
		}
	}
	var cmds []metadata.Command
	for p := range img.AllPartitions() {
		if b := p.Replicas[0]; away[b]*100 > percent*preferred[b] && img.PrefersOther(p) && len(cmds) < maxElections {
			cmds = append(cmds, &metadata.ElectLeader{TopicID: p.TopicID, Partition: p.Index})
		}
	}
	return cmds
}

// elected tells of the elections of an entry that may lose records, while this
// node is the active controller: else it tells of the past.
func (c *Controller) elected(old, next *metadata.Image, recs []metadata.Record) {
	if c.reign.Load() == nil {
		return
	}
	for _, r := range recs {
		p, ok := r.(*metadata.Partition)
		if !ok || p.LossEpoch == 0 {
			continue
		}
		if before := old.Partition(p.TopicID, p.Index); before != nil && before.LossEpoch == p.LossEpoch {
			continue
		}
		t := next.TopicByID(p.TopicID)
		if t == nil {
			continue
		}
		c.metrics.unclean.Inc()
		c.logger.Error("unclean leader election: acknowledged records may be lost", "topic", t.Name, "partition", p.Index,
			"leader", p.Leader, "epoch", p.LeaderEpoch, "remote_end", remoteEnd(p))
	}
}

func remoteEnd(p *metadata.Partition) int64 {
	end, _ := p.RemoteEnd.Offset()
	return end
}
