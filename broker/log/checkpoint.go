package log

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/varve-io/varve/wire"
)

func parseInt(p []byte, bits int) (int64, error) { return strconv.ParseInt(string(p), 10, bits) }

// TopicPartition names a partition in checkpoints and directory names.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the name of the partition's directory.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// ParsePartitionDir is the inverse of String.
func ParsePartitionDir(name string) (TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return TopicPartition{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[i+1:] {
		return TopicPartition{}, false
	}
	return TopicPartition{name[:i], int32(n)}, true
}

func comparePartitions(a, b TopicPartition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmpInt(int64(a.Partition), int64(b.Partition))
}

// encodeOffsets writes a checkpoint of offsets by partition.
func encodeOffsets(offsets map[TopicPartition]int64) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n%d\n", checkpointVersion, len(offsets))
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), comparePartitions) {
		fmt.Fprintf(&b, "%s %d %d\n", tp.Topic, tp.Partition, offsets[tp])
	}
	return b.Bytes()
}

// decodeOffsets reads one.
func decodeOffsets(p []byte) (map[TopicPartition]int64, error) {
	lines, err := checkpointLines(p)
	if err != nil {
		return nil, err
	}
	offsets := make(map[TopicPartition]int64, len(lines))
	for _, line := range lines {
		fields := bytes.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%w: checkpoint line %q", ErrFormat, line)
		}
		partition, err1 := parseInt(fields[1], 32)
		offset, err2 := parseInt(fields[2], 64)
		if err1 != nil || err2 != nil || partition < 0 || offset < 0 {
			return nil, fmt.Errorf("%w: checkpoint line %q", ErrFormat, line)
		}
		offsets[TopicPartition{string(fields[0]), int32(partition)}] = offset
	}
	return offsets, nil
}

// partitionMetadataFile names the topic that a directory belongs to beyond its name (KIP-516).
const partitionMetadataFile = "partition.metadata"

func encodePartitionMetadata(id wire.UUID) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", id)
}

func decodePartitionMetadata(p []byte) (wire.UUID, error) {
	var id wire.UUID
	version := ""
	for line := range strings.Lines(string(p)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case key == "version" && ok:
			version = value
		case key == "topic_id" && ok:
			var err error
			if id, err = wire.ParseUUID(value); err != nil {
				return id, fmt.Errorf("%w: %s: %w", ErrFormat, partitionMetadataFile, err)
			}
		case key != "":
			return id, fmt.Errorf("%w: %s: line %q", ErrFormat, partitionMetadataFile, line)
		}
	}
	if version != "0" || id.IsZero() {
		return id, fmt.Errorf("%w: %s of version %q, topic id %s", ErrFormat, partitionMetadataFile, version, id)
	}
	return id, nil
}
