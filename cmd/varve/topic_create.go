package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
)

type topicCreate struct {
	partitions  int32
	replication int16
	configs     []string
	ifNotExists bool
}

func newTopicCreate(a *app) *cobra.Command {
	var c topicCreate
	cmd := &cobra.Command{
		Use:     "create NAME...",
		Short:   "Create topics",
		Example: "  varve topic create orders --partitions 6 --config retention.ms=2592000000 --config remote.storage.enable=true",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			configs, err := c.properties()
			if err != nil {
				return err
			}
			return a.admin(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error { return c.run(ctx, a, adm, names, configs) })
		},
	}
	cmd.Flags().Int32VarP(&c.partitions, "partitions", "p", -1, "number of partitions (-1: the broker's num.partitions)")
	cmd.Flags().Int16VarP(&c.replication, "replication-factor", "r", -1, "copies of each partition (-1: the broker's default.replication.factor)")
	cmd.Flags().StringArrayVarP(&c.configs, "config", "c", nil, "topic property as name=value, repeatable")
	cmd.Flags().BoolVar(&c.ifNotExists, "if-not-exists", false, "a topic that exists already is no error")
	a.clientFlags(cmd)
	return cmd
}

func (c *topicCreate) properties() (map[string]*string, error) {
	configs := map[string]*string{}
	for _, pair := range c.configs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, badFlag("--config "+pair, errors.New("is not name=value"))
		}
		configs[name] = &value
	}
	return configs, nil
}

func (c *topicCreate) run(ctx context.Context, a *app, adm *kadm.Client, names []string, configs map[string]*string) error {
	created, err := adm.CreateTopics(ctx, c.partitions, c.replication, configs, names...)
	if err != nil {
		return a.explain("create topics", err)
	}
	var failed []error
	for _, name := range names {
		r := created[name]
		switch {
		case r.Err == nil:
			fmt.Fprintf(a.err, "created topic %s, %d partitions, id %s\n", name, r.NumPartitions, wire.UUID(r.ID))
		case errors.Is(r.Err, kerr.TopicAlreadyExists) && c.ifNotExists:
			fmt.Fprintf(a.err, "topic %s exists already\n", name)
		default:
			failed = append(failed, a.explain("topic "+name, withMessage(r.Err, r.ErrMessage)))
		}
	}
	return errors.Join(failed...)
}
