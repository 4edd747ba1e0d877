package tier

import (
	"errors"
	"fmt"

	"github.com/varve-io/varve/objstore"
)

// What callers must tell apart, besides ErrCorrupt, ErrVersion and ErrBadRun. Offsets below the log start are
// answered kerr.OffsetOutOfRange.
var (
	// ErrStoreUnavailable: the object store did not do what was asked, and may do it later. The text says
	// what is wrong and what to do (objstore.Diagnose).
	ErrStoreUnavailable = errors.New("object store is unavailable")
	// ErrObjectMissing: a row of the image names an object that the store does not have.
	ErrObjectMissing = errors.New("object of a remote segment is missing")
	// ErrNotTiered: no remote segment holds the offset.
	ErrNotTiered = errors.New("offset is not in the object store")
	// ErrUnknownOutcome: an upload may or may not have been committed; the image will tell.
	ErrUnknownOutcome = errors.New("outcome of the commit is unknown")
	// ErrRefused: the controller refused a reservation or a commit; the kerr value of the reason is wrapped.
	ErrRefused = errors.New("controller refused")
	// ErrForeignPrefix: the store's prefix belongs to another cluster.
	ErrForeignPrefix = errors.New("prefix belongs to another cluster")
	// ErrClosed: the manager was shut down.
	ErrClosed = errors.New("tier is shut down")
)

// storeError is a failure of the store with what an operator should know about it.
func storeError(err error) error {
	cause, remedy := objstore.Diagnose(err)
	return fmt.Errorf("%w: %s; %s: %w", ErrStoreUnavailable, cause, remedy, err)
}
