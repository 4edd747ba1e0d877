package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
)

func asDataLoss(err error, loss **kgo.ErrDataLoss) bool { return errors.As(err, loss) }

// addPolls adds what was fetched to the history, as one operation.
func addPolls(h *check.History, op check.Op, fetches kgo.Fetches) {
	op.F, op.Type, op.End = check.FPoll, check.OK, h.Now()
	fetches.EachRecord(func(r *kgo.Record) {
		poll := check.Poll{Key: check.KeyOf(r.Topic, r.Partition), Offset: r.Offset}
		v, err := check.Parse(r.Value)
		if poll.Value = v; err != nil {
			poll.Changed = err.Error()
		}
		op.Polls = append(op.Polls, poll)
	})
	if len(op.Polls) > 0 {
		h.Add(op)
	}
}

// offsets is what kgo.ConsumePartitions wants.
func offsets(partitions []partition, from func(partition) int64) map[string]map[int32]kgo.Offset {
	all := map[string]map[int32]kgo.Offset{}
	for _, p := range partitions {
		if all[p.topic] == nil {
			all[p.topic] = map[int32]kgo.Offset{}
		}
		all[p.topic][p.id] = kgo.NewOffset().At(from(p))
	}
	return all
}

// span is a log from its first offset to behind its last.
type span struct{ start, end int64 }

// spans asks for those of all partitions.
func spans(ctx context.Context, client *kgo.Client, partitions []partition) (map[partition]span, error) {
	adm := kadm.NewClient(client)
	starts, err1 := adm.ListStartOffsets(ctx, topics...)
	ends, err2 := adm.ListEndOffsets(ctx, topics...)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	all := map[partition]span{}
	for _, p := range partitions {
		start, ok1 := starts.Lookup(p.topic, p.id)
		end, ok2 := ends.Lookup(p.topic, p.id)
		if !ok1 || !ok2 || start.Err != nil || end.Err != nil {
			return all, fmt.Errorf("offsets of %s: %w", p.key(), errors.Join(start.Err, end.Err))
		}
		all[p] = span{start.Offset, end.Offset}
	}
	return all, nil
}

// reread reads every partition from its first offset to its end, into the
// history. It gives up when nothing comes for as long as patience.
func reread(ctx context.Context, addr string, n, proc int, logs map[partition]span, h *check.History, patience time.Duration) error {
	var nonEmpty []partition
	rest := map[check.Key]int64{} // the end of what is not read to its end
	assign := check.Op{Proc: proc, Type: check.OK, F: check.FAssign, Start: h.Now(), End: h.Now()}
	for p, s := range logs {
		assign.Assigned = append(assign.Assigned, check.Position{Key: p.key(), Offset: s.start})
		if s.end > s.start {
			nonEmpty = append(nonEmpty, p)
			rest[p.key()] = s.end
		}
	}
	h.Add(assign)
	client, err := kgo.NewClient(clientOptions(addr, kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(offsets(nonEmpty, func(p partition) int64 { return logs[p].start })))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for len(rest) > 0 {
		start := h.Now()
		fetches, err := pollWithin(ctx, client, patience)
		if err != nil {
			return fmt.Errorf("%d partitions not read to their end: %w", len(rest), err)
		}
		addPolls(h, check.Op{Proc: proc, Start: start, Reread: n}, fetches)
		fetches.EachRecord(func(r *kgo.Record) {
			if key := check.KeyOf(r.Topic, r.Partition); r.Offset >= rest[key]-1 {
				delete(rest, key)
			}
		})
	}
	return nil
}

// pollWithin polls until there are records; its error is that of the partition that has one.
func pollWithin(ctx context.Context, client *kgo.Client, patience time.Duration) (kgo.Fetches, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		fetches := client.PollFetches(ctx)
		if fetches.NumRecords() > 0 {
			return fetches, nil
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
	}
}
