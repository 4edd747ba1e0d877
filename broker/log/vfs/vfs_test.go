package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Every implementation passes the same suite.

func TestOS(t *testing.T) { runSuite(t, func(t *testing.T) (FS, string) { return OS(), t.TempDir() }) }
func TestMem(t *testing.T) {
	runSuite(t, func(t *testing.T) (FS, string) { return memAt(t, "/data"), "/data" })
}
func TestFault(t *testing.T) { runSuite(t, faultOverMem) }

func faultOverMem(t *testing.T) (FS, string) {
	return NewFault(memAt(t, "data"), nil), "data"
}

func memAt(t *testing.T, dir string) *Mem {
	t.Helper()
	m := NewMem()
	if err := m.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	return m
}

func runSuite(t *testing.T, open func(*testing.T) (FS, string)) {
	for name, test := range map[string]func(*testing.T, FS, string){
		"open modes":            testOpenModes,
		"read and write":        testReadWrite,
		"many buffers":          testManyBuffers,
		"truncate":              testTruncate,
		"closed file":           testClosedFile,
		"removed but open":      testRemovedButOpen,
		"rename":                testRename,
		"rename directory":      testRenameDir,
		"remove":                testRemove,
		"list and stat":         testListStat,
		"lock":                  testLock,
		"atomic write":          testWriteFileAtomic,
		"usage and mount":       testUsageMount,
		"concurrent file users": testConcurrent,
	} {
		t.Run(name, func(t *testing.T) {
			fsys, dir := open(t)
			test(t, fsys, dir)
		})
	}
}

func testOpenModes(t *testing.T, fsys FS, dir string) {
	name := path.Join(dir, "a.log")
	_, err := fsys.Open(name)
	wantErr(t, err, fs.ErrNotExist)
	_, err = fsys.OpenReadWrite(name)
	wantErr(t, err, fs.ErrNotExist)
	_, err = fsys.Create(path.Join(dir, "missing", "a.log"))
	wantErr(t, err, fs.ErrNotExist)

	f := must(fsys.Create(name))(t)
	if f.Name() != name {
		t.Errorf("Name() = %q, want %q", f.Name(), name)
	}
	write(t, f, 0, "abc")
	_, err = fsys.Create(name)
	wantErr(t, err, fs.ErrExist)
	if got := contentOf(t, must(fsys.OpenOrCreate(name))(t)); got != "abc" {
		t.Errorf("OpenOrCreate changed the content to %q", got)
	}
	ro := must(fsys.Open(name))(t)
	if _, err := ro.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a file opened for reading took a write")
	}
	if _, err := ro.WritevAt([][]byte{[]byte("x")}, 0); err == nil {
		t.Error("a file opened for reading took a writev")
	}
	write(t, must(fsys.OpenReadWrite(name))(t), 3, "def")
	if got := contentOf(t, ro); got != "abcdef" {
		t.Errorf("content %q, want abcdef", got)
	}
}

func testReadWrite(t *testing.T, fsys FS, dir string) {
	f := must(fsys.Create(path.Join(dir, "a")))(t)
	write(t, f, 5, "tail")
	if got := contentOf(t, f); got != "\x00\x00\x00\x00\x00tail" {
		t.Errorf("a gap reads as %q", got)
	}
	p := make([]byte, 10)
	n, err := f.ReadAt(p, 5)
	if n != 4 || err != io.EOF {
		t.Errorf("read past the end = %d, %v, want 4, EOF", n, err)
	}
	if n, err := f.ReadAt(p, 9); n != 0 || err != io.EOF {
		t.Errorf("read at the end = %d, %v, want 0, EOF", n, err)
	}
	if n, err := f.ReadAt(nil, 0); n != 0 || err != nil {
		t.Errorf("empty read = %d, %v", n, err)
	}
	if _, err := f.ReadAt(p, -1); err == nil || err == io.EOF {
		t.Errorf("read at a negative offset: %v", err)
	}
	noErr(t, f.Sync())
	noErr(t, f.SyncRange(0, 9))
	f.WillNeed(0, 9)
}

// testManyBuffers crosses the kernel's limit of 1024 buffers a call, with
// empty ones between.
func testManyBuffers(t *testing.T, fsys FS, dir string) {
	f := must(fsys.Create(path.Join(dir, "a")))(t)
	var bufs [][]byte
	var want []byte
	for i := range 3000 {
		b := bytes.Repeat([]byte{byte(i)}, i%7)
		bufs, want = append(bufs, b), append(want, b...)
	}
	kept := slices.Clone(bufs)
	n, err := f.WritevAt(bufs, 2)
	noErr(t, err)
	if n != int64(len(want)) {
		t.Errorf("wrote %d bytes, want %d", n, len(want))
	}
	for i := range kept {
		if len(kept[i]) != len(bufs[i]) {
			t.Fatalf("buffer %d of the caller was changed", i)
		}
	}
	if got := contentOf(t, f); got != "\x00\x00"+string(want) {
		t.Error("content differs from the buffers")
	}
	if n, err := f.WritevAt(nil, 0); n != 0 || err != nil {
		t.Errorf("writing nothing = %d, %v", n, err)
	}
}

