package node

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Broker is one running node that speaks Kafka's protocol at Addr.
type Broker struct {
	*Process
	Kind    string        // "kafka" or "varve"
	Addr    string        // host:port of the client listener
	Admin   string        // host:port of Varve's HTTP listener
	Dir     string        // everything it writes is below
	LogDir  string        // its partition directories
	StartUp time.Duration // from exec to the first answer to ApiVersions

	began time.Time
}

const (
	readyTimeout = 60 * time.Second
	readyPoll    = 5 * time.Millisecond
)

// Await waits until the node answers and fills StartUp; on failure the process
// is killed and the error holds the end of its output.
func (b *Broker) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := askAPIVersions(b.Addr)
		if err == nil {
			b.StartUp = time.Since(b.began)
			return nil
		}
		select {
		case <-b.Exited():
			return fmt.Errorf("%s ended before it answered (%v); its output ends:\n%s", b.Kind, b.err, tail(b.LogPath()))
		case <-ctx.Done():
			b.Kill()
			return fmt.Errorf("%s does not answer ApiVersions at %s (last: %w); its output ends:\n%s", b.Kind, b.Addr, err, tail(b.LogPath()))
		case <-time.After(readyPoll):
		}
	}
}

// askAPIVersions sends ApiVersions version 0 and wants an answer without error.
func askAPIVersions(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	// size 10, key 18, version 0, correlation id 1, null client id
	if _, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
		return err
	}
	var head [10]byte // size, correlation id, error code
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	if code := binary.BigEndian.Uint16(head[8:]); code != 0 {
		return fmt.Errorf("ApiVersions answered error %d", code)
	}
	return nil
}

// tail is the end of a file, for error messages.
func tail(path string) string {
	const most = 4 << 10
	b, _ := os.ReadFile(path)
	return string(b[max(0, len(b)-most):])
}

// portsOf returns n loopback ports for a broker in dir: those that it had the
// last time, else such that were free a moment ago.
func portsOf(dir string, n int) ([]int, error) {
	path := filepath.Join(dir, "ports.json")
	var ports []int
	if b, err := os.ReadFile(path); err == nil {
		err := json.Unmarshal(b, &ports)
		return ports, err
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all stay open until the end: no port twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	b, err := json.Marshal(ports)
	return ports, errors.Join(err, os.WriteFile(path, b, 0o644))
}
