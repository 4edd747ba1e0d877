package vfs

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func TestCrashKeepsWhatIsDurable(t *testing.T) {
	m := memAt(t, "d")
	f := must(m.Create("d/a"))(t)
	write(t, f, 0, "durable")
	noErr(t, f.Sync())
	noErr(t, m.SyncDir("d"))
	noErr(t, m.SyncDir("/"))
	write(t, f, 7, " and not")
	if got := readFile(t, m.CrashClone(rng(1), 0), "d/a"); got != "durable" {
		t.Errorf("after losing all: %q", got)
	}
	if got := readFile(t, m.CrashClone(rng(1), 100), "d/a"); got != "durable and not" {
		t.Errorf("after losing nothing: %q", got)
	}
}

func TestCrashLosesNames(t *testing.T) {
	for _, test := range []struct {
		name string
		sync []string
		want []string // names below d/ after losing all that is pending
	}{
		{"file synced, name not", nil, nil},
		{"directory of the file synced, but not its own name", []string{"d"}, nil},
		{"both", []string{"d", "/"}, []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := memAt(t, "d")
			f := must(m.Create("d/a"))(t)
			noErr(t, f.Sync())
			for _, dir := range test.sync {
				noErr(t, m.SyncDir(dir))
			}
			names, err := m.CrashClone(rng(1), 0).List("d")
			if err != nil {
				wantErr(t, err, fs.ErrNotExist)
			}
			if !slices.Equal(names, test.want) {
				t.Errorf("names %q, want %q", names, test.want)
			}
		})
	}
}

// TestCrashRename checks that a replaced file is the old or the new one under
// every outcome, and that both are met.
func TestCrashRename(t *testing.T) {
	m := memAt(t, "d")
	noErr(t, m.SyncDir("/"))
	noErr(t, WriteFileAtomic(m, "d/a", []byte("old")))
	noErr(t, writeSynced(m, "d/a.tmp", []byte("new")))
	noErr(t, m.Rename("d/a.tmp", "d/a"))
	seen := map[string]int{}
	for seed := range uint64(50) {
		seen[readFile(t, m.CrashClone(rng(seed), 50), "d/a")]++
	}
	if len(seen) != 2 || seen["old"] == 0 || seen["new"] == 0 {
		t.Errorf("outcomes %v", seen)
	}
}

// TestCrashRenameAcross moves a file between directories: syncing the new one
// makes the move durable with all that led to it.
func TestCrashRenameAcross(t *testing.T) {
	m := memAt(t, "from")
	noErr(t, m.MkdirAll("to"))
	noErr(t, m.SyncDir("/"))
	noErr(t, writeSynced(m, "from/a", []byte("x")))
	noErr(t, m.Rename("from/a", "from/b"))
	noErr(t, m.Rename("from/b", "to/c"))
	noErr(t, m.SyncDir("to"))
	for _, keep := range []int{0, 100} {
		after := m.CrashClone(rng(1), keep)
		if got := readFile(t, after, "to/c"); got != "x" {
			t.Errorf("keep %d: content %q", keep, got)
		}
		if names, _ := after.List("from"); len(names) > 0 {
			t.Errorf("keep %d: the old directory holds %q", keep, names)
		}
	}
}

// TestCrashRemove: a removal that was not synced may be undone.
func TestCrashRemove(t *testing.T) {
	m := memAt(t, "d")
	noErr(t, m.SyncDir("/"))
	noErr(t, WriteFileAtomic(m, "d/a", []byte("x")))
	noErr(t, m.RemoveAll("d"))
	if got := readFile(t, m.CrashClone(rng(1), 0), "d/a"); got != "x" {
		t.Errorf("content %q", got)
	}
	_, err := m.CrashClone(rng(1), 100).Stat("d")
	wantErr(t, err, fs.ErrNotExist)
}

