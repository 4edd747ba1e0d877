// Package metadata is the cluster's state as a value: an immutable Image, the
// Records that change it, the Commands that ask for a change, and Apply, which
// turns a command into records if its preconditions hold.
//
// Everything here is pure. Apply has no clock, no randomness and no I/O: topic
// ids, object ids, placements and the time are in the command or in Meta, so
// that every controller that applies the same entries holds the same image.
// What depends on this binary (the table of properties, the placement of
// replicas) is decided before a command is proposed, by the functions of
// plan.go; Apply checks only state, gated by the finalised metadata.version.
//
// A record is the new state of one row, or the name of a row that is gone.
// So brokers, which know no commands, replay records; and a snapshot is
// nothing but the shortest list of records that yields the image.
//
// # Codec
//
// Commands and records are framed alike. All numbers are varints (zigzag where
// signed), strings and lists carry their length first:
//
//	kind uvarint | version uvarint | size uvarint | body (size bytes)
//
// A body is its fields in a fixed order. Fields are only ever appended: a
// reader skips those that it does not know, and takes a missing one for zero.
// A change that an old reader must not overlook raises the version instead.
// An unknown kind or version is an error that names the metadata.version.
// Structures inside a list are bodies with their own size, by the same rules.
//
// An entry of the quorum's log:
//
//	format uvarint (1) | time int64 varint, ms | count uvarint | count commands
//
// A snapshot:
//
//	"VARVEIMG" | format uint32 | index uint64 | term uint64 | count uint64
//	count times: size uint32 | record (framed as above)
//	CRC-32C uint32 of all before it
//
// fixed-size numbers are big-endian.
package metadata
