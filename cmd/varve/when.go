package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// when is a place in a log as a user writes it.
type when struct {
	text   string
	kind   whenKind
	offset int64 // of whenOffset
	millis int64 // of whenTime
}

type whenKind int

const (
	whenStart whenKind = iota
	whenEnd
	whenOffset
	whenTime
)

const whenHelp = "an offset (42), start, end, now, a duration ago (-2h, -3d, -1w), a time (2026-11-03T14:00:00Z, 2026-11-03 14:00, 2026-11-03) or @Unix-milliseconds"

// parseWhen reads an offset or a time. A time without a zone is local.
func parseWhen(text string, now time.Time) (when, error) {
	w := when{text: text}
	switch text {
	case "start", "earliest", "beginning":
		w.kind = whenStart
		return w, nil
	case "end", "latest":
		w.kind = whenEnd
		return w, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		w.kind, w.offset = whenOffset, n
		return w, nil
	}
	t, err := parseTime(text, now)
	if err != nil {
		return w, err
	}
	w.kind, w.millis = whenTime, t.UnixMilli()
	return w, nil
}

// parseTime reads everything of parseWhen but offsets and ends.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	if millis, ok := strings.CutPrefix(text, "@"); ok {
		if n, err := strconv.ParseInt(millis, 10, 64); err == nil && n >= 0 {
			return time.UnixMilli(n), nil
		}
	}
	if ago, ok := strings.CutPrefix(text, "-"); ok {
		if d, err := parseAgo(ago); err == nil {
			return now.Add(-d), nil
		}
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is none of: %s", text, whenHelp)
}

// parseAgo is time.ParseDuration with days and weeks.
func parseAgo(text string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			n, err := strconv.ParseFloat(number, 64)
			if err != nil || n < 0 || n > 1e5 {
				return 0, fmt.Errorf("duration %q", text)
			}
			return time.Duration(n * float64(unit)), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("duration %q", text)
	}
	return d, err
}

// resolve asks the brokers which offsets of a topic the place means. Where a
// time is later than every record it is the end; committed says that the end
// is that of what a reader of committed records gets.
func (w when) resolve(ctx context.Context, adm *kadm.Client, topic string, committed bool) (kadm.ListedOffsets, error) {
	switch {
	case w.kind == whenStart:
		return adm.ListStartOffsets(ctx, topic)
	case w.kind == whenTime:
		return adm.ListOffsetsAfterMilli(ctx, w.millis, topic)
	case w.kind == whenEnd && committed:
		return adm.ListCommittedOffsets(ctx, topic)
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if w.kind == whenOffset {
		ends.Each(func(o kadm.ListedOffset) {
			o.Offset = w.offset
			ends[o.Topic][o.Partition] = o
		})
	}
	return ends, err
}
