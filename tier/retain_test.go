package tier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/wire"
)

func objects(t *testing.T, r *rig) int {
	t.Helper()
	n := 0
	for _, name := range names(t, r.store) {
		if name != markerName {
			n++
		}
	}
	return n
}

// TestRetain: nothing goes before its grace, then the oldest first, rows after objects; a crash between is made up for.
func TestRetain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 50<<10, 50<<10, 50<<10, 50<<10)
		retain := func(want int, wantErr error) {
			t.Helper()
			n, err := r.Retain(context.Background(), w.id, 0)
			if n != want || !errors.Is(err, wantErr) {
				t.Fatalf("deleted %d, %v; want %d, %v", n, err, want, wantErr)
			}
		}
		retain(0, nil)
		r.ctl.advance(t, w.id, w.runs[1].Base+3) // inside the second
		r.ctl.deleteUpTo(t, w.id, w.runs[1].Base+3)
		retain(0, nil)
		if objects(t, r) != 4 {
			t.Fatal("deleted before the grace")
		}
		time.Sleep(r.Manager.cfg.DeleteGrace + time.Second)
		r.ctl.before = func(cmd metadata.Command) error { return ifCommand[*metadata.ForgetSegments](cmd, errLost) }
		retain(0, errLost)
		if objects(t, r) != 3 || r.ctl.image().NumSegments() != 4 {
			t.Fatal("the row stays until the controller has heard")
		}
		r.ctl.before = nil
		retain(1, nil)
		if objects(t, r) != 3 || r.ctl.image().NumSegments() != 3 {
			t.Fatal(objects(t, r), r.ctl.image().NumSegments())
		}
		same(t, r.readAll(w, w.runs[1].Base+3, 1<<20), w.data[w.runs[0].Size+posOf(t, w.runs[1], w.runs[1].Base+3):])

		r.ctl.advance(t, w.id, w.end()) // an empty remote log is a legal state
		r.ctl.deleteUpTo(t, w.id, w.end())
		time.Sleep(r.Manager.cfg.DeleteGrace + time.Second)
		retain(3, nil)
		if objects(t, r) != 0 || r.ctl.image().NumSegments() != 0 {
			t.Fatal("objects or rows left")
		}
		run := r.run(w, w.end(), 50<<10, 3, 1000)
		if _, _, err := r.Upload(context.Background(), run); err != nil {
			t.Fatalf("upload after everything expired: %v", err)
		}
		_ = r.stop()
	})
}

// posOf is where the batch that holds offset begins in a run.
func posOf(t *testing.T, run Run, offset int64) int64 {
	t.Helper()
	s, err := seal(context.Background(), "c", wire.UUID{1}, run)
	if err != nil {
		t.Fatal(err)
	}
	at, pos := s.index.at(s.index.floor(offset))
	if at != offset {
		w := wrote{}
		w.add(t, run)
		pos = 0
		for _, b := range w.batches {
			if b.LastOffset() >= offset {
				break
			}
			pos += int64(len(b))
		}
	}
	return pos
}

func TestRetainWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 50<<10, 50<<10)
		r.ctl.advance(t, w.id, w.end())
		r.ctl.deleteUpTo(t, w.id, w.end())
		time.Sleep(r.Manager.cfg.DeleteGrace + time.Second)
		r.store.set(func(s *hookStore) { s.onHead = func(string) (objstore.Info, error) { return objstore.Info{}, errDown } })
		for range unhealthyAfter {
			r.probe(context.Background())
		}
		if n, err := r.Retain(context.Background(), w.id, 0); n != 0 || !errors.Is(err, ErrStoreUnavailable) {
			t.Errorf("in an outage: %d, %v", n, err)
		}
		r.store.set(func(s *hookStore) { s.onHead = nil })
		if n, err := r.Retain(context.Background(), w.id, 0); n != 2 || err != nil {
			t.Errorf("after it: %d, %v", n, err)
		}
		_ = r.stop()
	})
}

