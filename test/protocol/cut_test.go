package protocol

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/test/proxy"
	"github.com/varve-io/varve/wire/record"
)

// While the controller cannot be reached, topics are not created, and that is
// said within one timeout; records are written and read as if nothing were.
// When it heals, so does everything else.
func TestControllerCut(t *testing.T) {
	var cut *proxy.Proxy
	n := startBehind(t, func(addr string) string {
		cut = proxy.Run(t, addr, proxy.Faults{})
		return cut.Addr()
	}, "request.timeout.ms", "1000", "broker.session.timeout.ms", "3000", "broker.heartbeat.interval.ms", "500")
	c, other := n.dial(), n.dial()
	id := c.create("t", 1)

	cut.Set(proxy.BlackHole)
	begin := time.Now()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 1000
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = "later", 1, 1
	req.Topics = append(req.Topics, ct)
	req.SetVersion(7)
	corr := other.send(req)
	for i := range int64(50) {
		if p := c.produce(9, "t", id, -1, values(t, record.None, "x")); p.ErrorCode != 0 || p.BaseOffset != i {
			t.Fatalf("produce while cut: %+v", p)
		}
		if p := c.fetch(12, "t", id, i); p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
			t.Fatalf("fetch while cut: %+v", p)
		}
	}
	created := other.receive(req, corr).(*kmsg.CreateTopicsResponse)
	if code := created.Topics[0].ErrorCode; code != kerr.RequestTimedOut.Code {
		t.Errorf("create while cut: error %d", code)
	}
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("create while cut is answered after %v", d)
	}
	// A Metadata request that would create a topic does not hold its connection for long.
	begin = time.Now()
	if code := c.metadata(1, "missing").Topics[0].ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("metadata while cut: error %d", code)
	}
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("metadata while cut is answered after %v", d)
	}

	cut.Set(proxy.Faults{})
	eventually(t, "creating topics again", func() bool {
		return do[*kmsg.CreateTopicsResponse](other, 7, req).Topics[0].ErrorCode != kerr.RequestTimedOut.Code
	})
	eventually(t, "ready again", func() bool { return len(n.broker.Ready()) == 0 })
	if p := c.produce(9, "t", id, -1, values(t, record.None, "x")); p.ErrorCode != 0 {
		t.Errorf("produce afterwards: %+v", p)
	}
}
