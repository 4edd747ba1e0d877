package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopicDelete(a *app) *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete topics with all their records, in both tiers",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.admin(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
				return a.deleteTopics(ctx, adm, names, ifExists)
			})
		},
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a topic that does not exist is no error")
	a.clientFlags(cmd)
	return cmd
}

func (a *app) deleteTopics(ctx context.Context, adm *kadm.Client, names []string, ifExists bool) error {
	deleted, err := adm.DeleteTopics(ctx, names...)
	if err != nil {
		return a.explain("delete topics", err)
	}
	var failed []error
	for _, name := range names {
		r := deleted[name]
		switch {
		case r.Err == nil:
			fmt.Fprintf(a.err, "deleted topic %s\n", name)
		case ifExists && errors.Is(r.Err, kerr.UnknownTopicOrPartition):
			fmt.Fprintf(a.err, "topic %s does not exist\n", name)
		default:
			failed = append(failed, a.explain("topic "+name, withMessage(r.Err, r.ErrMessage)))
		}
	}
	return errors.Join(failed...)
}
