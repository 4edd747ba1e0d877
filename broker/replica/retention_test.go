package replica_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
)

// objects counts what the store holds of topics.
func (n *node) objects() int {
	count := 0
	if err := n.store.List(context.Background(), clusterID, "", func(objstore.Info) error { count++; return nil }); err != nil {
		n.t.Fatal(err)
	}
	return count
}

// Retention by time and by size, of a local topic and of a tiered one: what is past it goes, what is within stays, in both tiers, down
// to the objects.
func TestRetention(t *testing.T) {
	for _, tierOn := range []bool{false, true} {
		t.Run(fmt.Sprint("tiered ", tierOn), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				config := func(more ...string) map[string]string {
					c := tiered(append([]string{"local.retention.bytes", "1"}, more...)...)
					if !tierOn {
						c = map[string]string{"internal.segment.bytes": "65536"}
						for i := 0; i < len(more); i += 2 {
							c[more[i]] = more[i+1]
						}
					}
					return c
				}
				byTime, bySize := n.topic("time", config("retention.ms", "600000")), n.topic("size", config("retention.bytes", "200000"))
				n.fill(byTime, 0, 300)
				time.Sleep(5 * time.Minute)
				n.fill(byTime, 300, 300)
				n.fill(bySize, 0, 1000)
				time.Sleep(4 * time.Minute)
				if byTime.LogStart() != 0 {
					t.Errorf("within retention.ms, but the log start is %d", byTime.LogStart())
				}
				// 200,000 bytes are some 300 records; whole segments go, none that would leave less.
				if kept := bySize.EndOffset() - bySize.LogStart(); kept < 300 || kept > 420 {
					t.Errorf("retention.bytes keeps %d records", kept)
				}
				n.consume(bySize, bySize.LogStart(), 1000)
				time.Sleep(90 * time.Second)
				if start := byTime.LogStart(); start < 200 || start > 300 {
					t.Errorf("log start %d", start)
				}
				n.consume(byTime, byTime.LogStart(), 600)
				time.Sleep(15 * time.Minute)
				if byTime.LogStart() != 600 || byTime.LocalStart() != 600 { // K10, K11: age drains the active segment too
					t.Errorf("the idle topic is not empty: [%d, %d)", byTime.LogStart(), byTime.EndOffset())
				}
				if tierOn {
					time.Sleep(5 * time.Minute) // the grace of deletion
					var want int
					for range n.m.Image().Segments(bySize.TopicID(), 0, 0) {
						want++
					}
					if got := n.objects(); got != want || want == 0 || want > 6 {
						t.Errorf("%d objects in the store, %d rows", got, want)
					}
				}
				n.fill(byTime, 600, 10) // C5: an empty remote log is a legal state
				n.consume(byTime, 600, 610)
			})
		})
	}
}

// K1, K2: size counts each offset once, only committed rows, at any moment around restarts, and retention.bytes above what there is
// deletes nothing.
func TestSizeRetentionCountsOnce(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		p := n.topic("t", tiered("retention.bytes", "500000"))
		n.fill(p, 0, 600) // about 400,000 bytes, all of them local, most of them in the store too
		for range 5 {
			n.restart(true)
			p = n.partition("t")
			time.Sleep(3 * time.Second)
			if p.LogStart() != 0 {
				t.Fatalf("log start %d", p.LogStart())
			}
		}
		s.down.Store(true) // uploads fail for a while
		n.fill(p, 600, 60)
		time.Sleep(time.Minute)
		if p.LogStart() != 0 {
			t.Fatalf("log start %d with dangling uploads", p.LogStart())
		}
		s.down.Store(false)
		time.Sleep(2 * time.Minute)
		n.consume(p, 0, 660)
	})
}

// K1, section 8: with the remote end unknown nothing is uploaded, deleted locally or retained by size.
func TestUnknownRemoteEndForbids(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1", "retention.bytes", "70000"))
		n.overwrite(p, func(row *metadata.Partition) { row.RemoteEnd = metadata.RemoteUnknown })
		n.fill(p, 0, 500)
		time.Sleep(10 * time.Minute)
		if p.LogStart() != 0 || p.LocalStart() != 0 || n.objects() != 0 {
			t.Errorf("log start %d, local start %d, %d objects", p.LogStart(), p.LocalStart(), n.objects())
		}
		if r := n.offset(p, replica.EarliestPendingUploadTimestamp); r.Offset != -1 {
			t.Errorf("%+v", r)
		}
		n.overwrite(p, func(row *metadata.Partition) { row.RemoteEnd = metadata.RemoteNone })
		n.eventually("it goes on", time.Minute, func() bool { return p.LogStart() > 250 })
		n.consume(p, p.LogStart(), 500)
	})
}

