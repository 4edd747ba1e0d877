package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// imageName is the file of every image; Sweep knows them by it.
const imageName = "varve-test-disk.ext4"

// Disk is a mounted file system. Its methods are for one goroutine.
type Disk struct {
	Dir   string   // where it is mounted
	image *os.File // locked as long as this process uses it
}

// MinSize is the smallest image, in bytes, that ext4 with a journal makes sense in.
const MinSize = 16 << 20

// Make makes an empty file system of size bytes and mounts it at dir, which is
// made if need be. The image is a sparse file in the directory beside, which
// has to be the caller's alone.
func Make(dir string, size int64) (*Disk, error) {
	if err := able(); err != nil {
		return nil, err
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	if size < MinSize {
		return nil, fmt.Errorf("disk: %d bytes, less than %d", size, MinSize)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	image, err := os.OpenFile(filepath.Join(filepath.Dir(dir), imageName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	d := &Disk{Dir: dir, image: image}
	if err := d.format(size); err != nil {
		return nil, errors.Join(err, os.Remove(image.Name()), image.Close())
	}
	return d, nil
}

// able says what is missing for Make.
func able() error {
	if os.Geteuid() != 0 {
		return errors.New("disk: only root may mount; run this as root")
	}
	for _, program := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("disk: no %s (Debian: e2fsprogs, mount): %w", program, err)
		}
	}
	return nil
}

func (d *Disk) format(size int64) error {
	if err := unix.Flock(int(d.image.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", d.image.Name(), err)
	}
	if err := d.image.Truncate(size); err != nil {
		return err
	}
	// Nothing is reserved for root, so that full means full.
	if err := run("mkfs.ext4", "-q", "-F", "-m", "0", d.image.Name()); err != nil {
		return err
	}
	return d.mount()
}

// mount lets the kernel free the loop device with the last user of the file system.
func (d *Disk) mount() error { return run("mount", "-t", "ext4", "-o", "loop", d.image.Name(), d.Dir) }

// Cut is the power loss. The file system stays mounted, fails every write with
// EIO and has forgotten what was not durable, though readers may still see it
// in memory until Remount.
func (d *Disk) Cut() error {
	const shutdown, withoutFlush = 0x8004587D, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	return ioctl(d.Dir, "shut down", func(fd int) error { return unix.IoctlSetPointerInt(fd, shutdown, withoutFlush) })
}

// Remount unmounts and mounts the file system, which replays its journal. No
// process may have a file open.
func (d *Disk) Remount() error {
	if err := unmount(d.Dir); err != nil {
		return err
	}
	return d.mount()
}

// Freeze makes every writer hang until Thaw; not even SIGKILL ends one before.
func (d *Disk) Freeze() error {
	const fifreeze = 0xC0045877
	return ioctl(d.Dir, "freeze", func(fd int) error { return unix.IoctlSetInt(fd, fifreeze, 0) })
}

// Thaw ends Freeze. It is no error if nothing is frozen.
func (d *Disk) Thaw() error { return thaw(d.Dir) }

// Close unmounts the file system and removes the image. No process may have a
// file open.
func (d *Disk) Close() error {
	if err := unmount(d.Dir); err != nil {
		return err // the image stays, and with it the name by which Sweep finds it
	}
	return errors.Join(os.Remove(d.image.Name()), d.image.Close())
}

func thaw(dir string) error {
	const fithaw = 0xC0045878
	err := ioctl(dir, "thaw", func(fd int) error { return unix.IoctlSetInt(fd, fithaw, 0) })
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

const (
	// busyWait bounds how long a process that was killed may still hold a file.
	busyWait = 10 * time.Second
	busyPoll = 20 * time.Millisecond
)

// unmount thaws and unmounts.
func unmount(dir string) error {
	if err := thaw(dir); err != nil {
		return err
	}
	var err error
	for end := time.Now().Add(busyWait); time.Now().Before(end); time.Sleep(busyPoll) {
		if err = unix.Unmount(dir, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("disk: unmount %s: %w", dir, err)
	}
	return nil
}

// ioctl calls one on the root directory of the file system.
func ioctl(dir, what string, call func(fd int) error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := call(int(f.Fd())); err != nil {
		return fmt.Errorf("disk: %s %s: %w", what, dir, err)
	}
	return nil
}

// run runs a program; the error holds what it said.
func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("disk: %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
