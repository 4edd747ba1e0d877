package config

import (
	"slices"
	"strconv"
	"strings"
)

// Durability is what an acknowledgement of a topic promises.
const (
	Replicated = "replicated"
	Fsync      = "fsync"
	// auto is the broker's default: decided by the replication factor when the
	// topic is created.
	auto = "auto"
)

// replicatedFrom is the replication factor from which "auto" means
// "replicated".
const replicatedFrom = 3

// Unlimited is what retention, in bytes or milliseconds, says when there is
// no limit.
const Unlimited = -1

// Topic is what a topic runs with. Times are in milliseconds, sizes in bytes.
type Topic struct {
	SegmentBytes       int64
	SegmentMs          int64
	SegmentJitterMs    int64
	SegmentIndexBytes  int
	IndexIntervalBytes int

	CleanupDelete  bool // neither: nothing is ever deleted for its age or size
	CleanupCompact bool

	RetentionMs         int64 // -1: unlimited
	RetentionBytes      int64
	LocalRetentionMs    int64 // -2 resolved to RetentionMs
	LocalRetentionBytes int64

	MaxMessageBytes      int
	MinInsyncReplicas    int
	CompressionType      string // "producer", "uncompressed" or a codec
	LogAppendTime        bool
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64

	RemoteStorageEnable   bool
	RemoteCopyDisable     bool
	RemoteDeleteOnDisable bool
	RemoteCopyLagMs       int64 // -1: local retention
	RemoteCopyLagBytes    int64

	Durability string // Replicated or Fsync

	UncleanElection bool // a replica that lacks records may lead if there is no other
}

// ForTopic returns the typed values of a topic. A compacted topic is never
// tiered, whatever the broker's default. A topic without varve.durability gets
// that of a single replica: creation stores what it decided (DurabilityFor).
func ForTopic(layers Layers) (Topic, error) {
	r := newReader(TopicScope, layers)
	cleanup := r.list("cleanup.policy")
	t := Topic{
		SegmentBytes:          r.long("segment.bytes"),
		SegmentMs:             r.long("segment.ms"),
		SegmentJitterMs:       r.long("segment.jitter.ms"),
		SegmentIndexBytes:     r.int("segment.index.bytes"),
		IndexIntervalBytes:    r.int("index.interval.bytes"),
		CleanupDelete:         slices.Contains(cleanup, "delete"),
		CleanupCompact:        slices.Contains(cleanup, "compact"),
		RetentionMs:           r.long("retention.ms"),
		RetentionBytes:        r.long("retention.bytes"),
		LocalRetentionMs:      r.long("local.retention.ms"),
		LocalRetentionBytes:   r.long("local.retention.bytes"),
		MaxMessageBytes:       r.int("max.message.bytes"),
		MinInsyncReplicas:     r.int("min.insync.replicas"),
		CompressionType:       r.str("compression.type"),
		LogAppendTime:         r.str("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMaxMs:  r.long("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:   r.long("message.timestamp.after.max.ms"),
		RemoteStorageEnable:   r.bool("remote.storage.enable"),
		RemoteCopyDisable:     r.bool("remote.log.copy.disable"),
		RemoteDeleteOnDisable: r.bool("remote.log.delete.on.disable"),
		RemoteCopyLagMs:       r.long("remote.copy.lag.ms"),
		RemoteCopyLagBytes:    r.long("remote.copy.lag.bytes"),
		Durability:            r.str("varve.durability"),
		UncleanElection:       r.bool("unclean.leader.election.enable"),
	}
	if n := r.long("internal.segment.bytes"); n > 0 {
		t.SegmentBytes = n
	}
	if t.CleanupCompact {
		t.RemoteStorageEnable = false
	}
	if t.Durability == "" {
		t.Durability = DurabilityFor(layers, 1)
	}
	t.LocalRetentionMs = localOr(t.LocalRetentionMs, t.RetentionMs)
	t.LocalRetentionBytes = localOr(t.LocalRetentionBytes, t.RetentionBytes)
	return t, r.err
}

// sameAsTotal is the value of local.retention.* that means retention.*.
const sameAsTotal = -2

func localOr(local, total int64) int64 {
	if local == sameAsTotal {
		return total
	}
	return local
}

// DurabilityFor decides what creation stores as varve.durability of a topic
// that does not set it: the broker's varve.log.durability, "auto" being
// decided by the number of replicas.
func DurabilityFor(layers Layers, replicas int) string {
	r := newReader(BrokerScope, layers)
	switch durability := r.str("varve.log.durability"); {
	case durability != auto && durability != "":
		return durability
	case replicas >= replicatedFrom:
		return Replicated
	}
	return Fsync
}

// MinInSyncFor decides what creation stores as min.insync.replicas of a topic
// that does not set it: the broker's value, or where that is not set, 2 of three
// and more replicas, else 1.
func MinInSyncFor(layers Layers, replicas int) int32 {
	p, ok := Lookup(BrokerScope, "min.insync.replicas")
	if value, source, set := layers.effective(p); ok && set && source != Default {
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 32); err == nil && n > 0 {
			return int32(n)
		}
	}
	if replicas >= replicatedFrom {
		return 2
	}
	return 1
}
