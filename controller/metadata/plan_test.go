package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/config"
)

func (c *cluster) planner() *Planner {
	return &Planner{Image: c.img, Static: map[string]string{"varve.store.url": "file:///s", "num.partitions": "4"}, NewID: wire.NewUUID}
}

// TestPlanTopic holds gotcha G25 of the protocol notes: defaults, and an
// invalid configuration that leaves no topic behind.
func TestPlanTopic(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	c.topic("taken", []int32{1})
	for name, tt := range map[string]struct {
		topic NewTopic
		want  error
		says  string
	}{
		"defaults":            {NewTopic{Name: "t", NumPartitions: -1, ReplicationFactor: -1}, nil, ""},
		"taken":               {NewTopic{Name: "taken", NumPartitions: 1, ReplicationFactor: 1}, kerr.TopicAlreadyExists, "taken"},
		"name":                {NewTopic{Name: "a b", NumPartitions: 1, ReplicationFactor: 1}, kerr.InvalidTopicException, "a b"},
		"zero partitions":     {NewTopic{Name: "t", NumPartitions: 0, ReplicationFactor: 1}, kerr.InvalidPartitions, "non-positive"},
		"negative partitions": {NewTopic{Name: "t", NumPartitions: -2, ReplicationFactor: 1}, kerr.InvalidPartitions, "non-positive"},
		"zero replicas":       {NewTopic{Name: "t", NumPartitions: 1, ReplicationFactor: 0}, kerr.InvalidReplicationFactor, "larger than 0"},
		"too many replicas":   {NewTopic{Name: "t", NumPartitions: 1, ReplicationFactor: 2}, kerr.InvalidReplicationFactor, "only 1 broker"},
		"unknown property":    {NewTopic{Name: "t", NumPartitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.m": "1"}}, kerr.InvalidConfig, "retention.m"},
		"bad value":           {NewTopic{Name: "t", NumPartitions: 1, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "soon"}}, kerr.InvalidConfig, "soon"},
		"tiered and compacted": {NewTopic{Name: "t", NumPartitions: 1, ReplicationFactor: 1,
			Configs: map[string]string{"remote.storage.enable": "true", "cleanup.policy": "compact"}}, kerr.InvalidConfig, "cleanup.policy"},
		"manual":           {NewTopic{Name: "t", NumPartitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{0: {1}, 1: {1}}}, nil, ""},
		"manual and count": {NewTopic{Name: "t", NumPartitions: 1, ReplicationFactor: -1, Assignments: map[int32][]int32{0: {1}}}, kerr.InvalidRequest, "numPartitions"},
		"manual and factor": {NewTopic{Name: "t", NumPartitions: -1, ReplicationFactor: 1, Assignments: map[int32][]int32{0: {1}}},
			kerr.InvalidRequest, "replication factor"},
		"manual with a gap": {NewTopic{Name: "t", NumPartitions: -1, ReplicationFactor: -1, Assignments: map[int32][]int32{1: {1}}}, kerr.InvalidReplicaAssignment, "0-based"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := c.planner().CreateTopic(tt.topic)
			if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("%v, want %v with %q", err, tt.want, tt.says)
			}
			if err != nil {
				return
			}
			if want := max(len(tt.topic.Assignments), 2); len(cmd.Assignments) != want && len(cmd.Assignments) != 4 {
				t.Errorf("%d partitions", len(cmd.Assignments))
			}
			if cmd.Durability != "fsync" {
				t.Errorf("durability %q with one replica", cmd.Durability)
			}
			if _, _, r := Apply(c.img, cmd, Meta{Index: c.img.Index() + 1}); r.Err() != nil {
				t.Errorf("planned, but refused: %v", r.Err())
			}
		})
	}
}