// TestPurge: a deleted topic goes to its last object, orphans included, and nothing else does.
func TestPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 50<<10, 50<<10)
		other := r.fill("payments", 3, 1000, 50<<10)
		orphan := &metadata.Segment{TopicID: w.id, Base: 5, End: 9, Object: wire.NewUUID()}
		if err := r.store.Put(context.Background(), r.name(orphan), strings.NewReader("x"), 1, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		// One upload is between PUT and commit while the topic is deleted.
		late := r.run(w, w.end(), 50<<10, 3, 1000)
		r.ctl.before = func(cmd metadata.Command) error {
			if _, ok := cmd.(*metadata.CommitSegment); ok {
				r.ctl.must(t, &metadata.DeleteTopic{ID: w.id})
				r.ctl.before = nil
				r.purgeAll(kerr.OperationNotAttempted) // what was reserved may still appear
			}
			return nil
		}
		if _, _, err := r.Upload(context.Background(), late); !errors.Is(err, ErrRefused) {
			t.Fatalf("commit for a deleted topic: %v", err)
		}
		r.purgeAll(nil)
		for range r.ctl.image().Tasks() {
			t.Error("task left")
		}
		if objects(t, r) != 1 {
			t.Errorf("%v left", names(t, r.store))
		}
		same(t, r.readAll(other, 0, 1<<20), other.data)
		if res := r.get(context.Background(), first(w)); !errors.Is(res.Err, kerr.UnknownTopicOrPartition) {
			t.Errorf("deleted topic: %v", res.Err)
		}
		// The name again: nothing of the old one shows.
		again := r.fill("orders", 3, 1000, 60<<10)
		same(t, r.readAll(again, 0, 1<<20), again.data)
		_ = r.stop()
	})
}

func (r *rig) purgeAll(want error) {
	r.t.Helper()
	n := 0
	for task := range r.ctl.image().Tasks() {
		n++
		if err := r.PurgeTopic(context.Background(), task); !errors.Is(err, want) {
			r.t.Errorf("purge: %v, want %v", err, want)
		}
	}
	if n == 0 {
		r.t.Error("no task")
	}
}

// TestOrphans: what no row and no reservation names goes in the end, whether this broker left it or one before it; an upload
// under way is left alone.
func TestOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 50<<10)
		run := r.run(w, w.end(), 50<<10, 3, 1000)
		r.ctl.before = func(cmd metadata.Command) error { return ifCommand[*metadata.CommitSegment](cmd, errLost) }
		if _, _, err := r.Upload(context.Background(), run); !errors.Is(err, ErrUnknownOutcome) {
			t.Fatal(err)
		}
		r.ctl.before = nil
		left := &metadata.Segment{TopicID: w.id, Base: 7, End: 9, Object: wire.NewUUID()} // by a broker that died
		if err := r.store.Put(context.Background(), r.name(left), strings.NewReader("x"), 1, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		slow := &metadata.ReserveObject{BrokerID: testBroker, BrokerEpoch: r.ctl.brokerEpoch(), TopicID: w.id, Object: wire.NewUUID(), LifetimeMs: 3_600_000}
		r.ctl.must(t, slow)
		uploading := &metadata.Segment{TopicID: w.id, Base: w.end(), End: w.end() + 1, Object: slow.Object}
		if err := r.store.Put(context.Background(), r.name(uploading), strings.NewReader("x"), 1, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		reservation := time.Duration(DefaultReservationMs) * time.Millisecond
		time.Sleep(reservation - time.Minute)
		if n := objects(t, r); n != 4 {
			t.Errorf("%d objects while the reservations live, want 4", n)
		}
		time.Sleep(r.Manager.cfg.DeleteGrace + 3*time.Minute)
		if n := objects(t, r); n != 2 {
			t.Errorf("%d objects after it, want that of the row and that under way: %v", n, names(t, r.store))
		}
		time.Sleep(sweepInterval + time.Hour)
		if n := objects(t, r); n != 1 {
			t.Errorf("%d objects in the end: %v", n, names(t, r.store))
		}
		same(t, r.readAll(w, 0, 1<<20), w.data)
		_ = r.stop()
	})
}

