package file

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/varve-io/varve/objstore"
)

// List implements objstore.Store. It reads one folder at a time, and only folders that
// can hold a name wanted.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	w := walk{fsys: s.root.FS(), prefix: prefix, after: after, fn: fn}
	err := w.folder(ctx, "")
	var stopped *stop
	switch {
	case errors.As(err, &stopped) && errors.Is(stopped.err, fs.SkipAll):
		return nil
	case stopped != nil:
		return stopped.err
	}
	return wrap("list", prefix, err)
}

type walk struct {
	fsys          fs.FS
	prefix, after string
	fn            func(objstore.Info) error
}

// stop carries an error of fn out of the walk, unwrapped.
type stop struct{ err error }

func (s *stop) Error() string { return s.err.Error() }

// folder visits what lies below dir, "" or ending in a slash. Entries are sorted by name with a slash
// after a folder's: "a/x" comes after "a.b", as its bytes do.
func (w walk) folder(ctx context.Context, dir string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	entries, err := fs.ReadDir(w.fsys, path.Clean(dir+"."))
	if absent(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortName(a), sortName(b)) })
	for _, e := range entries {
		name := dir + sortName(e)
		switch {
		case name == tmpDir+"/":
		case e.IsDir():
			if w.mayHold(name) {
				err = w.folder(ctx, name)
			}
		case e.Type().IsRegular() && strings.HasPrefix(name, w.prefix) && name > w.after:
			err = w.visit(name, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w walk) visit(name string, e fs.DirEntry) error {
	info, err := e.Info()
	if absent(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	if err := w.fn(describe(name, info)); err != nil {
		return &stop{err}
	}
	return nil
}

// mayHold reports whether a name that begins with folder (slash included) can begin with
// the prefix and be greater than after.
func (w walk) mayHold(folder string) bool {
	overlaps := strings.HasPrefix(folder, w.prefix) || strings.HasPrefix(w.prefix, folder)
	return overlaps && (folder > w.after || strings.HasPrefix(w.after, folder))
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}
