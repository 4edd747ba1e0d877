package admin

import (
	"cmp"
	"net/http"
	"slices"
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
	LocalSegments  int    `json:"localSegments"`
	RemoteBytes    int64  `json:"remoteBytes"`
	RemoteSegments int    `json:"remoteSegments"`
	// OnlyRemote counts segments none of whose records is on this disk.
	OnlyRemote int `json:"onlyRemoteSegments"`
	// UnuploadedMs is the age of the oldest record that belongs into the store
	// and is not there: what would be lost with this disk.
	UnuploadedMs int64      `json:"unuploadedMs"`
	UploadError  string     `json:"uploadError,omitempty"`
	NextUpload   *time.Time `json:"nextUpload,omitempty"` // after an error
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
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	s.reply(w, http.StatusOK, status)
}

func partitionStatus(image *metadata.Image, p *replica.Partition) PartitionStatus {
	t := p.TierStatus()
	st := PartitionStatus{
		Topic: t.Topic, Partition: t.Partition, Tiered: p.Config().RemoteStorageEnable,
		LogStart: t.LogStart, LocalStart: t.LocalStart, End: t.EndOffset,
		LocalBytes: t.LocalBytes, LocalSegments: len(t.Local), RemoteBytes: t.RemoteBytes, RemoteSegments: t.RemoteSegments,
		UnuploadedMs: t.Unuploaded.Milliseconds(),
	}
	if t.RemoteEnd >= 0 {
		st.RemoteEnd = &t.RemoteEnd
	}
	if t.UploadError != nil {
		st.UploadError, st.NextUpload = t.UploadError.Error(), &t.NextUpload
	}
	for segment := range image.Segments(p.TopicID(), p.Index(), t.LogStart) {
		if segment.End > t.LocalStart {
			break
		}
		st.OnlyRemote++
	}
	return st
}
