package wire

import "errors"

// Errors that callers tell apart.
var (
	// ErrDisconnected: the connection ended before the answer came; whether the request took effect is unknown.
	ErrDisconnected = errors.New("disconnected")
	// ErrClosed: the client or server was closed.
	ErrClosed = errors.New("closed")
	// ErrUnsupportedVersion: the peer serves no version of the API that we speak.
	ErrUnsupportedVersion = errors.New("no common version of the API")
	// ErrMalformed: bytes that are not what the protocol says.
	ErrMalformed = errors.New("malformed")
)

var errTrailing = errors.New("trailing bytes after the message")
