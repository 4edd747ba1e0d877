// Package objstore is the bucket as Varve sees it: whole immutable objects under
// slash-separated names, written once, read by ranges, listed in name order, deleted.
//
// A provider (objstore/s3, objstore/file, objstore/mem) implements Store and maps what
// went wrong to the sentinels of errors.go, so that a caller can tell "absent" from
// "unreachable" whatever the bucket is, and Diagnose can tell an operator what to do.
// A wrapper (objstore/retry, objstore/limit, objstore/metrics, objstore/fault) takes a Store
// and is one. They compose from the inside out:
//
//	metrics( retry( limit( provider ) ) )
//
// A call that waits to be tried again holds no slot of the limit, and what is measured is what a
// caller saw.
//
// One acceptance suite, objstore/objstoretest, holds for every composition.
package objstore
