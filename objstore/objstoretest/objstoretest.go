// Package objstoretest is the one acceptance suite of every objstore.Store: providers,
// wrappers and compositions. What it asserts is the contract that the tier relies on.
package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/objstore"
)

// Run runs the suite. open returns an empty store; it is called once for each test.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, objstore.Store)
	}{
		{"round trip", roundTrip},
		{"parts", parts},
		{"names", names},
		{"bad names", badNames},
		{"replace", replace},
		{"if absent", ifAbsent},
		{"if absent race", ifAbsentRace},
		{"wrong checksum", wrongChecksum},
		{"broken reader", brokenReader},
		{"get ranges", getRanges},
		{"absent object", absentObject},
		{"list", list},
		{"list pages", listPages},
		{"delete", deletes},
		{"whole or nothing", wholeOrNothing},
		{"cancelled", cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			c.test(t, s)
		})
	}
}

// Bytes returns size pseudo-random bytes, the same for the same seed.
func Bytes(seed uint64, size int) []byte {
	p := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{0: byte(seed), 1: byte(seed >> 8), 2: byte(seed >> 16)})
	rng.Read(p)
	return p
}

// Put stores data or fails the test.
func Put(t testing.TB, s objstore.Store, name string, data []byte) {
	t.Helper()
	if err := s.Put(t.Context(), name, bytes.NewReader(data), int64(len(data)), objstore.PutOptions{}); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

// Want fails the test unless the object name holds exactly data.
func Want(t testing.TB, s objstore.Store, name string, data []byte) {
	t.Helper()
	got := make([]byte, len(data))
	if n, err := s.Get(t.Context(), name, 0, got); err != nil || n != len(data) {
		t.Fatalf("get %s: %d bytes, %v, want %d", name, n, err, len(data))
	}
	if !bytes.Equal(got, data) {
		t.Fatalf("get %s: bytes differ", name)
	}
	info, err := s.Head(t.Context(), name)
	if err != nil || info.Size != int64(len(data)) || info.Name != name {
		t.Fatalf("head %s: %+v, %v, want size %d", name, info, err, len(data))
	}
	if age := time.Since(info.Modified); age < -time.Minute || age > time.Hour {
		t.Errorf("head %s: modified %v ago", name, age)
	}
	if s.Capabilities().Checksum {
		if want := objstore.CRC32C(0, data); info.CRC32C == nil || *info.CRC32C != want {
			t.Errorf("head %s: checksum %v, want %08x", name, info.CRC32C, want)
		}
	}
}

func wantIs(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
}

func listed(t *testing.T, s objstore.Store, prefix, after string) (names []string) {
	t.Helper()
	err := s.List(t.Context(), prefix, after, func(i objstore.Info) error {
		names = append(names, i.Name)
		return nil
	})
	if err != nil {
		t.Fatalf("list %q after %q: %v", prefix, after, err)
	}
	return names
}

func roundTrip(t *testing.T, s objstore.Store) {
	for i, size := range []int{0, 1, 4095, 1<<20 + 1} {
		data := Bytes(uint64(i), size)
		crc := objstore.CRC32C(0, data)
		name := fmt.Sprintf("a/%d", size)
		err := s.Put(t.Context(), name, bytes.NewReader(data), int64(size), objstore.PutOptions{CRC32C: &crc})
		if err != nil {
			t.Fatalf("put %d bytes: %v", size, err)
		}
		Want(t, s, name, data)
		name = fmt.Sprintf("b/%d", size) // without a checksum of the caller's
		Put(t, s, name, data)
		Want(t, s, name, data)
	}
}

func parts(t *testing.T, s objstore.Store) {
	data := Bytes(7, objstore.PartThreshold+objstore.PartSize/2+3)
	crc := objstore.CRC32C(0, data)
	opts := objstore.PutOptions{CRC32C: &crc, IfAbsent: true}
	if err := s.Put(t.Context(), "big", bytes.NewReader(data), int64(len(data)), opts); err != nil {
		t.Fatal(err)
	}
	Want(t, s, "big", data)
	err := s.Put(t.Context(), "big", bytes.NewReader(data), int64(len(data)), opts)
	wantIs(t, err, objstore.ErrExist)
	p := make([]byte, 64)
	if _, err := s.Get(t.Context(), "big", objstore.PartSize-32, p); err != nil || !bytes.Equal(p, data[objstore.PartSize-32:][:64]) {
		t.Errorf("range across a part border differs: %v", err)
	}
	crc++
	err = s.Put(t.Context(), "big-wrong", bytes.NewReader(data), int64(len(data)), objstore.PutOptions{CRC32C: &crc})
	wantIs(t, err, objstore.ErrChecksum)
	if got := listed(t, s, "", ""); !slices.Equal(got, []string{"big"}) {
		t.Errorf("objects %q, want only big", got)
	}
}

func names(t *testing.T, s objstore.Store) {
	all := []string{
		"plain", "with space/and+plus", "percent%2Fencoded", "equal=sign&amp;<xml>", "ünïcödé/日本", "colon:at@tilde~",
		"q?m#hash", "dots...", ".hidden/..two", "quote'\"", strings.Repeat("d/", 20) + "deep", strings.Repeat("x", 200),
	}
	for i, name := range all {
		Put(t, s, name, Bytes(uint64(i), 10+i))
	}
	for i, name := range all {
		Want(t, s, name, Bytes(uint64(i), 10+i))
	}
	slices.Sort(all)
	if got := listed(t, s, "", ""); !slices.Equal(got, all) {
		t.Errorf("listed %q, want %q", got, all)
	}
	if err := s.DeleteMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, s, "", ""); len(got) > 0 {
		t.Errorf("left after DeleteMany: %q", got)
	}
}

