// Package file keeps objects as files below one directory: for a single node without a
// bucket, and for `varve dev`. The file system must know hard links.
//
// An object is complete or absent, also after a power cut: it is written to a temporary file,
// synced, and renamed (or linked, where it must not exist yet) to its name, whose directory is
// synced after. Because names are paths, no object's name may be another's folder.
//
//	ROOT/<name>              an object; slashes of the name are folders
//	ROOT/.varve-tmp/<hex>    an object being written; left over after a crash, removed a day later
package file

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/varve-io/varve/objstore"
)

const (
	tmpDir      = ".varve-tmp"
	tmpLeftover = 24 * time.Hour // a temporary file that old belongs to nobody any more
	copyBuffer  = 256 << 10      // bytes
	dirRetries  = 8              // how often a folder may vanish under a Put before that fails
)

// Store is an objstore.Store in a directory. It never leaves that directory, symbolic links
// included.
type Store struct {
	root *os.Root
}

// New opens the store in dir, which is created if absent, and clears what a crash left behind.
func New(dir string) (*Store, error) {
	if err := os.MkdirAll(path.Join(dir, tmpDir), 0o755); err != nil {
		return nil, fmt.Errorf("open file store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open file store: %w", err)
	}
	s := &Store{root: root}
	if err := s.clearLeftovers(time.Now()); err != nil {
		root.Close()
		return nil, fmt.Errorf("open file store %s: %w", dir, err)
	}
	return s, nil
}

func (s *Store) clearLeftovers(now time.Time) error {
	entries, err := fs.ReadDir(s.root.FS(), tmpDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && now.Sub(info.ModTime()) > tmpLeftover {
			err = s.root.Remove(path.Join(tmpDir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Put implements objstore.Store.
func (s *Store) Put(ctx context.Context, name string, r io.ReaderAt, size int64, opts objstore.PutOptions) error {
	if err := check(ctx, "put", name); err != nil {
		return err
	}
	tmp := path.Join(tmpDir, randomName())
	err := s.writeTemp(ctx, tmp, r, size, opts.CRC32C)
	if err == nil {
		err = s.publish(tmp, name, opts.IfAbsent)
	}
	if err != nil {
		s.root.Remove(tmp) // best effort: clearLeftovers finds it otherwise
		return wrap("put", name, err)
	}
	return nil
}

// writeTemp leaves size bytes of r, synced and checked, in the file tmp.
func (s *Store) writeTemp(ctx context.Context, tmp string, r io.ReaderAt, size int64, want *uint32) (err error) {
	if size < 0 {
		return fmt.Errorf("negative size %d", size)
	}
	f, err := s.root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	crc, buf := uint32(0), make([]byte, min(size, copyBuffer))
	for off := int64(0); off < size; off += int64(len(buf)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		buf = buf[:min(size-off, int64(len(buf)))]
		if n, err := r.ReadAt(buf, off); n < len(buf) {
			return fmt.Errorf("read %d of %d bytes: %w", off+int64(n), size, err)
		}
		crc = objstore.CRC32C(crc, buf)
		if _, err := f.Write(buf); err != nil {
			return err
		}
	}
	if want != nil && *want != crc {
		return objstore.ErrChecksum
	}
	return f.Sync()
}

// publish gives the file tmp its name. A Delete may remove the folder as empty in
// between, so that the folder is made again.
func (s *Store) publish(tmp, name string, ifAbsent bool) error {
	var err error
	for range dirRetries {
		if err = s.makeDirs(path.Dir(name)); err != nil {
			return err
		}
		if ifAbsent {
			if err = s.root.Link(tmp, name); err == nil {
				err = s.root.Remove(tmp)
			}
		} else {
			err = s.root.Rename(tmp, name)
		}
		if err == nil {
			err = s.syncDir(path.Dir(name))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// makeDirs makes dir and its parents, and syncs the parent of each one made: otherwise a
// power cut could take the folder together with the synced object in it.
func (s *Store) makeDirs(dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := s.root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := s.makeDirs(path.Dir(dir)); err != nil {
		return err
	}
	if err := s.root.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return s.syncDir(path.Dir(dir))
}

func (s *Store) syncDir(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get implements objstore.Store.
func (s *Store) Get(ctx context.Context, name string, off int64, p []byte) (int, error) {
	if err := check(ctx, "get", name); err != nil {
		return 0, err
	}
	f, _, err := s.open(name)
	if err != nil {
		return 0, wrap("get", name, err)
	}
	defer f.Close()
	n, err := io.ReadFull(io.NewSectionReader(f, off, int64(len(p))), p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, wrap("get", name, err)
}

// Head implements objstore.Store. A file has no stored checksum.
func (s *Store) Head(ctx context.Context, name string) (objstore.Info, error) {
	if err := check(ctx, "head", name); err != nil {
		return objstore.Info{}, err
	}
	f, info, err := s.open(name)
	if err != nil {
		return objstore.Info{}, wrap("head", name, err)
	}
	return describe(name, info), wrap("head", name, f.Close())
}

// open opens a regular file; anything else is no object.
func (s *Store) open(name string) (*os.File, fs.FileInfo, error) {
	f, err := s.root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func describe(name string, info fs.FileInfo) objstore.Info {
	return objstore.Info{Name: name, Size: info.Size(), Modified: info.ModTime()}
}

// Delete implements objstore.Store. It also removes the folders that become empty. It does not
// sync: an object that a power cut brings back is an orphan, which is what orphan collection is for.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := check(ctx, "delete", name); err != nil {
		return err
	}
	info, err := s.root.Stat(name)
	if err == nil && info.IsDir() {
		return nil // a folder is no object
	}
	if err == nil {
		err = s.root.Remove(name)
	}
	if err != nil && !absent(err) {
		return wrap("delete", name, err)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if s.root.Remove(dir) != nil { // not empty, or gone already
			break
		}
	}
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
func (s *Store) Capabilities() objstore.Capabilities { return objstore.Capabilities{IfAbsent: true} }

// Close implements objstore.Store.
func (s *Store) Close() error { return s.root.Close() }

func check(ctx context.Context, op, name string) error {
	if ctx.Err() != nil {
		return wrap(op, name, context.Cause(ctx))
	}
	err := objstore.CheckName(name)
	if first, _, _ := strings.Cut(name, "/"); err == nil && first == tmpDir {
		err = fmt.Errorf("%w: %s is reserved", objstore.ErrBadName, tmpDir)
	}
	if err != nil {
		return &objstore.Error{Op: op, Err: err}
	}
	return nil
}

// absent reports whether err means that there is no such file, be it that a folder of the
// path is missing or is a file itself.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// wrap maps an error of the file system; nil stays nil.
func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	e := &objstore.Error{Op: op, Name: name, Err: err}
	switch {
	case errors.Is(err, objstore.ErrChecksum):
		e.Kind, e.Err = objstore.ErrChecksum, nil
	case op != "put" && absent(err):
		e.Kind, e.Err = objstore.ErrNotExist, nil
	case errors.Is(err, fs.ErrExist):
		e.Kind, e.Err = objstore.ErrExist, nil
	case errors.Is(err, fs.ErrPermission):
		e.Kind = objstore.ErrDenied
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG):
		e.Kind = objstore.ErrBadName // one name is the folder of another, or an element is too long for a file
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE):
		e.Kind = objstore.ErrUnavailable
	}
	return e
}

func randomName() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
