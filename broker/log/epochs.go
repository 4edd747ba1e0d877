package log

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"sort"

	"github.com/varve-io/varve/wire/record"
)

// NoEpoch and NoOffset stand for "unknown" in answers about epochs (Kafka's UNDEFINED_EPOCH and
// UNDEFINED_EPOCH_OFFSET).
const (
	NoEpoch  int32 = -1
	NoOffset int64 = -1
)

// EpochCache says which leader epoch each offset belongs to, from the log start over both tiers to the end:
// what leader-epoch-checkpoint holds. Epochs and offsets ascend strictly. Guarded by Log.mu.
type EpochCache struct {
	entries []record.EpochStart
}

// last is the newest epoch, NoEpoch if the log has none.
func (c *EpochCache) last() int32 {
	if len(c.entries) == 0 {
		return NoEpoch
	}
	return c.entries[len(c.entries)-1].Epoch
}

// assign notes that an epoch begins at an offset. Entries that contradict it go, as in Kafka. It reports a
// change.
func (c *EpochCache) assign(epoch int32, offset int64) bool {
	if epoch < 0 || offset < 0 || epoch == c.last() && c.entries[len(c.entries)-1].StartOffset <= offset {
		return false
	}
	for n := len(c.entries); n > 0 && (c.entries[n-1].Epoch >= epoch || c.entries[n-1].StartOffset >= offset); n-- {
		c.entries = c.entries[:n-1]
	}
	c.entries = append(c.entries, record.EpochStart{Epoch: epoch, StartOffset: offset})
	return true
}

// at returns the epoch of an offset, NoEpoch if it lies below the first entry.
func (c *EpochCache) at(offset int64) int32 {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > offset })
	if i == 0 {
		return NoEpoch
	}
	return c.entries[i-1].Epoch
}

// endOf returns the largest epoch at or below the one asked for, and where it ends in a log that ends at end
// (LeaderEpochFileCache.endOffsetFor, KIP-279).
func (c *EpochCache) endOf(epoch int32, end int64) (int32, int64) {
	if epoch < 0 || len(c.entries) == 0 || epoch > c.last() {
		return NoEpoch, NoOffset
	}
	if epoch == c.last() {
		return epoch, end
	}
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Epoch > epoch })
	if i == 0 {
		return epoch, c.entries[0].StartOffset
	}
	return c.entries[i-1].Epoch, c.entries[i].StartOffset
}

// truncateEnd forgets what begins at or above an offset.
func (c *EpochCache) truncateEnd(offset int64) bool {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset >= offset })
	changed := i < len(c.entries)
	c.entries = c.entries[:i]
	return changed
}

// truncateStart forgets what ends at or below an offset.
func (c *EpochCache) truncateStart(offset int64) bool {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > offset })
	if i == 0 || i == 1 && c.entries[0].StartOffset == offset {
		return false
	}
	c.entries = slices.Clone(c.entries[i-1:])
	c.entries[0].StartOffset = offset
	return true
}

// between returns the epochs of [from, to), the first beginning at from.
func (c *EpochCache) between(from, to int64) []record.EpochStart {
	var list []record.EpochStart
	for i, e := range c.entries {
		if e.StartOffset >= to {
			break
		}
		if i+1 < len(c.entries) && c.entries[i+1].StartOffset <= from {
			continue
		}
		e.StartOffset = max(e.StartOffset, from)
		list = append(list, e)
	}
	return list
}

// checkpointVersion is the version of Kafka's text checkpoints.
const checkpointVersion = 0

// encodeEpochs writes a leader-epoch-checkpoint.
func encodeEpochs(entries []record.EpochStart) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n%d\n", checkpointVersion, len(entries))
	for _, e := range entries {
		fmt.Fprintf(&b, "%d %d\n", e.Epoch, e.StartOffset)
	}
	return b.Bytes()
}

// decodeEpochs reads a leader-epoch-checkpoint.
func decodeEpochs(p []byte) ([]record.EpochStart, error) {
	lines, err := checkpointLines(p)
	if err != nil {
		return nil, fmt.Errorf("leader epochs: %w", err)
	}
	c := EpochCache{}
	for _, line := range lines {
		fields := bytes.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("%w: leader epochs: line %q", ErrFormat, line)
		}
		epoch, err1 := parseInt(fields[0], 32)
		offset, err2 := parseInt(fields[1], 64)
		if err1 != nil || err2 != nil || epoch < 0 || offset < 0 || int32(epoch) <= c.last() ||
			len(c.entries) > 0 && offset <= c.entries[len(c.entries)-1].StartOffset {
			return nil, fmt.Errorf("%w: leader epochs: line %q", ErrFormat, line)
		}
		c.entries = append(c.entries, record.EpochStart{Epoch: int32(epoch), StartOffset: offset})
	}
	return c.entries, nil
}

// checkpointLines splits one of Kafka's text checkpoints: version, number of lines, lines.
func checkpointLines(p []byte) ([][]byte, error) {
	var lines [][]byte
	s := bufio.NewScanner(bytes.NewReader(p))
	for s.Scan() {
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			lines = append(lines, bytes.Clone(line))
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: checkpoint of %d lines", ErrFormat, len(lines))
	}
	version, err1 := parseInt(lines[0], 32)
	n, err2 := parseInt(lines[1], 32)
	if err1 != nil || err2 != nil || version != checkpointVersion || n != int64(len(lines)-2) {
		return nil, fmt.Errorf("%w: checkpoint version %q, %q entries in %d lines", ErrFormat, lines[0], lines[1], len(lines)-2)
	}
	return lines[2:], nil
}
