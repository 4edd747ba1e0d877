package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consume struct {
	from, to    string
	partitions  []int32
	format      string
	max         int64
	uncommitted bool

	app   *app
	topic string
}

func newConsume(a *app) *cobra.Command {
	c := consume{app: a}
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Read records from an offset or a point in time on",
		Long: "Read records of all partitions, or of some. --from and --to take " + whenHelp + ".\n" +
			"The end is exclusive; without --to and --max the command follows the log until it is interrupted.\n\n" +
			formatHelp,
		Example: "  varve consume orders --from start --to end\n  varve consume orders --from '2026-11-03 14:00' --to -1h -o json\n  varve consume orders --from -2h -f '%p %o %T %k %s\\n'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.topic = args[0]
			if c.format != "" && cmd.Flags().Changed("output") {
				return badFlag("--format and --output", errors.New("exclude each other"))
			}
			if c.format == "" && !cmd.Flags().Changed("output") {
				c.format = defaultFormat
			}
			return c.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&c.from, "from", "end", "where to begin")
	cmd.Flags().StringVar(&c.to, "to", "", "where to end, exclusive")
	cmd.Flags().Int32SliceVarP(&c.partitions, "partition", "p", nil, "partitions to read (default all)")
	cmd.Flags().StringVarP(&c.format, "format", "f", "", `form of a record (default "%s\n")`)
	cmd.Flags().Int64VarP(&c.max, "max", "n", 0, "end after so many records (0: no limit)")
	cmd.Flags().BoolVar(&c.uncommitted, "read-uncommitted", false, "records of open and aborted transactions too")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// span is what is to be read of a partition.
type span struct {
	at, end int64 // next offset; end is exclusive, -1: none
}

func (s span) done() bool { return s.end >= 0 && s.at >= s.end }

func (c *consume) run(ctx context.Context) error {
	out := bufio.NewWriterSize(c.app.out, 64<<10)
	printer, err := newRecordPrinter(out, c.format, c.app.output)
	if err != nil {
		return err
	}
	spans, err := c.spans(ctx)
	if err != nil {
		return err
	}
	progress := newProgress(c.app.err, "consumed")
	defer progress.done()
	err = errors.Join(c.follow(ctx, spans, out, printer, progress), printer.end(), out.Flush())
	if ctx.Err() != nil && c.to == "" && c.max == 0 {
		return nil // following ends by being interrupted
	}
	return err
}

// spans resolves --from and --to.
func (c *consume) spans(ctx context.Context) (map[int32]*span, error) {
	now := time.Now()
	from, err := parseWhen(c.from, now)
	if err != nil {
		return nil, badFlag("--from", err)
	}
	var to when
	if c.to != "" {
		if to, err = parseWhen(c.to, now); err != nil {
			return nil, badFlag("--to", err)
		}
	}
	spans := map[int32]*span{}
	err = c.app.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		if _, err := c.app.topicDetail(ctx, adm, c.topic); err != nil {
			return err
		}
		listed, err := from.resolve(ctx, adm, c.topic, !c.uncommitted)
		starts, err := c.app.offsetsOf(c.topic, listed, err)
		if err != nil {
			return err
		}
		ends := map[int32]kadm.ListedOffset{}
		if c.to != "" {
			listed, err := to.resolve(ctx, adm, c.topic, !c.uncommitted)
			if ends, err = c.app.offsetsOf(c.topic, listed, err); err != nil {
				return err
			}
		}
		for p, o := range starts {
			if len(c.partitions) == 0 || slices.Contains(c.partitions, p) {
				spans[p] = &span{at: o.Offset, end: -1}
				if end, ok := ends[p]; ok {
					spans[p].end = end.Offset
				}
			}
		}
		return c.checkPartitions(spans)
	})
	return spans, err
}

func (c *consume) checkPartitions(spans map[int32]*span) error {
	for _, p := range c.partitions {
		if spans[p] == nil {
			return &problem{fmt.Sprintf("topic %s partition %d", c.topic, p), errors.New("does not exist"), "varve topic describe " + c.topic + " lists its partitions"}
		}
	}
	return nil
}

// follow reads until every span is done, max is reached or ctx ends.
func (c *consume) follow(ctx context.Context, spans map[int32]*span, out *bufio.Writer, printer recordPrinter, progress *progress) error {
	client, err := c.client(ctx, spans)
	if client == nil || err != nil {
		return err
	}
	defer client.Close()
	left := c.max
	lastProgress := time.Now()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.fetchError(fetches, time.Since(lastProgress)); err != nil {
			return err
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			s := spans[r.Partition]
			lastProgress = time.Now()
			if s.done() || r.Offset < s.at {
				continue
			}
			if s.end < 0 || r.Offset < s.end {
				if !r.Attrs.IsControl() {
					if err := printer.print(r); err != nil {
						return err
					}
					progress.add(1, int64(len(r.Key)+len(r.Value)))
					if left--; left == 0 {
						return nil
					}
				}
			}
			s.at = r.Offset + 1
			if s.done() {
				client.PauseFetchPartitions(map[string][]int32{c.topic: {r.Partition}})
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if allDone(spans) {
			return nil
		}
	}
}

// client consumes all spans that are not done, or is nil if all are.
func (c *consume) client(ctx context.Context, spans map[int32]*span) (*kgo.Client, error) {
	starts := map[int32]kgo.Offset{}
	for p, s := range spans {
		if !s.done() {
			starts[p] = kgo.NewOffset().At(s.at)
		}
	}
	if len(starts) == 0 {
		return nil, nil
	}
	isolation := kgo.ReadCommitted()
	if c.uncommitted {
		isolation = kgo.ReadUncommitted()
	}
	return c.app.connect(ctx,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: starts}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxPartitionBytes(8<<20),
		// A span may end behind a transaction's marker.
		kgo.KeepControlRecords(),
		kgo.KeepRetryableFetchErrors(),
	)
}

func allDone(spans map[int32]*span) bool {
	for _, s := range spans {
		if !s.done() {
			return false
		}
	}
	return true
}

// fetchError decides about errors of partitions: what a retry may mend is
// given as long as a broker may take to answer.
func (c *consume) fetchError(fetches kgo.Fetches, idle time.Duration) error {
	for _, e := range fetches.Errors() {
		thing := fmt.Sprintf("topic %s partition %d", e.Topic, e.Partition)
		switch {
		case errors.Is(e.Err, kerr.OffsetOutOfRange):
			return &problem{thing, errors.New("has no record at the offset asked for"), "varve topic offsets " + c.topic + " shows which offsets there are"}
		case kerr.IsRetriable(e.Err) && idle < c.app.timeout:
			continue
		}
		return c.app.explain(thing, e.Err)
	}
	return nil
}
