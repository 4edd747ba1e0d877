package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
)

// TierStatus says what is where, as far as this broker leads it.
type TierStatus struct {
	NodeID     int32             `json:"nodeId"`
	ClusterID  string            `json:"clusterId"`
	Store      *StoreStatus      `json:"store"` // null: no store is configured
	Partitions []PartitionStatus `json:"partitions"`
}

// StoreStatus says how the object store does. Cause and Remedy are for an
// operator: what is wrong in plain words, and what to do.
type StoreStatus struct {
	URL          string     `json:"url"`
	Healthy      bool       `json:"healthy"`
	Cause        string     `json:"cause,omitempty"`
	Remedy       string     `json:"remedy,omitempty"`
	Error        string     `json:"error,omitempty"`
	FailingSince *time.Time `json:"failingSince,omitempty"`
	Uploads      int        `json:"uploads"`
	Downloads    int        `json:"downloads"`
	CacheBytes   int64      `json:"cacheBytes"`
	CacheLimit   int64      `json:"cacheLimit"`
	Corrupt      int64      `json:"corruptDownloads"`
}

// PartitionStatus says which offsets of a partition are where. Ends are
// exclusive; offsets in [LocalStart, RemoteEnd) are in both tiers.
type PartitionStatus struct {
	Topic          string `json:"topic"`
	Partition      int32  `json:"partition"`
	Tiered         bool   `json:"tiered"`
	LogStart       int64  `json:"logStart"`
	LocalStart     int64  `json:"localStart"`
	RemoteEnd      *int64 `json:"remoteEnd"` // null: nothing was ever uploaded, or that is not known
	End            int64  `json:"end"`
	LocalBytes     int64  `json:"localBytes"`
	RemoteBytes    int64  `json:"remoteBytes"`
	RemoteSegments int    `json:"remoteSegments"`
	// OnlyRemote counts segments none of whose records is on this disk.
	OnlyRemote int `json:"onlyRemoteSegments"`
}

func (s *Server) tierStatus(w http.ResponseWriter, r *http.Request) {
	topic := r.URL.Query().Get("topic")
	image := s.cfg.Image()
	if topic != "" && image.Topic(topic) == nil {
		s.fail(w, http.StatusNotFound, "topic %s does not exist", topic)
		return
	}
	status := TierStatus{NodeID: s.cfg.NodeID, ClusterID: s.cfg.ClusterID(), Store: s.cfg.Store(), Partitions: []PartitionStatus{}}
	for p := range s.cfg.Partitions() {
		if (topic == "" || p.Topic() == topic) && p.IsLeader() {
			status.Partitions = append(status.Partitions, partitionStatus(image, p))
		}
	}
	slices.SortFunc(status.Partitions, func(a, b PartitionStatus) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	s.reply(w, http.StatusOK, status)
}

func partitionStatus(image *metadata.Image, p *replica.Partition) PartitionStatus {
	st := PartitionStatus{
		Topic: p.Topic(), Partition: p.Index(), Tiered: false,
		LogStart: p.LogStart(), LocalStart: p.LocalStart(), End: p.EndOffset(), LocalBytes: p.Size(),
	}
	if row := image.Partition(p.TopicID(), p.Index()); row != nil {
		if end, ok := row.RemoteEnd.Offset(); ok {
			st.RemoteEnd = &end
		}
	}
	for segment := range image.Segments(p.TopicID(), p.Index(), 0) {
		st.RemoteSegments++
		st.RemoteBytes += segment.Size
		if segment.End <= st.LocalStart {
			st.OnlyRemote++
		}
	}
	return st
}

// Segments is a page of the remote segments of a topic, in order of partition
// and offset.
type Segments struct {
	Segments []Segment `json:"segments"`
	// Next, if not empty, is the ?after of the page that follows.
	Next string `json:"next,omitempty"`
}

// Segment is one object of the store and the records in it. Timestamps are
// those of records, in Unix milliseconds, -1 for none.
type Segment struct {
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	Base         int64  `json:"base"`
	End          int64  `json:"end"`
	Size         int64  `json:"size"`
	MinTimestamp int64  `json:"minTimestamp"`
	MaxTimestamp int64  `json:"maxTimestamp"`
	LeaderEpoch  int32  `json:"leaderEpoch"`
	Local        bool   `json:"local"` // on this disk too, whole or in part
	Object       string `json:"object"`
}

// place is where a page ended: the partition and the end of its last segment.
type place struct {
	partition int32
	end       int64
}

func (p place) String() string { return fmt.Sprintf("%d-%d", p.partition, p.end) }

func parsePlace(text string) (p place, err error) {
	if text != "" {
		_, err = fmt.Sscanf(text, "%d-%d", &p.partition, &p.end)
	}
	return p, err
}

// Most segments in one answer, and how many without ?limit.
const (
	maxSegments     = 10_000
	defaultSegments = 1_000
)

type segmentQuery struct {
	topic     *metadata.Topic
	partition int32 // -1: all
	limit     int
	after     place
}

func (s *Server) tierSegments(w http.ResponseWriter, r *http.Request) {
	image := s.cfg.Image()
	values := r.URL.Query()
	q := segmentQuery{topic: image.Topic(values.Get("topic")), partition: -1, limit: defaultSegments}
	if q.topic == nil {
		s.fail(w, http.StatusNotFound, "topic %q does not exist", values.Get("topic"))
		return
	}
	for _, number := range []struct {
		name        string
		least, most int64
		set         func(int64)
	}{
		{"partition", 0, 1<<31 - 1, func(n int64) { q.partition = int32(n) }},
		{"limit", 1, maxSegments, func(n int64) { q.limit = int(n) }},
	} {
		text := values.Get(number.name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < number.least || n > number.most {
			s.fail(w, http.StatusBadRequest, "%s=%q is not a number from %d to %d", number.name, text, number.least, number.most)
			return
		}
		number.set(n)
	}
	var err error
	if q.after, err = parsePlace(values.Get("after")); err != nil {
		s.fail(w, http.StatusBadRequest, "after=%q is not the next of another page", values.Get("after"))
		return
	}
	s.reply(w, http.StatusOK, s.segments(image, q))
}

func (s *Server) segments(image *metadata.Image, q segmentQuery) Segments {
	page := Segments{Segments: []Segment{}}
	localStarts := map[int32]int64{}
	for p := range s.cfg.Partitions() {
		if p.TopicID() == q.topic.ID {
			localStarts[p.Index()] = p.LocalStart()
		}
	}
	for partition := range image.Partitions(q.topic.ID) {
		if q.partition >= 0 && partition.Index != q.partition || partition.Index < q.after.partition {
			continue
		}
		from := int64(0)
		if partition.Index == q.after.partition {
			from = q.after.end
		}
		for segment := range image.Segments(q.topic.ID, partition.Index, from) {
			if n := len(page.Segments); n == q.limit {
				last := page.Segments[n-1]
				page.Next = place{last.Partition, last.End}.String()
				return page
			}
			start, here := localStarts[partition.Index]
			page.Segments = append(page.Segments, Segment{
				Topic: q.topic.Name, Partition: partition.Index, Base: segment.Base, End: segment.End, Size: segment.Size,
				MinTimestamp: segment.MinTimestamp, MaxTimestamp: segment.MaxTimestamp, LeaderEpoch: segment.Epoch,
				Local: here && segment.End > start, Object: metadata.ObjectName(s.cfg.ClusterID(), segment),
			})
		}
	}
	return page
}