// TestCrashBlocks finds torn tails, holes of zeros and lost truncations.
func TestCrashBlocks(t *testing.T) {
	m := memAt(t, "/")
	f := must(m.Create("a"))(t)
	noErr(t, m.SyncDir("/"))
	write(t, f, 0, strings.Repeat("o", 2*blockSize))
	noErr(t, f.Sync())
	noErr(t, f.Truncate(blockSize/2))
	write(t, f, blockSize/2, strings.Repeat("n", 3*blockSize))
	seen := map[string]bool{}
	for seed := range uint64(300) {
		seen[shape(readFile(t, m.CrashClone(rng(seed), 50), "a"))] = true
	}
	for _, want := range []string{
		"o4096 o4096",                   // nothing happened
		"o2048",                         // the cut alone
		"o2048 n2048 n4096 n4096 n2048", // all
		"o2048 z2048 n4096",             // a hole of zeros before a whole block
		"o4096 n4096",                   // neither the cut nor the first block
	} {
		if !seen[want] {
			t.Errorf("never met %q", want)
		}
	}
	for got := range seen {
		if strings.Contains(got, "?") {
			t.Errorf("impossible content %q", got)
		}
	}
}

// shape writes content as runs inside blocks: o old, n new, z zeros.
func shape(s string) string {
	var runs []string
	for off := 0; off < len(s); off += blockSize {
		block := s[off:min(off+blockSize, len(s))]
		for len(block) > 0 {
			rest := strings.TrimLeft(block, block[:1])
			kind, ok := map[byte]string{'o': "o", 'n': "n", 0: "z"}[block[0]]
			if !ok {
				kind = "?"
			}
			runs = append(runs, fmt.Sprintf("%s%d", kind, len(block)-len(rest)))
			block = rest
		}
	}
	return strings.Join(runs, " ")
}

func TestCrashIsDeterministic(t *testing.T) {
	history := func() *Mem {
		m := memAt(t, "d/e")
		for i := range 40 {
			f := must(m.Create(fmt.Sprintf("d/e/%d", i)))(t)
			write(t, f, int64(i), strings.Repeat("x", 3*blockSize))
			if i%3 == 0 {
				noErr(t, f.Sync())
			}
			if i%7 == 0 {
				noErr(t, m.SyncDir("d/e"))
			}
		}
		noErr(t, m.SyncDir("d"))
		noErr(t, m.SyncDir("/"))
		return m
	}
	first, second := history(), history()
	for seed := range uint64(20) {
		if a, b := dump(t, first.CrashClone(rng(seed), 50)), dump(t, second.CrashClone(rng(seed), 50)); a != b {
			t.Fatalf("seed %d gives two disks", seed)
		}
	}
}

func dump(t *testing.T, m *Mem) string {
	var b strings.Builder
	names, err := m.List("d/e")
	noErr(t, err)
	for _, name := range names {
		fmt.Fprintf(&b, "%s %s\n", name, shape(readFile(t, m, "d/e/"+name)))
	}
	return b.String()
}

// TestCrashKillsHandles: nothing of the dead process reaches the new disk.
func TestCrashKillsHandles(t *testing.T) {
	for name, crash := range map[string]func(*Mem) *Mem{
		"power": func(m *Mem) *Mem { return m.CrashClone(rng(1), 100) },
		"kill":  (*Mem).KillClone,
	} {
		t.Run(name, func(t *testing.T) {
			m := memAt(t, "d")
			f := must(m.Create("d/a"))(t)
			write(t, f, 0, "x")
			if _, err := m.Lock("d/.lock"); err != nil {
				t.Fatal(err)
			}
			after := crash(m)
			_, err := f.WriteAt([]byte("y"), 0)
			wantErr(t, err, ErrCrashed)
			wantErr(t, f.Sync(), ErrCrashed)
			wantErr(t, m.MkdirAll("x"), ErrCrashed)
			_, err = m.Open("d/a")
			wantErr(t, err, ErrCrashed)
			if got := readFile(t, after, "d/a"); got != "x" {
				t.Errorf("content %q", got)
			}
			lock, err := after.Lock("d/.lock")
			noErr(t, err)
			noErr(t, lock.Close())
			if same := m.mountID == after.mountID; same != (name == "kill") {
				t.Errorf("mount id equal: %v", same)
			}
		})
	}
}

