package log

import (
	"errors"
	"io/fs"
	"path"

	"github.com/varve-io/varve/broker/log/vfs"
)

// makeDir makes a directory, with its parents, and makes their names durable.
func makeDir(fsys vfs.FS, dir string) error {
	var missing []string
	for at := path.Clean(dir); ; at = path.Dir(at) {
		_, err := fsys.Stat(at)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, at)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for _, at := range missing {
		if err := fsys.SyncDir(path.Dir(at)); err != nil {
			return err
		}
	}
	return nil
}