func badNames(t *testing.T, s objstore.Store) {
	for _, name := range []string{"", "/abs", "a//b", "a/", "../up", "a/../../b", "a/./b", "nul\x00", "new\nline", "bad\xffutf8", "back\\slash", strings.Repeat("x", objstore.MaxNameLen+1)} {
		wantIs(t, s.Put(t.Context(), name, strings.NewReader("x"), 1, objstore.PutOptions{}), objstore.ErrBadName)
		_, err := s.Get(t.Context(), name, 0, make([]byte, 1))
		wantIs(t, err, objstore.ErrBadName)
		_, err = s.Head(t.Context(), name)
		wantIs(t, err, objstore.ErrBadName)
		wantIs(t, s.Delete(t.Context(), name), objstore.ErrBadName)
		wantIs(t, s.DeleteMany(t.Context(), []string{name}), objstore.ErrBadName)
	}
	if got := listed(t, s, "", ""); len(got) > 0 {
		t.Errorf("objects with bad names: %q", got)
	}
}

func replace(t *testing.T, s objstore.Store) {
	Put(t, s, "x", Bytes(1, 5000))
	Put(t, s, "x", Bytes(2, 100))
	Want(t, s, "x", Bytes(2, 100))
}

func ifAbsent(t *testing.T, s objstore.Store) {
	opts := objstore.PutOptions{IfAbsent: true}
	if err := s.Put(t.Context(), "x", strings.NewReader("one"), 3, opts); err != nil {
		t.Fatal(err)
	}
	wantIs(t, s.Put(t.Context(), "x", strings.NewReader("two"), 3, opts), objstore.ErrExist)
	Want(t, s, "x", []byte("one"))
	if err := s.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "x", strings.NewReader("two"), 3, opts); err != nil {
		t.Fatalf("after delete: %v", err)
	}
}

func ifAbsentRace(t *testing.T, s objstore.Store) {
	if !s.Capabilities().IfAbsent {
		return
	}
	const writers = 16
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			data := Bytes(uint64(i), 1000)
			errs[i] = s.Put(t.Context(), "race", bytes.NewReader(data), 1000, objstore.PutOptions{IfAbsent: true})
		})
	}
	wg.Wait()
	var winners []int
	for i, err := range errs {
		if err == nil {
			winners = append(winners, i)
		} else {
			wantIs(t, err, objstore.ErrExist)
		}
	}
	if len(winners) != 1 {
		t.Fatalf("winners %v, want one", winners)
	}
	Want(t, s, "race", Bytes(uint64(winners[0]), 1000))
}

func wrongChecksum(t *testing.T, s objstore.Store) {
	Put(t, s, "kept", []byte("before"))
	wrong := objstore.CRC32C(0, []byte("other"))
	for _, name := range []string{"kept", "new"} {
		err := s.Put(t.Context(), name, strings.NewReader("bytes"), 5, objstore.PutOptions{CRC32C: &wrong})
		wantIs(t, err, objstore.ErrChecksum)
	}
	Want(t, s, "kept", []byte("before"))
	if got := listed(t, s, "", ""); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("objects %q", got)
	}
}

