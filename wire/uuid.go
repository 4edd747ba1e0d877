package wire

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// UUID is a Kafka Uuid: topic ids, directory ids, object ids. The zero value
// means "none".
type UUID [16]byte

// oneUUID is Kafka's reserved Uuid of the metadata topic; it names nothing of ours.
var oneUUID = UUID{15: 1}

// NewUUID returns a random (version 4) UUID that is neither of Kafka's
// reserved values and whose text does not begin with '-', which command lines
// would take for a flag.
func NewUUID() UUID {
	for {
		var u UUID
		rand.Read(u[:])
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if !u.IsZero() && u != oneUUID && u.String()[0] != '-' {
			return u
		}
	}
}

// ParseUUID reads the text form that String writes.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 22 {
		return u, fmt.Errorf("uuid %q: want 22 characters of base64url", s)
	}
	if _, err := base64.RawURLEncoding.Decode(u[:], []byte(s)); err != nil {
		return UUID{}, fmt.Errorf("uuid %q: %w", s, err)
	}
	return u, nil
}

// String returns Kafka's text form: base64url without padding, 22 characters.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero reports whether u names nothing.
func (u UUID) IsZero() bool { return u == UUID{} }

// MarshalText implements encoding.TextMarshaler.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UUID) UnmarshalText(b []byte) error {
	v, err := ParseUUID(string(b))
	if err == nil {
		*u = v
	}
	return err
}