func TestPlanPartitions(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	c.topic("t", []int32{1}, []int32{1})
	p := c.planner()
	for _, tt := range []struct {
		topic       string
		count       int32
		assignments [][]int32
		want        error
	}{
		{"u", 3, nil, kerr.UnknownTopicOrPartition},
		{"t", 2, nil, kerr.InvalidPartitions},
		{"t", 1, nil, kerr.InvalidPartitions},
		{"t", -1, nil, kerr.InvalidPartitions},
		{"t", 4, [][]int32{{1}}, kerr.InvalidReplicaAssignment},
		{"t", 3, [][]int32{{1, 2}}, kerr.InvalidReplicaAssignment},
		{"t", 3, [][]int32{{1}}, nil},
		{"t", 9, nil, nil},
	} {
		cmd, err := p.CreatePartitions(tt.topic, tt.count, tt.assignments)
		if !errors.Is(err, tt.want) || err == nil && len(cmd.Assignments) != int(tt.count)-2 {
			t.Errorf("%s to %d: %v, want %v", tt.topic, tt.count, err, tt.want)
		}
	}
}

// TestPlanConfig holds gotcha G26: incremental operations, lists included,
// and errors with text. The rules of tiering are those of KIP-950.
func TestPlanConfig(t *testing.T) {
	value := func(s string) *string { return &s }
	c := newCluster(t)
	c.broker(1)
	c.topic("t", []int32{1})
	c.must(&AlterConfig{Type: ResourceTopic, Name: "t", Entries: map[string]string{"retention.ms": "5000", "remote.storage.enable": "true"}})
	for name, tt := range map[string]struct {
		resource string
		kind     ResourceType
		changes  []ConfigChange
		replace  bool
		want     error
		entries  map[string]string
	}{
		"set": {"t", ResourceTopic, []ConfigChange{{"segment.bytes", OpSet, value("1048576")}}, false, nil,
			map[string]string{"retention.ms": "5000", "remote.storage.enable": "true", "segment.bytes": "1048576"}},
		"delete":           {"t", ResourceTopic, []ConfigChange{{"retention.ms", OpDelete, nil}}, false, nil, map[string]string{"remote.storage.enable": "true"}},
		"delete what none": {"t", ResourceTopic, []ConfigChange{{"flush.ms", OpDelete, nil}}, false, nil, map[string]string{"retention.ms": "5000", "remote.storage.enable": "true"}},
		"replace": {"t", ResourceTopic, []ConfigChange{{"remote.storage.enable", OpSet, value("true")}}, true, nil,
			map[string]string{"remote.storage.enable": "true"}},
		"append": {"t", ResourceTopic, []ConfigChange{{"follower.replication.throttled.replicas", OpAppend, value("0:1, 0:2")}}, false, nil,
			map[string]string{"retention.ms": "5000", "remote.storage.enable": "true", "follower.replication.throttled.replicas": "0:1,0:2"}},
		"append to the default, tiered": {"t", ResourceTopic, []ConfigChange{{"cleanup.policy", OpAppend, value("compact")}}, false, kerr.InvalidConfig, nil},
		"append what is there":          {"t", ResourceTopic, []ConfigChange{{"cleanup.policy", OpAppend, value("delete")}}, false, nil, map[string]string{"retention.ms": "5000", "remote.storage.enable": "true", "cleanup.policy": "delete"}},
		"subtract the last":             {"t", ResourceTopic, []ConfigChange{{"cleanup.policy", OpSubtract, value("delete")}}, false, nil, map[string]string{"retention.ms": "5000", "remote.storage.enable": "true", "cleanup.policy": ""}},
		"append to a number":            {"t", ResourceTopic, []ConfigChange{{"retention.ms", OpAppend, value("1")}}, false, kerr.InvalidConfig, nil},
		"twice":                         {"t", ResourceTopic, []ConfigChange{{"flush.ms", OpSet, value("1")}, {"flush.ms", OpDelete, nil}}, false, kerr.InvalidRequest, nil},
		"null":                          {"t", ResourceTopic, []ConfigChange{{"flush.ms", OpSet, nil}}, false, kerr.InvalidRequest, nil},
		"operation":                     {"t", ResourceTopic, []ConfigChange{{"flush.ms", 9, value("1")}}, false, kerr.InvalidRequest, nil},
		"bad value":                     {"t", ResourceTopic, []ConfigChange{{"flush.ms", OpSet, value("x")}}, false, kerr.InvalidConfig, nil},
		"no topic":                      {"u", ResourceTopic, nil, false, kerr.UnknownTopicOrPartition, nil},
		"no such type":                  {"t", 7, nil, false, kerr.InvalidRequest, nil},
		"tier off":                      {"t", ResourceTopic, []ConfigChange{{"remote.storage.enable", OpSet, value("false")}}, false, kerr.InvalidConfig, nil},
		"tier off by replacing":         {"t", ResourceTopic, nil, true, kerr.InvalidConfig, nil},
		"tier off, data deleted": {"t", ResourceTopic, []ConfigChange{{"remote.storage.enable", OpSet, value("false")}, {"remote.log.delete.on.disable", OpSet, value("true")}}, false, nil,
			map[string]string{"retention.ms": "5000", "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}},
		"local beyond total": {"t", ResourceTopic, []ConfigChange{{"local.retention.ms", OpSet, value("6000")}}, false, kerr.InvalidConfig, nil},
		"broker":             {"1", ResourceBroker, []ConfigChange{{"log.retention.ms", OpSet, value("7")}}, false, nil, map[string]string{"log.retention.ms": "7"}},
		"all brokers":        {"", ResourceBroker, []ConfigChange{{"log.retention.ms", OpSet, value("7")}}, false, nil, map[string]string{"log.retention.ms": "7"}},
		"read only":          {"1", ResourceBroker, []ConfigChange{{"log.dirs", OpSet, value("/x")}}, false, kerr.InvalidConfig, nil},
		"no broker":          {"7", ResourceBroker, nil, false, kerr.BrokerIDNotRegistered, nil},
		"no number":          {"x", ResourceBroker, nil, false, kerr.InvalidRequest, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := c.planner().AlterConfig(tt.kind, tt.resource, tt.changes, tt.replace)
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			if err == nil && fmt.Sprint(cmd.Entries) != fmt.Sprint(tt.entries) {
				t.Errorf("%v, want %v", cmd.Entries, tt.entries)
			}
		})
	}
}

func TestTopicConfig(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	c.must(&CreateTopic{ID: wire.NewUUID(), Name: "t", Assignments: [][]int32{{1}}, Durability: "replicated", Configs: map[string]string{"retention.ms": "9"}})
	got, err := c.img.TopicConfig(c.img.Topic("t"), 1, nil)
	if err != nil || got.Durability != "replicated" || got.RetentionMs != 9 {
		t.Errorf("%+v, %v", got, err)
	}
	c.must(&AlterConfig{Type: ResourceTopic, Name: "t", Version: c.img.ConfigVersion(ResourceTopic, "t"), Entries: map[string]string{"varve.durability": "fsync"}})
	if got, _ = c.img.TopicConfig(c.img.Topic("t"), 1, nil); got.Durability != "fsync" {
		t.Errorf("durability %q, the topic says fsync", got.Durability)
	}
}

func TestPlacement(t *testing.T) {
	for name, tt := range map[string]struct {
		racks  []string // of brokers 1..n; "-" before the rack: fenced
		count  int
		factor int
		racksN int // racks of each partition
		want   error
	}{
		"one":              {[]string{""}, 5, 1, 1, nil},
		"three racks":      {[]string{"a", "a", "b", "b", "c", "c"}, 60, 3, 3, nil},
		"uneven racks":     {[]string{"a", "a", "a", "b"}, 60, 2, 2, nil},
		"more than racks":  {[]string{"a", "a", "b", "b"}, 60, 3, 2, nil},
		"too few":          {[]string{"a", "b"}, 1, 3, 0, kerr.InvalidReplicationFactor},
		"all fenced":       {[]string{"-a", "-b"}, 1, 1, 0, kerr.InvalidReplicationFactor},
		"fenced must help": {[]string{"a", "-b", "c"}, 30, 3, 3, nil},
		"fenced need not":  {[]string{"a", "b", "-c"}, 30, 2, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := New()
			for i, rack := range tt.racks {
				b := &Broker{ID: int32(i + 1), Fenced: strings.HasPrefix(rack, "-")}
				b.Rack = strings.TrimPrefix(rack, "-")
				m = m.Replay([]Record{b}, 1, 1)
			}
			p := Planner{Image: m, Seed: 7}
			got, err := p.place(0, tt.count, tt.factor)
			if !errors.Is(err, tt.want) {
				t.Fatal(err)
			}
			leaders := map[int32]int{}
			for _, replicas := range got {
				leaders[replicas[0]]++
				racks := map[string]bool{}
				for _, r := range replicas {
					racks[m.Broker(r).Rack] = true
				}
				if len(distinct(replicas)) != tt.factor || len(racks) != tt.racksN || m.Broker(replicas[0]).Fenced {
					t.Fatalf("%v: %d racks", replicas, len(racks))
				}
				if name == "fenced need not" && slices.Contains(replicas, 3) {
					t.Fatalf("%v has a fenced broker without need", replicas)
				}
			}
			alive := len(slices.DeleteFunc(slices.Clone(tt.racks), func(r string) bool { return strings.HasPrefix(r, "-") }))
			for b, n := range leaders {
				if n > (tt.count+alive-1)/alive {
					t.Errorf("broker %d leads %d of %d", b, n, tt.count)
				}
			}
		})
	}
}