// brokenReader: a reader that ends early or fails must not leave an object, nor hang.
func brokenReader(t *testing.T, s objstore.Store) {
	if err := s.Put(t.Context(), "short", strings.NewReader("1234"), 10, objstore.PutOptions{}); err == nil {
		t.Error("put of a reader that ends early: no error")
	}
	cause := errors.New("disk on fire")
	err := s.Put(t.Context(), "failing", failingReader{cause}, 10, objstore.PutOptions{})
	wantIs(t, err, cause)
	crc := uint32(1)
	err = s.Put(t.Context(), "failing", failingReader{cause}, 10, objstore.PutOptions{CRC32C: &crc})
	wantIs(t, err, cause)
	if got := listed(t, s, "", ""); len(got) > 0 {
		t.Errorf("objects %q", got)
	}
}

type failingReader struct{ err error }

func (r failingReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

func getRanges(t *testing.T, s objstore.Store) {
	data := Bytes(3, 100_000)
	Put(t, s, "x", data)
	for _, r := range []struct{ off, n int }{{0, 0}, {0, 1}, {0, 100_000}, {99_999, 1}, {50_000, 12_345}, {1, 99_999}} {
		p := bytes.Repeat([]byte{0xAA}, r.n+1)
		n, err := s.Get(t.Context(), "x", int64(r.off), p[:r.n:r.n])
		if err != nil || n != r.n || !bytes.Equal(p[:r.n], data[r.off:r.off+r.n]) {
			t.Errorf("get [%d,+%d): %d, %v", r.off, r.n, n, err)
		}
		if p[r.n] != 0xAA {
			t.Errorf("get [%d,+%d) wrote past the buffer", r.off, r.n)
		}
	}
	for _, r := range []struct{ off, n int }{{0, 100_001}, {99_999, 2}, {100_000, 1}, {1 << 40, 10}} {
		_, err := s.Get(t.Context(), "x", int64(r.off), make([]byte, r.n))
		wantIs(t, err, io.ErrUnexpectedEOF)
	}
	if _, err := s.Get(t.Context(), "x", -1, make([]byte, 1)); err == nil {
		t.Error("negative offset: no error")
	}
	Put(t, s, "empty", nil)
	_, err := s.Get(t.Context(), "empty", 0, make([]byte, 1))
	wantIs(t, err, io.ErrUnexpectedEOF)
}

func absentObject(t *testing.T, s objstore.Store) {
	Put(t, s, "dir/x", []byte("x"))
	for _, name := range []string{"nothing", "dir", "dir/y", "none/y"} {
		_, err := s.Get(t.Context(), name, 0, make([]byte, 1))
		wantIs(t, err, objstore.ErrNotExist)
		_, err = s.Head(t.Context(), name)
		wantIs(t, err, objstore.ErrNotExist)
		if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "head") {
			t.Errorf("error %q names neither call nor object", err)
		}
		if err := s.Delete(t.Context(), name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	Want(t, s, "dir/x", []byte("x"))
}

func list(t *testing.T, s objstore.Store) {
	if got := listed(t, s, "", ""); len(got) > 0 {
		t.Fatalf("a new store holds %q", got)
	}
	all := []string{"a-b", "a.b", "a/a", "a/b/c", "a/b/d", "a/bc", "a0", "b"} // - . / 0 in this order
	for i, name := range all {
		Put(t, s, name, make([]byte, i))
	}
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", all},
		{"a", "", all[:7]},
		{"a/", "", all[2:6]},
		{"a/b", "", all[3:6]},
		{"a/b/", "", all[3:5]},
		{"a/b/c", "", all[3:4]},
		{"a/b/c/", "", nil},
		{"z", "", nil},
		{"", "a/b/c", all[4:]},
		{"", "a/b/cc", all[4:]},
		{"a/", "a/b/d", all[5:6]},
		{"a/", "a", all[2:6]},
		{"a/", "b", nil},
		{"b", "a", all[7:]},
		{"", "zzz", nil},
	} {
		if got := listed(t, s, c.prefix, c.after); !slices.Equal(got, c.want) {
			t.Errorf("list %q after %q: %q, want %q", c.prefix, c.after, got, c.want)
		}
	}
	wantIs(t, s.List(t.Context(), "", "", func(i objstore.Info) error { return io.ErrNoProgress }), io.ErrNoProgress)
	seen := 0
	err := s.List(t.Context(), "", "", func(i objstore.Info) error {
		if i.Size != int64(seen) || i.Modified.IsZero() {
			t.Errorf("listed %+v, want size %d and a time", i, seen)
		}
		if seen++; seen == 3 {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil || seen != 3 {
		t.Errorf("stopped list: %d objects, %v", seen, err)
	}
}

// listPages holds more objects than one page of S3's list and one batch of its delete.
func listPages(t *testing.T, s objstore.Store) {
	const count = objstore.DeleteBatch + 50
	var all []string
	work := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for name := range work {
				if err := s.Put(t.Context(), name, strings.NewReader(name), int64(len(name)), objstore.PutOptions{}); err != nil {
					t.Errorf("put %s: %v", name, err)
				}
			}
		})
	}
	for i := range count {
		all = append(all, fmt.Sprintf("p/%05d", i))
		work <- all[i]
	}
	close(work)
	wg.Wait()
	if got := listed(t, s, "p/", ""); !slices.Equal(got, all) {
		t.Fatalf("listed %d, want %d", len(got), count)
	}
	if got := listed(t, s, "", all[20]); !slices.Equal(got, all[21:]) {
		t.Fatalf("listed %d after the 21st, want %d", len(got), count-21)
	}
	if err := s.DeleteMany(t.Context(), append(slices.Clone(all[1:]), "absent")); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, s, "", ""); !slices.Equal(got, all[:1]) {
		t.Errorf("left %d objects, want 1", len(got))
	}
}

