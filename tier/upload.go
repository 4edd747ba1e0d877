package tier

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
)

// Limits of one upload.
const (
	uploadStall = 60 * time.Second // without a byte read by the store: given up
	commitWait  = 60 * time.Second // how long to find out what became of a commit
	// reservationSlack is kept free at the end of a reservation: the controller's clock is not ours.
	reservationSlack = 5 * time.Second
)

var errStalled = fmt.Errorf("no progress for %s: %w", uploadStall, objstore.ErrTimeout)

// Upload puts a run into the store as one object and commits it; it returns the row, which the image at the
// returned index holds. The steps, and what an error in each leaves behind:
//
//	verify   every batch is read and its CRC compared      nothing
//	reserve  a fresh object id, for uploadTime             a reservation, which expires
//	put      the whole object with its CRC-32C             perhaps an object, reserved
//	check    size and checksum as the store has them, tail an object, reserved
//	commit   the row, if the leader epoch is current       refused: the object is deleted
//	                                                       unknown: the object stays
//
// Only the last makes anything visible. An error wraps ErrBadRun, ErrStoreUnavailable, ErrCorrupt, ErrRefused,
// ErrUnknownOutcome or ctx's; a retry begins anew with another id.
func (m *Manager) Upload(ctx context.Context, run Run) (*metadata.Segment, uint64, error) {
	ctx, cancel := m.during(ctx)
	defer cancel()
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	begun := time.Now()
	s, index, err := m.upload(ctx, run)
	var size int64
	if err != nil {
		err = fmt.Errorf("upload %s-%d [%d, %d): %w", run.Topic, run.Partition, run.Base, run.End, err)
	} else {
		size = s.Size
	}
	m.metrics.upload(time.Since(begun), size, err)
	return s, index, err
}

func (m *Manager) upload(ctx context.Context, run Run) (*metadata.Segment, uint64, error) {
	// In an outage nothing is reserved: the image would fill up with the reservations of retries.
	if err := m.answers(ctx); err != nil {
		return nil, 0, err
	}
	o, err := seal(ctx, m.cfg.ClusterID, wire.NewUUID(), run)
	if err != nil {
		return nil, 0, err
	}
	s := o.row()
	life := m.uploadTime(o.size)
	deadline := time.Now().Add(life - reservationSlack)
	defer m.trace(s, "end")
	m.trace(s, "reserve")
	if err := m.reserve(ctx, s, life); err != nil {
		return nil, 0, err
	}
	if err := m.put(ctx, s, o, deadline); err != nil {
		m.suspects.add(s, deadline.Add(2*reservationSlack+m.cfg.DeleteGrace))
		return nil, 0, err
	}
	m.trace(s, "commit")
	row, index, err := m.commit(ctx, s, o.index)
	if err != nil {
		m.suspects.add(s, deadline.Add(2*reservationSlack+m.cfg.DeleteGrace))
	}
	return row, index, err
}

// trace tells which step of an upload begins, so that the log of a node that died shows what it was about.
func (m *Manager) trace(s *metadata.Segment, step string) {
	m.log.Debug("upload", "step", step, "object", s.Object.String(), "topicId", s.TopicID.String(), "partition", s.Partition,
		"base", s.Base, "end", s.End, "size", s.Size)
}

// row is what the image will say of the object.
func (o *sealed) row() *metadata.Segment {
	f := &o.index.Footer
	return &metadata.Segment{
		TopicID: f.TopicID, Partition: f.Partition, Base: f.Base, End: f.End, Epoch: f.LeaderEpoch, Object: f.Object,
		Size: o.size, MinTimestamp: f.MinTimestamp, MaxTimestamp: f.MaxTimestamp, HasAborted: f.HasAborted,
	}
}

// slotRate is what one upload gets of UploadRate when all slots are busy; 0: no limit.
func (m *Manager) slotRate() int64 {
	slots := int64(m.cfg.UploadConcurrency)
	return (m.cfg.UploadRate + slots - 1) / slots
}

// uploadTime is how long an upload of size bytes may take: ReservationMs, and what our own rate limit asks for
// when all slots share it; at most what the controller reserves.
func (m *Manager) uploadTime(size int64) time.Duration {
	ms := m.cfg.ReservationMs
	if rate := m.slotRate(); rate > 0 {
		paced := float64(size) / float64(rate) * 1000
		ms += int64(min(paced, metadata.MaxReservationMs))
	}
	return time.Duration(min(ms, metadata.MaxReservationMs)) * time.Millisecond
}

