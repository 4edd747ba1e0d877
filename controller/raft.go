package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/varve-io/varve/wire"
)

// How a quorum keeps time.
const (
	raftCommitTimeout = 5 * time.Millisecond // an idle follower learns of a commit after that
	raftEnqueue       = 2 * time.Second      // until a proposal has begun
	raftPollOutcome   = 5 * time.Millisecond

	snapshotInterval = time.Minute
	snapshotEntries  = 8192  // entries after which a snapshot is due
	trailingEntries  = 10240 // entries kept behind a snapshot, for followers
	snapshotsKept    = 2
)

// raftQuorum is hashicorp/raft as a Quorum.
type raftQuorum struct {
	config  *raft.Config
	timeout time.Duration // heartbeat, election and lease
	machine StateMachine
	stores  raftStores
	connect func() raft.Transport // called by Run

	raft    *raft.Raft    // from ready on
	ready   chan struct{} // closed when raft is set
	changed chan struct{}

	stopping sync.Once
	ended    chan struct{} // closed by stop
	stopped  raft.Future
}

// raftStores are what a member keeps on disk.
type raftStores struct {
	log       raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
}

// serverID names a member: its node id, and the UUID of its directory, so
// that a node with a new disk is another member (KIP-853).
func serverID(node int32, member string) raft.ServerID {
	return raft.ServerID(strconv.Itoa(int(node)) + "@" + member)
}

