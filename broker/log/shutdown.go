package log

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/varve-io/varve/broker/log/vfs"
)

// Clean tells that the last process closed every log; CleanEpoch is the broker epoch that it had, -1 unknown.
func (d *Dir) Clean() bool { return d.clean }

// CleanEpoch see Clean.
func (d *Dir) CleanEpoch() int64 { return d.cleanEpoch }

// PageCacheSurvived tells that, though the last process ended badly, everything that it wrote is still there:
// the machine and the mount are the same since before it started.
func (d *Dir) PageCacheSurvived() bool { return d.survived }

type cleanShutdown struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

// readShutdown finds out how the last process ended, and makes that forgotten before the first append.
func (d *Dir) readShutdown() error {
	marker := path.Join(d.path, cleanShutdownFile)
	data, err := vfs.ReadFile(d.fs, marker)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		d.clean = true
		var c cleanShutdown
		if json.Unmarshal(data, &c) == nil && c.BrokerEpoch != 0 {
			d.cleanEpoch = c.BrokerEpoch
		}
		if err := d.fs.Remove(marker); err != nil {
			return err
		}
	}
	if err := d.readMount(); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// readMount compares the mount with the one noted when all logs were last known to be good. Another note is
// removed: until Recovered, a second crash must not make this recovery look like one after a mere kill.
func (d *Dir) readMount() error {
	id, err := d.fs.MountID(d.path)
	if errors.Is(err, errors.ErrUnsupported) {
		id, err = "", nil
	}
	if err != nil {
		return err
	}
	d.mountID = id
	note, err := vfs.ReadFile(d.fs, path.Join(d.path, mountFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d.survived = id != "" && string(note) == id
	if d.survived {
		return nil
	}
	return d.fs.Remove(path.Join(d.path, mountFile))
}

// Recovered is called once every log of the directory is open: from now on a crash that leaves the page cache
// alone is one that loses nothing, and a clean end is one.
func (d *Dir) Recovered() error {
	d.recovered.Store(true)
	if d.survived || d.mountID == "" {
		return nil
	}
	if err := vfs.WriteFileAtomic(d.fs, path.Join(d.path, mountFile), []byte(d.mountID)); err != nil {
		return fmt.Errorf("log directory %s: %w", d.path, err)
	}
	return nil
}

// Close releases the directory. clean says that all its logs were closed cleanly; brokerEpoch is noted for the
// next start (KIP-966). However cleanly a start is given up, what it found after a crash and did not recover stays unclean.
func (d *Dir) Close(clean bool, brokerEpoch int64) error {
	var err error
	if clean && d.Err() == nil && (d.clean || d.recovered.Load()) {
		err = d.Checkpoint()
		if err == nil {
			data, _ := json.Marshal(cleanShutdown{BrokerEpoch: brokerEpoch})
			err = vfs.WriteFileAtomic(d.fs, path.Join(d.path, cleanShutdownFile), data)
		}
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("close log directory %s: %w", d.path, err)
	}
	return nil
}
