package controller

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/varve-io/varve/wire"
)

// Quorum is a replicated log. hashicorp/raft is one; a simulator can be another.
type Quorum interface {
	// Run takes part in the quorum until ctx ends, and delivers committed
	// entries to the state machine that the quorum was made with. It returns
	// nil when ctx ended, or why the quorum had to stop.
	Run(ctx context.Context) error
	// Propose asks to append an entry. It starts at once and in the order of
	// the calls; it fails early if this node does not lead.
	Propose(entry []byte) Proposal
	// Barrier returns once everything that was committed before the present
	// term is applied here. It fails if this node does not lead.
	Barrier(ctx context.Context) error
	// Leading says whether this node leads, and the term that it knows.
	Leading() (leads bool, term uint64)
	// Leader is the node that leads as far as is known; -1 if none.
	Leader() int32
	// Heard is how long ago this node heard from the leader: 0 if it leads,
	// negative if never.
	Heard() time.Duration
	// LogEnd is the index of the last entry here, committed or not.
	LogEnd() uint64
	// Members are the voters by the last configuration that is known here; none
	// before any is.
	Members() []wire.Voter
	// Teach gives a controller that is no member the log, and no vote. AddMember
	// gives a vote, RemoveMember takes a member out. One change at a time. Their
	// errors are those of Proposal.Wait.
	Teach(ctx context.Context, v wire.Voter) error
	AddMember(ctx context.Context, v wire.Voter) error
	RemoveMember(ctx context.Context, v wire.Voter) error
	// Changed is signalled, with capacity one, whenever Leading or
	// Leader may have changed.
	Changed() <-chan struct{}
}

// Proposal is an entry on its way.
type Proposal interface {
	// Wait returns the index of the entry and what the state machine's Apply
	// returned; or ErrNotLeader, and the entry is surely not in the log; or
	// ErrUnknown, when neither could be found out before ctx ended.
	Wait(ctx context.Context) (index uint64, result any, err error)
}

// StateMachine is fed by a Quorum, one call at a time.
type StateMachine interface {
	// Apply applies the entry at index. Its result goes to the proposer, if
	// that is this node.
	Apply(index, term uint64, entry []byte) (result any)
	// Result returns again what Apply returned for the entry at index, if it
	// is among the last ones.
	Result(index uint64) (result any, ok bool)
	// Snapshot returns at once; the function writes the state of that moment,
	// while Apply goes on.
	Snapshot() (write func(io.Writer) error)
	// Restore replaces the state by one that such a function wrote.
	Restore(io.Reader) error
}

var (
	// ErrNotLeader: this node does not lead; what was asked was not done.
	ErrNotLeader = errors.New("not the active controller")
	// ErrUnknown: leadership or the connection to the others was lost in
	// between; what was asked may yet happen, or have happened.
	ErrUnknown = errors.New("outcome unknown")
)
