package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// varve runs one command line in this process.
func varve(t *testing.T, stdin string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx := t.Context()
	err := run(ctx, args, stdio{in: strings.NewReader(stdin), out: &out, err: &errs, env: env})
	return out.String(), errs.String(), exitCode(ctx, err)
}

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args   string
		code   int
		stderr string // part of it
	}{
		{"version", exitOK, ""},
		{"version -o json", exitOK, ""},
		{"topic", exitOK, ""},
		{"--help", exitOK, ""},
		{"frobnicate", exitUsage, `unknown command "frobnicate"`},
		{"topic create", exitUsage, "requires at least 1 arg"},
		{"topic list --nonsense", exitUsage, "unknown flag: --nonsense"},
		{"topic list -o xml", exitUsage, `output "xml": must be table, wide, json or yaml`},
		{"consume t --from yesterday", exitUsage, `--from: "yesterday" is none of`},
		{"consume t -f %q", exitUsage, "has no field"},
		{"produce t -z lzma", exitUsage, "--compression lzma: is none of"},
		{"topic create t -c retention.ms", exitUsage, "is not name=value"},
		{"topic list", exitFailed, "broker 127.0.0.1:1: connection refused\n  start one with varve dev"},
		{"produce t", exitFailed, "broker 127.0.0.1:1: connection refused"},
		{"consume t", exitFailed, "broker 127.0.0.1:1: connection refused"},
		{"tier status", exitFailed, "node at http://127.0.0.1:1: connection refused"},
		{"tier segments t", exitFailed, "name a node's varve.admin.listener with --admin"},
	} {
		env := []string{"VARVE_BOOTSTRAP_SERVER=127.0.0.1:1", "VARVE_ADMIN=http://127.0.0.1:1"}
		stdout, stderr, code := varve(t, "", env, strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%s: exit %d, stderr %s", test.args, code, stderr)
		}
		if (stdout != "") != (code == exitOK) {
			t.Errorf("%s: exit %d with stdout %q", test.args, code, stdout)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	err := run(ctx, []string{"topic", "list", "-b", "127.0.0.1:1"}, stdio{out: &errs, err: &errs})
	if code := exitCode(ctx, err); code != exitInterrupted || errs.Len() > 0 {
		t.Errorf("exit %d, said %q", code, errs.String())
	}
}
