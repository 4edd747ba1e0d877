package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// What a caller must tell apart. Every error of a Store matches at most one of the leaves;
// ErrResolve and ErrTimeout also match ErrUnreachable.
var (
	ErrNotExist    = errors.New("object does not exist")
	ErrExist       = errors.New("object exists already")
	ErrBadName     = errors.New("bad object name")
	ErrChecksum    = errors.New("checksum differs")
	ErrAuth        = errors.New("credentials refused")
	ErrDenied      = errors.New("access denied")
	ErrNoBucket    = errors.New("bucket does not exist")
	ErrRegion      = errors.New("wrong region")
	ErrClockSkew   = errors.New("clock differs too much from the store's")
	ErrThrottled   = errors.New("store asks to slow down")
	ErrUnavailable = errors.New("store failed") // 5xx, a reply that broke off or made no sense
	ErrUnreachable = errors.New("store not reachable")
	ErrResolve     = fmt.Errorf("host name not resolved: %w", ErrUnreachable)
	ErrTimeout     = fmt.Errorf("no answer in time: %w", ErrUnreachable)
)

// kinds gives every sentinel the label it has in metrics, leaves before what they wrap.
var kinds = []struct {
	err   error
	label string
}{
	{ErrNotExist, "not_exist"},
	{ErrExist, "exist"},
	{ErrBadName, "bad_name"},
	{ErrChecksum, "checksum"},
	{ErrAuth, "auth"},
	{ErrDenied, "denied"},
	{ErrNoBucket, "no_bucket"},
	{ErrRegion, "region"},
	{ErrClockSkew, "clock_skew"},
	{ErrThrottled, "throttled"},
	{ErrUnavailable, "unavailable"},
	{ErrResolve, "resolve"},
	{ErrTimeout, "timeout"},
	{ErrUnreachable, "unreachable"},
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "deadline"},
}

// Label is a short name for the kind of err, one of a fixed set: "ok" for nil, "other" for
// what no sentinel matches.
func Label(err error) string {
	if err == nil {
		return "ok"
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.label
		}
	}
	return "other"
}

// Error is what a provider returns: which call on which object, the sentinel it matches, and the
// cause. Neither holds a secret.
type Error struct {
	Op   string // "put", "get", "head", "list", "delete"
	Name string // the object, or the prefix of a listing
	Kind error  // a sentinel of this package, or nil
	Err  error  // the cause, may be nil
}

func (e *Error) Error() string {
	parts := []string{strings.TrimSpace(e.Op + " " + e.Name)}
	if e.Kind != nil {
		parts = append(parts, e.Kind.Error())
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap lets errors.Is find both the sentinel and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Retryable reports whether the same call may well succeed a little later without anyone
// doing anything. A checksum that differs on arrival is a flipped bit on the way, so it is one.
func Retryable(err error) bool {
	for _, kind := range []error{ErrThrottled, ErrUnavailable, ErrUnreachable, ErrChecksum} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Ambiguous reports whether a Put or Delete that failed with err may nevertheless have taken
// effect: the request may have arrived and the reply been lost.
func Ambiguous(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrResolve) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
