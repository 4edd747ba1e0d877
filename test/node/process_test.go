package node

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	got, err := parseCPU("12 (a b) c) S 1 12 12 0 -1 4194304 1 0 0 0 150 25 7 7 20 0 1 0 5 6 7")
	if want := 1750 * time.Millisecond; err != nil || got != want {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	if _, err := parseCPU("12 (a) S 1"); err == nil {
		t.Fatal("a short line was taken")
	}
}

func TestPomNamesTheRelease(t *testing.T) {
	if n := bytes.Count(pom, []byte("<version>"+KafkaVersion+"</version>")); n != 2 {
		t.Fatalf("pom.xml names Kafka %s %d times, want 2", KafkaVersion, n)
	}
}

// TestHalt: a halted process executes nothing.
func TestHalt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	p, err := start(exec.Command("sh", "-c", "while :; do echo x; done"), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for size() == 0 {
		time.Sleep(time.Millisecond)
	}
	if running, err := p.runs(); err != nil || !running {
		t.Fatalf("it runs: %v, %v", running, err)
	}
	if err := p.Halt(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	before, cpu := size(), must(p.CPU())
	time.Sleep(50 * time.Millisecond)
	if after, used := size(), must(p.CPU()); after != before || used != cpu {
		t.Errorf("it wrote %d bytes and used %v after it was halted", after-before, used-cpu)
	}
	p.Thaw()
	for size() == before {
		time.Sleep(time.Millisecond)
	}
	p.Kill()
	if err := p.Halt(10 * time.Second); err != nil {
		t.Errorf("of a process that is gone: %v", err)
	}
}

func must(d time.Duration, err error) time.Duration {
	if err != nil {
		panic(err)
	}
	return d
}
