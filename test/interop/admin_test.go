package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestJavaTools takes a topic through its life with Kafka's own commands.
func TestJavaTools(t *testing.T) {
	const topic, records = "java-tools", 4000
	at := []string{"--bootstrap-server", target.addr}
	run := func(class string, args ...string) string { return tool(t, class, append(at, args...)...) }
	wants := func(what, out string, patterns ...string) {
		t.Helper()
		for _, p := range patterns {
			if !regexp.MustCompile(p).MatchString(out) {
				t.Errorf("%s: no %q in:\n%s", what, p, out)
			}
		}
	}

	create := []string{"--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1", "--config", "segment.bytes=1048576"}
	if target.tiered {
		create = append(create, "--config", "remote.storage.enable=true", "--config", "local.retention.bytes=1")
	}
	wants("create", run("TopicCommand", create...), `Created topic java-tools\.`)
	wants("describe", run("TopicCommand", "--describe", "--topic", topic),
		`Topic: java-tools\s+TopicId: [\w-]{22}\s+PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*segment.bytes=1048576`,
		`Partition: 0\s+Leader: 1\s+Replicas: 1\s+Isr: 1`, `Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1`)
	wants("list", run("TopicCommand", "--list"), `(?m)^java-tools$`)

	run("ConfigCommand", "--alter", "--topic", topic, "--add-config", "retention.ms=123456789")
	wants("configs", run("ConfigCommand", "--describe", "--topic", topic), `retention.ms=123456789`, `segment.bytes=1048576`)
	wants("all configs", run("ConfigCommand", "--describe", "--all", "--topic", topic), `cleanup.policy=delete`, `max.message.bytes=1048588`, `DYNAMIC_TOPIC_CONFIG:retention.ms=123456789`)
	run("ConfigCommand", "--alter", "--topic", topic, "--delete-config", "retention.ms")
	if out := run("ConfigCommand", "--describe", "--topic", topic); strings.Contains(out, "123456789") {
		t.Errorf("a deleted config is still there:\n%s", out)
	}

	fillPartition(t, topic, 0, records)
	if target.tiered {
		awaitTiers(t, topic, 1)
	}
	offset := func(time string) string {
		return strings.TrimSpace(run("GetOffsetShell", "--topic-partitions", topic+":0", "--time", time))
	}
	wants("latest", offset("-1"), fmt.Sprintf(`^java-tools:0:%d$`, records))
	wants("earliest", offset("-2"), `^java-tools:0:0$`)
	local, tiered, pending := offset("-4"), offset("-5"), offset("-6")
	if target.tiered {
		wants("earliest local", local, `^java-tools:0:[1-9]\d*$`)
		wants("latest tiered", tiered, `^java-tools:0:[1-9]\d*$`)
		wants("earliest pending upload", pending, `^java-tools:0:[1-9]\d*$`)
	} else {
		wants("earliest local", local, `^java-tools:0:0$`)
	}
	wants("all partitions", run("GetOffsetShell", "--topic", topic), fmt.Sprintf(`java-tools:0:%d`, records), `java-tools:1:0`)

	request, err := json.Marshal(map[string]any{"version": 1, "partitions": []any{map[string]any{"topic": topic, "partition": 0, "offset": 1234}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "delete.json")
	if err := os.WriteFile(file, request, 0o644); err != nil {
		t.Fatal(err)
	}
	wants("delete records", run("DeleteRecordsCommand", "--offset-json-file", file), `partition: java-tools-0\s+low_watermark: 1234`)
	wants("earliest after it", offset("-2"), `^java-tools:0:1234$`)

	logDirs := run("LogDirsCommand", "--describe", "--topic-list", topic)
	wants("log directories", logDirs, `"partition":"java-tools-0"`, `"partition":"java-tools-1"`, `"error":null`)
	wants("API versions", run("BrokerApiVersionsCommand"), `\(id: 1 rack: null`, `Produce\(0\): 0 to 13`, `Fetch\(1\): 4 to 18`, `Metadata\(3\): 0 to 13`, `ListOffsets\(2\): 1 to 11`)
	run("TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
	wants("more partitions", run("TopicCommand", "--describe", "--topic", topic), `PartitionCount: 3`)
	run("TopicCommand", "--delete", "--topic", topic)
	if out := run("TopicCommand", "--list"); strings.Contains(out, topic) {
		t.Errorf("a deleted topic is still listed:\n%s", out)
	}
}

// fillPartition writes records of 1 KiB.
func fillPartition(t *testing.T, topic string, partition int32, records int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(target.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(100_000))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	value := []byte(strings.Repeat("1 KiB of it ", 86)[:1024])
	var all []*kgo.Record
	for range records {
		all = append(all, &kgo.Record{Topic: topic, Partition: partition, Value: value})
	}
	if err := c.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
