package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varve-io/varve/wire"
)

type topicRow struct {
	Name        string `json:"name" col:"NAME"`
	Partitions  int    `json:"partitions" col:"PARTITIONS"`
	Replication int    `json:"replicationFactor" col:"REPLICATION"`
	ID          string `json:"id" col:"ID,wide"`
	Internal    bool   `json:"internal" col:"INTERNAL,wide"`
}

func newTopicList(a *app) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				topics, err := adm.ListTopicsWithInternal(ctx)
				if err != nil {
					return a.explain("topics", err)
				}
				var rows []topicRow
				for _, t := range topics.Sorted() {
					if internal || !t.IsInternal {
						rows = append(rows, topicRow{t.Topic, len(t.Partitions), t.Partitions.NumReplicas(), wire.UUID(t.ID).String(), t.IsInternal})
					}
				}
				return show(a, rows)
			})
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}