// overwrite changes the partition's row as no command would.
func (n *node) overwrite(p *replica.Partition, change func(*metadata.Partition)) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	row := *n.img.Partition(p.TopicID(), 0)
	change(&row)
	old, recs := n.img, []metadata.Record{&row}
	n.img = old.Replay(recs, old.Index()+1, 1)
	n.m.Apply(metadata.NewDelta(old, n.img, recs))
}

// K13: past total retention data goes though the store is out of reach; within it nothing local is deleted.
func TestOutageLongerThanRetention(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		s.down.Store(true)
		p := n.topic("t", tiered("local.retention.ms", "1000", "retention.ms", "3600000"))
		n.fill(p, 0, 300)
		time.Sleep(50 * time.Minute)
		if p.LocalStart() != 0 {
			t.Fatalf("deleted before it was uploaded: local start %d", p.LocalStart())
		}
		n.consume(p, 0, 300)
		// K61: the lag is told while the store is down.
		if got := n.gauge("varve_tier_oldest_unuploaded_seconds"); got < 3000 || got > 3010 {
			t.Errorf("the oldest record waits for %v s", got)
		}
		time.Sleep(11 * time.Minute)
		if p.LogStart() != 300 || p.LocalStart() != 300 {
			t.Errorf("log start %d, local start %d", p.LogStart(), p.LocalStart())
		}
		s.down.Store(false)
		n.fill(p, 300, 300)
		n.eventually("uploads go on", 10*time.Minute, func() bool { return n.remoteEnd(p) > 400 })
		n.consume(p, 300, 600)
	})
}

func (n *node) gauge(name string) float64 {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	n.t.Errorf("no metric %s", name)
	return 0
}

var _ prometheus.Gatherer = (*prometheus.Registry)(nil)

// The controller decides first: while it does not answer, neither the log start moves nor anything is deleted (K95).
func TestNoDeletionWithoutTheController(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "1", "retention.ms", "60000"))
		n.fill(p, 0, 300)
		n.eventually("offloaded", 10*time.Second, func() bool { return p.LocalStart() > 150 })
		objects := n.objects()
		n.refuseWith(func(metadata.Command) error { return errors.New("partitioned") })
		time.Sleep(10 * time.Minute)
		if p.LogStart() != 0 || n.objects() != objects {
			t.Errorf("log start %d, %d objects of %d", p.LogStart(), n.objects(), objects)
		}
		if _, err := n.m.DeleteRecords(context.Background(), p, 100); err == nil {
			t.Error("DeleteRecords succeeded")
		}
		n.consume(p, 0, 300)
		n.refuseWith(nil)
		n.eventually("it goes on", time.Minute, func() bool { return p.LogStart() == 300 })
	})
}

// K14: a record dated in the future keeps its segment, and those after it, until then; status and metric say so.
func TestFutureRecord(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.ms", "1000", "retention.ms", "60000", "message.timestamp.after.max.ms", "9223372036854775807"))
		n.produce(p, batchAt(time.Now().Add(1000*time.Hour), 0, 10, recordSize))
		n.fill(p, 10, 300)
		time.Sleep(time.Hour)
		if p.LogStart() != 0 {
			t.Errorf("log start %d", p.LogStart())
		}
		if got := n.gauge("varve_replica_future_segments"); got != 1 {
			t.Errorf("%v segments dated in the future", got)
		}
		found := false
		for _, s := range p.TierStatus().Local {
			found = found || strings.Contains(s.Kept, "future")
		}
		if !found {
			t.Errorf("%+v", p.TierStatus().Local)
		}
	})
}

// K94: every local segment says why it is kept.
func TestStatusSaysWhy(t *testing.T) {
	synctestNode(t, slow, func(t *testing.T, n *node, s *slowStore) {
		s.down.Store(true)
		p := n.topic("t", tiered("local.retention.ms", "600000"))
		n.fill(p, 0, 200)
		time.Sleep(5 * time.Second)
		status := p.TierStatus()
		first, last := status.Local[0], status.Local[len(status.Local)-1]
		if !strings.Contains(first.Kept, "upload failed") || last.Kept != "active segment" || status.Unuploaded < 5*time.Second {
			t.Errorf("%+v", status)
		}
		s.down.Store(false)
		time.Sleep(time.Minute)
		status = p.TierStatus()
		if first = status.Local[0]; !first.Uploaded || !strings.Contains(first.Kept, "within local.retention.ms=600000") {
			t.Errorf("%+v", first)
		}
		n.configure("t", tiered("local.retention.ms", "600000", "remote.log.copy.disable", "true"))
		n.fill(p, 200, 200)
		status = p.TierStatus()
		if kept := status.Local[len(status.Local)-2].Kept; !strings.Contains(kept, "copy.disable") {
			t.Errorf("%q", kept)
		}
	})
}

