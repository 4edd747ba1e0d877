package interop

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
)

// TestKafkaReadsOurFiles: Kafka's DumpLogSegments, with every check it has,
// reads all kinds of files of a partition directory without complaint.
func TestKafkaReadsOurFiles(t *testing.T) {
	if target.broker == nil {
		t.Log("the files of a broker that was not started here are out of reach: nothing to check")
		return
	}
	const topic = "our-files"
	createTopic(t, topic, 1, map[string]string{"remote.storage.enable": "false"})
	for _, codec := range codecs {
		if err := (franz{}).produce(t.Context(), topic, codec, newRecords("our-files", codec, false)); err != nil {
			t.Fatal(err)
		}
	}
	dumpFiles(t, filepath.Join(target.broker.LogDir, topic+"-0"), []string{".index", ".log", ".snapshot", ".timeindex"})
}

// Lines that DumpLogSegments prints about what is wrong; otherwise it lists.
var complaint = regexp.MustCompile(`(?i)mismatch|corrupt|exception|isvalid: false|not found|out of order|non-consecutive|missing|invalid|error`)

// firstOffset is what it says of every segment but the first: it takes the
// offset before a file's first for -1.
var firstOffset = regexp.MustCompile(`Non-consecutive offsets in \S*?0*(\d+)\.log\n\s*-1 is followed by (\d+)\n`)

// preallocated is the size of the indexes that Kafka keeps for the segment
// that it writes to; their unused part fails its own check.
const preallocated = 10 << 20

// dumpFiles runs DumpLogSegments over a partition directory, which must hold
// all the kinds of files.
func dumpFiles(t *testing.T, dir string, kinds []string) {
	t.Helper()
	var found []string
	for _, kind := range kinds {
		files, err := filepath.Glob(filepath.Join(dir, "*"+kind))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s file in %s (%v)", kind, dir, err)
		}
		found = append(found, slices.DeleteFunc(files, func(f string) bool {
			info, err := os.Stat(f)
			return err == nil && strings.HasSuffix(f, "index") && info.Size() > preallocated-12
		})...)
	}
	if logs, _ := filepath.Glob(filepath.Join(dir, "*.log")); slices.Contains(kinds, ".log") && len(logs) < 2 {
		t.Fatalf("%s holds %d segments: too few to show anything", dir, len(logs))
	}
	files := strings.Join(found, ",")
	for _, args := range [][]string{
		{"--deep-iteration", "--print-data-log"},
		{"--index-sanity-check"},
		{"--verify-index-only"},
	} {
		out := tool(t, "DumpLogSegments", append([]string{"--files", files}, args...)...)
		out = firstOffset.ReplaceAllStringFunc(out, func(text string) string {
			if m := firstOffset.FindStringSubmatch(text); m[1] != m[2] {
				return text
			}
			return ""
		})
		for _, f := range found {
			if !strings.Contains(out, "Dumping "+f) {
				t.Errorf("DumpLogSegments %v does not mention %s", args, f)
			}
		}
		for line := range strings.Lines(out) {
			if head, _, _ := strings.Cut(line, " payload: "); complaint.MatchString(head) {
				_, after, _ := strings.Cut(out, line)
				t.Errorf("DumpLogSegments %v complains: %s%.300s", args, head, after)
			}
		}
	}
}

// writeKafkaLog lets Apache Kafka write a partition with all codecs, an aborted
// and a committed transaction, ends it and returns the partition's directory.
func writeKafkaLog(t *testing.T) (dir string, want []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const topic = "kafka-files"
	b, err := node.StartKafka(ctx, target.java, node.KafkaConfig{Dir: t.TempDir(), Settings: []string{"log.segment.bytes=1200000"}})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := b.Stop(30 * time.Second); err != nil {
				t.Error(err)
			}
		}
	}
	defer stop()
	for _, codec := range codecs {
		c, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(),
			kgo.ProducerBatchCompression(franzCodecs[codec]), kgo.ProducerBatchMaxBytes(1_040_000), kgo.TransactionalID("t-"+codec))
		if err != nil {
			t.Fatal(err)
		}
		for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			var out []*kgo.Record
			for _, r := range newRecords("kafka-files", codec, false) {
				if len(r.value) < 1<<20 {
					out = append(out, &kgo.Record{Key: r.key, Value: r.value})
				}
			}
			if err := c.ProduceSync(ctx, out...).FirstErr(); err != nil {
				t.Fatalf("transaction %d of %s: %v", i, codec, err)
			}
			if err := c.EndTransaction(ctx, end); err != nil {
				t.Fatal(err)
			}
			want = append(want, out...)
		}
		c.Close()
	}
	stop()
	return filepath.Join(b.LogDir, topic+"-0"), want
}
