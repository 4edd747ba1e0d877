package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newTopicElect(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "elect PARTITION...",
		Short: "Bring leaders back to the preferred replicas",
		Long: "Elect the preferred replica, the first of the list, as leader where it is in sync and does not lead.\n" + partitionsHelp + "\n" +
			"Where nobody is in sync, see varve cluster accept-loss.",
		Example: "  varve topic elect orders\n  varve topic elect orders:3 payments\n  varve topic elect --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return &usageError{errors.New("name partitions, or --all")}
			}
			named, err := parsePartitions(args)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				if all {
					return a.electLeaders(ctx, client, kadm.ElectPreferredReplica, nil)
				}
				replicas, err := a.replicasOf(ctx, client, named)
				if err != nil {
					return err
				}
				return a.electLeaders(ctx, client, kadm.ElectPreferredReplica, sortedPartitions(replicas))
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "wherever it is needed")
	a.clientFlags(cmd)
	return cmd
}
