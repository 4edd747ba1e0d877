package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/broker/admin"
)

// segmentRow is a segment in one of the tiers; a segment may be in both, cut
// at other offsets. Ends are exclusive.
type segmentRow struct {
	Topic     string `json:"topic" col:"TOPIC"`
	Partition int32  `json:"partition" col:"PARTITION"`
	Tier      string `json:"tier" col:"TIER"` // "remote" or "local"
	Base      int64  `json:"base" col:"BASE"`
	End       int64  `json:"end" col:"END"`
	Size      size   `json:"size" col:"SIZE"`
	First     stamp  `json:"minTimestamp" col:"FIRST,wide"`
	Last      stamp  `json:"maxTimestamp" col:"LAST"`
	Kept      string `json:"kept,omitempty" col:"KEPT-LOCALLY"`
	Epoch     *int64 `json:"leaderEpoch,omitempty" col:"EPOCH,wide"`
	Object    string `json:"object,omitempty" col:"OBJECT,wide"`
}

func newTierSegments(a *app) *cobra.Command {
	partition := int32(-1)
	cmd := &cobra.Command{
		Use:   "segments TOPIC",
		Short: "List a topic's segments in both tiers, and why local ones are kept",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := a.segments(cmd.Context(), args[0], partition)
			if err != nil {
				return err
			}
			return show(a, rows)
		},
	}
	cmd.Flags().Int32VarP(&partition, "partition", "p", -1, "only those of this partition")
	a.adminFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// segments collects the pages of all partitions.
func (a *app) segments(ctx context.Context, topic string, partition int32) ([]segmentRow, error) {
	query := url.Values{"topic": {topic}}
	if partition >= 0 {
		query.Set("partition", strconv.Itoa(int(partition)))
	}
	var rows []segmentRow
	for {
		var page admin.Segments
		if err := a.get(ctx, "/v1/tier/segments", query, &page); err != nil {
			return nil, err
		}
		for _, s := range page.Remote {
			epoch := int64(s.LeaderEpoch)
			rows = append(rows, segmentRow{s.Topic, s.Partition, "remote", s.Base, s.End, size(s.Size), stamp(s.MinTimestamp), stamp(s.MaxTimestamp), "", &epoch, s.Object})
		}
		for _, s := range page.Local {
			rows = append(rows, segmentRow{s.Topic, s.Partition, "local", s.Base, s.End, size(s.Size), -1, stamp(s.MaxTimestamp), s.Kept, nil, ""})
		}
		if page.Next == "" {
			break
		}
		query.Set("after", page.Next)
	}
	slices.SortStableFunc(rows, func(a, b segmentRow) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(b.Tier, a.Tier), cmp.Compare(a.Base, b.Base))
	})
	return rows, nil
}