func testTruncate(t *testing.T, fsys FS, dir string) {
	f := must(fsys.Create(path.Join(dir, "a")))(t)
	write(t, f, 0, "abcdef")
	noErr(t, f.Truncate(2))
	noErr(t, f.Truncate(4))
	if got := contentOf(t, f); got != "ab\x00\x00" {
		t.Errorf("content %q, want ab and two zeros", got)
	}
	if err := f.Truncate(-1); err == nil {
		t.Error("a negative size was taken")
	}
}

func testClosedFile(t *testing.T, fsys FS, dir string) {
	f := must(fsys.Create(path.Join(dir, "a")))(t)
	noErr(t, f.Close())
	p := make([]byte, 1)
	_, readErr := f.ReadAt(p, 0)
	_, writeErr := f.WriteAt(p, 0)
	_, writevErr := f.WritevAt([][]byte{p}, 0)
	_, sizeErr := f.Size()
	for op, err := range map[string]error{
		"read": readErr, "write": writeErr, "writev": writevErr, "size": sizeErr,
		"truncate": f.Truncate(0), "sync": f.Sync(), "close": f.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s of a closed file: %v, want ErrClosed", op, err)
		}
	}
	f.WillNeed(0, 1)
}

func testRemovedButOpen(t *testing.T, fsys FS, dir string) {
	name := path.Join(dir, "a")
	f := must(fsys.Create(name))(t)
	write(t, f, 0, "still here")
	noErr(t, fsys.Remove(name))
	write(t, must(fsys.Create(name))(t), 0, "another")
	if got := contentOf(t, f); got != "still here" {
		t.Errorf("removed file reads %q", got)
	}
	noErr(t, f.Sync())
}

func testRename(t *testing.T, fsys FS, dir string) {
	a, b := path.Join(dir, "a"), path.Join(dir, "b")
	wantErr(t, fsys.Rename(a, b), fs.ErrNotExist)
	fa := must(fsys.Create(a))(t)
	write(t, fa, 0, "new")
	fb := must(fsys.Create(b))(t)
	write(t, fb, 0, "old")
	noErr(t, fsys.Rename(a, b))
	if got := readFile(t, fsys, b); got != "new" {
		t.Errorf("b holds %q after the rename", got)
	}
	if got := contentOf(t, fb); got != "old" {
		t.Errorf("the replaced file reads %q through its handle", got)
	}
	_, err := fsys.Stat(a)
	wantErr(t, err, fs.ErrNotExist)
	noErr(t, fsys.Rename(b, b))
	noErr(t, fsys.SyncDir(dir))
}

func testRenameDir(t *testing.T, fsys FS, dir string) {
	noErr(t, fsys.MkdirAll(path.Join(dir, "t-0/deep")))
	write(t, must(fsys.Create(path.Join(dir, "t-0/deep/a")))(t), 0, "x")
	noErr(t, fsys.Rename(path.Join(dir, "t-0"), path.Join(dir, "t-0-delete")))
	if got := readFile(t, fsys, path.Join(dir, "t-0-delete/deep/a")); got != "x" {
		t.Errorf("moved file reads %q", got)
	}
	if err := fsys.Rename(path.Join(dir, "t-0-delete"), path.Join(dir, "t-0-delete/deep/b")); err == nil {
		t.Error("a directory was moved into itself")
	}
	noErr(t, fsys.MkdirAll(path.Join(dir, "full/x")))
	if err := fsys.Rename(path.Join(dir, "t-0-delete"), path.Join(dir, "full")); err == nil {
		t.Error("a directory that is not empty was replaced")
	}
}

func testRemove(t *testing.T, fsys FS, dir string) {
	sub := path.Join(dir, "sub")
	wantErr(t, fsys.Remove(sub), fs.ErrNotExist)
	noErr(t, fsys.RemoveAll(sub))
	noErr(t, fsys.MkdirAll(path.Join(sub, "deeper")))
	noErr(t, fsys.MkdirAll(sub))
	wantErr(t, fsys.Remove(sub), syscall.ENOTEMPTY)
	noErr(t, must(fsys.Create(path.Join(sub, "a")))(t).Close())
	noErr(t, fsys.Remove(path.Join(sub, "deeper")))
	noErr(t, fsys.RemoveAll(sub))
	_, err := fsys.List(sub)
	wantErr(t, err, fs.ErrNotExist)
	noErr(t, must(fsys.Create(path.Join(dir, "file")))(t).Close())
	wantErr(t, fsys.MkdirAll(path.Join(dir, "file/below")), syscall.ENOTDIR)
}

