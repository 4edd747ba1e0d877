package crash

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
)

// bounds are the log start and the end of every partition, as the node says.
func (l *load) bounds(ctx context.Context) (map[place]reading, error) {
	all := map[place]reading{}
	for _, t := range topics {
		starts, err := l.offsets(ctx, t, l.admin.ListStartOffsets)
		if err != nil {
			return nil, fmt.Errorf("log starts of %s: %w", t.name, err)
		}
		ends, err := l.offsets(ctx, t, l.admin.ListEndOffsets)
		if err != nil {
			return nil, fmt.Errorf("log ends of %s: %w", t.name, err)
		}
		for p := range t.partitions {
			all[place{t.name, p}] = reading{start: starts[p], end: ends[p]}
		}
	}
	return all, nil
}

// readAll reads everything within bounds and compares it with what was promised. The load is paused.
func (l *load) readAll(ctx context.Context, addr string, all map[place]reading) (records int, err error) {
	for _, t := range topics {
		polls, err := readTopic(ctx, addr, t, all)
		if err != nil {
			return records, err
		}
		for p, list := range polls {
			r := all[place{t.name, p}]
			r.polls = list
			all[place{t.name, p}] = r
			records += len(list)
		}
	}
	return records, l.read(all)
}

// readWait is how long a reader may see nothing new.
const readWait = 30 * time.Second

// readTopic reads each partition from what the node calls its beginning up to its end.
func readTopic(ctx context.Context, addr string, t topic, bounds map[place]reading) (map[int32][]check.Poll, error) {
	from := map[int32]kgo.Offset{}
	next, ends := map[int32]int64{}, map[int32]int64{}
	for p := range t.partitions {
		b := bounds[place{t.name, p}]
		from[p], next[p], ends[p] = kgo.NewOffset().AtStart(), b.start, b.end
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.name: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	complete := func() bool {
		for p, end := range ends {
			if next[p] < end {
				return false
			}
		}
		return true
	}
	all := map[int32][]check.Poll{}
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
