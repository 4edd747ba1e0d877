package lan

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echo is this test's own program, started inside a host: it sends back what comes.
const echoAddr = "VARVE_LAN_ECHO"

func TestMain(m *testing.M) {
	if addr := os.Getenv(echoAddr); addr != "" {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			os.Exit(1)
		}
		for {
			c, err := ln.Accept()
			if err != nil {
				os.Exit(1)
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}
	os.Exit(m.Run())
}

// host starts an echo in a host, which ends with the test, and connects to it.
func host(t *testing.T, l *Lan, i int) net.Conn {
	t.Helper()
	addr := net.JoinHostPort(l.Addr(i), "7")
	cmd := exec.Command("nsenter", "--net="+l.Namespace(i), os.Args[0])
	cmd.Env = append(os.Environ(), echoAddr+"="+addr)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// answers says whether an echo comes back in time.
func answers(t *testing.T, c net.Conn, limit time.Duration) bool {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(limit))
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

// TestFaults: what is dropped does not arrive, other hosts do not notice, and after healing all comes through.
func TestFaults(t *testing.T) {
	l, err := Make(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	struck, other := host(t, l, 0), host(t, l, 1)
	const short, long = 300 * time.Millisecond, 30 * time.Second
	if !answers(t, struck, long) || !answers(t, other, long) {
		t.Fatal("a whole network does not answer")
	}
	if err := l.Drop(Outside, 0); err != nil {
		t.Fatal(err)
	}
	if answers(t, struck, short) {
		t.Error("what is dropped is answered")
	}
	if !answers(t, other, long) {
		t.Error("the other host does not answer")
	}
	if err := l.Heal(0); err != nil {
		t.Fatal(err)
	}
	struck.SetReadDeadline(time.Now().Add(long))
	if _, err := io.ReadFull(struck, make([]byte, 1)); err != nil { // by retransmission
		t.Errorf("after healing: %v", err)
	}
	if err := l.Lose(0, 99); err != nil {
		t.Fatal(err)
	}
	connected := 0
	const dials = 5
	for range dials {
		if c, err := net.DialTimeout("tcp", struck.RemoteAddr().String(), short); err == nil {
			connected++
			c.Close()
		}
	}
	if connected == dials {
		t.Error("with nearly all lost every connection opens")
	}
	if l.Lose(0, 0) == nil || l.Lose(0, 100) == nil {
		t.Error("loss of nothing and of everything is taken")
	}
	if err := l.Slow(0, 1000); err != nil {
		t.Fatal(err)
	}
	for range 2 { // once with faults, once without
		if err := l.Heal(0); err != nil {
			t.Fatal(err)
		}
	}
	if shaped, err := output(l.in(0, "tc qdisc show dev eth0")); err != nil || strings.Contains(shaped, "tbf") {
		t.Errorf("still slow: %q, %v", shaped, err)
	}
}

// TestSweep: what a dead process left goes, what a living one uses stays.
func TestSweep(t *testing.T) {
	dead, err := Make(1)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := Make(1)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	dead.lock.Close() // as the kernel does it for a process that dies
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		l     *Lan
		there bool
	}{{dead, false}, {alive, true}} {
		if _, err := os.Stat(c.l.Namespace(0)); (err == nil) != c.there {
			t.Errorf("namespace of slot %d: %v", c.l.slot, err)
		}
		if _, err := os.Stat("/sys/class/net/" + c.l.bridge()); (err == nil) != c.there {
			t.Errorf("bridge of slot %d: %v", c.l.slot, err)
		}
	}
}