// KIP-1241: remote.copy.lag.* delays uploads.
func TestCopyLag(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("remote.copy.lag.ms", "600000", "remote.copy.lag.bytes", "130000"))
		n.fill(p, 0, 150)
		time.Sleep(5 * time.Minute)
		if n.remoteEnd(p) != -1 {
			t.Errorf("uploaded to %d", n.remoteEnd(p))
		}
		n.fill(p, 150, 150)
		time.Sleep(10 * time.Second)
		if end := n.remoteEnd(p); end < 50 || end > 150 { // what lies behind 130,000 bytes
			t.Errorf("uploaded to %d", end)
		}
		time.Sleep(11 * time.Minute)
		if end := n.remoteEnd(p); end < 200 {
			t.Errorf("uploaded to %d", end)
		}
	})
}

// KIP-950: a topic whose tier is switched off with delete.on.disable keeps what is local.
func TestDisableTier(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered("local.retention.bytes", "100000"))
		n.fill(p, 0, 500)
		n.eventually("offloaded", time.Minute, func() bool { return p.LocalStart() > 100 })
		time.Sleep(10 * time.Second) // until nothing moves any more
		local := p.LocalStart()
		n.configure("t", map[string]string{"internal.segment.bytes": "65536", "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
		n.eventually("the log begins with what is local", time.Minute, func() bool { return p.LogStart() == local })
		n.consume(p, local, 500)
		time.Sleep(10 * time.Minute)
		var left int
		for s := range n.m.Image().Segments(p.TopicID(), 0, 0) {
			if s.End <= local {
				left++
			}
		}
		if left != 0 {
			t.Errorf("%d rows below the log start", left)
		}
	})
}

// What local retention was set to says nothing any more once the tier is switched off: what is local is all that is kept.
func TestDisabledTierKeepsWhatIsLocal(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", tiered())
		n.fill(p, 0, 500)
		n.eventually("offloaded", time.Minute, func() bool { return n.remoteEnd(p) > 200 })
		n.configure("t", tiered("remote.storage.enable", "false", "remote.log.delete.on.disable", "true", "local.retention.bytes", "1"))
		time.Sleep(10 * time.Minute)
		n.consume(p, 0, 500)
		// Total retention holds as before.
		n.configure("t", tiered("remote.storage.enable", "false", "remote.log.delete.on.disable", "true", "retention.bytes", "150000"))
		n.eventually("retention", time.Minute, func() bool { return p.LogStart() > 100 && p.LocalStart() == p.LogStart() })
		n.consume(p, p.LogStart(), 500)
	})
}

// A topic that has lost its beginning to retention before it is tiered goes to the store from there on.
func TestTierAfterLocalRetention(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", map[string]string{"internal.segment.bytes": "65536", "retention.bytes": "150000"})
		n.fill(p, 0, 500)
		n.eventually("retention", time.Minute, func() bool { return p.LogStart() > 100 })
		n.configure("t", tiered())
		n.eventually("offloaded", time.Minute, func() bool { return n.remoteEnd(p) > p.LogStart() })
		n.consume(p, p.LogStart(), 500)
	})
}

// The largest limits are limits, not overflows.
func TestLargestRetention(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		const most = "9223372036854775807"
		p := n.topic("t", tiered("retention.ms", most, "retention.bytes", most, "local.retention.ms", most, "local.retention.bytes", most,
			"segment.ms", most))
		n.fill(p, 0, 300)
		time.Sleep(48 * time.Hour)
		if p.LogStart() != 0 || p.LocalStart() != 0 || n.remoteEnd(p) < 0 {
			t.Errorf("log start %d, local start %d, remote end %d", p.LogStart(), p.LocalStart(), n.remoteEnd(p))
		}
	})
}

// K8: a crash right after local deletion does not leave a log start that nobody can read.
func TestLogStartAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		disk := n.fs.(*vfs.Mem)
		n.start()
		p := n.topic("t", map[string]string{"internal.segment.bytes": "65536", "retention.bytes": "100000"})
		n.fill(p, 0, 500)
		n.eventually("retention", time.Minute, func() bool { return p.LogStart() > 200 })
		next := disk.CrashClone(rand.New(rand.NewPCG(1, 1)), 0)
		n.abandon()
		n.fs = next
		n.start()
		defer func() { n.stop(true) }()
		p = n.partition("t")
		n.consume(p, n.offset(p, replica.EarliestTimestamp).Offset, 500)
	})
}
