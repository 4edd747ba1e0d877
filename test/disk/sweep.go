package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Sweep unmounts the file systems of this package whose process is dead, and
// removes their images. Those of living processes are left alone.
func Sweep() error {
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	var errs []error
	for _, loop := range loops {
		backing, err := os.ReadFile(loop)
		if errors.Is(err, fs.ErrNotExist) {
			continue // freed meanwhile
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// The kernel marks the name of a file that was removed.
		image := strings.TrimSuffix(strings.TrimSpace(string(backing)), " (deleted)")
		if filepath.Base(image) == imageName {
			errs = append(errs, sweepOne("/dev/"+strings.Split(loop, "/")[3], image))
		}
	}
	return errors.Join(errs...)
}

// sweepOne ends one loop device, unless somebody holds the lock on its image.
func sweepOne(device, image string) error {
	f, err := os.Open(image)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a living process removes it last
	case err != nil:
		return err
	default:
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil
			}
			return fmt.Errorf("lock %s: %w", image, err)
		}
	}
	dirs, err := mountsOf(device)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := unmount(dir); err != nil {
			return err
		}
	}
	if err := detach(device); err != nil {
		return err
	}
	if f == nil {
		return nil
	}
	return os.Remove(image)
}

// mountsOf gives the directories that a device is mounted at.
func mountsOf(device string) ([]string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var dirs []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == device {
			dirs = append(dirs, unescape.Replace(fields[1]))
		}
	}
	return dirs, lines.Err()
}

// detach frees a loop device that did not free itself with its last mount,
// because its process died before it could mount.
func detach(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("disk: free %s: %w", device, err)
	}
	return nil
}
