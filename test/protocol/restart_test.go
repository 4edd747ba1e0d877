package protocol

import (
	"fmt"
	"testing"

	"github.com/varve-io/varve/wire/record"
)

// A node that starts again has every topic, record, offset and producer id block as before.
func TestRestart(t *testing.T) {
	d := newDisk(t)
	const topics, lives = 5, 3
	ids := map[string][16]byte{}
	for life := range lives {
		t.Run(fmt.Sprint("life ", life), func(t *testing.T) {
			n := startOn(t, d, direct)
			c := n.dial()
			for i := range topics {
				name := fmt.Sprint("topic-", i)
				if life == 0 {
					ids[name] = c.create(name, 1)
				} else if id := c.metadata(10, name).Topics[0].TopicID; id != ids[name] {
					t.Fatalf("%s has another id", name)
				}
				if end := c.end(name, 0); end != int64(life) {
					t.Fatalf("%s ends at %d, want %d", name, end, life)
				}
				if p := c.produce(9, name, ids[name], -1, values(t, record.None, fmt.Sprint(life))); p.ErrorCode != 0 || p.BaseOffset != int64(life) {
					t.Fatalf("%s: %+v", name, p)
				}
				vs, _ := read(t, c.fetch(12, name, ids[name], 0).RecordBatches)
				if len(vs) != life+1 || vs[0] != "0" {
					t.Fatalf("%s holds %q", name, vs)
				}
			}
		})
	}
}
