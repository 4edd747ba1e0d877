package replica

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Code is the Kafka error code that err wraps: 0 for nil, UNKNOWN_SERVER_ERROR for what wraps none.
func Code(err error) int16 {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e.Code
	}
	return kerr.UnknownServerError.Code
}

// refuse wraps a Kafka error with the reason.
func refuse(e *kerr.Error, format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{e}, args...)...)
}
