package config

import (
	"strings"
	"testing"
)

func TestForTopicDefaults(t *testing.T) {
	got, err := ForTopic(Layers{})
	if err != nil {
		t.Fatal(err)
	}
	want := Topic{
		SegmentBytes: 1 << 30, SegmentMs: 604800000, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		CleanupDelete: true, RetentionMs: 604800000, RetentionBytes: -1, LocalRetentionMs: 604800000, LocalRetentionBytes: -1,
		MaxMessageBytes: 1048588, MinInsyncReplicas: 1, CompressionType: "producer",
		TimestampBeforeMaxMs: 1<<63 - 1, TimestampAfterMaxMs: 3600000, RemoteCopyLagBytes: -1,
		Durability: Fsync,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestForTopicLayers(t *testing.T) {
	got, err := ForTopic(Layers{
		Static:         map[string]string{"log.retention.hours": "2", "log.segment.bytes": "2000000", "log.roll.ms": "5", "varve.log.durability": "replicated", "varve.log.remote.storage.enable": "true"},
		DynamicDefault: map[string]string{"log.segment.bytes": "3000000", "min.insync.replicas": "2"},
		DynamicBroker:  map[string]string{"log.segment.bytes": "4000000"},
		Topic:          map[string]string{"local.retention.ms": "1000", "internal.segment.bytes": "77", "cleanup.policy": "compact"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.RetentionMs != 7200000 || got.LocalRetentionMs != 1000 || got.SegmentMs != 5 || got.MinInsyncReplicas != 2 {
		t.Errorf("got %+v", got)
	}
	if got.SegmentBytes != 77 || got.Durability != Replicated {
		t.Errorf("got %+v", got)
	}
	if got.RemoteStorageEnable {
		t.Error("a compacted topic is tiered by the broker's default")
	}
}

func TestDurabilityFor(t *testing.T) {
	for _, test := range []struct {
		set      string
		replicas int
		want     string
	}{{"", 1, Fsync}, {"", 2, Fsync}, {"", 3, Replicated}, {"auto", 3, Replicated}, {"fsync", 3, Fsync}, {"replicated", 1, Replicated}} {
		layers := Layers{}
		if test.set != "" {
			layers.Static = map[string]string{"varve.log.durability": test.set}
		}
		if got := DurabilityFor(layers, test.replicas); got != test.want {
			t.Errorf("%q with %d replicas: %s, want %s", test.set, test.replicas, got, test.want)
		}
	}
}

// TestCheckTiered holds the rules of Kafka's LogConfig (KIP-405, KIP-950,
// KIP-1241).
func TestCheckTiered(t *testing.T) {
	const on = "remote.storage.enable=true "
	for _, test := range []struct {
		set    string
		reason string // part of the error, "" for none
	}{
		{on, ""},
		{on + "cleanup.policy=", ""},
		{on + "cleanup.policy=compact", "only supports topics with cleanup.policy=delete"},
		{on + "cleanup.policy=compact,delete", "only supports topics with cleanup.policy=delete"},
		{on + "local.retention.ms=604800000", ""},
		{on + "local.retention.ms=604800001", "Value must not be more than property: retention.ms value: 604800000."},
		{on + "local.retention.ms=-1", "Value must not be -1 as retention.ms value is set as 604800000."},
		{on + "local.retention.ms=-1 retention.ms=-1", ""},
		{on + "local.retention.ms=99 retention.ms=-1", ""},
		{on + "local.retention.bytes=-1", ""},
		{on + "local.retention.bytes=5 retention.bytes=4", "Value must not be more than property: retention.bytes value: 4."},
		{on + "local.retention.bytes=-1 retention.bytes=4", "Value must not be -1 as retention.bytes"},
		{"local.retention.bytes=5 retention.bytes=4", ""},
		{on + "remote.log.copy.disable=true", ""},
		{on + "remote.log.copy.disable=true local.retention.ms=1000", "must be set to the identical"},
		{on + "remote.log.copy.disable=true local.retention.ms=604800000", ""},
		{on + "remote.copy.lag.ms=5000 local.retention.ms=4000", "Value must not be more than the effective local.retention.ms"},
		{on + "remote.copy.lag.ms=4000 local.retention.ms=4000", ""},
		{on + "remote.copy.lag.ms=-1", ""},
		{"min.compaction.lag.ms=5 max.compaction.lag.ms=4", "must not exceed max.compaction.lag.ms"},
	} {
		err := Check(TopicScope, pairs(test.set))
		checkReason(t, test.set, err, test.reason)
	}
}

func TestCheckTopicNeedsStore(t *testing.T) {
	topic := pairs("remote.storage.enable=true")
	checkReason(t, "without a store", CheckTopic(Layers{Topic: topic, Static: pairs("node.id=1")}), "Set varve.store.url")
	checkReason(t, "with a store", CheckTopic(Layers{Topic: topic, Static: pairs("varve.store.url=file:///s")}), "")
}

func TestCheckTopicChange(t *testing.T) {
	for _, test := range []struct{ old, new, reason string }{
		{"remote.storage.enable=true", "remote.storage.enable=false", "It is invalid to disable remote storage without deleting remote data"},
		{"remote.storage.enable=true", "", "It is invalid to disable remote storage without deleting remote data"},
		{"remote.storage.enable=true", "remote.storage.enable=false remote.log.delete.on.disable=true", ""},
		{"", "remote.storage.enable=true", ""},
		{"", "retention.ms=x", "Not a number"},
	} {
		err := CheckTopicChange(Layers{Topic: pairs(test.old)}, Layers{Topic: pairs(test.new)})
		checkReason(t, test.old+" -> "+test.new, err, test.reason)
	}
}

func TestCheckDynamic(t *testing.T) {
	for _, test := range []struct {
		set    string
		forAll bool
		reason string
	}{
		{"log.retention.ms=5", true, ""},
		{"log.retention.ms=x", true, "Not a number"},
		{"log.dirs=/x", false, "Cannot update this configuration dynamically"},
		{"ssl.keystore.type=PEM", false, ""},
		{"ssl.keystore.type=PEM", true, "for all brokers"},
		{"log.retention.mss=5", false, "did you mean log.retention.ms?"},
	} {
		checkReason(t, test.set, CheckDynamic(pairs(test.set), test.forAll), test.reason)
	}
}

// TestDescribe: sources and synonyms as in KIP-226.
func TestDescribe(t *testing.T) {
	layers := Layers{
		Static:         pairs("log.retention.hours=1 log.segment.bytes=1073741824"),
		DynamicDefault: pairs("log.retention.ms=7000"),
		Topic:          pairs("retention.ms=604800000"),
	}
	entries := map[string]Entry{}
	last := ""
	for _, e := range Describe(TopicScope, layers) {
		if e.Name <= last {
			t.Errorf("%s comes after %s", e.Name, last)
		}
		last = e.Name
		entries[e.Name] = e
	}
	for _, test := range []struct {
		name, value string
		source      Source
		synonyms    string
	}{
		{"retention.ms", "604800000", DynamicTopic, "retention.ms=604800000/1 log.retention.ms=7000/3 log.retention.hours=1/4 log.retention.hours=168/5"},
		{"segment.bytes", "1073741824", StaticBroker, "log.segment.bytes=1073741824/4 log.segment.bytes=1073741824/5"},
		{"segment.ms", "604800000", Default, "log.roll.hours=168/5"},
		{"flush.ms", "9223372036854775807", Default, "log.flush.scheduler.interval.ms=9223372036854775807/5"},
		{"remote.copy.lag.ms", "0", Default, "log.remote.copy.lag.ms=0/5"},
	} {
		e := entries[test.name]
		var synonyms []string
		for _, s := range e.Synonyms {
			synonyms = append(synonyms, s.Name+"="+s.Value+"/"+string('0'+rune(s.Source)))
		}
		if e.Value != test.value || e.Source != test.source || strings.Join(synonyms, " ") != test.synonyms {
			t.Errorf("%s: %s from %d, synonyms %s", test.name, e.Value, e.Source, synonyms)
		}
		if e.ReadOnly {
			t.Errorf("%s is read-only", test.name)
		}
	}
	if e := entries["varve.durability"]; !e.Null {
		t.Errorf("varve.durability: %+v", e)
	}
}

func TestDescribeBroker(t *testing.T) {
	for _, e := range Describe(BrokerScope, Layers{Static: pairs("log.dirs=/d"), DynamicBroker: pairs("log.retention.ms=5")}) {
		switch e.Name {
		case "log.dirs":
			if e.Value != "/d" || e.Source != StaticBroker || !e.ReadOnly {
				t.Errorf("log.dirs: %+v", e)
			}
		case "log.retention.ms":
			if e.Value != "5" || e.Source != DynamicBroker || e.ReadOnly || len(e.Synonyms) != 2 {
				t.Errorf("log.retention.ms: %+v", e)
			}
		}
	}
}

// pairs reads "a=1 b=2".
func pairs(s string) map[string]string {
	kv := map[string]string{}
	for _, word := range strings.Fields(s) {
		name, value, _ := strings.Cut(word, "=")
		kv[name] = value
	}
	return kv
}

func checkReason(t *testing.T, what string, err error, reason string) {
	t.Helper()
	if reason == "" && err != nil || reason != "" && (err == nil || !strings.Contains(err.Error(), reason)) {
		t.Errorf("%s: %v, want %q", what, err, reason)
	}
}