func nodeOf(id raft.ServerID) int32 {
	node, _, _ := strings.Cut(string(id), "@")
	n, err := strconv.ParseInt(node, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

func newRaftQuorum(id raft.ServerID, timeout time.Duration, m StateMachine, stores raftStores, connect func() raft.Transport, hlog hclog.Logger) *raftQuorum {
	c := raft.DefaultConfig()
	c.LocalID = id
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = timeout, timeout, timeout
	c.ShutdownOnRemove = false // it goes on as one that waits to be added
	c.CommitTimeout = raftCommitTimeout
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = snapshotInterval, snapshotEntries, trailingEntries
	c.BatchApplyCh = true
	c.NoLegacyTelemetry = true
	c.Logger = hlog
	return &raftQuorum{config: c, timeout: timeout, machine: m, stores: stores, connect: connect,
		ready: make(chan struct{}), changed: make(chan struct{}, 1), ended: make(chan struct{})}
}

// found writes the first entry of a new quorum's log: its members. Only one
// of them does; the others get it from there. What an attempt that was cut short
// has left is written over: nothing has run on it.
func (q *raftQuorum) found(members []wire.Voter) error {
	var first raft.Configuration
	for _, v := range members {
		first.Servers = append(first.Servers, raft.Server{ID: serverID(v.NodeID, v.MemberID), Address: raft.ServerAddress(v.Address)})
	}
	last, err := q.stores.log.LastIndex()
	if err == nil && last > 0 {
		err = q.stores.log.DeleteRange(1, last)
	}
	if err == nil {
		err = q.stores.stable.SetUint64([]byte("CurrentTerm"), 0)
	}
	if err == nil {
		err = raft.BootstrapCluster(q.config, q.stores.log, q.stores.stable, q.stores.snapshots, nil, first)
	}
	if err != nil {
		return fmt.Errorf("found the quorum: %w", err)
	}
	return nil
}

// Run implements Quorum.
func (q *raftQuorum) Run(ctx context.Context) error {
	trans := q.connect()
	notify := make(chan bool, 16) // raft waits for it to be read
	q.config.NotifyCh = notify
	timeouts := raft.ReloadableConfig{HeartbeatTimeout: q.timeout, ElectionTimeout: q.timeout,
		SnapshotInterval: snapshotInterval, SnapshotThreshold: snapshotEntries, TrailingLogs: trailingEntries}
	q.config.HeartbeatTimeout, q.config.ElectionTimeout = q.timeout+1, q.timeout+1 // see hurry
	r, err := raft.NewRaft(q.config, raftMachine{q.machine}, q.stores.log, q.stores.stable, q.stores.snapshots, trans)
	if err != nil {
		return fmt.Errorf("start the quorum: %w", err)
	}
	leaders := make(chan raft.Observation, 1)
	r.RegisterObserver(raft.NewObserver(leaders, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	q.raft = r
	close(q.ready)
	if err := hurry(r, timeouts); err != nil {
		return errors.Join(fmt.Errorf("start the quorum: %w", err), q.stop().Error())
	}
	for {
		select {
		case <-notify:
			q.signal()
		case <-leaders:
			q.signal()
		case <-ctx.Done():
			q.signal()
			return q.stop().Error()
		}
	}
}

// stop ends the library's member: nothing is elected, voted or stored after it.
// The future waits for its goroutines.
func (q *raftQuorum) stop() raft.Future {
	r := q.started()
	if r == nil {
		return nil
	}
	q.stopping.Do(func() {
		q.stopped = r.Shutdown()
		close(q.ended)
	})
	return q.stopped
}

// hurry has a member that is alone elect itself at once: there is nobody whose
// heartbeat it could wait for. A shorter heartbeat timeout makes the library
// look at once when it last heard of a leader, which is never.
func hurry(r *raft.Raft, timeouts raft.ReloadableConfig) error {
	members := r.GetConfiguration()
	if err := members.Error(); err != nil || len(members.Configuration().Servers) > 1 {
		return err
	}
	return r.ReloadConfig(timeouts)
}

func (q *raftQuorum) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// Changed implements Quorum.
func (q *raftQuorum) Changed() <-chan struct{} { return q.changed }

// started returns the library's member, nil before Run has made it.
func (q *raftQuorum) started() *raft.Raft {
	select {
	case <-q.ready:
		return q.raft
	default:
		return nil
	}
}

// Leading implements Quorum.
func (q *raftQuorum) Leading() (bool, uint64) {
	r := q.started()
	if r == nil {
		return false, 0
	}
	term := r.CurrentTerm()
	return r.State() == raft.Leader && r.CurrentTerm() == term, term
}

// Leader implements Quorum.
func (q *raftQuorum) Leader() int32 {
	if r := q.started(); r != nil {
		if _, id := r.LeaderWithID(); id != "" {
			return nodeOf(id)
		}
	}
	return -1
}

// Heard implements Quorum.
func (q *raftQuorum) Heard() time.Duration {
	r := q.started()
	switch {
	case r == nil:
		return -1
	case r.State() == raft.Leader:
		return 0
	}
	if last := r.LastContact(); !last.IsZero() {
		return time.Since(last)
	}
	return -1
}

// LogEnd implements Quorum.
func (q *raftQuorum) LogEnd() uint64 {
	if r := q.started(); r != nil {
		return r.LastIndex()
	}
	return 0
}

// servers are the members, with or without a vote, by the last configuration.
func (q *raftQuorum) servers() []raft.Server {
	r := q.started()
	if r == nil {
		return nil
	}
	return r.GetConfiguration().Configuration().Servers
}

// Members implements Quorum.
func (q *raftQuorum) Members() []wire.Voter {
	var out []wire.Voter
	for _, s := range q.servers() {
		if s.Suffrage == raft.Voter {
			_, member, _ := strings.Cut(string(s.ID), "@")
			out = append(out, wire.Voter{NodeID: nodeOf(s.ID), MemberID: member, Address: string(s.Address)})
		}
	}
	return out
}

// Teach implements Quorum.
func (q *raftQuorum) Teach(ctx context.Context, v wire.Voter) error {
	id, address := serverID(v.NodeID, v.MemberID), raft.ServerAddress(v.Address)
	return q.change(ctx, func(r *raft.Raft) raft.IndexFuture { return r.AddNonvoter(id, address, 0, raftEnqueue) })
}

// AddMember implements Quorum.
func (q *raftQuorum) AddMember(ctx context.Context, v wire.Voter) error {
	id, address := serverID(v.NodeID, v.MemberID), raft.ServerAddress(v.Address)
	return q.change(ctx, func(r *raft.Raft) raft.IndexFuture { return r.AddVoter(id, address, 0, raftEnqueue) })
}

// RemoveMember implements Quorum.
func (q *raftQuorum) RemoveMember(ctx context.Context, v wire.Voter) error {
	id := serverID(v.NodeID, v.MemberID)
	return q.change(ctx, func(r *raft.Raft) raft.IndexFuture { return r.RemoveServer(id, 0, raftEnqueue) })
}

func (q *raftQuorum) change(ctx context.Context, begin func(*raft.Raft) raft.IndexFuture) error {
	r := q.started()
	if r == nil {
		return ErrNotLeader
	}
	ended, err := await(ctx, begin(r))
	switch {
	case err == nil:
		return nil
	case ended && notBegun(err):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// notBegun reports whether an error of the library means that nothing was done.
func notBegun(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrEnqueueTimeout) ||
		errors.Is(err, raft.ErrAbortedByRestore) || errors.Is(err, raft.ErrLeadershipTransferInProgress)
}

// Barrier implements Quorum.
func (q *raftQuorum) Barrier(ctx context.Context) error {
	r := q.started()
	if r == nil {
		return ErrNotLeader
	}
	_, err := await(ctx, r.Barrier(raftEnqueue))
	return err
}

// await waits for a future, or for ctx.
func await(ctx context.Context, f raft.Future) (ended bool, err error) {
	done := make(chan error, 1)
	go func() { done <- f.Error() }() // ends at the latest with the term
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Propose implements Quorum.
func (q *raftQuorum) Propose(entry []byte) Proposal {
	r := q.started()
	if r == nil {
		return refusedProposal{}
	}
	return &raftProposal{q: q, entry: entry, future: r.Apply(entry, raftEnqueue)}
}

type refusedProposal struct{}

func (refusedProposal) Wait(context.Context) (uint64, any, error) { return 0, nil, ErrNotLeader }

type raftProposal struct {
	q      *raftQuorum
	entry  []byte
	future raft.ApplyFuture
}

// Wait implements Proposal.
func (p *raftProposal) Wait(ctx context.Context) (uint64, any, error) {
	ended, err := await(ctx, p.future)
	switch {
	case !ended:
		return 0, nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	case err == nil:
		return p.future.Index(), p.future.Response(), nil
	case notBegun(err):
		return 0, nil, fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return p.resolve(ctx, err)
}

// resolve finds out what became of an entry whose leader lost its office
// (raft.ErrLeadershipLost and the like). Once the log is committed up to the
// entry's index, what stands there tells: ours or another.
func (p *raftProposal) resolve(ctx context.Context, cause error) (uint64, any, error) {
	unknown := fmt.Errorf("%w: %w", ErrUnknown, cause)
	submitted, ok := p.future.(interface{ Index() uint64 })
	if !ok || submitted.Index() == 0 {
		return 0, nil, unknown
	}
	index := submitted.Index()
	ticker := time.NewTicker(raftPollOutcome)
	defer ticker.Stop()
	for {
		if p.q.raft.CommitIndex() >= index {
			var at raft.Log
			if err := p.q.stores.log.GetLog(index, &at); err != nil {
				return 0, nil, unknown // behind a snapshot already
			}
			if at.Type != raft.LogCommand || !bytes.Equal(at.Data, p.entry) {
				return 0, nil, fmt.Errorf("%w: %w", ErrNotLeader, cause)
			}
			if result, ok := p.q.machine.Result(index); ok {
				return index, result, nil
			}
		}
		select {
		case <-ticker.C:
		case <-p.q.ended:
			return 0, nil, unknown
		case <-ctx.Done():
			return 0, nil, unknown
		}
	}
}

// raftMachine is a StateMachine as the library wants it.
type raftMachine struct{ m StateMachine }

func (f raftMachine) Apply(l *raft.Log) any { return f.m.Apply(l.Index, l.Term, l.Data) }

func (f raftMachine) Snapshot() (raft.FSMSnapshot, error) { return raftSnapshot(f.m.Snapshot()), nil }

func (f raftMachine) Restore(r io.ReadCloser) error {
	defer r.Close()
	return f.m.Restore(r)
}

type raftSnapshot func(io.Writer) error

func (s raftSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := s(sink); err != nil {
		sink.Cancel()
		return err
	}
	return sink.Close()
}

func (raftSnapshot) Release() {}
