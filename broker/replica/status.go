package replica

import (
	"fmt"
	"time"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
)

// LogDir is what DescribeLogDirs tells of one log directory.
type LogDir struct {
	Path          string
	ID            wire.UUID
	Err           error // wraps a kerr.Error if the directory is offline
	Total, Usable int64 // bytes of the file system; -1 unknown
	Partitions    []DirPartition
}

// DirPartition is one replica in a log directory.
type DirPartition struct {
	Topic     string
	Partition int32
	Size      int64 // bytes on the local disk
	Lag       int64 // offsets behind the high watermark
}

// LogDirs describes the log directories and what lies in them.
func (m *Manager) LogDirs() []LogDir {
	dirs := make([]LogDir, len(m.disks))
	for i, d := range m.disks {
		dirs[i] = LogDir{Path: d.Path(), ID: d.ID(), Err: d.Err(), Total: -1, Usable: -1}
		if room, total, err := d.Room(); err == nil {
			dirs[i].Total, dirs[i].Usable = total, room
		}
	}
	for _, p := range m.list() {
		for i, d := range m.disks {
			if p.life.disk.Load() == d {
				dirs[i].Partitions = append(dirs[i].Partitions, DirPartition{Topic: p.topic, Partition: p.index, Size: p.Size(),
					Lag: max(0, p.HighWatermark()-p.EndOffset())})
			}
		}
	}
	return dirs
}

// TierStatus tells where the records of a partition are, and why they are not elsewhere.
type TierStatus struct {
	Topic     string
	Partition int32

	LogStart, LocalStart    int64
	RemoteEnd               int64 // -1: nothing was uploaded, or it is not known
	RemoteKnown             bool
	HighWatermark           int64
	LastStableOffset        int64
	EndOffset               int64
	LocalBytes, RemoteBytes int64
	RemoteSegments          int

	// Unuploaded is how old the oldest record is that belongs into the store and is not there: what would be lost with this
	// broker's disk. 0: all is there.
	Unuploaded time.Duration
	// UploadError is why the last upload failed, with the time of the next; nil if it did not.
	UploadError error
	NextUpload  time.Time

	Local []LocalSegment
}

// LocalSegment is one local segment, and why it is still there.
type LocalSegment struct {
	Base, End    int64
	Size         int64
	MaxTimestamp int64
	Sealed       bool
	Uploaded     bool
	Kept         string
}

// TierStatus describes the partition now.
func (p *Partition) TierStatus() TierStatus {
	now := time.Now()
	s := TierStatus{Topic: p.topic, Partition: p.index, RemoteEnd: -1, HighWatermark: p.HighWatermark(), LastStableOffset: p.LastStableOffset()}
	l, row := p.log.Load(), p.row()
	if l == nil || row == nil {
		return s
	}
	s.LogStart, s.LocalStart, s.EndOffset, s.LocalBytes = l.LogStart(), l.LocalStart(), l.EndOffset(), l.Size()
	s.RemoteKnown = row.RemoteEnd.Known()
	if end, any := row.RemoteEnd.Offset(); any {
		s.RemoteEnd = end
	}
	for r := range p.m.Image().Segments(p.id, p.index, s.LogStart) {
		s.RemoteBytes += r.Size
		s.RemoteSegments++
	}
	if since, waits := p.unuploaded(row); waits {
		s.Unuploaded = max(0, now.Sub(since))
	}
	p.mu.Lock()
	s.UploadError, s.NextUpload = p.tier.lastErr, p.tier.retryAt
	p.mu.Unlock()
	for _, seg := range l.Segments() {
		s.Local = append(s.Local, LocalSegment{Base: seg.Base, End: seg.End, Size: seg.Size, MaxTimestamp: seg.MaxTimestamp,
			Sealed: seg.Sealed, Uploaded: s.RemoteEnd >= seg.End})
	}
	p.explain(&s, row, now)
	return s
}

// explain fills in why each local segment is kept.
func (p *Partition) explain(s *TierStatus, row *metadata.Partition, now time.Time) {
	l, c := p.log.Load(), p.config.Load()
	to, _, _ := releasable(l.Segments(), s.RemoteEnd, c, now)
	for i, seg := range l.Segments() {
		if i >= len(s.Local) {
			return
		}
		k := &s.Local[i]
		switch {
		case !s.RemoteKnown:
			k.Kept = "the remote end is not known yet"
		case k.Uploaded && seg.End <= to, seg.End <= s.LogStart:
			k.Kept = "about to be deleted, or a reader still holds it"
		case k.Uploaded && seg.MaxTimestamp > now.UnixMilli():
			k.Kept = fmt.Sprintf("dated in the future (%s): %s", time.UnixMilli(seg.MaxTimestamp).UTC().Format(time.RFC3339), retentionText(c.LocalRetentionMs, c.LocalRetentionBytes))
		case k.Uploaded:
			k.Kept = "within " + retentionText(c.LocalRetentionMs, c.LocalRetentionBytes)
		default:
			k.Kept = p.hold(l, seg, now)
			if k.Kept == "" && s.UploadError != nil {
				k.Kept = "upload failed, next try " + s.NextUpload.UTC().Format(time.RFC3339) + ": " + s.UploadError.Error()
			} else if k.Kept == "" {
				k.Kept = "waits for its turn to be uploaded"
			}
		}
	}
}

func retentionText(ms, bytes int64) string {
	return fmt.Sprintf("local.retention.ms=%d, local.retention.bytes=%d", ms, bytes)
}
