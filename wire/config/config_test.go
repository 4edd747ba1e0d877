package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTablesLoad(t *testing.T) {
	for _, scope := range []Scope{TopicScope, BrokerScope} {
		last := ""
		for p := range All(scope) {
			if p.Name <= last {
				t.Errorf("%s comes after %s", p.Name, last)
			}
			last = p.Name
			if len(p.Doc) < 20 {
				t.Errorf("%s has no documentation", p.Name)
			}
			if got, ok := Lookup(scope, p.Name); !ok || got != p {
				t.Errorf("Lookup(%s) does not find it", p.Name)
			}
			for _, name := range p.Synonyms {
				if _, ok := Lookup(BrokerScope, name); !ok {
					t.Errorf("%s: synonym %s is no broker property", p.Name, name)
				}
			}
		}
	}
}

// TestKafkaValues takes samples from Kafka 4.4's LogConfig and KafkaConfig.
func TestKafkaValues(t *testing.T) {
	for _, want := range []string{
		"topic cleanup.policy LIST delete",
		"topic retention.ms LONG 604800000",
		"topic local.retention.bytes LONG -2",
		"topic max.message.bytes INT 1048588",
		"topic min.cleanable.dirty.ratio DOUBLE 0.5",
		"topic segment.bytes INT 1073741824",
		"topic leader.replication.throttled.replicas LIST ",
		"topic remote.storage.enable BOOLEAN false",
		"broker log.retention.hours INT 168",
		"broker log.retention.ms LONG null",
		"broker offsets.topic.replication.factor SHORT 3",
		"broker ssl.keystore.password PASSWORD null",
		"broker num.partitions INT 1",
		"broker socket.request.max.bytes INT 104857600",
		"broker broker.session.timeout.ms INT 9000",
	} {
		scope, name, _ := strings.Cut(want, " ")
		name, _, _ = strings.Cut(name, " ")
		s := BrokerScope
		if scope == "topic" {
			s = TopicScope
		}
		p, ok := Lookup(s, name)
		if !ok {
			t.Errorf("no %s", want)
			continue
		}
		def := "null"
		if p.Default != nil {
			def = *p.Default
		}
		if got := fmt.Sprintf("%s %s %s %s", scope, p.Name, p.Type, def); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestTypeNumbers(t *testing.T) {
	for typ, name := range map[Type]string{1: "BOOLEAN", 2: "STRING", 3: "INT", 4: "SHORT", 5: "LONG", 6: "DOUBLE", 7: "LIST", 8: "CLASS", 9: "PASSWORD"} {
		if typ.String() != name {
			t.Errorf("type %d is %s, want %s", typ, typ, name)
		}
	}
}

// TestIgnoredIsHonest: what the typed values read has an effect, what they do
// not read says that it has none.
func TestIgnoredIsHonest(t *testing.T) {
	_, asked, err := readBroker(loneNode())
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(TopicScope, Layers{})
	for p := range All(TopicScope) {
		if !p.Ignored {
			r.asked[p.Name] = true
			for _, name := range p.Synonyms {
				asked[name] = true
			}
		}
	}
	for p := range All(BrokerScope) {
		if asked[p.Name] == p.Ignored {
			t.Errorf("%s: read %v, ignored %v", p.Name, asked[p.Name], p.Ignored)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name, value, reason string // reason "": allowed
	}{
		{"retention.ms", "-1", ""},
		{"retention.ms", " 5 ", ""},
		{"retention.ms", "-2", "Value must be at least -1"},
		{"retention.ms", "7d", "Not a number of type LONG"},
		{"retention.ms", "", "Not a number of type LONG"},
		{"segment.bytes", "2147483648", "Not a number of type INT"},
		{"segment.bytes", "1048575", "Value must be at least 1048576"},
		{"min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"},
		{"min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"},
		{"compression.gzip.level", "-1", ""},
		{"compression.gzip.level", "0", "Value must be at least 1"},
		{"compression.type", "zstd", ""},
		{"compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"cleanup.policy", "compact, delete", ""},
		{"cleanup.policy", "", ""},
		{"cleanup.policy", "delete,delete", "delete stands in the list twice"},
		{"cleanup.policy", "keep", "String must be one of: compact, delete"},
		{"remote.storage.enable", "TRUE", ""},
		{"remote.storage.enable", "yes", "Expected value to be either true or false"},
		{"leader.replication.throttled.replicas", "0:1,1:2", ""},
		{"leader.replication.throttled.replicas", "*", ""},
		{"leader.replication.throttled.replicas", "0", `must be * or a list of [partitionId]:[brokerId], not "0"`},
		{"varve.durability", "fsync", ""},
		{"varve.durability", "auto", "String must be one of: replicated, fsync"},
	} {
		p, ok := Lookup(TopicScope, test.name)
		if !ok {
			t.Fatalf("no property %s", test.name)
		}
		err := p.Validate(test.value)
		want := fmt.Sprintf("Invalid value %s for configuration %s: %s", test.value, test.name, test.reason)
		if test.reason == "" && err != nil || test.reason != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s=%q: %v, want %s", test.name, test.value, err, want)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	p, _ := Lookup(BrokerScope, "ssl.key.password")
	p = &Property{Name: p.Name, Type: Int, Sensitive: true}
	if err := p.Validate("hunter2"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error shows the secret: %v", err)
	}
	s := Secret("hunter2")
	text, err := s.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q", s, s, s, s, s), string(text)} {
		if strings.Contains(shown, "hunter2") {
			t.Errorf("shown: %s", shown)
		}
	}
	entries := Describe(BrokerScope, Layers{Static: map[string]string{"ssl.key.password": "hunter2"}})
	if strings.Contains(fmt.Sprint(entries), "hunter2") {
		t.Error("Describe shows the secret")
	}
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"log.dir.s":              "log.dirs",
		"log.segement.bytes":     "log.segment.bytes",
		"varve.store.ulr":        "varve.store.url",
		"NUM.PARTITIONS":         "num.partitions",
		"something.else.at.all":  "",
		"x":                      "",
		"advertised.listner":     "advertised.listeners",
		"varve.store.s3.enpoint": "varve.store.s3.endpoint",
	} {
		if got := Nearest(BrokerScope, name); got != want {
			t.Errorf("Nearest(%s) = %q, want %q", name, got, want)
		}
	}
	if got := Nearest(TopicScope, "retention.mss"); got != "retention.ms" {
		t.Errorf("Nearest(retention.mss) = %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"ab", "ba", 1}, {"abc", "adc", 1}, {"kitten", "sitting", 3}, {"ulr", "url", 1}} {
		if got := distance(test.a, test.b, 10); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestUnknown(t *testing.T) {
	kv := map[string]string{"log.dirs": "/d", "z.unknown": "1", "a.unknown": "1", "listener.name.plaintext.ssl.keystore.type": "PEM"}
	if got := fmt.Sprint(Unknown(BrokerScope, kv)); got != "[a.unknown z.unknown]" {
		t.Errorf("Unknown = %s", got)
	}
	err := Check(TopicScope, map[string]string{"retention.sm": "1"})
	var unknown *UnknownError
	if !errors.As(err, &unknown) || unknown.Nearest != "retention.ms" {
		t.Errorf("Check of an unknown topic property: %v", err)
	}
}

// What is wrong of a topic's default is told by the name that the file has for it.
func TestTopicDefaultsByTheirNameInTheFile(t *testing.T) {
	_, err := ForBroker(map[string]string{"node.id": "1", "log.dirs": "data", "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "log.segment.bytes": "1"})
	var wrong *ValueError
	if !errors.As(err, &wrong) || wrong.Name != "log.segment.bytes" || wrong.Value != "1" {
		t.Errorf("%v", err)
	}
}
