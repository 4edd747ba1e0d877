package crash

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
)

// readAll reads everything back and compares it with what was promised. The load is paused.
func (l *load) readAll(ctx context.Context, addr string) (records int, err error) {
	all := map[place]reading{}
	for _, t := range topics {
		starts, err := l.offsets(ctx, t, l.admin.ListStartOffsets)
		if err != nil {
			return records, fmt.Errorf("log starts of %s: %w", t.name, err)
		}
		ends, err := l.offsets(ctx, t, l.admin.ListEndOffsets)
		if err != nil {
			return records, fmt.Errorf("log ends of %s: %w", t.name, err)
		}
		polls, err := readTopic(ctx, addr, t, starts, ends)
		if err != nil {
			return records, err
		}
		for p := range t.partitions {
			all[place{t.name, p}] = reading{starts[p], ends[p], polls[p]}
			records += len(polls[p])
		}
	}
	return records, l.read(all)
}

// readWait is how long a reader may see nothing new.
const readWait = 30 * time.Second

// readTopic reads each partition from what the node calls its beginning up to its end.
func readTopic(ctx context.Context, addr string, t topic, starts, ends map[int32]int64) (map[int32][]check.Poll, error) {
	from := map[int32]kgo.Offset{}
	for p := range t.partitions {
		from[p] = kgo.NewOffset().AtStart()
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.name: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all := map[int32][]check.Poll{}
	next := map[int32]int64{}
	for p, start := range starts {
		next[p] = start
	}
	complete := func() bool {
		for p, end := range ends {
			if next[p] < end {
				return false
			}
		}
		return true
	}
	for !complete() {
		ctx, cancel := context.WithTimeout(ctx, readWait)
		fetches := c.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s, at %v of %v: %w", t.name, next, ends, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			poll := check.Poll{Key: check.KeyOf(t.name, r.Partition), Offset: r.Offset}
			var err error
			if poll.Value, err = check.Parse(r.Value); err != nil {
				poll.Changed = err.Error()
			}
			all[r.Partition] = append(all[r.Partition], poll)
			next[r.Partition] = r.Offset + 1
		})
	}
	return all, nil
}
