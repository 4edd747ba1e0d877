package system

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
	"github.com/varve-io/varve/test/proxy"
)

// TestControllerCut: between broker and controller is a network even in one process. While it
// is cut, creating topics and committing remote segments stop within one timeout; producing and
// hot reads go on; and all resumes when it heals.
func TestControllerCut(t *testing.T) {
	const (
		recordSize = 1000
		requests   = 3 * time.Second // request.timeout.ms of the node
	)
	dir := t.TempDir()
	controller, err := node.ControllerAddr(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.Run(t, controller, proxy.Faults{})
	b := start(t, node.VarveConfig{Dir: dir, Settings: []string{
		"controller.quorum.voters=1@" + p.Addr(),
		fmt.Sprintf("request.timeout.ms=%d", requests.Milliseconds()),
		"log.retention.check.interval.ms=300",
		"log.segment.delete.delay.ms=100",
	}})
	c := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, c, "t", map[string]string{"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1048576"})
	produce(t, c, "t", 0, 5000, recordSize)
	tiered := func() int64 {
		offsets, err := kadm.NewClient(c).ListOffsetsAfterMilli(t.Context(), -5, "t") // LATEST_TIERED
		if err != nil {
			t.Fatal(err)
		}
		o, _ := offsets.Lookup("t", 0)
		return o.Offset
	}
	eventually(t, 20*time.Second, func() error {
		if n := tiered(); n < 2000 {
			return fmt.Errorf("the tier ends at %d", n)
		}
		return nil
	})

	p.Cut()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*requests)
	defer cancel()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, "u"); err == nil {
		t.Fatal("a topic was created without a controller")
	} else if errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("creating a topic was not refused within %v: %v", time.Since(began), err)
	}
	time.Sleep(requests) // a commit that was under way has ended, either way
	before := tiered()
	produce(t, c, "t", 5000, 5000, recordSize)
	consume(t, b, "t", 10000, recordSize)
	time.Sleep(time.Second) // many offload rounds
	if after := tiered(); after != before {
		t.Fatalf("the tier's end moved from %d to %d without a controller", before, after)
	}

	p.Heal()
	eventually(t, 30*time.Second, func() error {
		if n := tiered(); n < before+3000 {
			return fmt.Errorf("the tier ends at %d, and was at %d when the cut began", n, before)
		}
		return nil
	})
	createTopic(t, c, "u", nil)
	consume(t, b, "t", 10000, recordSize)
}
