package main

import (
	"context"
	"sync/atomic"
	"time"
)

// writeEvery is the time between an acknowledgement and the next write of a partition.
const writeEvery = 5 * time.Millisecond

// watch notes when writes were acknowledged.
type watch struct {
	fault atomic.Pointer[time.Time]
	acked []chan time.Time // of each partition, of the first write that began after fault
}

func newWatch(partitions int) *watch {
	w := &watch{acked: make([]chan time.Time, partitions)}
	for i := range w.acked {
		w.acked[i] = make(chan time.Time, 1)
	}
	return w
}

// after makes writes that begin from now on count for the fault that was just done, one in each
// partition; what was noted of the last fault and not taken is dropped.
func (w *watch) after(fault time.Time) {
	for _, c := range w.acked {
		select {
		case <-c:
		default:
		}
	}
	w.fault.Store(&fault)
}

// write writes to a partition until ctx ends.
func (w *watch) write(ctx context.Context, to writer, partition int) {
	var noted *time.Time
	for ctx.Err() == nil {
		began := time.Now()
		err := to.write(ctx)
		if fault := w.fault.Load(); err == nil && fault != noted && began.After(*fault) {
			noted = fault
			select {
			case w.acked[partition] <- time.Now():
			default: // the last fault's was not asked for
			}
		}
		pause(ctx, writeEvery)
	}
}
