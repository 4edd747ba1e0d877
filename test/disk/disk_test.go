package disk

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// makeDisk makes a small disk that ends with the test.
func makeDisk(t *testing.T) *Disk {
	t.Helper()
	d, err := Make(filepath.Join(t.TempDir(), "disk"), MinSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if mounted(t, d.Dir) {
			t.Errorf("%s is still mounted", d.Dir)
		}
	})
	return d
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(mounts, []byte(" "+dir+" "))
}

func write(t *testing.T, f *os.File, n int) {
	t.Helper()
	if _, err := f.Write(bytes.Repeat([]byte{0xa5}, n)); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, d *Disk, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(d.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestCut: what was synced is there, what was not is gone, and nothing can be written after.
func TestCut(t *testing.T) {
	d := makeDisk(t)
	f := create(t, d, "synced")
	write(t, f, 1_000_000)
	if err := errors.Join(f.Sync(), syncDir(d.Dir)); err != nil {
		t.Fatal(err)
	}
	write(t, f, 500_000)
	fresh := create(t, d, "fresh")
	write(t, fresh, 1000)

	if err := d.Cut(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("late")); !errors.Is(err, unix.EIO) {
		t.Errorf("a write after the cut: %v, want EIO", err)
	}
	if err := f.Sync(); err == nil {
		t.Error("a sync after the cut succeeds")
	}
	f.Close()
	fresh.Close()
	if err := d.Remount(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{0xa5}, 1_000_000)) {
		t.Errorf("%d bytes, %v; want the 1,000,000 that were synced", len(got), err)
	}
	if _, err := os.Stat(fresh.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file that was never synced: %v", err)
	}
	write(t, create(t, d, "after"), 10)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// TestFreeze: a writer hangs until the thaw.
func TestFreeze(t *testing.T) {
	d := makeDisk(t)
	f := create(t, d, "file")
	if err := d.Freeze(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := f.Write([]byte("x"))
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("a write to a frozen disk ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := d.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := d.Thaw(); err != nil {
		t.Errorf("a second thaw: %v", err)
	}
}

// TestFull: a small disk is full of what was written to it.
func TestFull(t *testing.T) {
	d := makeDisk(t)
	f := create(t, d, "file")
	n, err := io.Copy(f, io.LimitReader(zeros{}, 2*MinSize))
	if !errors.Is(err, unix.ENOSPC) || n < MinSize/2 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestCloseWhileFrozen leaves nothing behind: makeDisk looks.
func TestCloseWhileFrozen(t *testing.T) {
	d := makeDisk(t)
	if err := d.Freeze(); err != nil {
		t.Fatal(err)
	}
}

// abandon names the directory in which TestAbandon makes a disk and dies.
const abandon = "VARVE_DISK_ABANDON"

// TestSweep: a process that made disks is killed, and the next one finds what it left.
func TestSweep(t *testing.T) {
	if dir := os.Getenv(abandon); dir != "" {
		abandonDisks(t, dir)
		return
	}
	dir := t.TempDir()
	alive := makeDisk(t)

	dead := exec.Command(os.Args[0], "-test.run=^TestSweep$")
	dead.Env = append(os.Environ(), abandon+"="+dir)
	if out, err := dead.CombinedOutput(); dead.ProcessState.ExitCode() != -1 {
		t.Fatalf("it should have died: %v\n%s", err, out)
	}
	left := []string{filepath.Join(dir, "1", "disk"), filepath.Join(dir, "2", "disk")}
	for _, disk := range left {
		if !mounted(t, disk) {
			t.Fatalf("%s is not mounted: nothing to sweep", disk)
		}
	}
	if err := os.Remove(filepath.Join(dir, "2", imageName)); err != nil {
		t.Fatal(err)
	}

	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, disk := range left {
		if mounted(t, disk) {
			t.Errorf("%s is still mounted", disk)
		}
	}
	if images := imagesInUse(t); !slices.Contains(images, alive.image.Name()) || slices.ContainsFunc(images, func(s string) bool { return strings.HasPrefix(s, dir) }) {
		t.Errorf("loop devices over %v; only that of a living process should be left", images)
	}
	if _, err := os.Stat(filepath.Join(dir, "1", imageName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image is still there: %v", err)
	}
	if !mounted(t, alive.Dir) {
		t.Error("the disk of a living process was swept")
	}
}

// abandonDisks makes two disks, one frozen, and dies.
func abandonDisks(t *testing.T, dir string) {
	for _, n := range []string{"1", "2"} {
		d, err := Make(filepath.Join(dir, n, "disk"), MinSize)
		if err != nil {
			t.Fatal(err)
		}
		if n == "1" {
			if err := d.Freeze(); err != nil {
				t.Fatal(err)
			}
		}
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
}

// imagesInUse are the images of this package under loop devices.
func imagesInUse(t *testing.T) []string {
	t.Helper()
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var images []string
	for _, loop := range loops {
		if b, err := os.ReadFile(loop); err == nil && strings.Contains(string(b), imageName) {
			images = append(images, strings.TrimSpace(string(b)))
		}
	}
	return images
}

func TestMakeRefuses(t *testing.T) {
	if d, err := Make(filepath.Join(t.TempDir(), "disk"), 1<<10); err == nil {
		d.Close()
		t.Error("a disk of 1 KiB")
	}
}
