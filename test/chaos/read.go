package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/check"
)

// localStart is the timestamp by which ListOffsets is asked for the first offset that is not only in the store (KIP-405).
const localStart = -4

// judge waits until the healed cluster is whole, reads all of it with new clients and checks the history.
func (r *rig) judge(ctx context.Context) error {
	if err := r.watch.awaitWhole(ctx, r.cfg.Patience); err != nil {
		return err
	}
	errs := []error{r.load.finish(ctx, r.cfg.Patience)}
	client, err := kgo.NewClient(clientOptions(r.cluster.Addrs())...)
	if err != nil {
		return err
	}
	defer client.Close()
	logs, err := spans(ctx, client, r.cfg.Patience)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for p, s := range logs {
		if s.start != 0 {
			errs = append(errs, fmt.Errorf("%s begins at %d, though nothing deletes there", p.key(), s.start))
		}
		r.result.Cold += s.local - s.start
	}
	errs = append(errs, reread(ctx, r.cluster.Addrs(), logs, r.history, r.cfg.Patience))
	r.result.Report = check.Check(r.history.Ops())
	r.result.Failovers = r.watch.failoverCount()
	return errors.Join(append(errs, r.result.Report.Err())...)
}

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

// span is a log from its first offset to behind its last; what is below local is only in the store.
type span struct{ start, local, end int64 }

// spans asks for those of all partitions.
func spans(ctx context.Context, client *kgo.Client, patience time.Duration) (map[partition]span, error) {
	adm := kadm.NewClient(client)
	var names []string
	for _, t := range topics {
		names = append(names, t.name)
	}
	all := map[partition]span{}
	err := within(ctx, patience, func(ctx context.Context) error {
		starts, err1 := adm.ListStartOffsets(ctx, names...)
		locals, err2 := adm.ListOffsetsAfterMilli(ctx, localStart, names...)
		ends, err3 := adm.ListEndOffsets(ctx, names...)
		if err := errors.Join(err1, err2, err3, starts.Error(), locals.Error(), ends.Error()); err != nil {
			return fmt.Errorf("ask for offsets: %w", err)
		}
		for _, p := range allPartitions() {
			start, ok1 := starts.Lookup(p.topic, p.id)
			local, ok2 := locals.Lookup(p.topic, p.id)
			end, ok3 := ends.Lookup(p.topic, p.id)
			if !ok1 || !ok2 || !ok3 {
				return fmt.Errorf("no offsets of %s", p.key())
			}
			all[p] = span{start.Offset, local.Offset, end.Offset}
		}
		return nil
	})
	return all, err
}

// reread reads every partition from its first offset to its end, into the
// history. It gives up when nothing comes for as long as patience.
func reread(ctx context.Context, addrs []string, logs map[partition]span, h *check.History, patience time.Duration) error {
	var nonEmpty []partition
	rest := map[check.Key]int64{} // the end of what is not read to its end
	for p, s := range logs {
		if s.end > s.start {
			nonEmpty = append(nonEmpty, p)
			rest[p.key()] = s.end
		}
	}
	client, err := kgo.NewClient(clientOptions(addrs, kgo.ConsumeResetOffset(kgo.NoResetOffset()),
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
		addPolls(h, check.Op{Proc: rereadProc, Start: start, Reread: 1}, fetches)
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