// TestMinInSyncIsRecorded: what server.properties says, or the number of replicas, is noted at creation; what is set on the
// topic or for all brokers goes before it, everywhere alike.
func TestMinInSyncIsRecorded(t *testing.T) {
	c := newCluster(t)
	for id := range int32(3) {
		c.broker(id + 1)
	}
	create := func(name string, factor int16, static string, configs map[string]string) *Topic {
		p := c.planner()
		if static != "" {
			p.Static["min.insync.replicas"] = static
		}
		cmd, err := p.CreateTopic(NewTopic{Name: name, NumPartitions: 1, ReplicationFactor: factor, Configs: configs})
		if err != nil {
			t.Fatal(err)
		}
		c.must(cmd)
		return c.img.Topic(name)
	}
	effective := func(tp *Topic) int {
		settings, err := c.img.TopicConfig(tp, 1, map[string]string{"min.insync.replicas": "9"}) // of a node with another opinion
		if err != nil {
			t.Fatal(err)
		}
		return settings.MinInsyncReplicas
	}
	three, one, said := create("three", 3, "", nil), create("one", 1, "", nil), create("said", 3, "3", nil)
	own := create("own", 3, "3", map[string]string{"min.insync.replicas": "1"})
	for _, tt := range []struct {
		topic *Topic
		want  int
	}{{three, 2}, {one, 1}, {said, 3}, {own, 1}} {
		if got := effective(tt.topic); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.topic.Name, got, tt.want)
		}
		shown := tt.topic.AsCreated([]config.Entry{{Name: "min.insync.replicas", Value: "7", Source: config.StaticBroker}})
		if want := fmt.Sprint(tt.topic.MinInSync); shown[0].Value != want {
			t.Errorf("%s: shown as %s, recorded is %s", tt.topic.Name, shown[0].Value, want)
		}
	}
	set := "1"
	change := []ConfigChange{{Name: "min.insync.replicas", Value: &set}}
	if _, err := c.planner().AlterConfig(ResourceBroker, "1", change, false); !errors.Is(err, kerr.InvalidConfig) {
		t.Errorf("of a single broker: %v", err)
	}
	cmd, err := c.planner().AlterConfig(ResourceBroker, "", change, false)
	if err != nil {
		t.Fatal(err)
	}
	c.must(cmd)
	if effective(three) != 1 || effective(said) != 1 || effective(own) != 1 {
		t.Error("what is set for all brokers does not count")
	}
	if got := c.img.MinInSync(&Partition{TopicID: three.ID, Replicas: []int32{1}}); got != 1 {
		t.Errorf("more than there are replicas: %d", got)
	}
}
