package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

type dev struct {
	dir  string
	port int
	sets []string
	rm   bool
}

func newDev(a *app) *cobra.Command {
	var d dev
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a node of one's own, for trying things out",
		Long: "Run a single node on the loopback address until it is interrupted, with an object store that is a directory and topics that are tiered unless they say otherwise.\n" +
			"Everything it writes is below one directory, which can be removed when the node is stopped.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := d.settings(a)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.err, "data is in %s; clients connect to 127.0.0.1:%d; stop with Ctrl-C\n", d.dir, d.port)
			err = a.serve(cmd.Context(), s)
			if d.rm {
				err = errors.Join(err, os.RemoveAll(d.dir))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&d.dir, "dir", "varve-dev", "directory for everything")
	cmd.Flags().IntVar(&d.port, "port", 9092, "port of the client listener; the controller has the next")
	cmd.Flags().BoolVar(&d.rm, "rm", false, "remove the directory at the end")
	cmd.Flags().StringArrayVar(&d.sets, "set", nil, "property as name=value, repeatable")
	return cmd
}

func (d *dev) settings(a *app) (settings, error) {
	var err error
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return settings{}, err
	}
	store := filepath.Join(d.dir, "store")
	if err := os.MkdirAll(store, 0o755); err != nil {
		return settings{}, &problem{"directory " + d.dir, innermost(err), "name another with --dir"}
	}
	s, err := loadSettings("", a.env, d.sets)
	if err != nil {
		return s, err
	}
	for name, value := range map[string]string{
		"node.id":                         "1",
		"listeners":                       fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", d.port, d.port+1),
		"log.dirs":                        filepath.Join(d.dir, "log"),
		"varve.store.url":                 "file://" + store,
		"varve.log.remote.storage.enable": "true",
		// Work is looked for every second, so that one can watch.
		"remote.log.manager.task.interval.ms": "1000",
	} {
		s.setDefault(name, value)
	}
	return s, nil
}
