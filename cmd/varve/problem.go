package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// problem is an error for a reader at a terminal: the thing, the reason and
// the way out.
type problem struct {
	thing  string
	reason error
	wayOut string // "" where there is none to name
}

func (p *problem) Error() string { return p.thing + ": " + p.reason.Error() }
func (p *problem) Unwrap() error { return p.reason }

// usageError is a command line that says nothing we can do.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// badFlag is a flag whose value says nothing we can do.
func badFlag(flag string, reason error) error { return &usageError{&problem{flag, reason, ""}} }

// complain is the text of an error on stderr.
func complain(err error) string {
	var p *problem
	if errors.As(err, &p) && p.wayOut != "" {
		return err.Error() + "\n  " + strings.ReplaceAll(p.wayOut, "\n", "\n  ")
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return err.Error() + "\n  see varve --help"
	}
	return err.Error()
}

// explain turns what a Kafka client returns into a problem with a thing, such
// as a topic.
func (a *app) explain(thing string, err error) error {
	if err == nil {
		return nil
	}
	p := &problem{thing: thing, reason: err}
	var ke *kerr.Error
	var dial *net.OpError
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		p.reason, p.wayOut = errors.New("does not exist"), "varve topic list shows what does, varve topic create makes it"
	case errors.Is(err, kerr.TopicAlreadyExists):
		p.reason, p.wayOut = errors.New("exists already"), "use it as it is (--if-not-exists), or delete it first"
	case errors.As(err, &ke):
		p.reason = fmt.Errorf("%s: %s", ke.Message, ke.Description)
	case errors.As(err, &dial), errors.Is(err, context.DeadlineExceeded):
		p.thing, p.wayOut = "broker "+strings.Join(a.bootstrap, ","), "start one with varve dev, or name one with --bootstrap-server"
		p.reason = innermost(err)
	}
	return p
}

// innermost cuts the wrapping of a network error down to what happened.
func innermost(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("does not answer")
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// withMessage prefers a broker's own words to the fixed text of its error code.
func withMessage(err error, message string) error {
	var ke *kerr.Error
	if message == "" || !errors.As(err, &ke) {
		return err
	}
	return &brokerError{ke, message}
}

type brokerError struct {
	code    *kerr.Error
	message string
}

func (e *brokerError) Error() string        { return e.code.Message + ": " + e.message }
func (e *brokerError) Is(target error) bool { return target == error(e.code) }