func (m *Manager) reserve(ctx context.Context, s *metadata.Segment, life time.Duration) error {
	results, _, err := m.cfg.Committer.Submit(ctx, &metadata.ReserveObject{
		BrokerID: m.cfg.NodeID, BrokerEpoch: m.cfg.BrokerEpoch(), TopicID: s.TopicID, Partition: s.Partition,
		LeaderEpoch: s.Epoch, Object: s.Object, LifetimeMs: life.Milliseconds(),
	})
	if err = outcome(results, err); err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	return nil
}

// outcome joins the ways in which a single command can fail; a refusal wraps ErrRefused.
func outcome(results []metadata.Result, err error) error {
	switch {
	case err != nil:
		return err
	case len(results) != 1:
		return fmt.Errorf("%d results for one command", len(results))
	case results[0].Err() != nil:
		return fmt.Errorf("%w: %w", ErrRefused, results[0].Err())
	}
	return nil
}

// put writes the object and makes sure that the store has what was meant. If it fails the object may
// be there nevertheless: then it stays reserved, and is an orphan once that is over.
func (m *Manager) put(ctx context.Context, s *metadata.Segment, o *sealed, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	name := m.name(s)
	m.trace(s, "put")
	err := m.putOnce(ctx, name, o)
	if err != nil && !objstore.Ambiguous(err) {
		m.health.note(err)
		m.release(ctx, s)
		return fmt.Errorf("put: %w", m.storeTrouble(ctx, err))
	}
	// A lost reply is no reason to send it all again: the check tells whether it is there.
	m.trace(s, "check")
	if checkErr := m.check(ctx, name, o); checkErr != nil {
		if err != nil {
			m.health.note(err)
			return fmt.Errorf("put: %w", m.storeTrouble(ctx, err))
		}
		return fmt.Errorf("check: %w", checkErr)
	}
	m.health.good()
	return nil
}

// release gives a reservation up; if that fails it expires. It returns the index at which it was gone.
func (m *Manager) release(ctx context.Context, s *metadata.Segment) (index uint64, err error) {
	results, index, err := m.cfg.Committer.Submit(ctx, &metadata.ReleaseReservation{Object: s.Object})
	return index, outcome(results, err)
}

// storeTrouble names the class of a store's error; the end of ctx is no fault of the store.
func (m *Manager) storeTrouble(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	if errors.Is(err, objstore.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrObjectMissing, err)
	}
	return storeError(err)
}

func (m *Manager) putOnce(ctx context.Context, name string, o *sealed) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	source := &source{m: m, ctx: ctx, o: o, watch: time.AfterFunc(uploadStall, func() { cancel(errStalled) })}
	defer source.watch.Stop()
	err := m.cfg.Store.Put(ctx, name, source, o.size, objstore.PutOptions{CRC32C: &o.crc, IfAbsent: true, Rate: m.slotRate()})
	if err != nil && context.Cause(ctx) == errStalled {
		return errors.Join(errStalled, err)
	}
	if errors.Is(err, objstore.ErrExist) {
		return nil // ours: nobody else knows the id. An earlier try arrived; the check judges it
	}
	return err
}

// source is the object as the store reads it: paced, watched for progress, and with every whole block verified again, so
// that what changed since the first pass is not sent.
type source struct {
	m     *Manager
	ctx   context.Context
	o     *sealed
	watch *time.Timer

	mu sync.Mutex // of watch.Reset
}

func (r *source) ReadAt(p []byte, off int64) (int, error) {
	turn := r.m.uploads.book(int64(len(p)))
	r.progress(turn)
	if err := sleep(r.ctx, turn); err != nil {
		return 0, err
	}
	n, err := r.o.ReadAt(p, off)
	if verr := r.verify(p[:n], off); verr != nil {
		return 0, fmt.Errorf("%w: the file changed while it was uploaded: %w", ErrBadRun, verr)
	}
	return n, err
}

// Sum implements objstore.Summer: what is only summed is not sent, and takes nothing of the rate.
func (r *source) Sum(off, size int64) (uint32, error) {
	r.progress(0)
	return objstore.CRC32COf(r.o, off, size)
}

// progress starts the watch anew; time spent waiting for our own rate limit is no stall.
func (r *source) progress(turn time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch.Reset(turn + uploadStall)
}

