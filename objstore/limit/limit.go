// Package limit bounds what a Store is asked to do at a time and how many bytes a second go
// through it, reads and writes apart: replaying history must not keep segments from being
// uploaded, nor the other way round.
package limit

import (
	"context"
	"io"

	"github.com/varve-io/varve/objstore"
)

// Options of the wrapper. Zero means without a limit.
type Options struct {
	Reads, Writes       int   // Gets, and Puts, under way at a time
	ReadRate, WriteRate int64 // bytes per second of each
}

// Store is an objstore.Store whose Get and Put wait for their turn. Calls without bodies pass.
type Store struct {
	objstore.Store
	reads, writes         slots
	readBytes, writeBytes *bucket
}

// New wraps store.
func New(store objstore.Store, opts Options) *Store {
	return &Store{
		Store: store, reads: newSlots(opts.Reads), writes: newSlots(opts.Writes),
		readBytes: newBucket(opts.ReadRate), writeBytes: newBucket(opts.WriteRate),
	}
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	release, err := admit(ctx, s.writes, s.writeBytes, size)
	if err != nil {
		return &objstore.Error{Op: "put", Name: name, Err: err}
	}
	defer release()
	return s.Store.Put(ctx, name, r, size, opts)
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, name string, off int64, p []byte) (int, error) {
	release, err := admit(ctx, s.reads, s.readBytes, int64(len(p)))
	if err != nil {
		return 0, &objstore.Error{Op: "get", Name: name, Err: err}
	}
	defer release()
	return s.Store.Get(ctx, name, off, p)
}

// admit waits for a slot and then for the bytes, and returns what frees the slot.
func admit(ctx context.Context, s slots, b *bucket, size int64) (release func(), err error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	if err := b.wait(ctx, size); err != nil {
		s.release()
		return nil, err
	}
	return s.release, nil
}

// slots is a semaphore; nil admits everyone.
type slots chan struct{}

func newSlots(n int) slots {
	if n <= 0 {
		return nil
	}
	return make(slots, n)
}

func (s slots) acquire(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) release() {
	if s != nil {
		<-s
	}
}
