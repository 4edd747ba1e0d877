package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// lengthSize is the size of the length that precedes every frame.
const lengthSize = 4

// minRequestSize is the smallest request header: key, version, correlation id.
const minRequestSize = 2 + 2 + 4

// header is a decoded request header.
type header struct {
	key, version  int16
	correlationID int32
	clientID      []byte // sub-slice of the frame; nil: null
	body          []byte
}

// parseKey reads only what every version of the header begins with.
func parseKey(frame []byte) (h header, err error) {
	if len(frame) < minRequestSize {
		return h, fmt.Errorf("%w: request of %d bytes", ErrMalformed, len(frame))
	}
	h.key = int16(binary.BigEndian.Uint16(frame))
	h.version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.correlationID = int32(binary.BigEndian.Uint32(frame[4:]))
	h.body = frame[minRequestSize:]
	return h, nil
}

// parseClientID reads the rest of the header. The client id has a 16-bit length
// even in a flexible header, where the tag section follows also a null one.
func (h *header) parseClientID(flexible bool) error {
	d := decoder{b: h.body}
	h.clientID = d.nullableString()
	d.flex = flexible
	d.tags()
	if d.bad {
		return fmt.Errorf("%w: request header", ErrMalformed)
	}
	h.body = d.b
	return nil
}

// appendRequest appends a whole request frame.
func appendRequest(dst []byte, req kmsg.Request, correlationID int32, clientID string) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(clientID)))
	dst = append(dst, clientID...)
	if req.IsFlexible() {
		dst = append(dst, 0)
	}
	dst = req.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-lengthSize))
	return dst
}

// appendResponseHeader appends the length (to be patched) and the header of a response.
// Flexible responses carry a tag section, but for ApiVersions (KIP-511).
func appendResponseHeader(dst []byte, correlationID int32, tags bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if tags {
		dst = append(dst, 0)
	}
	return dst
}
