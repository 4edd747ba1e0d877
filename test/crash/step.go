package crash

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Step is something that a node does in several writes, so that a crash may fall into the middle of it.
type Step int

// The steps, in the order in which a record meets them.
const (
	IndexWrite  Step = iota // a segment is sealed: indexes and producer snapshot to their files
	Reserve                 // an object id is reserved at the controller
	Put                     // the object is on its way to the store
	Verify                  // the store is asked what it has
	Commit                  // the row is on its way into the image
	LocalDelete             // a segment that the store has is unlinked
	Checkpoint              // recovery points, log starts, high watermarks are noted
	steps
	none Step = -1
)

var stepNames = [steps]string{"index write", "reserve", "PUT", "verify", "commit", "local delete", "checkpoint"}

func (s Step) String() string {
	if s < 0 || s >= steps {
		return "between steps"
	}
	return stepNames[s]
}

// line is what a node logs at debug level where a step begins or ends. What belongs to one piece of work has the
// same message, object, partition, segment and path; the next line of an upload ends the step before.
type line struct {
	Time      time.Time `json:"time"`
	Message   string    `json:"msg"`
	Step      string    `json:"step"`
	Object    string    `json:"object"`
	Partition any       `json:"partition"`
	Segment   int64     `json:"segment"`
	Path      string    `json:"path"`
}

func (l line) work() string {
	return fmt.Sprint(l.Message, l.Object, l.Partition, l.Segment, l.Path)
}

// begins is the step that the line begins, none if it ends one; ok is false for lines that tell of no step.
func (l line) begins() (s Step, ok bool) {
	if l.Step == "end" {
		return none, true
	}
	s, ok = map[[2]string]Step{
		{"index", "begin"}: IndexWrite, {"delete", "begin"}: LocalDelete, {"checkpoint", "begin"}: Checkpoint,
		{"upload", "reserve"}: Reserve, {"upload", "put"}: Put, {"upload", "check"}: Verify, {"upload", "commit"}: Commit,
	}[[2]string{l.Message, l.Step}]
	return s, ok
}

// open is a step that has begun and not ended.
type open struct {
	step Step
	at   time.Time
}

// stepTimes is how long each step took lately.
type stepTimes [steps]time.Duration

// watch reads the log of one life of a node, knows what is under way, and strikes in the middle of the step that it
// is aimed at. It is the io.Writer of the node's output, and strikes there so as not to be late.
type watch struct {
	mu   sync.Mutex
	rest []byte // the beginning of a line
	open map[string]open
	took *stepTimes // over all lives

	aim    Step
	strike func()
	struck chan struct{}
}

func newWatch(took *stepTimes) *watch {
	return &watch{open: map[string]open{}, took: took, aim: none}
}

// aimAt has strike called once, in the middle of the next such step; struck is closed after it.
func (w *watch) aimAt(s Step, strike func()) (struck <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aim, w.strike, w.struck = s, strike, make(chan struct{})
	return w.struck
}

// Write implements io.Writer.
func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		text, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		w.rest = rest
		if bytes.Contains(text, []byte(`"step":`)) {
			w.line(text)
		}
	}
}

func (w *watch) line(text []byte) {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return
	}
	s, ok := l.begins()
	if !ok {
		return
	}
	work := l.work()
	if before, was := w.open[work]; was {
		w.took[before.step] = l.Time.Sub(before.at)
		delete(w.open, work)
	}
	if s == none {
		return
	}
	w.open[work] = open{s, l.Time}
	if s == w.aim {
		w.aim = none
		// Anywhere in the first part of what it takes: the line was some time on its way to us.
		time.Sleep(rand.N(w.took[s]*2/3 + 1))
		w.strike()
		close(w.struck)
	}
}

// underWay is what has begun and not ended, as far as the output has been read, the last begun first.
func (w *watch) underWay() []Step {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []open
	for _, o := range w.open {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b open) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.step, a.step)) })
	var all []Step
	for _, o := range list {
		if !slices.Contains(all, o.step) {
			all = append(all, o.step)
		}
	}
	return all
}
