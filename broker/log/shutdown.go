package log

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/varve-io/varve/broker/log/vfs"
)

// Clean tells that the last process closed every log; CleanEpoch is the broker epoch that it had, -1 unknown.
func (d *Dir) Clean() bool { return d.clean }

// CleanEpoch see Clean.
func (d *Dir) CleanEpoch() int64 { return d.cleanEpoch }

// PreviousEpoch is the epoch of the last registered life of a broker of which nothing that it wrote here is lost, be it that it
// ended cleanly or that its page cache is still there; -1 if there is none, or that is not sure (KIP-966).
func (d *Dir) PreviousEpoch() int64 {
	switch {
	case d.clean && d.cleanEpoch >= 0:
		return d.cleanEpoch
	case d.survived:
		return d.foundEpoch
	}
	return -1
}

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
	noted, epoch, _ := strings.Cut(string(note), "\n")
	d.survived = id != "" && noted == id
	if d.survived {
		if n, err := strconv.ParseInt(epoch, 10, 64); err == nil && n >= 0 {
			d.foundEpoch, d.notedEpoch = n, n
		}
		return nil
	}
	return d.fs.Remove(path.Join(d.path, mountFile))
}

// Recovered is called once every log of the directory is open: from now on a crash that leaves the page cache
// alone is one that loses nothing, and a clean end is one.
func (d *Dir) Recovered() error {
	d.recovered.Store(true)
	if d.survived {
		return nil
	}
	d.writing <- struct{}{}
	defer func() { <-d.writing }()
	return d.writeMount()
}

// NoteEpoch notes the broker epoch of this life, for PreviousEpoch of the next one, if it has not yet been; -1 is none.
// A crash that comes before it looks like one that lost something.
func (d *Dir) NoteEpoch(epoch int64) error {
	d.writing <- struct{}{}
	defer func() { <-d.writing }()
	if epoch < 0 || epoch == d.notedEpoch || d.Err() != nil {
		return nil
	}
	d.notedEpoch = epoch
	if !d.survived && !d.recovered.Load() {
		return nil // Recovered writes it
	}
	return d.writeMount()
}

// writeMount notes the mount and the broker epoch. The caller holds the slot of d.writing.
func (d *Dir) writeMount() error {
	if d.mountID == "" {
		return nil
	}
	note := fmt.Appendf(nil, "%s\n%d", d.mountID, d.notedEpoch)
	if err := vfs.WriteFileAtomic(d.fs, path.Join(d.path, mountFile), note); err != nil {
		return fmt.Errorf("log directory %s: %w", d.path, err)
	}
	return nil
}

// Close releases the directory. clean says that all its logs were closed cleanly; brokerEpoch is noted for the
// next start (KIP-966). However cleanly a start is given up, what it found after a crash and did not recover stays unclean.
func (d *Dir) Close(clean bool, brokerEpoch int64) error {
	var err error
	if brokerEpoch < 0 {
		brokerEpoch = d.PreviousEpoch() // this life had none, so it wrote nothing
	}
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
