package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/varve-io/varve/wire"
)

// Bounds of the feed; who is further behind gets a snapshot.
const (
	maxFeedEntries = 8192
	maxFeedBytes   = 16 << 20
	maxAnswerBytes = 1 << 20 // of records in one answer, unless a single entry has more
	maxFeedWait    = 30 * time.Second
)

// feed is what brokers follow: the last applied entries, chained by their
// indexes, and who waits for the next one. Waiting costs an object and a
// timer, no goroutine.
type feed struct {
	mu      sync.Mutex
	entries []wire.MetadataEntry // ascending; each PrevIndex is the Index before
	bytes   int
	index   uint64 // last one applied
	term    uint64
	waiting map[*waiter]struct{}
	closed  bool
}

// waiter is one parked request. Whoever takes it out of feed.waiting answers it.
type waiter struct {
	answer func()
	timer  *time.Timer
	stop   func() bool
}

// append adds an applied entry and wakes all who wait.
func (f *feed) append(index, term uint64, records []byte) {
	f.mu.Lock()
	f.entries = append(f.entries, wire.MetadataEntry{PrevIndex: f.index, Index: index, Term: term, Records: records})
	f.bytes += len(records)
	f.index, f.term = index, term
	drop := 0
	for len(f.entries)-drop > maxFeedEntries || f.bytes > maxFeedBytes && len(f.entries)-drop > 1 {
		f.bytes -= len(f.entries[drop].Records)
		drop++
	}
	clear(f.entries[:drop])
	f.entries = f.entries[drop:]
	woken := f.takeAll()
	f.mu.Unlock()
	answerAll(woken)
}

// reset begins anew after the state was restored at index.
func (f *feed) reset(index, term uint64) {
	f.mu.Lock()
	f.entries, f.bytes, f.index, f.term = nil, 0, index, term
	woken := f.takeAll()
	f.mu.Unlock()
	answerAll(woken)
}

// wake answers all who wait: what answers say besides entries has changed.
func (f *feed) wake() {
	f.mu.Lock()
	woken := f.takeAll()
	f.mu.Unlock()
	answerAll(woken)
}

// close answers all who wait and lets nobody wait any more.
func (f *feed) close() {
	f.mu.Lock()
	f.closed = true
	woken := f.takeAll()
	f.mu.Unlock()
	answerAll(woken)
}

func (f *feed) takeAll() map[*waiter]struct{} {
	woken := f.waiting
	f.waiting = nil
	return woken
}

func answerAll(woken map[*waiter]struct{}) {
	for w := range woken {
		w.timer.Stop()
		w.stop()
		w.answer()
	}
}

// position is how a follower at some index stands to the feed.
type position int

const (
	follows  position = iota // there are entries for it
	upToDate                 // nothing newer; it may be ahead of a node that is catching up
	lost                     // it cannot continue from here: it needs a snapshot
)

// after returns the entries that follow index, as many as fit an answer. An
// index whose term is another is not ours.
func (f *feed) after(index, term uint64) ([]wire.MetadataEntry, position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.afterLocked(index, term)
}

func (f *feed) afterLocked(index, term uint64) ([]wire.MetadataEntry, position) {
	if index > f.index || index == f.index && term == f.term {
		return nil, upToDate
	}
	first := -1
	for i := len(f.entries) - 1; i >= 0; i-- { // followers are near the end
		if f.entries[i].PrevIndex <= index {
			first = i
			break
		}
	}
	if first < 0 || f.entries[first].PrevIndex != index {
		return nil, lost
	}
	if first > 0 && f.entries[first-1].Term != term || index == 0 && term != 0 {
		return nil, lost
	}
	last, bytes := first, 0
	for ; last < len(f.entries); last++ {
		if bytes += len(f.entries[last].Records); bytes > maxAnswerBytes && last > first {
			break
		}
	}
	return slices.Clone(f.entries[first:last]), follows
}

// wait parks answer until something follows index, maxWait has passed, or
// done, which registers a function to call at the end of the connection, calls
// it. It reports false if there is no reason to wait.
func (f *feed) wait(index, term uint64, maxWait time.Duration, done func(func()) (stop func() bool), answer func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, p := f.afterLocked(index, term); p != upToDate || maxWait <= 0 || f.closed {
		return false
	}
	w := &waiter{answer: answer}
	wake := func() {
		f.mu.Lock()
		_, mine := f.waiting[w]
		delete(f.waiting, w)
		f.mu.Unlock()
		if mine {
			answerAll(map[*waiter]struct{}{w: {}})
		}
	}
	w.timer = time.AfterFunc(min(maxWait, maxFeedWait), wake)
	w.stop = done(wake)
	if f.waiting == nil {
		f.waiting = map[*waiter]struct{}{}
	}
	f.waiting[w] = struct{}{}
	return true
}
