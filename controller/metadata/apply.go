package metadata

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Meta is what an entry adds to its commands.
type Meta struct {
	Index, Term uint64
	TimeMs      int64 // the leader's time
}

// Result is the outcome of one command.
type Result struct {
	Code    int16 // Kafka's error code, 0 for success
	Message string
	Data    []byte // ProducerIDBlock of AllocateProducerIDs; nil otherwise
}

// Err returns nil for success, else an error that wraps kerr's value of the
// code and carries the message.
func (r Result) Err() error {
	if r.Code == 0 {
		return nil
	}
	if r.Message == "" {
		return kerr.ErrorForCode(r.Code)
	}
	return fmt.Errorf("%w: %s", kerr.ErrorForCode(r.Code), r.Message)
}

// Apply checks a command's preconditions against an image and returns the
// image after it, the records that lead there and the outcome. A refused
// command has no records and changes nothing but the index.
func Apply(m *Image, cmd Command, at Meta) (*Image, []Record, Result) {
	at.TimeMs = max(at.TimeMs, m.timeMs)
	recs, data, err := admit(m, cmd, at)
	if err != nil {
		return m.Replay(nil, at.Index, at.Term), nil, Refusal(err)
	}
	if len(recs) > 0 && at.TimeMs != m.timeMs {
		recs = append(recs, &Clock{Ms: at.TimeMs})
	}
	return m.Replay(recs, at.Index, at.Term), recs, Result{Data: data}
}

// ApplyEntry applies the commands of an entry one after the other.
func ApplyEntry(m *Image, e Entry, index, term uint64) (*Image, []Record, []Result) {
	var all []Record
	results := make([]Result, 0, len(e.Commands))
	for _, cmd := range e.Commands {
		next, recs, result := Apply(m, cmd, Meta{Index: index, Term: term, TimeMs: e.TimeMs})
		m, all, results = next, append(all, recs...), append(results, result)
	}
	if len(e.Commands) == 0 {
		m = m.Replay(nil, index, term)
	}
	return m, all, results
}

func admit(m *Image, cmd Command, at Meta) ([]Record, []byte, error) {
	if _, first := cmd.(*FormCluster); !first && m.Feature(MetadataFeature) < since(cmd) {
		return nil, nil, Refuse(kerr.UnsupportedVersion, "%T needs metadata.version %d, finalised is %d", cmd, since(cmd), m.Feature(MetadataFeature))
	}
	return cmd.apply(m, at)
}

// since is the metadata.version that brought a command.
func since(Command) int16 { return MetadataVersionMin }

// Refuse is an error with the code that a client will see and a reason.
func Refuse(code *kerr.Error, format string, args ...any) error {
	return &refused{code: code, reason: fmt.Sprintf(format, args...)}
}

type refused struct {
	code   *kerr.Error
	reason string
}

func (e *refused) Error() string { return e.code.Message + ": " + e.reason }
func (e *refused) Unwrap() error { return e.code }

// Refusal is what an error is to a client: one that Refuse made keeps its code
// and reason, one of kerr's its code, any other is UNKNOWN_SERVER_ERROR.
func Refusal(err error) Result {
	var r *refused
	var k *kerr.Error
	switch {
	case err == nil:
		return Result{}
	case errors.As(err, &r):
		return Result{Code: r.code.Code, Message: r.reason}
	case errors.As(err, &k):
		return Result{Code: k.Code, Message: err.Error()}
	}
	return Result{Code: kerr.UnknownServerError.Code, Message: err.Error()}
}
