package replica

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
)

// fetchSession is a follower's side of a fetch session (KIP-227): a request names what differs from what the leader was told
// last. A leader that keeps no session is asked in full every time.
type fetchSession struct {
	id    int32
	epoch int32 // of the next request; 0: a new session
	told  map[metadata.PartitionKey]askState
}

// askState is what the leader's side of a session remembers of a partition.
type askState struct {
	offset, logStart, hw int64
	epoch, lastEpoch     int32
}

func (a *ask) state() askState {
	return askState{a.offset, a.logStart, a.hw, a.epoch, a.lastEpoch}
}

// restart has the next request begin a new session, in the place of the one that was.
func (s *fetchSession) restart() { s.epoch, s.told = 0, nil }

// refused takes in an error that concerns the session.
func (s *fetchSession) refused(err error) {
	if errors.Is(err, kerr.FetchSessionIDNotFound) {
		s.id = 0
	}
	s.restart()
}

// answered takes in the response to the last request.
func (s *fetchSession) answered(resp *kmsg.FetchResponse) {
	s.id = resp.SessionID
	switch {
	case s.id == 0:
		s.restart()
	case s.epoch == 1<<31-1:
		s.epoch = 1
	default:
		s.epoch++
	}
}

// request makes the next request.
func (s *fetchSession) request(asks []ask, c *Config) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = c.NodeID // until version 14
	req.ReplicaState.ID, req.ReplicaState.Epoch = c.NodeID, c.BrokerEpoch()
	req.MaxWaitMillis = int32(c.Replication.FetchWait.Milliseconds())
	req.MinBytes, req.MaxBytes = int32(c.Replication.MinBytes), int32(c.Replication.ResponseBytes)
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	gone := s.told
	s.told = make(map[metadata.PartitionKey]askState, len(asks))
	topics := map[[16]byte]int{}
	for i := range asks {
		a := &asks[i]
		key, state := metadata.PartitionKey{TopicID: a.p.id, Partition: a.p.index}, a.state()
		old, known := gone[key]
		delete(gone, key)
		s.told[key] = state
		if known && old == state {
			continue
		}
		n, ok := topics[a.p.id]
		if !ok {
			n = len(req.Topics)
			topics[a.p.id] = n
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = a.p.topic, a.p.id
			req.Topics = append(req.Topics, t)
		}
		req.Topics[n].Partitions = append(req.Topics[n].Partitions, a.request(c.Replication.FetchBytes))
	}
	for key := range gone {
		t := kmsg.NewFetchRequestForgottenTopic()
		t.TopicID, t.Partitions = key.TopicID, []int32{key.Partition}
		req.ForgottenTopics = append(req.ForgottenTopics, t)
	}
	return req
}

func (a *ask) request(maxBytes int) kmsg.FetchRequestTopicPartition {
	x := kmsg.NewFetchRequestTopicPartition()
	x.Partition, x.CurrentLeaderEpoch, x.FetchOffset, x.LastFetchedEpoch = a.p.index, a.epoch, a.offset, a.lastEpoch
	x.LogStartOffset, x.PartitionMaxBytes, x.HighWatermark = a.logStart, int32(maxBytes), a.hw
	return x
}
