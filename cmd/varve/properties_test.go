package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/log"
	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/config"
)

func TestParseProperties(t *testing.T) {
	const text = `# comment
! comment
node.id=1
  log.dirs : /a/b , /c
listeners=PLAINTEXT://:9092,\
          CONTROLLER://:9093

empty=
flag
spaced   value with blanks	
escaped\ key\:x=a\tb\u0041\\
windows=crlf` + "\r\n" + `last=\`
	got, err := parseProperties(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"node.id": "1", "log.dirs": "/a/b , /c", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
		"empty": "", "flag": "", "spaced": "value with blanks", "escaped key:x": "a\tbA\\", "windows": "crlf", "last": "",
	}
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s = %q (%v), want %q", name, v, ok, value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{`a=\u12`, `a=\uxyzw`} {
		if _, err := parseProperties("x=1\n" + bad); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzParseProperties(f *testing.F) {
	f.Add("a=b\nc: d \\\n e")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseProperties(text)
		if (err == nil) == (values == nil) {
			t.Errorf("%v with %v", values, err)
		}
	})
}

func TestLoadSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(path, []byte("node.id=1\nlog.dirs=/file\nnum.partitions=2\nlog.dir.s=/x\nnum.io.threads=8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"VARVE_LOG_DIRS=/env", "VARVE_NUM_PARTITIONS=3", "VARVE_STORE_URL=file:///s", "VARVE_BOOTSTRAP_SERVER=x:1", "VARVE_STORE_ULR=y", "HOME=/root"}
	s, err := loadSettings(path, env, []string{"num.partitions=4", "listeners=PLAINTEXT://:1,CONTROLLER://:2"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"node.id": "1", "log.dirs": "/env", "num.partitions": "4", "varve.store.url": "file:///s", "listeners": "PLAINTEXT://:1,CONTROLLER://:2",
	} {
		if s.values[name] != want {
			t.Errorf("%s = %q, want %q", name, s.values[name], want)
		}
	}
	unknown, ignored := s.warnings()
	want := []string{
		"unknown property log.dir.s (" + path + "), did you mean log.dirs?",
		"unknown property store.ulr (environment), did you mean varve.store.url?",
	}
	if !slices.Equal(unknown, want) || !slices.Equal(ignored, []string{"num.io.threads"}) {
		t.Errorf("unknown %q, ignored %q", unknown, ignored)
	}
	for _, bad := range [][]string{{"x"}, {"=1"}} {
		if _, err := loadSettings("", nil, bad); err == nil {
			t.Errorf("--set %q is taken", bad)
		}
	}
	if _, err := loadSettings("/nowhere/x", nil, nil); err == nil || !strings.Contains(err.Error(), "/nowhere/x") {
		t.Errorf("missing file: %v", err)
	}
}

// TestEnvNames: no variable stands for two properties.
func TestEnvNames(t *testing.T) {
	seen := map[string]string{}
	for p := range config.All(config.BrokerScope) {
		name := envName(p.Name)
		if other := seen[name]; other != "" {
			t.Errorf("%s is %s and %s", name, other, p.Name)
		}
		if clientEnv[name] {
			t.Errorf("%s of %s is the client's", name, p.Name)
		}
		seen[name] = p.Name
	}
}

// TestFollowerObeysProperties: how a broker deals with its controller can be set.
func TestFollowerObeysProperties(t *testing.T) {
	static := map[string]string{"node.id": "1", "log.dirs": "/d", "request.timeout.ms": "1234", "broker.heartbeat.interval.ms": "567"}
	cfg, err := config.ForBroker(static)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(cfg, static, slog.New(slog.DiscardHandler))
	dir, err := log.OpenDir(log.DirOptions{FS: vfs.NewMem(), Path: "/d", ClusterID: "c", NodeID: 1, Format: true})
	if err != nil {
		t.Fatal(err)
	}
	n.dirs = []*log.Dir{dir}
	if got := n.followerConfig(); got.RequestTimeout != 1234*time.Millisecond || got.HeartbeatInterval != 567*time.Millisecond {
		t.Errorf("request timeout %v, heartbeats %v", got.RequestTimeout, got.HeartbeatInterval)
	}
}
