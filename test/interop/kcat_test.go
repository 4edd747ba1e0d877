package interop

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
)

// kcat is Debian's, with its librdkafka 2.0.2: a client of some years ago.
type kcat struct{}

func (kcat) name() string { return "kcat" }
func (kcat) text() bool   { return false }

// escape writes a delimiter as kcat's options take it.
func escape(delimiter string) string {
	var b bytes.Buffer
	for _, c := range []byte(delimiter) {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return b.String()
}

func (kcat) produce(ctx context.Context, topic, codec string, records []event) error {
	var in bytes.Buffer
	for _, r := range records {
		in.Write(r.key)
		in.WriteString(keyEnd)
		in.Write(r.value)
		in.WriteString(recordEnd)
	}
	cmd := exec.CommandContext(ctx, "kcat", "-b", target.addr, "-P", "-t", topic, "-D", escape(recordEnd), "-K", escape(keyEnd),
		"-X", "compression.codec="+codec, "-X", "message.max.bytes=1100000", "-X", "batch.size=200000", "-X", "linger.ms=50",
		"-X", "topic.partitioner=murmur2_random")
	cmd.Stdin = &in
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kcat: %w: %s", err, out)
	}
	if len(out) > 0 {
		return fmt.Errorf("kcat complains: %s", out) // such as "Broker does not support compression type"
	}
	return nil
}

func (kcat) consume(ctx context.Context, topic string, partition int32, offset int64, n int) ([]event, error) {
	cmd := exec.CommandContext(ctx, "kcat", "-q", "-b", target.addr, "-C", "-t", topic, "-p", strconv.Itoa(int(partition)),
		"-o", strconv.FormatInt(offset, 10), "-c", strconv.Itoa(n), "-f", `%o\n%K\n%S\n%k%s\n`)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kcat: %w: %s", err, complaints.Bytes())
	}
	return parseSized(out)
}

// parseSized reads records as: offset, size of the key, size of the value, one
// a line, then both.
func parseSized(b []byte) ([]event, error) {
	var got []event
	for len(b) > 0 {
		var n [3]int
		for i := range n {
			line, rest, ok := bytes.Cut(b, []byte("\n"))
			v, err := strconv.Atoi(string(line))
			if !ok || err != nil {
				return got, fmt.Errorf("record %d: %.40q is no number", len(got), line)
			}
			n[i], b = v, rest
		}
		if n[1] < 0 || n[2] < 0 || len(b) < n[1]+n[2]+1 {
			return got, fmt.Errorf("record %d at offset %d is cut off", len(got), n[0])
		}
		got = append(got, event{offset: int64(n[0]), key: b[:n[1]], value: b[n[1] : n[1]+n[2]]})
		b = b[n[1]+n[2]+1:]
	}
	return got, nil
}