// TestKillKeepsWhatIsPending: a power cut after a kill still loses what was
// never synced.
func TestKillKeepsWhatIsPending(t *testing.T) {
	m := memAt(t, "d")
	noErr(t, m.SyncDir("/"))
	f := must(m.Create("d/a"))(t)
	write(t, f, 0, "durable")
	noErr(t, f.Sync())
	noErr(t, m.SyncDir("d"))
	write(t, f, 7, ", not")
	noErr(t, m.Rename("d/a", "d/b"))
	alive := m.KillClone()
	if got := readFile(t, alive, "d/b"); got != "durable, not" {
		t.Errorf("after the kill: %q", got)
	}
	if got := readFile(t, alive.CrashClone(rng(1), 0), "d/a"); got != "durable" {
		t.Errorf("after the power cut: %q", got)
	}
}

func TestMemCapacity(t *testing.T) {
	m := memAt(t, "/")
	m.SetCapacity(100)
	f := must(m.Create("a"))(t)
	n, err := f.WriteAt(make([]byte, 150), 0)
	if n != 100 {
		t.Errorf("wrote %d bytes, want 100", n)
	}
	wantErr(t, err, syscall.ENOSPC)
	usage, err := m.Usage("/")
	noErr(t, err)
	if usage != (Usage{Total: 100, Free: 0}) {
		t.Errorf("usage %+v", usage)
	}
	write(t, f, 0, "overwriting needs no room")
	noErr(t, f.Truncate(40))
	n, err = f.WriteAt(make([]byte, 1), 120)
	if n != 0 {
		t.Errorf("wrote %d bytes behind the end", n)
	}
	wantErr(t, err, syscall.ENOSPC)
	noErr(t, m.Remove("a"))
	usage, err = m.Usage("/")
	noErr(t, err)
	if usage.Free != 100 {
		t.Errorf("free %d after the removal", usage.Free)
	}
}

// TestAtomicWriteAtEveryCrashPoint cuts WriteFileAtomic before each of its
// operations, and checks that the rig is sharp: a writer that leaves out the
// sync is caught.
func TestAtomicWriteAtEveryCrashPoint(t *testing.T) {
	if points, bad := crashPoints(t, WriteFileAtomic); bad > 0 || points < 5 {
		t.Errorf("%d points, %d bad outcomes", points, bad)
	}
	careless := func(fsys FS, name string, data []byte) error {
		f, err := fsys.Create(name + tempSuffix)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			return err
		}
		if err := fsys.Rename(name+tempSuffix, name); err != nil {
			return err
		}
		return fsys.SyncDir("d")
	}
	if _, bad := crashPoints(t, careless); bad == 0 {
		t.Error("a missing sync was not noticed")
	}
}

func crashPoints(t *testing.T, write func(FS, string, []byte) error) (points, bad int) {
	oldContent, newContent := strings.Repeat("old", blockSize), strings.Repeat("new", blockSize)
	for n := 1; ; n++ {
		m := memAt(t, "d")
		noErr(t, m.SyncDir("/"))
		noErr(t, WriteFileAtomic(m, "d/a", []byte(oldContent)))
		crash := NewCrashPoint(n)
		err := write(NewFault(m, crash), "d/a", []byte(newContent))
		for seed := range uint64(20) {
			got := readFile(t, m.CrashClone(rng(seed), 50), "d/a")
			if got != newContent && (err == nil || got != oldContent) {
				bad++
			}
		}
		if !crash.Reached() {
			noErr(t, err)
			return n, bad
		}
	}
}
