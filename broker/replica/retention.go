package replica

import (
	"fmt"
	"iter"
	"time"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire/config"
)

// extent is a stretch of the log, counted once whichever tiers hold it (KAFKA-20732).
type extent struct {
	base, end int64
	size      int64
	newest    time.Time // of its records
	remote    bool
	sealed    bool
}

// extents lays both tiers out: the remote segments from the log start on, then of the local ones what lies beyond the remote
// end. Only committed rows count (KAFKA-17062).
func extents(rows iter.Seq[*metadata.Segment], local []log.SegmentInfo, logStart int64) []extent {
	var list []extent
	reached := logStart
	for s := range rows {
		if s.End <= reached {
			continue
		}
		list = append(list, extent{base: s.Base, end: s.End, size: s.Size, newest: timeOf(s.MaxTimestamp, time.Time{}), remote: true, sealed: true})
		reached = s.End
	}
	for _, s := range local {
		if s.End <= reached {
			continue
		}
		e := extent{base: s.Base, end: s.End, size: s.Size, newest: timeOf(s.MaxTimestamp, s.FirstAppend), sealed: s.Sealed}
		if s.Base < reached { // the part that is in the store was counted there
			e.size = int64(float64(s.Size) * float64(s.End-reached) / float64(s.End-s.Base))
			e.base = reached
		}
		list = append(list, e)
	}
	return list
}

// timeOf is a timestamp as a time; records without one are as old as their append.
func timeOf(ms int64, otherwise time.Time) time.Time {
	if ms < 0 {
		return otherwise
	}
	return time.UnixMilli(ms)
}

// older compares in milliseconds: a limit may be the largest int64, and as nanoseconds would overflow.
func older(age time.Duration, ms int64) bool { return ms >= 0 && age.Milliseconds() > ms }

// expired is where total retention puts the log start, at most at bound, and why; start if nothing is to go. seal tells that the active
// segment is past its time as well and keeps what it must not.
func expired(list []extent, start, bound int64, c *config.Topic, now time.Time) (to int64, why string, seal bool) {
	to = start
	var total int64
	for _, e := range list {
		total += e.size
	}
	for _, e := range list {
		age := now.Sub(e.newest)
		byTime := older(age, c.RetentionMs)
		bySize := c.RetentionBytes >= 0 && total-e.size >= c.RetentionBytes
		switch {
		case !byTime && !bySize:
			return to, why, false
		case !e.sealed:
			// Like Kafka: age seals an active segment, so that an idle topic drains (KAFKA-15272); size does not.
			return to, why, byTime && e.size > 0
		case e.end > bound:
			return to, why, false
		case byTime:
			why = fmt.Sprintf("retention.ms=%d", c.RetentionMs)
		default:
			why = fmt.Sprintf("retention.bytes=%d", c.RetentionBytes)
		}
		to, total = e.end, total-e.size
	}
	return to, why, false
}

// releasable is up to where local segments may go by local.retention.*, none of which reaches beyond the remote end.
func releasable(local []log.SegmentInfo, remoteEnd int64, c *config.Topic, now time.Time) (to int64, why string, seal bool) {
	var total int64
	for _, s := range local {
		total += s.Size
	}
	for _, s := range local {
		age := now.Sub(timeOf(s.MaxTimestamp, s.FirstAppend))
		byTime := older(age, c.LocalRetentionMs)
		bySize := c.LocalRetentionBytes >= 0 && total-s.Size >= c.LocalRetentionBytes
		switch {
		case !byTime && !bySize:
			return to, why, seal
		case !s.Sealed:
			return to, why, byTime && s.Size > 0
		case s.End > remoteEnd:
			return to, why, seal
		case byTime:
			why = fmt.Sprintf("local.retention.ms=%d", c.LocalRetentionMs)
		default:
			why = fmt.Sprintf("local.retention.bytes=%d", c.LocalRetentionBytes)
		}
		to, total = s.End, total-s.Size
	}
	return to, why, seal
}
