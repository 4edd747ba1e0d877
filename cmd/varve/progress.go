package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// How often progress is told: to someone who watches, and to a log.
const (
	progressTerminal = 500 * time.Millisecond
	progressLog      = 10 * time.Second
)

// progress counts records and tells of them on stderr: on a terminal one line
// that changes, else a line now and then, and a summary at the end.
type progress struct {
	out      io.Writer
	verb     string
	started  time.Time
	interval time.Duration

	mu struct {
		sync.Mutex
		records, bytes int64
		told           time.Time
	}
}

func newProgress(out io.Writer, verb string) *progress {
	p := &progress{out: out, verb: verb, started: time.Now(), interval: progressLog}
	if isTerminal(out) {
		p.interval = progressTerminal
	}
	p.mu.told = p.started
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *progress) add(records, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.records += records
	p.mu.bytes += bytes
	if now := time.Now(); now.Sub(p.mu.told) >= p.interval {
		p.mu.told = now
		if p.interval == progressTerminal {
			fmt.Fprintf(p.out, "\r%s\033[K", p.text())
		} else {
			fmt.Fprintln(p.out, p.text())
		}
	}
}

func (p *progress) text() string {
	took := time.Since(p.started)
	rate := size(float64(p.mu.bytes) / max(took.Seconds(), 0.001))
	return fmt.Sprintf("%s %d records, %s in %.1f s (%s/s)", p.verb, p.mu.records, size(p.mu.bytes), took.Seconds(), rate)
}

func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interval == progressTerminal {
		fmt.Fprintf(p.out, "\r\033[K")
	}
	fmt.Fprintln(p.out, p.text())
}
