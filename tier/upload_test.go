package tier

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
)

var (
	errDown   = &objstore.Error{Op: "test", Kind: objstore.ErrUnavailable}
	errDenied = &objstore.Error{Op: "test", Kind: objstore.ErrDenied}
)

func ifCommand[C metadata.Command](cmd metadata.Command, err error) error {
	if _, ok := cmd.(C); ok {
		return err
	}
	return nil
}

// damaged is a store's reader that spoils what arrives.
type damaged struct {
	io.ReaderAt
	flip int64
}

func (d damaged) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.ReaderAt.ReadAt(p, off)
	if i := d.flip - off; i >= 0 && i < int64(n) {
		p[i] ^= 1
	}
	return n, err
}

// TestUploadFaults breaks every step of an upload in every way. Whatever happens: no row without an object that holds
// exactly what was given, the object of a row is there, and a retry succeeds.
func TestUploadFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(r *rig)
		want  error // of the first attempt; nil: it succeeds
		rest  int   // objects that no row names afterwards, marker excluded
	}{
		{"reserve: not delivered", func(r *rig) {
			r.ctl.before = func(cmd metadata.Command) error { return ifCommand[*metadata.ReserveObject](cmd, errLost) }
		}, errLost, 0},
		{"reserve: answer lost", func(r *rig) {
			r.ctl.after = func(cmd metadata.Command) error { return ifCommand[*metadata.ReserveObject](cmd, errLost) }
		}, errLost, 0},
		{"put: denied", func(r *rig) { r.store.onPut = r.putFails(errDenied, false) }, ErrStoreUnavailable, 0},
		{"put: fails, nothing there", func(r *rig) { r.store.onPut = r.putFails(errDown, false) }, ErrStoreUnavailable, 0},
		{"put: answer lost", func(r *rig) { r.store.onPut = r.putFails(errDown, true) }, nil, 0},
		{"put: exists, from a lost try", func(r *rig) {
			r.store.onPut = r.putFails(&objstore.Error{Op: "put", Kind: objstore.ErrExist}, true)
		}, nil, 0},
		{"put: truncated object", func(r *rig) { r.store.onPut = r.putCut }, ErrCorrupt, 1},
		{"put: flipped byte, store notices", func(r *rig) { r.store.onPut = r.putFlips(true) }, ErrStoreUnavailable, 0},
		{"put: flipped byte, store keeps another checksum", func(r *rig) { r.store.onPut = r.putFlips(false) }, ErrCorrupt, 1},
		{"put: flipped byte, store keeps no checksum", func(r *rig) {
			r.store.onPut = r.putFlips(false)
			r.store.onHead = r.headWithoutChecksum
		}, ErrCorrupt, 1},
		{"put: claims success, nothing there", func(r *rig) { r.store.onPut = r.putFails(nil, false) }, ErrObjectMissing, 0},
		{"check: head fails", func(r *rig) {
			r.store.onHead = func(string) (objstore.Info, error) { return objstore.Info{}, errDown }
		}, ErrStoreUnavailable, 1},
		{"check: tail reads back wrong", func(r *rig) { r.store.onGet = r.getFlips }, ErrCorrupt, 1},
		{"check: get fails", func(r *rig) {
			r.store.onGet = func(context.Context, string, int64, []byte) (int, error) { return 0, errDown }
		}, ErrStoreUnavailable, 1},
		{"commit: not delivered", func(r *rig) {
			r.ctl.before = func(cmd metadata.Command) error { return ifCommand[*metadata.CommitSegment](cmd, errLost) }
		}, ErrUnknownOutcome, 1},
		{"commit: answer lost", func(r *rig) {
			r.ctl.after = func(cmd metadata.Command) error { return ifCommand[*metadata.CommitSegment](cmd, errLost) }
		}, nil, 0},
		{"commit: refused", func(r *rig) {
			r.ctl.before = func(cmd metadata.Command) error {
				if commit, ok := cmd.(*metadata.CommitSegment); ok {
					r.ctl.apply(&metadata.ReleaseReservation{Object: commit.Segment.Object}) // it took too long
				}
				return nil
			}
		}, kerr.ResourceNotFound, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				w := &wrote{id: r.ctl.topic(t, "orders", 1)}
				run := r.run(w, 0, 300<<10, 3, 1000)
				r.ctl.mu.Lock()
				r.store.set(func(*hookStore) { c.fault(r) })
				r.ctl.mu.Unlock()
				_, _, err := r.Upload(context.Background(), run)
				if !errors.Is(err, c.want) {
					t.Fatalf("first attempt: %v, want %v", err, c.want)
				}
				r.store.set(func(s *hookStore) { s.onGet, s.onPut, s.onHead = nil, nil, nil })
				r.ctl.mu.Lock()
				r.ctl.before, r.ctl.after = nil, nil
				r.ctl.mu.Unlock()
				r.sound(w.id, run, err == nil)
				if err != nil {
					if s, index, err := r.Upload(context.Background(), run); err != nil || index > r.ctl.image().Index() || s.End != run.End {
						t.Fatalf("retry: %v", err)
					}
				}
				r.sound(w.id, run, true)
				if n := len(names(t, r.store)) - 1; n != c.rest {
					t.Errorf("%d objects beside that of the row, want %d", n, c.rest)
				}
				w.add(t, run)
				same(t, r.readAll(w, 0, 1<<20), w.data)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// sound checks the row, and the object behind it byte by byte.
func (r *rig) sound(id wire.UUID, run Run, committed bool) {
	r.t.Helper()
	s, ok := r.ctl.image().SegmentAt(id, 0, run.Base)
	if ok != committed {
		r.t.Fatalf("row is there: %v, want %v", ok, committed)
	}
	if !ok {
		return
	}
	all := make([]byte, s.Size)
	if _, err := r.store.Store.Get(context.Background(), r.name(s), 0, all); err != nil {
		r.t.Fatalf("row without its object: %v", err)
	}
	x, err := decodeIndex(tail{p: all})
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, all[:x.DataSize], dataOf(r.t, run))
}

// putFails answers err, after storing the object if it arrives.
func (r *rig) putFails(err error, arrives bool) putHook {
	return func(ctx context.Context, name string, rd io.ReaderAt, size int64, opts objstore.PutOptions) error {
		if arrives {
			if err := r.store.Store.Put(ctx, name, rd, size, opts); err != nil {
				return err
			}
		}
		return err
	}
}

func (r *rig) putCut(ctx context.Context, name string, rd io.ReaderAt, size int64, _ objstore.PutOptions) error {
	return r.store.Store.Put(ctx, name, rd, size-1, objstore.PutOptions{})
}

func (r *rig) putFlips(noticed bool) putHook {
	return func(ctx context.Context, name string, rd io.ReaderAt, size int64, opts objstore.PutOptions) error {
		if !noticed {
			opts.CRC32C = nil
		}
		return r.store.Store.Put(ctx, name, damaged{rd, size / 2}, size, opts)
	}
}

func (r *rig) headWithoutChecksum(name string) (objstore.Info, error) {
	info, err := r.store.Store.Head(context.Background(), name)
	info.CRC32C = nil
	return info, err
}

func (r *rig) getFlips(ctx context.Context, name string, off int64, p []byte) (int, error) {
	n, err := r.store.Store.Get(ctx, name, off, p)
	p[len(p)/2] ^= 1
	return n, err
}
