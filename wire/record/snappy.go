package record

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/s2"
)

// xerialHeader begins a stream of snappy-java: magic, version 1, compatible with version 1.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMagicSize = 8
	xerialBlock     = 32 << 10 // snappy-java's default, and Kafka's
)

var errSnappyFrame = errors.New("broken framing")

// compressXerial appends src in xerial framing.
func compressXerial(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		n := min(len(src), xerialBlock)
		at := len(dst)
		dst = append(dst, make([]byte, 4+s2.MaxEncodedLen(n))...)
		block := s2.EncodeSnappy(dst[at+4:], src[:n])
		binary.BigEndian.PutUint32(dst[at:], uint32(len(block)))
		dst = dst[:at+4+len(block)]
		src = src[n:]
	}
	return dst
}

func decompressSnappy(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialHeader[:xerialMagicSize]) {
		return decodeSnappyBlock(dst, src, limit)
	}
	start := len(dst)
	for len(src) > 0 {
		// Streams may follow one another, each with its header.
		if bytes.HasPrefix(src, xerialHeader[:xerialMagicSize]) {
			if len(src) < len(xerialHeader) {
				return dst, errSnappyFrame
			}
			src = src[len(xerialHeader):]
			continue
		}
		if len(src) < 4 {
			return dst, errSnappyFrame
		}
		n := int64(binary.BigEndian.Uint32(src))
		if src = src[4:]; n > int64(len(src)) {
			return dst, errSnappyFrame
		}
		var err error
		if dst, err = decodeSnappyBlock(dst, src[:n], limit-(len(dst)-start)); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

// decodeSnappyBlock appends one raw block, whose length it declares up front.
func decodeSnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	size, err := s2.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if size > limit {
		return dst, ErrTooLarge
	}
	// A copy of at most 64 bytes takes two or three: more is a lie, and not worth the memory.
	if int64(size) > int64(len(src))*maxSnappyRatio {
		return dst, errSnappyFrame
	}
	at := len(dst)
	if cap(dst)-at < size {
		dst = append(dst, make([]byte, size)...)
	}
	block, err := s2.Decode(dst[at:at+size], src)
	if err != nil {
		return dst[:at], err
	}
	return dst[:at+len(block)], nil
}

// maxSnappyRatio is above what snappy can reach: 64 bytes of output by 2 bytes of input.
const maxSnappyRatio = 64
