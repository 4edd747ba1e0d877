package main

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/broker/admin"
)

// segmentRow is an object of the store. The end is exclusive.
type segmentRow struct {
	Topic     string `json:"topic" col:"TOPIC"`
	Partition int32  `json:"partition" col:"PARTITION"`
	Base      int64  `json:"base" col:"BASE"`
	End       int64  `json:"end" col:"END"`
	Size      size   `json:"size" col:"SIZE"`
	First     stamp  `json:"minTimestamp" col:"FIRST"`
	Last      stamp  `json:"maxTimestamp" col:"LAST"`
	Local     bool   `json:"local" col:"LOCAL"`
	Epoch     int32  `json:"leaderEpoch" col:"EPOCH,wide"`
	Object    string `json:"object" col:"OBJECT,wide"`
}

func newTierSegments(a *app) *cobra.Command {
	partition := int32(-1)
	cmd := &cobra.Command{
		Use:   "segments TOPIC",
		Short: "List the objects that hold a topic's records",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := a.remoteSegments(cmd, args[0], partition)
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

// remoteSegments collects the pages of all partitions.
func (a *app) remoteSegments(cmd *cobra.Command, topic string, partition int32) ([]segmentRow, error) {
	query := url.Values{"topic": {topic}}
	if partition >= 0 {
		query.Set("partition", strconv.Itoa(int(partition)))
	}
	var rows []segmentRow
	for {
		var page admin.Segments
		if err := a.get(cmd.Context(), "/v1/tier/segments", query, &page); err != nil {
			return nil, err
		}
		for _, s := range page.Segments {
			rows = append(rows, segmentRow{s.Topic, s.Partition, s.Base, s.End, size(s.Size), stamp(s.MinTimestamp), stamp(s.MaxTimestamp), s.Local, s.LeaderEpoch, s.Object})
		}
		if page.Next == "" {
			return rows, nil
		}
		query.Set("after", page.Next)
	}
}
