// Package mem keeps objects in memory: for tests, and the reference that the other
// providers are compared with.
package mem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/objstore"
)

// Store is an objstore.Store without a bucket. The zero value is not ready; use New.
type Store struct {
	mu      sync.RWMutex
	objects map[string]object
	puts    uint64 // numbers the ETags
}

type object struct {
	data []byte // never changed once stored
	info objstore.Info
}

// New returns an empty store.
func New() *Store { return &Store{objects: make(map[string]object)} }

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	if err := check(ctx, "put", name); err != nil {
		return err
	}
	if size < 0 {
		return &objstore.Error{Op: "put", Name: name, Err: fmt.Errorf("negative size %d", size)}
	}
	data := make([]byte, size)
	if n, err := io.ReadFull(io.NewSectionReader(r, 0, size), data); err != nil && size > 0 {
		return &objstore.Error{Op: "put", Name: name, Err: fmt.Errorf("read %d of %d bytes: %w", n, size, err)}
	}
	crc := objstore.CRC32C(0, data)
	if opts.CRC32C != nil && *opts.CRC32C != crc {
		return &objstore.Error{Op: "put", Name: name, Kind: objstore.ErrChecksum}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[name]; ok && opts.IfAbsent {
		return &objstore.Error{Op: "put", Name: name, Kind: objstore.ErrExist}
	}
	s.puts++
	s.objects[name] = object{data: data, info: objstore.Info{
		Name: name, Size: size, CRC32C: &crc, ETag: strconv.FormatUint(s.puts, 16), Modified: time.Now(),
	}}
	return nil
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, name string, off int64, p []byte) (int, error) {
	o, err := s.find(ctx, "get", name)
	if err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &objstore.Error{Op: "get", Name: name, Err: fmt.Errorf("negative offset %d", off)}
	}
	n := copy(p, o.data[min(off, int64(len(o.data))):])
	if n < len(p) {
		return n, &objstore.Error{Op: "get", Name: name, Err: io.ErrUnexpectedEOF}
	}
	return n, nil
}

// Head implements objstore.Store.
func (s *Store) Head(ctx context.Context, name string) (objstore.Info, error) {
	o, err := s.find(ctx, "head", name)
	return o.info, err
}

// List implements objstore.Store. It calls fn on a copy of the listing, so fn may write.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	s.mu.RLock()
	var found []objstore.Info
	for name, o := range s.objects {
		if strings.HasPrefix(name, prefix) && name > after {
			found = append(found, o.info)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(found, func(a, b objstore.Info) int { return cmp.Compare(a.Name, b.Name) })
	for _, info := range found {
		if ctx.Err() != nil {
			return &objstore.Error{Op: "list", Name: prefix, Err: context.Cause(ctx)}
		}
		if err := fn(info); err != nil {
			if errors.Is(err, fs.SkipAll) {
				return nil
			}
			return err
		}
	}
	return nil
}

// Delete implements objstore.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := check(ctx, "delete", name); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.objects, name)
	s.mu.Unlock()
	return nil
}

// DeleteMany implements objstore.Store.
func (s *Store) DeleteMany(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, s.Delete(ctx, name))
	}
	return errors.Join(errs...)
}

// Capabilities implements objstore.Store.
func (s *Store) Capabilities() objstore.Capabilities {
	return objstore.Capabilities{IfAbsent: true, Checksum: true}
}

// Close implements objstore.Store; the objects stay.
func (s *Store) Close() error { return nil }

func (s *Store) find(ctx context.Context, op, name string) (object, error) {
	if err := check(ctx, op, name); err != nil {
		return object{}, err
	}
	s.mu.RLock()
	o, ok := s.objects[name]
	s.mu.RUnlock()
	if !ok {
		return object{}, &objstore.Error{Op: op, Name: name, Kind: objstore.ErrNotExist}
	}
	return o, nil
}

func check(ctx context.Context, op, name string) error {
	if ctx.Err() != nil {
		return &objstore.Error{Op: op, Name: name, Err: context.Cause(ctx)}
	}
	if err := objstore.CheckName(name); err != nil {
		return &objstore.Error{Op: op, Err: err}
	}
	return nil
}
