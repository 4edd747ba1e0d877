package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// keepRecords is what is left of the trimmed partition each time.
const keepRecords = 100

// trimmer moves the log start of one partition by DeleteRecords.
type trimmer struct {
	client *kgo.Client
	at     partition

	asked, acked int64 // the last start that was asked for, and the last that was answered
}

// trim deletes all but the last records, after a while. Its answer may be lost with the power.
func (t *trimmer) trim(ctx context.Context, after time.Duration) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(after):
	}
	logs, err := spans(ctx, t.client, []partition{t.at})
	if err != nil || logs[t.at].end-keepRecords <= t.asked {
		return
	}
	t.asked = logs[t.at].end - keepRecords
	var to kadm.Offsets
	to.AddOffset(t.at.topic, t.at.id, t.asked, -1)
	answers, err := kadm.NewClient(t.client).DeleteRecords(ctx, to)
	if err != nil {
		return
	}
	if a, ok := answers.Lookup(t.at.topic, t.at.id); ok && a.Err == nil {
		t.acked = t.asked
	}
}

// verify says whether a log start is one that may be.
func (t *trimmer) verify(start int64) error {
	if start < t.acked || start > t.asked {
		return fmt.Errorf("%s begins at %d; DeleteRecords was answered for %d and asked for %d", t.at.key(), start, t.acked, t.asked)
	}
	t.acked = start
	return nil
}
