package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionRow struct {
	Version string `json:"version" col:"VERSION"`
	Commit  string `json:"commit" col:"COMMIT"`
	Go      string `json:"go" col:"GO"`
	System  string `json:"system" col:"SYSTEM"`
}

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this binary was built from",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return showOne(a, buildVersion()) },
	}
	a.outputFlag(cmd)
	return cmd
}

func buildVersion() versionRow {
	v := versionRow{Version: "(devel)", Commit: "unknown", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			v.Commit = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+changes"
		}
	}
	v.Commit += modified
	return v
}
