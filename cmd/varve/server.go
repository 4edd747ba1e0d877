package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/wire/config"
)

func newServer(a *app) *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "server [server.properties]",
		Short: "Run a node",
		Long: "Run a node until it is interrupted. Properties come from a file, from the environment (log.dirs is VARVE_LOG_DIRS, varve.store.url is VARVE_STORE_URL)\n" +
			"and from --set; the later goes before the earlier. Empty directories are formatted at the first start: those of a lone node by itself, those of\n" +
			"the nodes of controller.quorum.voters once all of these have answered.",
		Example: "  varve server --set node.id=1 --set listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093 --set log.dirs=/var/lib/varve --set varve.store.url=s3://bucket/prefix",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := loadSettings(strings.Join(args, ""), a.env, sets)
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), s)
		},
	}
	cmd.Flags().StringArrayVar(&sets, "set", nil, "property as name=value, repeatable")
	return cmd
}

// serve runs a node until ctx ends; being asked to stop is success.
func (a *app) serve(ctx context.Context, s settings) error {
	cfg, err := config.ForBroker(s.values)
	if err != nil {
		return s.configProblem(err)
	}
	logger := newLogger(a.err, cfg.LogFormat, cfg.LogLevel)
	unknown, ignored := s.warnings()
	for _, text := range unknown {
		logger.Warn(text)
	}
	if len(ignored) > 0 {
		logger.Info("these properties of Kafka have no effect here", "properties", strings.Join(ignored, ","))
	}
	n := newNode(cfg, s.values, logger)
	return n.run(ctx)
}

// configProblem names the property, where it was set, and the reason.
func (s settings) configProblem(err error) error {
	var value *config.ValueError
	if !errors.As(err, &value) {
		return err
	}
	from, set := s.from[value.Name]
	if !set {
		from = "not set"
	}
	return &problem{"property " + value.Name + " (" + from + ")", errors.New(value.Reason), "set it with --set " + value.Name + "=..., in server.properties, or as " + envName(value.Name)}
}
