package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// app is one run of the program: its surroundings and the flags that many
// commands share.
type app struct {
	stdio
	bootstrap []string
	adminURL  string
	output    string
	timeout   time.Duration
	started   bool // the command line was understood
}

const (
	defaultBootstrap = "127.0.0.1:9092"
	defaultAdminURL  = "http://127.0.0.1:9644"
	defaultTimeout   = 15 * time.Second
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "varve",
		Short:         "A Kafka-compatible log that keeps its history in object storage",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			err := checkFormat(a.output)
			a.started = err == nil
			return err
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(

		newServer(a), newDev(a),
		newTopic(a), newProduce(a), newConsume(a),
		newTier(a), newCluster(a), newVersion(a),
	)
	return root
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(commands...)
	return c
}

// clientFlags are those of every command that talks to a broker.
func (a *app) clientFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&a.bootstrap, "bootstrap-server", "b", strings.Split(a.envOr("VARVE_BOOTSTRAP_SERVER", defaultBootstrap), ","),
		"host:port of one or more brokers (environment: VARVE_BOOTSTRAP_SERVER)")
	cmd.Flags().DurationVar(&a.timeout, "timeout", defaultTimeout, "how long brokers may take to answer")
}

// adminFlags are those of commands that use a node's HTTP listener.
func (a *app) adminFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.adminURL, "admin", a.envOr("VARVE_ADMIN", defaultAdminURL),
		"URL of a node's varve.admin.listener (environment: VARVE_ADMIN)")
	cmd.Flags().DurationVar(&a.timeout, "timeout", defaultTimeout, "how long the node may take to answer")
}

// outputFlag is that of every command that reads.
func (a *app) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", formatTable, "table, wide, json or yaml")
}

func (a *app) envOr(name, otherwise string) string {
	for _, pair := range a.env {
		if key, value, _ := strings.Cut(pair, "="); key == name && value != "" {
			return value
		}
	}
	return otherwise
}
