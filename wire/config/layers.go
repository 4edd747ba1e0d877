package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Source is where a value comes from, numbered as in DescribeConfigs.
type Source int8

const (
	DynamicTopic         Source = 1
	DynamicBroker        Source = 2
	DynamicDefaultBroker Source = 3
	StaticBroker         Source = 4
	Default              Source = 5
)

// Layers holds what was set where. Nil maps are empty. Values of the broker
// layers are by broker property name, those of Topic by topic property name.
type Layers struct {
	Topic          map[string]string
	DynamicBroker  map[string]string
	DynamicDefault map[string]string
	Static         map[string]string
}

// Entry is a property with its value, as DescribeConfigs shows it.
type Entry struct {
	Name      string
	Value     string
	Null      bool // Value is null: not set, or sensitive
	Source    Source
	Sensitive bool
	ReadOnly  bool
	Type      Type
	Doc       string
	Synonyms  []Entry // every layer that has a value, the effective one first
}

// Describe lists every property of the scope with its effective value, sorted
// by name. A value that was set is of the layer that set it, even if it equals
// the default.
func Describe(scope Scope, layers Layers) []Entry {
	var entries []Entry
	for p := range All(scope) {
		entries = append(entries, layers.entry(p))
	}
	return entries
}

func (l Layers) entry(p *Property) Entry {
	e := Entry{Name: p.Name, Null: true, Source: Default, Sensitive: p.Sensitive, Type: p.Type, Doc: p.Doc,
		ReadOnly: p.Scope == BrokerScope && p.Dynamic == ReadOnly}
	e.Synonyms = l.synonyms(p)
	if value, source, ok := l.effective(p); ok {
		e.Value, e.Source, e.Null = value, source, false
	}
	e.hide()
	for i := range e.Synonyms {
		e.Synonyms[i].hide()
	}
	return e
}

func (e *Entry) hide() {
	if e.Sensitive {
		e.Value, e.Null = "", true
	}
}

// effective returns the value in force, in the unit of p.
func (l Layers) effective(p *Property) (value string, source Source, ok bool) {
	if all := l.synonyms(p); len(all) > 0 {
		return convert(all[0].Name, p.Name, all[0].Value), all[0].Source, true
	}
	return "", Default, false
}

// synonyms lists all values that bear on p, in order of precedence: layer by
// layer, and in a layer name by name.
func (l Layers) synonyms(p *Property) []Entry {
	names := p.Synonyms
	if p.Scope == BrokerScope {
		names = brokerSynonyms(p.Name)
	}
	var found []Entry
	add := func(name, value string, source Source) {
		found = append(found, Entry{Name: name, Value: value, Source: source, Sensitive: p.Sensitive, Type: p.Type})
	}
	if value, ok := l.Topic[p.Name]; ok && p.Scope == TopicScope {
		add(p.Name, value, DynamicTopic)
	}
	for _, layer := range []struct {
		values map[string]string
		source Source
	}{{l.DynamicBroker, DynamicBroker}, {l.DynamicDefault, DynamicDefaultBroker}, {l.Static, StaticBroker}} {
		for _, name := range names {
			if value, ok := layer.values[name]; ok {
				add(name, value, layer.source)
			}
		}
	}
	for _, name := range names {
		if broker, ok := Lookup(BrokerScope, name); ok && broker.Default != nil {
			add(name, *broker.Default, Default)
		}
	}
	if len(names) == 0 && p.Default != nil {
		add(p.Name, *p.Default, Default)
	}
	return found
}

// brokerSynonyms returns the names that can set a broker property, itself
// first: Kafka has several units for the same thing (KIP-226).
func brokerSynonyms(name string) []string {
	for _, group := range [][]string{
		{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
		{"log.roll.ms", "log.roll.hours"},
		{"log.roll.jitter.ms", "log.roll.jitter.hours"},
		{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"},
		{"log.dirs", "log.dir"},
		{"node.id", "broker.id"},
	} {
		if group[0] == name {
			return group
		}
	}
	return []string{name}
}

// convert brings the value of one property into the unit of another.
func convert(from, to, value string) string {
	factor := unit(from) / max(unit(to), 1)
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if factor <= 1 || err != nil {
		return value
	}
	if n < 0 {
		return "-1" // without limit, in any unit
	}
	return strconv.FormatInt(n*factor, 10)
}

// unit returns the milliseconds that a name's unit has, 0 if it names none.
func unit(name string) int64 {
	switch {
	case strings.HasSuffix(name, ".hours"):
		return 3_600_000
	case strings.HasSuffix(name, ".minutes"):
		return 60_000
	case strings.HasSuffix(name, ".ms"):
		return 1
	}
	return 0
}

// Unknown lists the names in kv that no property of the scope has, sorted.
// Names with a free part (listener.name.*, and the prefixes that Kafka's
// plugins use) are not among them.
func Unknown(scope Scope, kv map[string]string) []string {
	var unknown []string
	for name := range kv {
		if _, ok := Lookup(scope, name); !ok && !hasFreePart(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

func hasFreePart(name string) bool {
	for _, prefix := range []string{"listener.name.", "rsm.config.", "rlmm.config.", "config.providers.", "confluent."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// UnknownError is what Check answers for a name that no property has.
type UnknownError struct {
	Name    string
	Nearest string // "" if none is near
}

func (e *UnknownError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("Unknown configuration %s", e.Name)
	}
	return fmt.Sprintf("Unknown configuration %s (did you mean %s?)", e.Name, e.Nearest)
}
