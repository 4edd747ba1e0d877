package record

import (
	"fmt"
	"strings"
)

// Codec is the compression of a batch's records, numbered as in its attributes.
type Codec int8

// The codecs that Kafka knows.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

// String is the name in Kafka's configuration ("none", "gzip", ...).
func (c Codec) String() string {
	if c < 0 || int(c) >= len(codecNames) {
		return fmt.Sprintf("codec(%d)", int8(c))
	}
	return codecNames[c]
}

// ParseCodec knows the names of compression.type that name a codec ("uncompressed" is none); "producer" is not one.
func ParseCodec(name string) (Codec, error) {
	for c, n := range codecNames {
		if strings.EqualFold(name, n) {
			return Codec(c), nil
		}
	}
	if strings.EqualFold(name, "uncompressed") {
		return None, nil
	}
	return None, fmt.Errorf("%w: %q", ErrCodec, name)
}
