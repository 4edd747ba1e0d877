package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/file"
	"github.com/varve-io/varve/objstore/objstoretest"
)

func open(t *testing.T, dir string) *file.Store {
	t.Helper()
	s, err := file.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store { return open(t, filepath.Join(t.TempDir(), "new", "root")) })
}

// TestOutside: neither a name nor a symbolic link leads out of the root.
func TestOutside(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "root"))
	defer s.Close()
	if err := os.Symlink(outside, filepath.Join(dir, "root", "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "link/secret", 0, make([]byte, 1)); err == nil {
		t.Error("read through a symbolic link out of the root")
	}
	if err := s.Put(t.Context(), "link/new", strings.NewReader("x"), 1, objstore.PutOptions{}); err == nil {
		t.Error("wrote through a symbolic link out of the root")
	}
	if err := s.Delete(t.Context(), "link/secret"); err == nil {
		t.Error("deleted through a symbolic link out of the root")
	}
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Error(err)
	}
}

// TestLeftovers: what a crash left of unfinished writes is no object, and goes after a day.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	open(t, dir).Close()
	tmp := filepath.Join(dir, ".varve-tmp")
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "young": time.Hour} {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte("torn"), 0o644); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(tmp, name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir)
	defer s.Close()
	if _, err := os.Stat(filepath.Join(tmp, "old")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("old leftover: %v", err)
	}
	if _, err := os.Stat(filepath.Join(tmp, "young")); err != nil {
		t.Errorf("young leftover: %v", err)
	}
	err := s.List(t.Context(), "", "", func(i objstore.Info) error { t.Errorf("listed %s", i.Name); return nil })
	if err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), ".varve-tmp/young", 0, make([]byte, 1)); !errors.Is(err, objstore.ErrBadName) {
		t.Errorf("read of a temporary file: %v", err)
	}
}

// TestNameIsFolder: where a name is another's folder, the second fails and the first stays.
func TestNameIsFolder(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	objstoretest.Put(t, s, "a", []byte("file"))
	objstoretest.Put(t, s, "b/c", []byte("in folder"))
	for _, name := range []string{"a/x", "b"} {
		err := s.Put(t.Context(), name, strings.NewReader("x"), 1, objstore.PutOptions{})
		if !errors.Is(err, objstore.ErrBadName) && !errors.Is(err, objstore.ErrExist) {
			t.Errorf("put %s: %v", name, err)
		}
	}
	objstoretest.Want(t, s, "a", []byte("file"))
	objstoretest.Want(t, s, "b/c", []byte("in folder"))
	if left, _ := os.ReadDir(filepath.Join(t.TempDir(), ".varve-tmp")); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

// FuzzName: a name is refused, or it is an object inside the root and nothing else.
func FuzzName(f *testing.F) {
	for _, name := range []string{"a", "a/b", "../up", "a/../../b", "/abs", ".varve-tmp/x", "a//b", "nul\x00", "caf\u00e9", "...", "a\\..\\b", strings.Repeat("x", 300)} {
		f.Add(name)
	}
	dir := f.TempDir()
	s, err := file.New(filepath.Join(dir, "root"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := s.Put(t.Context(), name, strings.NewReader("x"), 1, objstore.PutOptions{})
		if err == nil {
			objstoretest.Want(t, s, name, []byte("x"))
			err = s.Delete(t.Context(), name)
		} else if objstore.CheckName(name) == nil && !errors.Is(err, objstore.ErrBadName) {
			t.Fatalf("put %q: %v", name, err)
		}
		if err != nil && objstore.CheckName(name) == nil && !errors.Is(err, objstore.ErrBadName) {
			t.Fatalf("delete %q: %v", name, err)
		}
		for where, want := range map[string]int{dir: 1, filepath.Join(dir, "root"): 1} {
			if entries, err := os.ReadDir(where); err != nil || len(entries) != want {
				t.Fatalf("after %q: %s holds %v, %v", name, where, entries, err)
			}
		}
	})
}