func testListStat(t *testing.T, fsys FS, dir string) {
	for _, name := range []string{"b", "a", "c"} {
		write(t, must(fsys.Create(path.Join(dir, name)))(t), 0, name+name)
	}
	noErr(t, fsys.MkdirAll(path.Join(dir, "d")))
	names, err := fsys.List(dir)
	noErr(t, err)
	if !slices.Equal(names, []string{"a", "b", "c", "d"}) {
		t.Errorf("List = %q", names)
	}
	info, err := fsys.Stat(path.Join(dir, "a"))
	noErr(t, err)
	if info.Name() != "a" || info.Size() != 2 || info.IsDir() || info.ModTime().IsZero() {
		t.Errorf("Stat(a) = %s %d %v %v", info.Name(), info.Size(), info.IsDir(), info.ModTime())
	}
	info, err = fsys.Stat(path.Join(dir, "d"))
	noErr(t, err)
	if !info.IsDir() || !info.Mode().IsDir() {
		t.Error("Stat(d) is no directory")
	}
	wantErr(t, fsys.SyncDir(path.Join(dir, "missing")), fs.ErrNotExist)
}

func testLock(t *testing.T, fsys FS, dir string) {
	name := path.Join(dir, ".lock")
	lock, err := fsys.Lock(name)
	noErr(t, err)
	_, err = fsys.Lock(name)
	wantErr(t, err, ErrLocked)
	noErr(t, lock.Close())
	lock, err = fsys.Lock(name)
	noErr(t, err)
	noErr(t, lock.Close())
	_, err = fsys.Lock(path.Join(dir, "missing/.lock"))
	wantErr(t, err, fs.ErrNotExist)
}

func testWriteFileAtomic(t *testing.T, fsys FS, dir string) {
	name := path.Join(dir, "checkpoint")
	for _, content := range []string{"first", "second, longer", ""} {
		write(t, must(fsys.OpenOrCreate(name+tempSuffix))(t), 0, "left over from a crash")
		noErr(t, WriteFileAtomic(fsys, name, []byte(content)))
		if got := readFile(t, fsys, name); got != content {
			t.Errorf("content %q, want %q", got, content)
		}
	}
	names, err := fsys.List(dir)
	noErr(t, err)
	if !slices.Equal(names, []string{"checkpoint"}) {
		t.Errorf("left behind: %q", names)
	}
	wantErr(t, WriteFileAtomic(fsys, path.Join(dir, "missing/x"), nil), fs.ErrNotExist)
}

func testUsageMount(t *testing.T, fsys FS, dir string) {
	usage, err := fsys.Usage(dir)
	noErr(t, err)
	if usage.Free <= 0 || usage.Total < usage.Free {
		t.Errorf("usage %+v", usage)
	}
	first, err := fsys.MountID(dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	noErr(t, err)
	second, err := fsys.MountID(dir)
	noErr(t, err)
	if first == "" || first != second {
		t.Errorf("mount ids %q and %q", first, second)
	}
	_, err = fsys.MountID(path.Join(dir, "missing"))
	wantErr(t, err, fs.ErrNotExist)
}

// testConcurrent closes a file under its users: they get ErrClosed, never
// another file's bytes.
func testConcurrent(t *testing.T, fsys FS, dir string) {
	f := must(fsys.Create(path.Join(dir, "a")))(t)
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for {
				_, err := f.WritevAt([][]byte{[]byte("ab"), []byte("cd")}, 0)
				if err == nil {
					err = f.Sync()
				}
				if err != nil {
					if !errors.Is(err, fs.ErrClosed) {
						t.Errorf("user of a closed file: %v", err)
					}
					return
				}
			}
		})
	}
	noErr(t, f.Close())
	users.Wait()
}

func must(f File, err error) func(*testing.T) File {
	return func(t *testing.T) File {
		t.Helper()
		noErr(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func write(t *testing.T, f File, off int64, s string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(s), off); n != len(s) || err != nil {
		t.Fatalf("WriteAt = %d, %v", n, err)
	}
}

func contentOf(t *testing.T, f File) string {
	t.Helper()
	size, err := f.Size()
	noErr(t, err)
	p := make([]byte, size)
	if n, err := f.ReadAt(p, 0); int64(n) != size || err != nil && err != io.EOF {
		t.Fatalf("ReadAt = %d, %v", n, err)
	}
	return string(p)
}

func readFile(t *testing.T, fsys FS, name string) string {
	t.Helper()
	data, err := ReadFile(fsys, name)
	noErr(t, err)
	return string(data)
}

// Files leave descriptors to connections, and say how to get more; a file that was made for nothing is gone.
func TestDescriptorsAreSpared(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := old
	few.Cur = 256
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	dir := t.TempDir()
	var err error
	n := 0
	for ; err == nil && n < 256; n++ {
		var f File
		if f, err = OS().Create(fmt.Sprintf("%s/%d", dir, n)); err == nil {
			defer f.Close()
		}
	}
	if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Fatalf("after %d files: %v", n, err)
	}
	if names, err := OS().List(dir); err != nil || len(names) != n-1 {
		t.Errorf("%d files are left of %d, %v", len(names), n-1, err)
	}
	for range 256/sparedShare - 2 {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
}
