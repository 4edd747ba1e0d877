package broker

import (
	"context"
	"errors"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/wire"
)

var errStopping = errors.New("the broker is stopping")

// code maps any error to the Kafka code that a client is told.
func code(err error) int16 {
	var ke *kerr.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ke):
		return ke.Code
	case errors.Is(err, wire.ErrDisconnected), errors.Is(err, ErrUnknownOutcome),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return kerr.RequestTimedOut.Code
	case errors.Is(err, context.Canceled), errors.Is(err, wire.ErrClosed):
		return kerr.BrokerNotAvailable.Code
	}
	return replica.Code(err)
}

// unreachable is the code for an administrative request that did not reach a
// controller or got no answer from it: the client may try again.
func unreachable(err error) int16 {
	if c := code(err); c != kerr.UnknownServerError.Code {
		return c
	}
	return kerr.RequestTimedOut.Code
}

// maxMessage bounds the text of an error that goes to a client; a string has 16 bits for its length.
const maxMessage = 1024

// message is an error's text for a client; nil for no error.
func message(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	if len(s) > maxMessage {
		s = s[:maxMessage]
	}
	return &s
}
