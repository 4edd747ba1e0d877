package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks, the second one kills.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ()})
	os.Exit(exitCode(ctx, err))
}

// stdio is what a command knows of the process that it runs in.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	env      []string // NAME=value
}

// run executes one command line and tells an error on stderr.
func run(ctx context.Context, args []string, io stdio) error {
	a := &app{stdio: io}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = &usageError{err}
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(io.err, "varve: "+complain(err))
	}
	return err
}

func exitCode(ctx context.Context, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
}
