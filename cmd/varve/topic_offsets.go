package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type offsetRow struct {
	Topic     string `json:"topic" col:"TOPIC"`
	Partition int32  `json:"partition" col:"PARTITION"`
	Offset    int64  `json:"offset" col:"OFFSET"`
	Timestamp stamp  `json:"timestamp" col:"TIMESTAMP"` // of that record; none at the ends
	Epoch     int32  `json:"leaderEpoch" col:"EPOCH,wide"`
}

func newTopicOffsets(a *app) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "offsets NAME",
		Short: "Show the offsets of a topic, or those of a point in time",
		Long: "Show for every partition where the log starts, where the local part starts, where the remote part ends and where the log ends.\n" +
			"With --at, show the first offset at or after a time instead: " + whenHelp + ".",
		Example: "  varve topic offsets orders --at '2026-11-03 14:00'\n  varve topic offsets orders --at -2h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("at") {
				return a.admin(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
					d, err := a.describeTopic(ctx, adm, args[0])
					if err != nil {
						return err
					}
					return show(a, rangesOf(d))
				})
			}
			w, err := parseWhen(at, time.Now())
			if err != nil {
				return badFlag("--at", err)
			}
			if w.kind == whenOffset { // a bare number can only be meant as a time here
				w.kind, w.millis = whenTime, w.offset
			}
			return a.admin(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				return a.showOffsetsAt(ctx, adm, args[0], w)
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "time of the record to find")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// rangeRow says which offsets are where. Ends are exclusive.
type rangeRow struct {
	Topic      string `json:"topic" col:"TOPIC"`
	Partition  int32  `json:"partition" col:"PARTITION"`
	Start      *int64 `json:"start" col:"START"`
	LocalStart *int64 `json:"localStart" col:"LOCAL-START"`
	RemoteEnd  *int64 `json:"remoteEnd" col:"REMOTE-END"`
	End        *int64 `json:"end" col:"END"`
}

func rangesOf(d topicDescription) []rangeRow {
	var rows []rangeRow
	for _, p := range d.Partitions {
		rows = append(rows, rangeRow{d.Name, p.Partition, p.Start, p.LocalStart, p.RemoteEnd, p.End})
	}
	return rows
}

func (a *app) showOffsetsAt(ctx context.Context, adm *kadm.Client, topic string, w when) error {
	if _, err := a.topicDetail(ctx, adm, topic); err != nil {
		return err
	}
	listed, err := w.resolve(ctx, adm, topic, false)
	offsets, err := a.offsetsOf(topic, listed, err)
	if err != nil {
		return err
	}
	var rows []offsetRow
	for _, p := range sortedKeys(offsets) {
		o := offsets[p]
		rows = append(rows, offsetRow{topic, p, o.Offset, stamp(o.Timestamp), o.LeaderEpoch})
	}
	return show(a, rows)
}
