package config

import (
	"fmt"
	"iter"
	"slices"
)

// Type is the type of a property, numbered as in DescribeConfigs (KIP-226).
type Type int8

const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

var typeNames = map[string]Type{
	"BOOLEAN": Boolean, "STRING": String, "INT": Int, "SHORT": Short, "LONG": Long,
	"DOUBLE": Double, "LIST": List, "CLASS": Class, "PASSWORD": Password,
}

func (t Type) String() string {
	for name, v := range typeNames {
		if v == t {
			return name
		}
	}
	return fmt.Sprintf("Type(%d)", int8(t))
}

// Scope is where a property can be set.
type Scope uint8

const (
	TopicScope  Scope = 1 << iota // by CreateTopics and AlterConfigs on a topic
	BrokerScope                   // in server.properties or by AlterConfigs on a broker
)

// Dynamic says whether a broker property can be changed at run time.
type Dynamic uint8

const (
	ReadOnly    Dynamic = iota // server.properties only, at start
	PerBroker                  // on one broker
	ClusterWide                // on one broker or for all
)

// Property describes one property. Properties are shared: do not change them.
type Property struct {
	Name      string
	Type      Type
	Default   *string // nil: null
	Doc       string
	Scope     Scope
	Dynamic   Dynamic
	Sensitive bool // never shown: DescribeConfigs answers null
	Ignored   bool // known, accepted, without effect

	// Synonyms are the broker properties that a topic property defaults from,
	// or that stand for a broker property, in order of precedence.
	Synonyms []string

	allowed constraint
}

// Lookup finds a property by its exact name.
func Lookup(scope Scope, name string) (*Property, bool) {
	t := tables()
	if scope&TopicScope != 0 {
		if p, ok := t.topic.byName[name]; ok {
			return p, true
		}
	}
	if scope&BrokerScope != 0 {
		if p, ok := t.broker.byName[name]; ok {
			return p, true
		}
	}
	return nil, false
}

// All goes through the properties of a scope, sorted by name.
func All(scope Scope) iter.Seq[*Property] {
	t := tables()
	var all []*Property
	if scope&TopicScope != 0 {
		all = append(all, t.topic.sorted...)
	}
	if scope&BrokerScope != 0 {
		all = append(all, t.broker.sorted...)
	}
	return slices.Values(all)
}

// Secret is a value that must not be shown; printing it in any way gives
// "***". string(s) is the value.
type Secret string

const hidden = "***"

func (Secret) String() string               { return hidden }
func (Secret) GoString() string             { return hidden }
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
