package vfs

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestFaultRules(t *testing.T) {
	eio := Outcome{Err: syscall.EIO}
	for _, test := range []struct {
		name string
		rule Rule
		want []bool // which of five syncs of two files fail
	}{
		{"every operation", Rule{Outcome: eio, Kinds: []OpKind{OpSync}}, []bool{true, true, true, true, true}},
		{"third on", Rule{Outcome: eio, Kinds: []OpKind{OpSync}, Nth: 3}, []bool{false, false, true, true, true}},
		{"second only", Rule{Outcome: eio, Kinds: []OpKind{OpSync}, Nth: 2, Times: 1}, []bool{false, true, false, false, false}},
		{"by last element", Rule{Outcome: eio, Kinds: []OpKind{OpSync}, Glob: "*.log"}, []bool{true, false, true, false, true}},
		{"by directory", Rule{Outcome: eio, Kinds: []OpKind{OpSync}, Glob: "t-*/0.log"}, []bool{true, false, true, false, true}},
		{"other directory", Rule{Outcome: eio, Kinds: []OpKind{OpSync}, Glob: "u-*/0.log"}, []bool{false, false, false, false, false}},
		{"other kind", Rule{Outcome: eio, Kinds: []OpKind{OpWrite, OpRead}}, []bool{false, false, false, false, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules := NewRules()
			fsys := NewFault(memAt(t, "d/t-0"), rules)
			files := []File{must(fsys.Create("d/t-0/0.log"))(t), must(fsys.Create("d/t-0/0.index"))(t)}
			rules.Add(test.rule)
			for i, want := range test.want {
				err := files[i%2].Sync()
				if failed := errors.Is(err, syscall.EIO); failed != want {
					t.Errorf("sync %d: %v", i, err)
				}
			}
			rules.Clear()
			noErr(t, files[0].Sync())
		})
	}
}

func TestFaultShortWrite(t *testing.T) {
	fsys := NewFault(memAt(t, "/"), NewRules(Rule{Kinds: []OpKind{OpWrite}, Nth: 2, Outcome: Outcome{Err: syscall.ENOSPC, Short: 5}}))
	f := must(fsys.Create("a"))(t)
	write(t, f, 0, "ab")
	n, err := f.WritevAt([][]byte{[]byte("cde"), []byte("fgh")}, 2)
	wantErr(t, err, syscall.ENOSPC)
	if n != 5 || contentOf(t, f) != "abcdefg" {
		t.Errorf("wrote %d, content %q", n, contentOf(t, f))
	}
}

func TestFaultHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		fsys := NewFault(memAt(t, "/"), NewRules(Rule{Kinds: []OpKind{OpSync}, Outcome: Outcome{Hang: release}}))
		f := must(fsys.Create("a"))(t)
		synced := make(chan error)
		go func() { synced <- f.Sync() }()
		time.AfterFunc(time.Minute, func() { close(release) })
		start := time.Now()
		noErr(t, <-synced)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("the sync hung for %v", took)
		}
	})
}

func TestFaultEvents(t *testing.T) {
	fsys := NewFault(memAt(t, "/tmp/1"), NewRules(Rule{Kinds: []OpKind{OpRename}, Nth: 2, Outcome: Outcome{Err: syscall.EIO}}))
	noErr(t, WriteFileAtomic(fsys, "/tmp/1/x", []byte("abc")))
	wantErr(t, WriteFileAtomic(fsys, "/tmp/1/x", []byte("abc")), syscall.EIO)
	want := `remove x.tmp: file does not exist
create x.tmp
write x.tmp 0+3
sync x.tmp
rename x.tmp to x
syncdir /tmp/1
remove x.tmp: file does not exist
create x.tmp
write x.tmp 0+3
sync x.tmp
rename x.tmp to x: input/output error
remove x.tmp
`
	if got := fsys.Events("/tmp/1"); got != want {
		t.Errorf("events:\n%s\nwant:\n%s", got, want)
	}
	if got := fsys.Events("/tmp/1"); got != "" {
		t.Errorf("events are told twice: %q", got)
	}
}
