package wire

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// coldPool pages in file slices that are about to be sent but are not in the
// page cache.
//
// A goroutine that came from the network poller and blocks in sendfile takes
// its thread along, and nobody polls until the runtime notices 10 ms later: one
// cold reader makes everyone's tail latency its own. So the blocking read is a
// worker's, the number of workers is bounded, and the sender waits parked.
type coldPool struct {
	workers int
	jobs    chan coldJob
}

type coldJob struct {
	r    *FileRange
	done chan error // capacity 1
}

// readAhead is how far beyond a cold slice the kernel is told to read.
const readAhead = 4 << 20

func newColdPool(workers int) *coldPool {
	return &coldPool{workers: workers, jobs: make(chan coldJob)}
}

func (p *coldPool) start(ctx context.Context, wg *sync.WaitGroup) {
	for range p.workers {
		wg.Go(func() { p.work(ctx) })
	}
}

// pageIn returns when the range is in the page cache.
func (p *coldPool) pageIn(ctx context.Context, r *FileRange) error {
	job := coldJob{r, make(chan error, 1)}
	select {
	case p.jobs <- job:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Not given up when ctx ends: the worker holds the range until it is done.
	return <-job.done
}

func (p *coldPool) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-p.jobs:
			job.done <- page(job.r)
		}
	}
}

// page reads a range to nowhere.
func page(r *FileRange) error {
	willNeed(r.FD, r.Off, r.Size+readAhead)
	b := pool.get(coldReadBuffer)
	defer pool.put(b)
	for off, left := r.Off, r.Size; left > 0; {
		n, err := r.ReaderAt.ReadAt(b.b[:min(left, int64(len(b.b)))], off)
		if n == 0 {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("%w: %w", errCut, err)
		}
		off += int64(n)
		left -= int64(n)
	}
	return nil
}