// TestOrphansOfShortReservations: where uploads get little time, what they leave goes as soon.
func TestOrphansOfShortReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reservation = 8 * time.Second
		r := newRig(t, func(c *Config) { c.ReservationMs, c.DeleteGrace = reservation.Milliseconds(), time.Second })
		w := r.fill("orders", 3, 1000, 50<<10)
		left := &metadata.Segment{TopicID: w.id, Base: 7, End: 9, Object: wire.NewUUID()}
		if err := r.store.Put(context.Background(), r.name(left), strings.NewReader("x"), 1, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reservation)
		if n := objects(t, r); n != 2 {
			t.Errorf("%d objects in the time of a reservation, want 2", n)
		}
		time.Sleep(2 * reservation)
		if n := objects(t, r); n != 1 {
			t.Errorf("%d objects after it, want that of the row: %v", n, names(t, r.store))
		}
		_ = r.stop()
	})
}

// TestUploadTellsItsSteps: at debug level each step says that it begins, and the last line that all is over.
func TestUploadTellsItsSteps(t *testing.T) {
	var said strings.Builder
	r := newRig(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	w := r.fill("orders", 3, 1000, 50<<10)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	var steps []string
	for line := range strings.Lines(said.String()) {
		if _, step, ok := strings.Cut(line, "msg=upload step="); ok {
			steps = append(steps, strings.Fields(step)[0])
		}
	}
	if want := []string{"reserve", "put", "check", "commit", "end"}; !slices.Equal(steps, want) {
		t.Errorf("the upload of a run up to %d told %v, want %v", w.end(), steps, want)
	}
}

// TestTasksAreServed: a deleted topic is purged without anybody asking, once the store allows.
func TestTasksAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.fill("orders", 3, 1000, 50<<10, 50<<10)
		down := func(string) (objstore.Info, error) { return objstore.Info{}, errDown }
		r.store.set(func(s *hookStore) { s.onHead = down })
		for range unhealthyAfter {
			r.probe(context.Background())
		}
		r.ctl.must(t, &metadata.DeleteTopic{ID: w.id})
		time.Sleep(time.Minute)
		if n := objects(t, r); n != 2 {
			t.Errorf("%d objects in an outage", n)
		}
		r.store.set(func(s *hookStore) { s.onHead = nil })
		time.Sleep(time.Minute)
		if n := objects(t, r); n != 0 {
			t.Errorf("%d objects left", n)
		}
		for task := range r.ctl.image().Tasks() {
			t.Errorf("task left: %+v", task)
		}
		_ = r.stop()
	})
}

