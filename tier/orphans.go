package tier

import (
	"context"
	"sync"
	"time"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
)

// An orphan is an object that neither a row nor a reservation names: what an upload left that was given up, or
// whose broker died. It is harmless but costs money. Two roads lead to one: the broker remembers its own uploads
// that failed, and it lists the prefixes of the partitions it leads, some time after it became their leader and then now and
// then. Either way an object is only suspected at first. It is judged by an image at least as new as the suspicion, after
// a grace, and deleted if it is an orphan still.

const (
	judgeInterval = 30 * time.Second // and no longer than half a reservation: what that leaves is to go soon after it
	sweepInterval = 6 * time.Hour    // between two listings of one partition
	maxSuspects   = 100_000          // beyond it the next listing will find them
)

// suspects are objects to be judged.
type suspects struct {
	mu sync.Mutex
	m  map[wire.UUID]suspect
}

type suspect struct {
	segment *metadata.Segment
	judgeAt time.Time
}

func (ss *suspects) add(s *metadata.Segment, judgeAt time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.m == nil {
		ss.m = make(map[wire.UUID]suspect)
	}
	if _, ok := ss.m[s.Object]; !ok && len(ss.m) < maxSuspects {
		ss.m[s.Object] = suspect{s, judgeAt}
	}
}

// due returns those to be judged now.
func (ss *suspects) due(now time.Time) (list []*metadata.Segment) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.m {
		if !s.judgeAt.After(now) {
			list = append(list, s.segment)
		}
	}
	return list
}

func (ss *suspects) remove(s *metadata.Segment) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.m, s.Object)
}

// sweepOrphans lists and judges for as long as the manager lives.
func (m *Manager) sweepOrphans(ctx context.Context) {
	plan := sweepPlan{}
	interval := min(judgeInterval, m.reservation()/2)
	for sleep(ctx, interval) == nil {
		if m.answers(ctx) != nil {
			continue
		}
		for _, l := range plan.due(m.cfg.Image(), m.cfg.NodeID, time.Now(), m.reservation()) {
			if err := m.suspect(ctx, l); err != nil {
				if ctx.Err() != nil {
					return
				}
				m.log.Warn("cannot look for orphans in the object store", "topic", l.topic, "partition", l.partition, "error", err)
				plan.again(l, time.Now().Add(interval))
			}
		}
		if err := m.judge(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("cannot delete orphans in the object store", "error", err)
		}
	}
}

func (m *Manager) reservation() time.Duration {
	return time.Duration(m.cfg.ReservationMs) * time.Millisecond
}

// sweepPlan says when each partition is to be listed next.
type sweepPlan map[lane]sweep

type sweep struct {
	epoch int32
	at    time.Time
}

// due returns the partitions led by the broker that are to be listed now: a reservation's time after it became
// their leader, when what its predecessor left can be told from what is under way, and every sweepInterval.
func (plan sweepPlan) due(img *metadata.Image, broker int32, now time.Time, reservation time.Duration) (list []lane) {
	led := map[lane]bool{}
	for p := range img.AllPartitions() {
		if p.Leader != broker || !mayHaveObjects(img, p) {
			continue
		}
		l := lane{p.TopicID, p.Index}
		led[l] = true
		s, ok := plan[l]
		switch {
		case !ok || s.epoch != p.LeaderEpoch:
			plan[l] = sweep{p.LeaderEpoch, now.Add(reservation)}
		case !s.at.After(now):
			plan[l] = sweep{p.LeaderEpoch, now.Add(sweepInterval)}
			list = append(list, l)
		}
	}
	for l := range plan {
		if !led[l] {
			delete(plan, l)
		}
	}
	return list
}

// again has a partition listed before its turn.
func (plan sweepPlan) again(l lane, at time.Time) { plan[l] = sweep{plan[l].epoch, at} }

func mayHaveObjects(img *metadata.Image, p *metadata.Partition) bool {
	if _, ok := p.RemoteEnd.Offset(); ok {
		return true
	}
	t := img.TopicByID(p.TopicID)
	return t != nil && img.Config(metadata.ResourceTopic, t.Name)["remote.storage.enable"] == "true"
}

// suspect lists a partition's prefix. What is younger than a reservation, by the store's clock, is left for the next time.
func (m *Manager) suspect(ctx context.Context, l lane) error {
	old := time.Now().Add(-m.reservation())
	var listed []*metadata.Segment
	err := m.cfg.Store.List(ctx, metadata.PartitionPrefix(m.cfg.ClusterID, l.topic, l.partition), "", func(info objstore.Info) error {
		if _, s, err := metadata.ParseObjectName(info.Name); err == nil && info.Modified.Before(old) {
			listed = append(listed, &s)
		}
		return nil
	})
	m.health.note(err)
	if err != nil {
		return m.storeTrouble(ctx, err)
	}
	img := m.cfg.Image() // may be old: it only spares the innocent the trouble
	for _, s := range listed {
		if !committed(img, s) {
			m.suspects.add(s, time.Now().Add(m.cfg.DeleteGrace))
		}
	}
	return nil
}

// judge deletes the suspects that are due and guilty.
func (m *Manager) judge(ctx context.Context) error {
	due := m.suspects.due(time.Now())
	if len(due) == 0 {
		return nil
	}
	img, err := m.freshImage(ctx)
	if err != nil {
		return err
	}
	for len(due) > 0 {
		batch := due[:min(len(due), objstore.DeleteBatch)]
		due = due[len(batch):]
		var guilty []string
		for _, s := range batch {
			if m.isOrphan(img, s) {
				guilty = append(guilty, m.name(s))
			}
		}
		if len(guilty) > 0 {
			if err := m.deleteObjects(ctx, guilty); err != nil {
				return err
			}
			m.metrics.orphans.Add(float64(len(guilty)))
			m.log.Info("deleted objects that uploads had left behind", "objects", len(guilty))
		}
		for _, s := range batch {
			m.suspects.remove(s)
		}
	}
	return nil
}

// isOrphan reports whether the image has neither a row nor a reservation for the object. A partition that is not in the
// image proves nothing: the purge of its topic takes care of it.
func (m *Manager) isOrphan(img *metadata.Image, s *metadata.Segment) bool {
	if img.Partition(s.TopicID, s.Partition) == nil || img.Reservation(s.Object) != nil {
		return false
	}
	return !committed(img, s)
}

// freshImage returns an image at least as new as what the controller has committed now, by a command that changes
// nothing that counts: its index is that of now.
func (m *Manager) freshImage(ctx context.Context) (*metadata.Image, error) {
	results, index, err := m.cfg.Committer.Submit(ctx, &metadata.ExpireReservations{})
	if err := outcome(results, err); err != nil {
		return nil, err
	}
	return m.imageAt(ctx, index, true)
}
