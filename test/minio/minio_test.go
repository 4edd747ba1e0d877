package minio_test

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/objstore/objstoretest"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
)

// TestServer: two servers run side by side, what one holds survives a crash, and Close leaves
// nothing behind.
func TestServer(t *testing.T) {
	srv, other := minio.Run(t, minio.Config{}), minio.Run(t, minio.Config{})
	if srv.Addr == other.Addr || srv.Dir == other.Dir {
		t.Fatalf("servers share %s or %s", srv.Addr, srv.Dir)
	}
	store := srv.Store(t, "kept")
	objstoretest.Put(t, store, "x", []byte("before"))
	store.Close()
	srv.Kill()
	if c, err := net.DialTimeout("tcp", srv.Addr, time.Second); err == nil {
		c.Close()
		t.Error("a killed server accepts connections")
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	store, err := s3.New(t.Context(), srv.Options("kept"))
	if err != nil {
		t.Fatal(err)
	}
	objstoretest.Want(t, store, "x", []byte("before"))
	store.Close()
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(srv.Dir); !os.IsNotExist(err) {
		t.Errorf("directory left: %v", err)
	}
}

func TestNoBinary(t *testing.T) {
	t.Setenv(minio.Binary, "")
	t.Chdir(t.TempDir())
	if _, err := minio.Start(t.Context(), minio.Config{}); err == nil || !strings.Contains(err.Error(), minio.Binary) {
		t.Errorf("outside the repository: %v", err)
	}
	if err := os.WriteFile("go.mod", []byte("module github.com/varve-io/varve\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := minio.Start(t.Context(), minio.Config{}); err == nil || !strings.Contains(err.Error(), "make minio") {
		t.Errorf("not built: %v", err)
	}
}
