package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
)

// Segments is a page of the remote segments of a topic, in order of partition
// and offset; the last page has the local segments too.
type Segments struct {
	Remote []RemoteSegment `json:"remote"`
	Local  []LocalSegment  `json:"local"`
	// Next, if not empty, is the ?after of the page that follows.
	Next string `json:"next,omitempty"`
}

// RemoteSegment is one object of the store and the records in it. Timestamps
// are those of records, in Unix milliseconds, -1 for none.
type RemoteSegment struct {
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	Base         int64  `json:"base"`
	End          int64  `json:"end"`
	Size         int64  `json:"size"`
	MinTimestamp int64  `json:"minTimestamp"`
	MaxTimestamp int64  `json:"maxTimestamp"`
	LeaderEpoch  int32  `json:"leaderEpoch"`
	Object       string `json:"object"`
}

// LocalSegment is one segment on this broker's disk, and why it is there.
type LocalSegment struct {
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	Base         int64  `json:"base"`
	End          int64  `json:"end"`
	Size         int64  `json:"size"`
	MaxTimestamp int64  `json:"maxTimestamp"`
	Sealed       bool   `json:"sealed"`
	Uploaded     bool   `json:"uploaded"`
	Kept         string `json:"kept"`
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

// Most remote segments in one answer, and how many without ?limit.
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

func (q segmentQuery) wants(partition int32) bool {
	return q.partition < 0 || q.partition == partition
}

func (s *Server) tierSegments(w http.ResponseWriter, r *http.Request) {
	image := s.cfg.Image()
	values := r.URL.Query()
	topic := image.Topic(values.Get("topic"))
	if topic == nil {
		s.fail(w, http.StatusNotFound, "topic %q does not exist", values.Get("topic"))
		return
	}
	q, err := parseSegmentQuery(values)
	if err != nil {
		s.fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	q.topic = topic
	s.reply(w, http.StatusOK, s.segments(image, q))
}

func parseSegmentQuery(values url.Values) (q segmentQuery, err error) {
	q = segmentQuery{partition: -1, limit: defaultSegments}
	if text := values.Get("partition"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return q, fmt.Errorf("partition=%q is not a partition", text)
		}
		q.partition = int32(n)
	}
	if text := values.Get("limit"); text != "" {
		q.limit, err = strconv.Atoi(text)
		if err != nil || q.limit < 1 || q.limit > maxSegments {
			return q, fmt.Errorf("limit=%q is not a number from 1 to %d", text, maxSegments)
		}
	}
	if q.after, err = parsePlace(values.Get("after")); err != nil {
		return q, fmt.Errorf("after=%q is not the next of another page", values.Get("after"))
	}
	return q, nil
}

func (s *Server) segments(image *metadata.Image, q segmentQuery) Segments {
	page := Segments{Remote: []RemoteSegment{}, Local: []LocalSegment{}}
	for partition := range image.Partitions(q.topic.ID) {
		if !q.wants(partition.Index) || partition.Index < q.after.partition {
			continue
		}
		from := int64(0)
		if partition.Index == q.after.partition {
			from = q.after.end
		}
		for segment := range image.Segments(q.topic.ID, partition.Index, from) {
			if n := len(page.Remote); n == q.limit {
				last := page.Remote[n-1]
				page.Next = place{last.Partition, last.End}.String()
				return page
			}
			page.Remote = append(page.Remote, RemoteSegment{
				Topic: q.topic.Name, Partition: partition.Index, Base: segment.Base, End: segment.End, Size: segment.Size,
				MinTimestamp: segment.MinTimestamp, MaxTimestamp: segment.MaxTimestamp, LeaderEpoch: segment.Epoch,
				Object: metadata.ObjectName(s.cfg.ClusterID(), segment),
			})
		}
	}
	for p := range s.cfg.Partitions() {
		if p.TopicID() == q.topic.ID && q.wants(p.Index()) {
			page.Local = append(page.Local, localSegments(p)...)
		}
	}
	return page
}

func localSegments(p *replica.Partition) []LocalSegment {
	var all []LocalSegment
	for _, l := range p.TierStatus().Local {
		all = append(all, LocalSegment{
			Topic: p.Topic(), Partition: p.Index(), Base: l.Base, End: l.End, Size: l.Size, MaxTimestamp: l.MaxTimestamp,
			Sealed: l.Sealed, Uploaded: l.Uploaded, Kept: l.Kept,
		})
	}
	return all
}
