package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/varve-io/varve/test/proxy"
)

// echo is a server that sends back what it gets, and tells when a connection has ended.
func echo(t *testing.T) (addr string, ended <-chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, err := io.Copy(c, c)
				ends <- err
				c.Close()
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String(), ends
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a byte and waits for its echo at most for limit.
func ask(c net.Conn, limit time.Duration) (took time.Duration, err error) {
	start := time.Now()
	c.SetDeadline(start.Add(limit))
	if _, err := c.Write([]byte{'?'}); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return time.Since(start), err
}

// try connects and asks once.
func try(p *proxy.Proxy) error {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = ask(c, 2*time.Second)
	return err
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// TestPassesEverything: bytes and the end of the stream pass unchanged, with every fault that
// loses nothing and while these change.
func TestPassesEverything(t *testing.T) {
	addr, _ := echo(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // 3.2 MB
	for name, faults := range map[string][]proxy.Faults{
		"none":     {{}},
		"delay":    {{Up: proxy.Way{Delay: 20 * time.Millisecond}, Down: proxy.Way{Delay: 30 * time.Millisecond}}},
		"rate":     {{Up: proxy.Way{Rate: 20e6}}},
		"changing": {{}, {Up: proxy.Way{Delay: 5 * time.Millisecond}}, proxy.BlackHole, {Down: proxy.Way{Rate: 50e6}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxy.Run(t, addr, faults[0])
			c := dial(t, p).(*net.TCPConn)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				c.Write(sent)
				c.CloseWrite()
			})
			wg.Go(func() {
				for i := 0; len(faults) > 1; i++ {
					select {
					case <-stop:
						return
					case <-time.After(3 * time.Millisecond):
						p.Set(faults[i%len(faults)])
					}
				}
			})
			h := sha256.New()
			n, err := io.Copy(h, c)
			close(stop)
			wg.Wait()
			if err != nil || n != int64(len(sent)) || !bytes.Equal(h.Sum(nil), sum(sent)) {
				t.Errorf("got %d of %d bytes back, equal %v: %v", n, len(sent), bytes.Equal(h.Sum(nil), sum(sent)), err)
			}
			if _, up, down := p.Stats(); up != n || down != n {
				t.Errorf("counted %d up, %d down, want %d", up, down, n)
			}
		})
	}
}

func sum(p []byte) []byte { s := sha256.Sum256(p); return s[:] }

func TestDelay(t *testing.T) {
	addr, _ := echo(t)
	p := proxy.Run(t, addr, proxy.Faults{ConnectDelay: 50 * time.Millisecond, Up: proxy.Way{Delay: 30 * time.Millisecond}})
	c := dial(t, p)
	if took, err := ask(c, time.Second); err != nil || took < 70*time.Millisecond {
		t.Errorf("first answer after %v, %v, want 80ms", took, err)
	}
	if took, err := ask(c, time.Second); err != nil || took < 30*time.Millisecond || took > 75*time.Millisecond {
		t.Errorf("second answer after %v, %v, want 30ms", took, err)
	}
	p.Heal()
	if took, err := ask(c, time.Second); err != nil || took > 25*time.Millisecond {
		t.Errorf("healed answer after %v, %v", took, err)
	}
}

// TestBlackHole: nothing passes on old and new connections; healed, it passes late but whole.
func TestBlackHole(t *testing.T) {
	addr, _ := echo(t)
	p := proxy.Run(t, addr, proxy.Faults{})
	old := dial(t, p)
	if _, err := ask(old, time.Second); err != nil {
		t.Fatal(err)
	}
	p.Set(proxy.BlackHole)
	for name, c := range map[string]net.Conn{"old": old, "new": dial(t, p)} {
		if _, err := ask(c, 50*time.Millisecond); !isTimeout(err) {
			t.Errorf("%s connection: %v, want a timeout", name, err)
		}
	}
	p.Heal()
	old.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.ReadFull(old, make([]byte, 1)); err != nil {
		t.Errorf("the answer held back: %v", err)
	}
}

func TestCut(t *testing.T) {
	addr, ended := echo(t)
	p := proxy.Run(t, addr, proxy.Faults{})
	c := dial(t, p)
	if _, err := ask(c, time.Second); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if _, err := ask(c, time.Second); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("open connection: %v, want a reset", err)
	}
	if err := <-ended; err == nil {
		t.Error("the server's end was closed in order, want a reset")
	}
	if err := try(p); err == nil || isTimeout(err) {
		t.Errorf("new connection: %v, want a reset", err)
	}
	p.Heal()
	if _, err := ask(dial(t, p), time.Second); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// TestHalfOpen: the server's end is gone, the client does not learn of it.
func TestHalfOpen(t *testing.T) {
	addr, ended := echo(t)
	p := proxy.Run(t, addr, proxy.Faults{})
	c := dial(t, p)
	if _, err := ask(c, time.Second); err != nil {
		t.Fatal(err)
	}
	p.Set(proxy.Faults{HalfOpen: true})
	<-ended
	for range 2 {
		if _, err := ask(c, 30*time.Millisecond); !isTimeout(err) {
			t.Errorf("%v, want a timeout", err)
		}
	}
}

func TestDrip(t *testing.T) {
	addr, _ := echo(t)
	p := proxy.Run(t, addr, proxy.Faults{Down: proxy.Way{Rate: 1000}})
	c := dial(t, p)
	start := time.Now()
	if _, err := c.Write(make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	first, all := time.Duration(0), 0
	for all < 200 {
		n, err := c.Read(make([]byte, 200))
		if err != nil {
			t.Fatal(err)
		}
		if all += n; first == 0 {
			first = time.Since(start)
		}
	}
	if took := time.Since(start); took < 190*time.Millisecond || first > took/2 {
		t.Errorf("200 bytes at 1000 a second: first after %v, all after %v", first, took)
	}
}

// TestTargetGone: a target that refuses closes the client's connection, it does not hang.
func TestTargetGone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	p := proxy.Run(t, addr, proxy.Faults{})
	if err := try(p); err == nil || isTimeout(err) {
		t.Errorf("%v, want a closed connection", err)
	}
}
