package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/broker/admin"
	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/test/minio"
)

// TestStoreDiagnoses brings about what operators get wrong with their store and
// demands that the log, /readyz and `tier status` each say which it is and what
// to do, that no secret is shown, and that clients are served all the while.
func TestStoreDiagnoses(t *testing.T) {
	srv := minio.Run(t, minio.Config{Region: "eu-test-1"})
	if err := srv.CreateBucket(t.Context(), "right"); err != nil {
		t.Fatal(err)
	}
	const wrongSecret = "hunter2-hunter2"
	dir := t.TempDir()
	for name, value := range map[string]string{"access": minio.AccessKey, "secret": minio.SecretKey, "wrong": wrongSecret} {
		writeFile(t, filepath.Join(dir, name), value+"\n")
	}
	hole := blackHole(t)
	skewed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		w.Write([]byte(`<?xml version="1.0"?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>`))
	}))
	t.Cleanup(skewed.Close)
	texts := map[string]string{}
	for name, c := range map[string]struct {
		kind error
		sets []string
	}{
		"wrong key":         {objstore.ErrAuth, []string{"varve.store.s3.secret.key.file=" + filepath.Join(dir, "wrong")}},
		"wrong bucket":      {objstore.ErrNoBucket, []string{"varve.store.url=s3://wrong/p"}},
		"wrong region":      {objstore.ErrRegion, []string{"varve.store.s3.region=us-test-2"}},
		"name not resolved": {objstore.ErrResolve, []string{"varve.store.s3.endpoint=http://no-such-host.invalid:9000"}},
		"black hole":        {objstore.ErrTimeout, []string{"varve.store.s3.endpoint=http://" + hole, "varve.store.timeout.ms=200"}},
		"clock skew":        {objstore.ErrClockSkew, []string{"varve.store.s3.endpoint=" + skewed.URL}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t, append([]string{
				"varve.store.url=s3://right/p", "varve.store.s3.endpoint=" + srv.Endpoint, "varve.store.s3.region=eu-test-1",
				"varve.store.s3.access.key.file=" + filepath.Join(dir, "access"), "varve.store.s3.secret.key.file=" + filepath.Join(dir, "secret"),
			}, c.sets...)...)
			n.start()
			cause, remedy := objstore.Diagnose(c.kind)
			n.awaitReady("ready\n", cause, remedy)
			if log := n.stderr.String(); !strings.Contains(log, cause) {
				t.Errorf("the log does not say %q:\n%s", cause, log)
			}
			var status admin.TierStatus
			if err := json.Unmarshal([]byte(n.cli("", "tier", "status", "-o", "json")), &status); err != nil {
				t.Fatal(err)
			}
			if status.Store.Healthy || status.Store.Cause != cause || status.Store.Remedy != remedy {
				t.Errorf("tier status: %+v", status.Store)
			}
			table := n.cli("", "tier", "status")
			if !containsAll(table, []string{"FAILING", cause, remedy}) {
				t.Errorf("tier status: %s", table)
			}
			texts[cause] = name
			n.cli("", "topic", "create", "t", "-c", "remote.storage.enable=true")
			n.cli("a\nb\n", "produce", "t")
			if got := n.cli("", "consume", "t", "--from", "start", "--to", "end"); got != "a\nb\n" {
				t.Errorf("read %q", got)
			}
			_, metrics := n.get("/metrics")
			for _, shown := range []string{n.stderr.String(), table, metrics} {
				for _, secret := range []string{wrongSecret, minio.SecretKey, "Signature="} {
					if strings.Contains(shown, secret) {
						t.Errorf("a secret is shown: %s", shown)
					}
				}
			}
			if err := n.stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
	if len(texts) != 6 {
		t.Errorf("the texts are not six: %v", texts)
	}
}

// blackHole accepts connections and never answers.
func blackHole(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	return ln.Addr().String()
}
