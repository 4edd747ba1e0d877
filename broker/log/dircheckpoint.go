package log

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"

	"github.com/varve-io/varve/broker/log/vfs"
)

// RecoveryPoint is the offset up to which the partition was durable when that was last noted.
func (d *Dir) RecoveryPoint(tp TopicPartition) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.points.recovery[tp]
}

// LogStart is the noted log start offset, -1 if there is none.
func (d *Dir) LogStart(tp TopicPartition) int64 { return d.noted(d.points.logStart, tp) }

// HighWatermark is the noted high watermark, -1 if there is none.
func (d *Dir) HighWatermark(tp TopicPartition) int64 { return d.noted(d.points.highWatermark, tp) }

func (d *Dir) noted(m map[TopicPartition]int64, tp TopicPartition) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o, ok := m[tp]; ok {
		return o
	}
	return -1
}

// readCheckpoints loads what the last process noted. A file that cannot be read is as good as none: more is
// recovered then.
func (d *Dir) readCheckpoints() error {
	for name, m := range map[string]map[TopicPartition]int64{
		recoveryPointFile: d.points.recovery, logStartFile: d.points.logStart, highWatermarkFile: d.points.highWatermark,
	} {
		data, err := vfs.ReadFile(d.fs, path.Join(d.path, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		offsets, err := decodeOffsets(data)
		if err != nil {
			d.logger.Warn("checkpoint ignored", "path", path.Join(d.path, name), "error", err)
			continue
		}
		maps.Copy(m, offsets)
	}
	d.written = d.points.clone()
	return nil
}

// note takes the present offsets of a log into the account. The caller holds d.mu.
func (d *Dir) note(l *Log) {
	if l.damage != nil {
		return // what was durable once stays the measure
	}
	d.points.recovery[l.tp] = l.RecoveryPoint()
	d.points.logStart[l.tp] = l.LogStart()
	d.points.highWatermark[l.tp] = l.HighWatermark()
}

// Checkpoint notes recovery point, log start and high watermark of every open log. Called every so often; a
// file whose content did not change is not written.
func (d *Dir) Checkpoint() error {
	d.writing <- struct{}{}
	defer func() { <-d.writing }()
	d.mu.Lock()
	for _, l := range d.logs {
		d.note(l)
	}
	now := d.points.clone()
	d.mu.Unlock()
	err := errors.Join(
		d.writeCheckpoint(recoveryPointFile, d.written.recovery, now.recovery),
		d.writeCheckpoint(logStartFile, d.written.logStart, now.logStart),
		d.writeCheckpoint(highWatermarkFile, d.written.highWatermark, now.highWatermark),
	)
	if err == nil {
		d.written = now
	}
	return err
}

func (d *Dir) writeCheckpoint(name string, old, now map[TopicPartition]int64) error {
	if maps.Equal(old, now) {
		return nil
	}
	d.logger.Debug("checkpoint", "step", "begin", "path", path.Join(d.path, name))
	defer d.logger.Debug("checkpoint", "step", "end", "path", path.Join(d.path, name))
	if err := vfs.WriteFileAtomic(d.fs, path.Join(d.path, name), encodeOffsets(now)); err != nil {
		return fmt.Errorf("log directory %s: %s: %w", d.path, name, err)
	}
	return nil
}

// drop forgets a partition in memory. The caller holds d.mu.
func (d *Dir) drop(tp TopicPartition) {
	delete(d.points.recovery, tp)
	delete(d.points.logStart, tp)
	delete(d.points.highWatermark, tp)
}

// forget removes what was noted of a partition, before another topic of that name begins.
func (d *Dir) forget(tp TopicPartition) error {
	d.mu.Lock()
	d.drop(tp)
	d.mu.Unlock()
	// A deletion forgets in memory at once; what counts is the file.
	d.writing <- struct{}{}
	_, noted := d.written.recovery[tp]
	<-d.writing
	if !noted {
		return nil
	}
	return d.Checkpoint()
}