func TestLoadState(t *testing.T) {
	r := newRig(t)
	w := r.fill("orders", 3, 1000, 50<<10, 50<<10)
	st, err := r.LoadState(context.Background(), w.id, 0)
	last := w.runs[1]
	if err != nil || st.End != last.End || !reflect.DeepEqual(st.Epochs, last.Epochs) || !reflect.DeepEqual(st.Producers, last.Producers) {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := r.LoadState(context.Background(), r.ctl.topic(t, "empty", 1), 0); !errors.Is(err, ErrNotTiered) {
		t.Error(err)
	}
	// A tail larger than the guess: many producers.
	run := r.run(w, last.End, 50<<10, 3, 1000)
	for id := range int64(5000) {
		e := last.Producers[0]
		e.ProducerID = id
		run.Producers = append(run.Producers, e)
	}
	if _, _, err := r.Upload(context.Background(), run); err != nil {
		t.Fatal(err)
	}
	if st, err := r.LoadState(context.Background(), w.id, 0); err != nil || !reflect.DeepEqual(st.Producers, run.Producers) {
		t.Errorf("%d producers, want %d: %v", len(st.Producers), len(run.Producers), err)
	}
	r.balanced()
}

func TestMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for range 2 {
			if err := r.CheckPrefix(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		r.Manager.cfg.ClusterID = "another"
		if err := r.CheckPrefix(context.Background()); !errors.Is(err, ErrForeignPrefix) || !strings.Contains(err.Error(), testCluster) || !strings.Contains(err.Error(), "varve.store.url") {
			t.Errorf("foreign prefix: %v", err)
		}
		r.Manager.cfg.ClusterID = testCluster
		for text, want := range map[string]error{"": ErrCorrupt, "{": ErrCorrupt, "{}": ErrCorrupt, `{"clusterId":"cluster","version":99}`: ErrVersion} {
			if err := r.store.Put(context.Background(), markerName, strings.NewReader(text), int64(len(text)), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := r.CheckPrefix(context.Background()); !errors.Is(err, want) {
				t.Errorf("marker %q: %v", text, err)
			}
		}
		r.store.set(func(s *hookStore) {
			s.onHead = func(string) (objstore.Info, error) { return objstore.Info{}, errDenied }
		})
		if err := r.CheckPrefix(context.Background()); !errors.Is(err, ErrStoreUnavailable) || !strings.Contains(err.Error(), "s3:GetObject") {
			t.Errorf("denied: %v", err)
		}
		_ = r.stop()
	})
}

// TestUploadStalls: a store that stops reading is given up, and the next attempt is another object.
func TestUploadStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := &wrote{id: r.ctl.topic(t, "orders", 1)}
		run := r.run(w, 0, 100<<10, 3, 1000)
		r.store.set(func(s *hookStore) {
			s.onPut = func(ctx context.Context, _ string, _ io.ReaderAt, _ int64, _ objstore.PutOptions) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}
		})
		begun := time.Now()
		if _, _, err := r.Upload(context.Background(), run); !errors.Is(err, ErrStoreUnavailable) || !errors.Is(err, objstore.ErrTimeout) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took < uploadStall || took > uploadStall+time.Second {
			t.Errorf("given up after %s", took)
		}
		r.store.set(func(s *hookStore) { s.onPut = nil })
		if _, _, err := r.Upload(context.Background(), run); err != nil {
			t.Error(err)
		}
		_ = r.stop()
	})
}

// TestUploadRate and the number at a time are kept to.
func TestUploadRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.UploadRate, c.UploadConcurrency = 100<<10, 1 })
		begun := time.Now()
		w := r.fill("orders", 3, 1000, 500<<10, 500<<10)
		if took := time.Since(begun); took < 4*time.Second || took > 12*time.Second {
			t.Errorf("1000 KiB at 100 KiB/s took %s", took)
		}
		same(t, r.readAll(w, 0, 1<<20), w.data)
		_ = r.stop()
	})
}

// TestUploadAtItsRate: an upload that our own limit makes longer than a reservation is reserved for longer, and bytes
// that the store reads only to sum them take nothing of the rate.
func TestUploadAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 10 << 10
		r := newRig(t, func(c *Config) { c.UploadRate, c.UploadConcurrency, c.ReservationMs = rate, 2, 15_000 })
		r.store.set(func(s *hookStore) {
			s.onPut = func(ctx context.Context, name string, body io.ReaderAt, size int64, opts objstore.PutOptions) error {
				const part = 64 << 10 // read twice, as an upload in parts does
				var sent bytes.Buffer
				for off := int64(0); off < size; off += part {
					n := min(part, size-off)
					sum, err := objstore.CRC32COf(body, off, n)
					if err != nil {
						return err
					}
					p := make([]byte, n)
					if _, err := body.ReadAt(p, off); err != nil && err != io.EOF {
						return err
					}
					if objstore.CRC32C(0, p) != sum {
						t.Error("summed are other bytes than sent")
					}
					sent.Write(p)
				}
				return s.Store.Put(ctx, name, bytes.NewReader(sent.Bytes()), size, opts)
			}
		})
		begun := time.Now()
		w := r.fill("orders", 3, 1000, 600<<10)
		if took := time.Since(begun); took < 50*time.Second || took > 75*time.Second {
			t.Errorf("600 KiB at 10 KiB/s took %s", took)
		}
		same(t, r.readAll(w, 0, 1<<20), w.data)
		_ = r.stop()
	})
}
