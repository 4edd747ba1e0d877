package replica_test

import (
	"testing"
)

func TestProduceAndFetch(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := n.topic("t", nil)
		n.fill(p, 0, 500)
		if p.HighWatermark() != 500 || p.EndOffset() != 500 {
			t.Error(p.HighWatermark(), p.EndOffset())
		}
		n.consume(p, 0, 500)
	})
}
