package interop

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// javaConsole is Kafka's console producer and consumer.
type javaConsole struct{}

func (javaConsole) name() string { return "java" }
func (javaConsole) text() bool   { return true }

func (javaConsole) produce(ctx context.Context, topic, codec string, records []event) error {
	var in bytes.Buffer
	for _, r := range records {
		fmt.Fprintf(&in, "%s\t%s\n", r.key, r.value)
	}
	cmd := target.java.Command(ctx, "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", target.addr, "--topic", topic,
		"--compression-codec", codec, "--batch-size", "200000", "--timeout", "50", "--command-property", "max.request.size=1100000",
		"--reader-property", "parse.key=true", "--reader-property", "key.separator=\t")
	cmd.Stdin = &in
	// It exits with 0 whatever becomes of a record, but prints what went wrong.
	return check(cmd.CombinedOutput())
}

func (javaConsole) consume(ctx context.Context, topic string, partition int32, offset int64, n int) ([]event, error) {
	cmd := target.java.Command(ctx, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", target.addr, "--topic", topic,
		"--partition", strconv.Itoa(int(partition)), "--offset", strconv.FormatInt(offset, 10), "--max-messages", strconv.Itoa(n), "--timeout-ms", "30000",
		"--formatter-property", "print.offset=true", "--formatter-property", "print.key=true",
		"--formatter-property", "key.separator="+keyEnd, "--formatter-property", "line.separator="+recordEnd)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ConsoleConsumer: %w: %s", err, complaints.Bytes())
	}
	var got []event
	for line := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte(recordEnd)), []byte(recordEnd)) {
		f := bytes.Split(line, []byte(keyEnd)) // Offset:12, key, value
		if len(f) != 3 {
			return got, fmt.Errorf("ConsoleConsumer: record %d has %d fields; it also said: %s", len(got), len(f), complaints.Bytes())
		}
		at, err := strconv.ParseInt(strings.TrimPrefix(string(f[0]), "Offset:"), 10, 64)
		if err != nil {
			return got, fmt.Errorf("ConsoleConsumer: %w", err)
		}
		got = append(got, event{offset: at, key: f[1], value: f[2]})
	}
	return got, nil
}

// noise is what every one of Kafka's programs prints without a logging library.
const noise = "SLF4J: "

// check turns the output of one of Kafka's programs that prints nothing when
// all is well into an error.
func check(out []byte, err error) error {
	text := quiet(out)
	if err != nil || text != "" {
		return fmt.Errorf("%w: %s", errOr(err, "complains"), text)
	}
	return nil
}

func errOr(err error, text string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", text)
}

// quiet drops the noise.
func quiet(out []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, noise) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// tool runs one of Kafka's programs and returns what it printed.
func tool(t *testing.T, class string, args ...string) string {
	t.Helper()
	out, err := target.java.Command(t.Context(), "org.apache.kafka.tools."+class, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", class, strings.Join(args, " "), err, out)
	}
	return quiet(out)
}
