package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/objstoretest"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
)

func open(t testing.TB, opts s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMinIO runs the acceptance suite against a real MinIO, in every mode.
func TestMinIO(t *testing.T) {
	const domain = "varve.test"
	srv := minio.Run(t, minio.Config{Domain: domain, Region: "eu-test-1"})
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, srv.Addr)
	}
	_, port, err := net.SplitHostPort(srv.Addr)
	if err != nil {
		t.Fatal(err)
	}
	var buckets atomic.Int64
	for name, change := range map[string]func(*s3.Options){
		"path style": func(*s3.Options) {},
		"virtual style": func(o *s3.Options) {
			o.PathStyle, o.Endpoint, o.Dial = false, "http://"+net.JoinHostPort(domain, port), dial
		},
		"prefix, no checksums": func(o *s3.Options) { o.Prefix, o.Checksum = "/some/prefix/", s3.ChecksumNone },
	} {
		if testing.Short() && name != "path style" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			objstoretest.Run(t, func(t *testing.T) objstore.Store {
				bucket := fmt.Sprintf("suite-%d", buckets.Add(1))
				if err := srv.CreateBucket(t.Context(), bucket); err != nil {
					t.Fatal(err)
				}
				opts := srv.Options(bucket)
				change(&opts)
				return open(t, opts)
			})
		})
	}
}

// TestPrefix: two prefixes of one bucket do not see each other.
func TestPrefix(t *testing.T) {
	srv := minio.Run(t, minio.Config{})
	whole := srv.Store(t, "shared")
	opts := srv.Options("shared")
	opts.Prefix = "a"
	a := open(t, opts)
	opts.Prefix = "ab"
	ab := open(t, opts)
	objstoretest.Put(t, a, "x", []byte("in a"))
	objstoretest.Put(t, ab, "x", []byte("in ab"))
	objstoretest.Want(t, a, "x", []byte("in a"))
	objstoretest.Want(t, whole, "ab/x", []byte("in ab"))
	var seen []string
	err := a.List(t.Context(), "", "", func(i objstore.Info) error { seen = append(seen, i.Name); return nil })
	if err != nil || len(seen) != 1 || seen[0] != "x" {
		t.Errorf("listed %q, %v", seen, err)
	}
}

func TestOptions(t *testing.T) {
	for name, opts := range map[string]s3.Options{
		"no bucket":        {},
		"checksum mode":    {Bucket: "b", Checksum: "md5"},
		"prefix":           {Bucket: "b", Prefix: "a/../b"},
		"endpoint scheme":  {Bucket: "b", Endpoint: "ftp://host"},
		"endpoint no host": {Bucket: "b", Endpoint: "localhost:9000"},
		"endpoint secret":  {Bucket: "b", Endpoint: "http://user:hunter2@host:9000"},
		"endpoint query":   {Bucket: "b", Endpoint: "http://host:9000?key=hunter2"},
		"endpoint garbled": {Bucket: "b", Endpoint: "http://user:hunter2@ho st"},
	} {
		_, err := s3.New(t.Context(), opts)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTLS: over https an unknown authority is refused and told, one named by AWS_CA_BUNDLE
// trusted, and objects travel whole and in parts.
func TestTLS(t *testing.T) {
	srv := minio.Run(t, minio.Config{TLS: true})
	opts := srv.Options("secret")
	opts.PartSize = partSize
	stranger := open(t, opts)
	defer stranger.Close()
	err := stranger.Put(t.Context(), "x", strings.NewReader("x"), 1, objstore.PutOptions{})
	if !errors.Is(err, objstore.ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("unknown authority: %v", err)
	}
	t.Setenv("AWS_CA_BUNDLE", srv.CAFile)
	s := open(t, opts)
	defer s.Close()
	if err := s.Put(t.Context(), "x", strings.NewReader("x"), 1, objstore.PutOptions{}); !errors.Is(err, objstore.ErrNoBucket) {
		t.Fatalf("trusted, no bucket yet: %v", err)
	}
	if err := os.Mkdir(filepath.Join(srv.Dir, "data", "secret"), 0o755); err != nil { // a bucket, to MinIO
		t.Fatal(err)
	}
	for _, size := range []int{0, 1000, 4*partSize + 1} {
		name := fmt.Sprint("o", size)
		objstoretest.Put(t, s, name, objstoretest.Bytes(9, size))
		objstoretest.Want(t, s, name, objstoretest.Bytes(9, size))
	}
}