// verify checks the whole blocks in p.
func (r *source) verify(p []byte, off int64) error {
	x := r.o.index
	skip := (blockSize - off%blockSize) % blockSize
	end := min(off+int64(len(p)), x.DataSize)
	first := off + skip
	if last := end / blockSize * blockSize; end < x.DataSize {
		end = last
	}
	if first >= end {
		return nil
	}
	return x.verify(first, p[first-off:end-off])
}

// check compares what the store has with what was sent.
func (m *Manager) check(ctx context.Context, name string, o *sealed) error {
	info, err := m.cfg.Store.Head(ctx, name)
	if err != nil {
		m.health.note(err)
		return m.storeTrouble(ctx, err)
	}
	if info.Size != o.size {
		return corrupt("%s has %d bytes in the store, %d were sent", name, info.Size, o.size)
	}
	if info.CRC32C == nil {
		return m.readBack(ctx, name, o, 0)
	}
	if *info.CRC32C != o.crc {
		return corrupt("%s has checksum %08x in the store, %08x was sent", name, *info.CRC32C, o.crc)
	}
	return m.readBack(ctx, name, o, o.size-int64(len(o.tail)))
}

// readBack reads the object from a position on and compares it with what was sent: the tail always, all of it
// where the store keeps no checksum.
func (m *Manager) readBack(ctx context.Context, name string, o *sealed, from int64) error {
	buf := buffers.get(min(m.cfg.ChunkBytes, o.size-from))
	defer buffers.put(buf)
	var sum uint32
	dataSize := o.size - int64(len(o.tail))
	for pos := from; pos < o.size; {
		p := buf[:min(int64(len(buf)), o.size-pos)]
		if _, err := m.cfg.Store.Get(ctx, name, pos, p); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) && !objstore.Retryable(err) {
				return corrupt("%s ends early in the store", name)
			}
			m.health.note(err)
			return m.storeTrouble(ctx, err)
		}
		sum = crc32.Update(sum, castagnoli, p)
		pos += int64(len(p))
	}
	want := o.crc
	if from == dataSize {
		want = crc32.Checksum(o.tail, castagnoli)
	}
	if sum != want {
		return corrupt("%s reads back from the store with other bytes from %d on", name, from)
	}
	return nil
}

// commit asks for the row and waits until the image shows it. An answer may be lost on either side of its effect, so what
// counts is the image.
func (m *Manager) commit(ctx context.Context, s *metadata.Segment, x *Index) (*metadata.Segment, uint64, error) {
	results, index, err := m.cfg.Committer.Submit(ctx, &metadata.CommitSegment{
		BrokerID: m.cfg.NodeID, BrokerEpoch: m.cfg.BrokerEpoch(), Segment: *s,
	})
	err = outcome(results, err)
	refused := errors.Is(err, ErrRefused)
	img, waitErr := m.imageAt(ctx, index, err == nil || refused)
	if waitErr == nil && refused && !committed(img, s) {
		img, waitErr = m.withdraw(ctx, s)
	}
	switch {
	case committed(img, s):
		m.indexes.put(x)
		return s, max(index, img.Index()), nil
	case refused && waitErr == nil:
		return nil, 0, fmt.Errorf("commit: %w", err)
	default:
		return nil, 0, fmt.Errorf("commit: %w", errors.Join(ErrUnknownOutcome, err, waitErr))
	}
}

func committed(img *metadata.Image, s *metadata.Segment) bool {
	row, ok := img.SegmentAt(s.TopicID, s.Partition, s.Base)
	return ok && row.Object == s.Object
}

// imageAt waits for the image at an index. If the index is not known, a while for the image to move on.
func (m *Manager) imageAt(ctx context.Context, index uint64, known bool) (*metadata.Image, error) {
	limit := commitWait
	if !known {
		index, limit = m.cfg.Image().Index()+1, imageLag
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	img, err := m.cfg.WaitImage(ctx, index)
	if err != nil {
		return m.cfg.Image(), err
	}
	return img, nil
}

// withdraw deletes the object of a refused commit, after giving its reservation up: without one no retry of the
// commit that may still be under way can be accepted. It returns the image that proves it; an error if
// there is none, and then the object was left alone.
func (m *Manager) withdraw(ctx context.Context, s *metadata.Segment) (*metadata.Image, error) {
	index, err := m.release(ctx, s)
	if err != nil {
		return m.cfg.Image(), err
	}
	img, err := m.imageAt(ctx, index, true)
	if err == nil && !committed(img, s) {
		m.health.note(m.cfg.Store.Delete(ctx, m.name(s))) // if that fails it is an orphan
	}
	return img, err
}
