package metadata

import "errors"

// MetadataFeature is the feature that gates commands.
const MetadataFeature = "metadata.version"

// The metadata.version levels that this binary understands. Numbers are
// Kafka's, so that its tools can name them: 25 is 4.0-IV3.
const (
	MetadataVersionMin int16 = 25
	MetadataVersion    int16 = 25
)

// ErrUnsupported is wrapped by errors about commands and records that a newer
// metadata.version brought.
var ErrUnsupported = errors.New("beyond this binary's metadata.version")
