package main

import (
	"bytes"
	"context"
	"errors"

	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// testNode is a node in this process, with its directories below dir.
type testNode struct {
	t                       *testing.T
	dir, addr, ctrl, adminA string
	sets                    []string
	stderr                  *lockedBuffer
	cancel                  context.CancelFunc
	ended                   chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newTestNode has free ports and an empty directory, and does not run yet.
func newTestNode(t *testing.T, sets ...string) *testNode {
	t.Helper()
	free := freeAddrs(t, 3)
	n := &testNode{t: t, dir: t.TempDir(), addr: free[0], ctrl: free[1], adminA: free[2]}
	n.sets = append([]string{
		"node.id=1",
		"listeners=PLAINTEXT://" + n.addr + ",CONTROLLER://" + n.ctrl,
		"log.dirs=" + filepath.Join(n.dir, "log"),
		"varve.store.url=file://" + filepath.Join(n.dir, "store"),
		"varve.admin.listener=" + n.adminA,
		"remote.log.manager.task.interval.ms=200",
	}, sets...)
	return n
}

// freeAddrs returns n different addresses that were free a moment ago.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all stay open until the end: no port twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

func (n *testNode) args() []string {
	args := []string{"server"}
	for _, s := range n.sets {
		args = append(args, "--set", s)
	}
	return args
}

// start runs the node; it is stopped at the end of the test.
func (n *testNode) start() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.stderr, n.cancel, n.ended = &lockedBuffer{}, cancel, make(chan error, 1)
	go func(stderr io.Writer, ended chan<- error) {
		ended <- run(ctx, n.args(), stdio{in: strings.NewReader(""), out: io.Discard, err: stderr})
	}(n.stderr, n.ended)
	n.t.Cleanup(func() { n.stop() })
}

// stop asks the node to end and waits for it.
func (n *testNode) stop() error {
	n.t.Helper()
	n.cancel()
	select {
	case err := <-n.ended:
		n.ended <- err
		return err
	case <-time.After(40 * time.Second):
		n.t.Fatalf("the node does not stop:\n%s", n.stderr)
		return nil
	}
}

// awaitReady waits for /readyz to say 200, or for the reasons given.
func (n *testNode) awaitReady(reasons ...string) {
	n.t.Helper()
	last := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		code, body := n.get("/readyz")
		last = fmt.Sprint(code, " ", body)
		if len(reasons) == 0 && code == http.StatusOK {
			return
		}
		if len(reasons) > 0 && containsAll(body, reasons) {
			return
		}
		select {
		case err := <-n.ended:
			n.ended <- err
			n.t.Fatalf("the node ended: %v\n%s", err, n.stderr)
		default:
		}
	}
	n.t.Fatalf("/readyz says %s, want %q\n%s", last, reasons, n.stderr)
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

func (n *testNode) get(path string) (int, string) {
	resp, err := http.Get("http://" + n.adminA + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// cli runs a command against the node and wants it to succeed.
func (n *testNode) cli(stdin string, args ...string) string {
	n.t.Helper()
	out, errs, code := n.try(stdin, args...)
	if code != exitOK {
		n.t.Fatalf("varve %s: exit %d: %s\n%s", strings.Join(args, " "), code, errs, n.stderr)
	}
	return out
}

func (n *testNode) try(stdin string, args ...string) (stdout, stderr string, code int) {
	n.t.Helper()
	return varve(n.t, stdin, []string{"VARVE_BOOTSTRAP_SERVER=" + n.addr, "VARVE_ADMIN=http://" + n.adminA}, args...)
}

// eventually waits until check says that all is well.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// TestNodeWholePath: the command line of a whole node, the tools against it,
// and the records of both tiers after a restart.
func TestNodeWholePath(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.awaitReady()
	n.cli("", "topic", "create", "orders", "-p", "2", "-c", "remote.storage.enable=true", "-c", "segment.bytes=1048576", "-c", "local.retention.ms=1")
	if out := n.cli("", "topic", "list", "-o", "json"); !strings.Contains(out, `"name": "orders"`) {
		t.Errorf("topic list: %s", out)
	}
	var lines strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&lines, "key-%d:value-%d-%s\n", i%10, i, strings.Repeat("x", 1000))
	}
	n.cli(lines.String(), "produce", "orders", "-K", ":", "-z", "zstd", "-H", "a=b")
	n.cli(lines.String(), "produce", "orders", "-K", ":")
	n.cli(lines.String(), "produce", "orders", "-K", ":")
	want := n.cli("", "consume", "orders", "--from", "start", "--to", "end", "-f", `%p %o %k:%s %h\n`)
	if count := strings.Count(want, "\n"); count != 12000 {
		t.Fatalf("consumed %d records", count)
	}
	eventually(t, func() error {
		out := n.cli("", "tier", "segments", "orders", "-o", "json")
		if strings.Count(out, `"remote"`) < 3 {
			return fmt.Errorf("segments: %s", out)
		}
		return nil
	})
	if out := n.cli("", "tier", "status"); !strings.Contains(out, "ok, cache") || !strings.Contains(out, "orders") {
		t.Errorf("tier status: %s", out)
	}
	if err := n.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, n.stderr)
	}
	n.start()
	n.awaitReady()
	if got := n.cli("", "consume", "orders", "--from", "start", "--to", "end", "-f", `%p %o %k:%s %h\n`); sorted(got) != sorted(want) {
		t.Errorf("after the restart %d lines are not the %d of before", strings.Count(got, "\n"), strings.Count(want, "\n"))
	}
	if got := n.cli("", "consume", "orders", "--from", "-1h", "--to", "end", "-n", "5", "-o", "json"); strings.Count(got, "\n") != 5 {
		t.Errorf("five records: %s", got)
	}
	n.cli("", "topic", "delete", "orders")
	eventually(t, func() error {
		var left []string
		err := filepath.Walk(filepath.Join(n.dir, "store"), func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() && !strings.HasSuffix(path, ".json") {
				left = append(left, path)
			}
			return nil
		})
		if len(left) > 0 {
			return fmt.Errorf("%d objects are left of the topic: %s", len(left), left[0])
		}
		return err
	})
}

