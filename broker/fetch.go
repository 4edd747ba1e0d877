package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/wire"
)

// maxFetchWait bounds how long a fetch is parked, whatever the client asks.
const maxFetchWait = 5 * time.Minute

// replicaStateVersion is the first version of Fetch in which a replica says in which life of its broker it is (KIP-903). One that does
// not is none of ours: they all speak a later one.
const replicaStateVersion = 15

// fetchCall is one Fetch request while it is served.
type fetchCall struct {
	h       *handler
	r       *wire.Request
	session *session // nil: none
	full    bool     // the response names every partition
	replica bool     // a replica asks
	cancel  context.CancelFunc
}

// fetch answers Fetch, at once or when there is enough to tell.
func (h *handler) fetch(ctx context.Context, r *wire.Request, req *kmsg.FetchRequest) {
	if req.ReplicaID >= 0 && r.Version < replicaStateVersion {
		h.refuseFetch(r, req, fmt.Errorf("replica %d: %w", req.ReplicaID, kerr.ClusterAuthorizationFailed))
		return
	}
	s, parts, full, err := h.sessions.open(req, r.Version)
	if err != nil {
		r.Reply(&wire.FetchResponse{ErrorCode: code(err)})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	if s != nil {
		s.supersede(cancel)
	}
	f := &replica.Fetch{
		Partitions: make([]replica.FetchPartition, len(parts)),
		MinBytes:   int(max(req.MinBytes, 0)),
		MaxBytes:   int(max(req.MaxBytes, 0)),
		MaxWait:    min(time.Duration(max(req.MaxWaitMillis, 0))*time.Millisecond, maxFetchWait),
		Isolation:  replica.ReadUncommitted,
		Version:    r.Version,
		Done:       fetched,
		Tag:        &fetchCall{h, r, s, full, req.ReplicaState.ID >= 0, cancel},
	}
	if req.ReplicaState.ID >= 0 {
		f.Replica = &replica.ReplicaState{ID: req.ReplicaState.ID, Epoch: req.ReplicaState.Epoch}
	} else if limit := h.cfg.Settings.Fetch.MaxBytes; limit > 0 {
		f.MaxBytes = min(f.MaxBytes, limit)
	}
	if h.cfg.Settings.Replication.RackAware {
		f.Rack = req.Rack
	}
	if req.IsolationLevel == 1 {
		f.Isolation = replica.ReadCommitted
	}
	for i := range parts {
		p := &parts[i]
		fp := &f.Partitions[i]
		*fp = replica.FetchPartition{Topic: p.topic, TopicID: p.id, Index: p.index, Offset: p.offset, MaxBytes: int(max(p.maxBytes, 0)),
			CurrentLeaderEpoch: p.currentLeaderEpoch, LastFetchedEpoch: p.lastFetchedEpoch,
			KnownHighWatermark: p.knownHighWatermark}
		fp.Partition, fp.Err = h.partition(r.Version >= 13, p.topic, p.id, p.index)
	}
	h.replicas.Fetch(ctx, f)
}

// refuseFetch answers with one error, in the place that the version has for it.
func (h *handler) refuseFetch(r *wire.Request, req *kmsg.FetchRequest, err error) {
	resp := &wire.FetchResponse{}
	if r.Version >= 7 {
		resp.ErrorCode = code(err)
		r.Reply(resp)
		return
	}
	for _, p := range requested(req) {
		resp.Topics = append(resp.Topics, wire.FetchTopic{Topic: p.topic, Partitions: []wire.FetchPartition{failedFetch(p.index, err)}})
	}
	r.Reply(resp)
}

func failedFetch(index int32, err error) wire.FetchPartition {
	return wire.FetchPartition{Partition: index, ErrorCode: code(err), HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1}
}

// fetched is called when a fetch is complete. It builds the response: topics in
// the order served, neighbours of one topic together.
func fetched(f *replica.Fetch) {
	c := f.Tag.(*fetchCall)
	defer c.cancel()
	resp := &wire.FetchResponse{}
	if c.session != nil {
		resp.SessionID = c.session.id
		c.session.mu.Lock()
		defer c.session.mu.Unlock()
	}
	for i := range f.Partitions {
		fp := &f.Partitions[i]
		p := c.partition(fp)
		key := partitionKey{fp.Topic, fp.TopicID, fp.Index}
		if c.session != nil && !c.session.tell(key, c.full, &p, fp.Size) {
			wire.ReleaseRanges(fp.Records)
			continue
		}
		if p.CurrentLeader != nil && c.r.Version >= 16 {
			resp.NodeEndpoints = c.h.addEndpoint(resp.NodeEndpoints, p.CurrentLeader.LeaderID)
		}
		n := len(resp.Topics)
		if n == 0 || resp.Topics[n-1].Topic != fp.Topic || resp.Topics[n-1].TopicID != fp.TopicID {
			resp.Topics = append(resp.Topics, wire.FetchTopic{Topic: fp.Topic, TopicID: fp.TopicID})
			n++
		}
		t := &resp.Topics[n-1]
		t.Partitions = append(t.Partitions, p)
	}
	c.r.Reply(resp)
}

// partition turns the answer for one partition into the response's form.
func (c *fetchCall) partition(fp *replica.FetchPartition) wire.FetchPartition {
	if fp.Err != nil {
		p := failedFetch(fp.Index, fp.Err)
		p.DivergingEpoch = fp.Diverging
		if c.replica { // which begins anew there
			p.LogStartOffset = fp.LogStart
		}
		switch p.ErrorCode {
		case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code:
			if c.r.Version >= 12 {
				p.CurrentLeader, _ = c.h.leaderHint(fp.Topic, fp.TopicID, fp.Index)
			}
		}
		return p
	}
	return wire.FetchPartition{
		Partition:            fp.Index,
		HighWatermark:        fp.HighWatermark,
		LastStableOffset:     fp.LastStableOffset,
		LogStartOffset:       fp.LogStart,
		DivergingEpoch:       fp.Diverging,
		AbortedTransactions:  fp.Aborted,
		PreferredReadReplica: fp.Preferred,
		Records:              fp.Records,
	}
}
