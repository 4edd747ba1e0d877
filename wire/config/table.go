package config

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed topic.txt broker.txt varve.txt
var texts embed.FS

type table struct {
	byName map[string]*Property
	sorted []*Property
}

// tables reads the embedded files once. They are part of the program: a
// mistake in them is found by the first test, so it panics.
var tables = sync.OnceValue(func() (t struct{ topic, broker table }) {
	t.topic = newTable(load("topic.txt", TopicScope))
	t.broker = newTable(append(load("broker.txt", BrokerScope), load("varve.txt", BrokerScope)...))
	return t
})

func newTable(all []*Property) table {
	t := table{byName: make(map[string]*Property, len(all)), sorted: all}
	for _, p := range all {
		if t.byName[p.Name] != nil {
			panic("config: two properties are called " + p.Name)
		}
		t.byName[p.Name] = p
	}
	slices.SortFunc(t.sorted, func(a, b *Property) int { return strings.Compare(a.Name, b.Name) })
	return t
}

func load(file string, scope Scope) []*Property {
	text, err := texts.ReadFile(file)
	if err != nil {
		panic(err)
	}
	var all []*Property
	for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		p, err := parseProperty(block)
		if err != nil {
			panic(fmt.Sprintf("config: %s: %q: %v", file, block, err))
		}
		p.Scope = scope
		all = append(all, p)
	}
	return all
}

// parseProperty reads one block of the form that the package comment draws.
func parseProperty(block string) (*Property, error) {
	head, rest, _ := strings.Cut(block, "\n")
	p, err := parseHead(head)
	if err != nil {
		return nil, err
	}
	var doc []string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "@") {
			doc = append(doc, line)
		} else if err := p.attribute(strings.Fields(line)); err != nil {
			return nil, err
		}
	}
	p.Doc = strings.Join(doc, " ")
	return p, p.checkDefault()
}

// parseHead reads "name: TYPE = default in constraint".
func parseHead(head string) (*Property, error) {
	name, rest, ok1 := strings.Cut(head, ": ")
	typ, rest, ok2 := strings.Cut(rest, " = ")
	def, allowed, _ := strings.Cut(rest, " in ")
	p := &Property{Name: name, Type: typeNames[typ]}
	if !ok1 || !ok2 || p.Type == 0 {
		return nil, fmt.Errorf("malformed first line")
	}
	p.Sensitive = p.Type == Password
	switch def {
	case "null":
	case `""`:
		p.Default = new(string)
	default:
		p.Default = &def
	}
	var err error
	p.allowed, err = parseConstraint(allowed)
	return p, err
}

func (p *Property) attribute(words []string) error {
	switch words[0] {
	case "@synonyms":
		p.Synonyms = words[1:]
	case "@ignored":
		p.Ignored = true
	case "@dynamic":
		switch words[1] {
		case "per-broker":
			p.Dynamic = PerBroker
		case "cluster-wide":
			p.Dynamic = ClusterWide
		default:
			return fmt.Errorf("unknown mode %s", words[1])
		}
	default:
		return fmt.Errorf("unknown attribute %s", words[0])
	}
	return nil
}

func (p *Property) checkDefault() error {
	if p.Default == nil {
		return nil
	}
	return p.Validate(*p.Default)
}
