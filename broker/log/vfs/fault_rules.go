package vfs

import (
	"path"
	"slices"
	"strings"
	"sync"
)

// Rule is one fault: which operations, which of them, and what happens.
type Rule struct {
	// Kinds of operation; none means every kind.
	Kinds []OpKind
	// Glob is a path.Match pattern for the name. Without a slash it is for the
	// last element, otherwise for as many last elements as it has. Empty
	// matches all.
	Glob string
	// Nth is the first matching operation that fails, counted from 1; 0 is 1.
	Nth int
	// Times is how many fail from there on; 0 is all.
	Times int
	// Outcome is what happens to them.
	Outcome Outcome

	seen int
}

// Rules is an Injector made of rules; the first that strikes wins, all count.
type Rules struct {
	mu    sync.Mutex
	rules []*Rule
}

// NewRules copies the rules.
func NewRules(rules ...Rule) *Rules {
	r := &Rules{}
	r.Add(rules...)
	return r
}

// Add appends rules while the file system is in use.
func (r *Rules) Add(rules ...Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range rules {
		r.rules = append(r.rules, &rule)
	}
}

// Clear removes all rules: the disk is well again.
func (r *Rules) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = nil
}

func (r *Rules) Inject(op Op) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out Outcome
	struck := false
	for _, rule := range r.rules {
		if rule.strikes(op) && !struck {
			out, struck = rule.Outcome, true
		}
	}
	return out
}

func (r *Rule) strikes(op Op) bool {
	if len(r.Kinds) > 0 && !slices.Contains(r.Kinds, op.Kind) || !matches(r.Glob, op.Name) {
		return false
	}
	r.seen++
	first := max(r.Nth, 1)
	return r.seen >= first && (r.Times == 0 || r.seen < first+r.Times)
}

func matches(glob, name string) bool {
	if glob == "" {
		return true
	}
	parts := strings.Split(name, "/")
	tail := parts[max(0, len(parts)-1-strings.Count(glob, "/")):]
	ok, err := path.Match(glob, strings.Join(tail, "/"))
	return ok && err == nil
}

// CrashPoint is an Injector that fails every operation with ErrCrashed from
// the nth one on that changes the disk (counted from 1). With Mem.CrashClone
// it visits every point at which a run may be cut: raise n until Reached says
// no.
type CrashPoint struct {
	mu   sync.Mutex
	n    int
	seen int
}

// NewCrashPoint returns a crash before the nth change.
func NewCrashPoint(n int) *CrashPoint { return &CrashPoint{n: n} }

// Reached reports whether the run came as far as the crash.
func (c *CrashPoint) Reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen >= c.n
}

func (c *CrashPoint) Inject(op Op) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if op.Kind.Mutates() && c.seen < c.n {
		c.seen++
	}
	if c.seen >= c.n {
		return Outcome{Err: ErrCrashed}
	}
	return Outcome{}
}