func deletes(t *testing.T, s objstore.Store) {
	for _, name := range []string{"a/b/c", "a/b/d", "a/e"} {
		Put(t, s, name, []byte(name))
	}
	if err := s.Delete(t.Context(), "a/b/c"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a/b/c"); err != nil {
		t.Fatalf("again: %v", err)
	}
	if err := s.DeleteMany(t.Context(), nil); err != nil {
		t.Fatalf("none: %v", err)
	}
	if got := listed(t, s, "", ""); !slices.Equal(got, []string{"a/b/d", "a/e"}) {
		t.Errorf("left %q", got)
	}
	if err := s.DeleteMany(t.Context(), []string{"a/b/d", "no/such", "a/e"}); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, s, "", ""); len(got) > 0 {
		t.Errorf("left %q", got)
	}
	Put(t, s, "a/b/c", []byte("again"))
	Want(t, s, "a/b/c", []byte("again"))
}

// wholeOrNothing: readers of an object that is being replaced see one version or the other.
func wholeOrNothing(t *testing.T, s objstore.Store) {
	const size = 300_000
	versions := [][]byte{bytes.Repeat([]byte{'0'}, size), bytes.Repeat([]byte{'1'}, size), bytes.Repeat([]byte{'2'}, size)}
	Put(t, s, "x", versions[0])
	var wg sync.WaitGroup
	for i := range versions {
		wg.Go(func() {
			for range 5 {
				if err := s.Put(t.Context(), "x", bytes.NewReader(versions[i]), size, objstore.PutOptions{}); err != nil {
					t.Errorf("put: %v", err)
				}
			}
		})
		wg.Go(func() {
			p := make([]byte, size)
			for range 10 {
				if _, err := s.Get(t.Context(), "x", 0, p); err != nil {
					t.Errorf("get: %v", err)
				} else if !slices.ContainsFunc(versions, func(v []byte) bool { return bytes.Equal(v, p) }) {
					t.Error("read a mixture of versions")
				}
			}
		})
	}
	wg.Wait()
}

func cancelled(t *testing.T, s objstore.Store) {
	Put(t, s, "x", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantIs(t, s.Put(ctx, "y", strings.NewReader("y"), 1, objstore.PutOptions{}), context.Canceled)
	_, err := s.Get(ctx, "x", 0, make([]byte, 1))
	wantIs(t, err, context.Canceled)
	_, err = s.Head(ctx, "x")
	wantIs(t, err, context.Canceled)
	wantIs(t, s.List(ctx, "", "", func(objstore.Info) error { return nil }), context.Canceled)
	wantIs(t, s.Delete(ctx, "x"), context.Canceled)
	wantIs(t, s.DeleteMany(ctx, []string{"x"}), context.Canceled)
	if got := listed(t, s, "", ""); !slices.Equal(got, []string{"x"}) {
		t.Errorf("objects %q, want x", got)
	}
}
