package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// TestReportsWhatIsLeft: after a shutdown that may have lost records nobody is eligible; the broker says unasked how far its logs go, is
// elected where it is the only one who knows more, and the row says that records may be lost.
func TestReportsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.fill(n.topic("lossy", map[string]string{"varve.durability": "replicated"}), 0, 10)
		n.fill(n.topic("safe", map[string]string{"varve.durability": "fsync"}), 0, 10)
		n.stop(true)
		n.unclean = true
		n.start()
		defer func() { n.stop(true) }()
		for name, loss := range map[string]bool{"lossy": true, "safe": false} {
			n.eventually(name+" is led again", time.Second, func() bool {
				p, err := n.m.PartitionByName(name, 0)
				return err == nil && p.IsLeader()
			})
			p := n.partition(name)
			row := n.row(p)
			if (row.LossEpoch == row.LeaderEpoch) != loss || len(row.Ends) > 0 {
				t.Errorf("%s: %+v", name, row)
			}
			n.consume(p, 0, 10)
		}
	})
}

// TestReportsOnceAsked: a replica that another one is waited for says what it has once, not with every change.
func TestReportsOnceAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		defer func() { n.stop(true) }()
		other := &metadata.RegisterBroker{ID: 99, ClusterID: clusterID, Incarnation: [16]byte{99}, LogDirs: []wire.UUID{{99}},
			Listeners: []metadata.Listener{{Name: "P", Host: "h", Port: 1}}}
		n.must(other)
		p := n.topic("t", map[string]string{"varve.durability": "replicated"})
		n.fill(p, 0, 10)
		end := p.EndOffset()
		reports := 0
		n.refuseWith(func(cmd metadata.Command) error {
			if _, ok := cmd.(*metadata.ReportEnd); ok {
				reports++
			}
			return nil
		})
		row := *n.row(p)
		row.Replicas, row.ISR, row.LastKnownELR, row.Leader = append(row.Replicas, 99), nil, append(row.Replicas, 99), metadata.NoLeader
		n.turn <- struct{}{}
		old, recs := n.img, []metadata.Record{&row}
		n.img = old.Replay(recs, old.Index()+1, 1)
		n.m.Apply(metadata.NewDelta(old, n.img, recs))
		<-n.turn
		n.eventually("reported", time.Second, func() bool { return len(n.row(p).Ends) == 1 })
		if e := n.row(p).Ends[0]; e.BrokerID != nodeID || e.BrokerEpoch != n.brokerEpoch || e.End != end || e.LastEpoch != 0 {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Minute)
		if reports != 1 {
			t.Errorf("%d reports", reports)
		}
	})
}