func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestNodeMetrics: what Prometheus reads is there, and bounded.
func TestNodeMetrics(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.awaitReady()
	n.cli("", "topic", "create", "a")
	n.cli("x\n", "produce", "a")
	_, body := n.get("/metrics")
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "varve_"} {
		if !strings.Contains(body, name) {
			t.Errorf("no %s in /metrics", name)
		}
	}
	if strings.Contains(body, `topic="a"`) {
		t.Error("a metric has a label for every topic")
	}
}

// TestNodeRefusals: whatever would mix up data is refused, with the way out.
func TestNodeRefusals(t *testing.T) {
	first := newTestNode(t)
	first.start()
	first.awaitReady()
	log := func(dir string) string { return "log.dirs=" + filepath.Join(dir, "log") }
	expect := func(name string, second *testNode, parts ...string) {
		t.Run(name, func(t *testing.T) {
			_, stderr, code := varve(t, "", nil, second.args()...)
			if code != exitFailed || !containsAll(stderr, parts) {
				t.Errorf("exit %d: %s\nwant %q", code, stderr, parts)
			}
		})
	}
	expect("two processes on one directory", newTestNode(t, log(first.dir)), "another process")
	expect("port in use", newTestNode(t, "listeners=PLAINTEXT://"+first.addr+",CONTROLLER://127.0.0.1:0"), "address already in use", "change listeners")
	expect("admin port in use", newTestNode(t, "varve.admin.listener="+first.adminA), "address already in use", "varve.admin.listener")
	expect("prefix of another cluster", newTestNode(t, "varve.store.url=file://"+filepath.Join(first.dir, "store")), "another cluster", "varve.store.url")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	expect("directory of another node", newTestNode(t, log(first.dir), "node.id=2"), "node 1", "node.id=1")
	expect("directory of another cluster", newTestNode(t, log(first.dir), "varve.cluster.id=MkU3OEVBNTcwNTJENDM2Qg"), "another cluster", "varve.cluster.id")
	kafka := newTestNode(t)
	dir := filepath.Join(kafka.dir, "log")
	writeFile(t, filepath.Join(dir, "meta.properties"), "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=k3Bs7HIGTqGRgMSFZZRGng\n")
	expect("log.dirs of Apache Kafka", kafka, "Apache Kafka", "Point log.dirs at an empty directory")
	first.start() // nothing of all that did harm
	first.awaitReady()
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestServerConfigErrors name the property, its source and the way out.
func TestServerConfigErrors(t *testing.T) {
	_, stderr, code := varve(t, "", []string{"VARVE_NUM_PARTITIONS=x"}, "server", "--set", "node.id=1", "--set", "log.dirs=/nowhere")
	if code != exitFailed || !containsAll(stderr, []string{"property num.partitions (environment)", "Not a number of type INT", "VARVE_NUM_PARTITIONS"}) {
		t.Errorf("exit %d: %s", code, stderr)
	}
	_, stderr, code = varve(t, "", nil, "server")
	if code != exitFailed || !containsAll(stderr, []string{"property node.id (not set)", "required", "--set node.id="}) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestDev: a node with a directory of its own that is gone afterwards.
func TestDev(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	_, port, err := net.SplitHostPort(freeAddrs(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stderr, ended := &lockedBuffer{}, make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"dev", "--dir", dir, "--port", port, "--rm"}, stdio{out: io.Discard, err: stderr})
	}()
	env := []string{"VARVE_BOOTSTRAP_SERVER=127.0.0.1:" + port}
	eventually(t, func() error {
		if _, errs, code := varve(t, "", env, "topic", "create", "t", "--if-not-exists"); code != exitOK {
			return errors.New(errs + stderr.String())
		}
		return nil
	})
	for _, format := range []string{formatTable, formatWide, formatJSON, formatYAML} {
		if out, errs, code := varve(t, "", env, "topic", "describe", "t", "-o", format); code != exitOK || !strings.Contains(out, "t") {
			t.Errorf("describe -o %s: %d %s %s", format, code, out, errs)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("dev: %v\n%s", err, stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}
