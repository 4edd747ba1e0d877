package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
)

// tempSuffix marks the unfinished file of a WriteFileAtomic.
const tempSuffix = ".tmp"

// ReadFile returns the whole content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if n == len(data) || err == io.EOF {
		err = nil
	}
	return data[:n], err
}

// WriteFileAtomic replaces the content of a file so that a crash leaves the
// old content or the new, and makes the new durable: it writes name.tmp, syncs
// it, renames it and syncs the directory. Only one caller at a time may write
// a name.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	temp := name + tempSuffix
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeSynced(fsys, temp, data); err != nil {
		return errors.Join(err, ignoreNotExist(fsys.Remove(temp)))
	}
	if err := fsys.Rename(temp, name); err != nil {
		return errors.Join(err, ignoreNotExist(fsys.Remove(temp)))
	}
	return fsys.SyncDir(path.Dir(name))
}

// writeSynced creates a file with durable content; its name is not durable.
func writeSynced(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
