package s3_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/objstoretest"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/proxy"
)

// calls are all calls of a store that reach the network.
var calls = map[string]func(context.Context, objstore.Store) error{
	"list": func(ctx context.Context, s objstore.Store) error {
		return s.List(ctx, "", "", func(objstore.Info) error { return nil })
	},
	"put": func(ctx context.Context, s objstore.Store) error {
		return s.Put(ctx, "new", strings.NewReader("x"), 1, objstore.PutOptions{})
	},
	"get": func(ctx context.Context, s objstore.Store) error {
		_, err := s.Get(ctx, "there", 0, make([]byte, 1))
		return err
	},
	"head":        func(ctx context.Context, s objstore.Store) error { _, err := s.Head(ctx, "there"); return err },
	"delete":      func(ctx context.Context, s objstore.Store) error { return s.Delete(ctx, "absent") },
	"delete many": func(ctx context.Context, s objstore.Store) error { return s.DeleteMany(ctx, []string{"absent"}) },
}

// wantDiagnosis demands of every call an error of the kind, that names no secret.
func wantDiagnosis(t *testing.T, s objstore.Store, kind error, secrets ...string) {
	t.Helper()
	wantCause, wantRemedy := objstore.Diagnose(kind)
	for name, call := range calls {
		err := call(t.Context(), s)
		cause, remedy := objstore.Diagnose(err)
		if !errors.Is(err, kind) || cause != wantCause || remedy != wantRemedy {
			t.Errorf("%s: %v\ndiagnosed as %q, want %q", name, err, cause, wantCause)
		}
		for _, secret := range append(secrets, minio.SecretKey, "Signature=", "AWS4-HMAC") {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error shows %q: %v", name, secret, err)
			}
		}
	}
}

// TestDiagnoses brings about, against a real MinIO, what operators get wrong, and demands that each
// be told from the others by every call.
func TestDiagnoses(t *testing.T) {
	srv := minio.Run(t, minio.Config{Region: "eu-test-1"})
	good := srv.Store(t, "right")
	objstoretest.Put(t, good, "there", []byte("x"))

	blackHole := proxy.Run(t, srv.Addr, proxy.BlackHole)
	cut := proxy.Run(t, srv.Addr, proxy.Faults{Refuse: true})
	keys := func(access, secret string) func(*s3.Options) {
		return func(o *s3.Options) { o.Credentials = credentials.NewStaticCredentialsProvider(access, secret, "") }
	}
	for name, c := range map[string]struct {
		kind   error
		change func(*s3.Options)
	}{
		"wrong access key": {objstore.ErrAuth, keys("nobody", minio.SecretKey)},
		"wrong secret key": {objstore.ErrAuth, keys(minio.AccessKey, "hunter2-hunter2")},
		"wrong bucket":     {objstore.ErrNoBucket, func(o *s3.Options) { o.Bucket = "wrong" }},
		"wrong region":     {objstore.ErrRegion, func(o *s3.Options) { o.Region = "us-test-2" }},
		"name not resolved": {objstore.ErrResolve, func(o *s3.Options) {
			o.Endpoint = "http://no-such-host.invalid:9000"
		}},
		"black hole": {objstore.ErrTimeout, func(o *s3.Options) {
			o.Endpoint, o.Timeout = "http://"+blackHole.Addr(), 100*time.Millisecond
		}},
		"black hole on connect": {objstore.ErrTimeout, func(o *s3.Options) {
			o.Timeout = 50 * time.Millisecond
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				<-ctx.Done()
				return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
			}
		}},
		"refused":        {objstore.ErrUnreachable, func(o *s3.Options) { o.Endpoint = "http://127.0.0.1:1" }},
		"reset":          {objstore.ErrUnreachable, func(o *s3.Options) { o.Endpoint = "http://" + cut.Addr() }},
		"http not https": {objstore.ErrUnreachable, func(o *s3.Options) { o.Endpoint = "https://" + srv.Addr }},
	} {
		t.Run(name, func(t *testing.T) {
			opts := srv.Options("right")
			c.change(&opts)
			s := open(t, opts)
			defer s.Close()
			wantDiagnosis(t, s, c.kind, "hunter2")
		})
	}
	// The clock of a bubble begins in the year 2000: to MinIO, a host with a wrong clock. It must
	// hear of it, rather than have the SDK sign with a corrected time.
	t.Run("clock skew", func(t *testing.T) {
		opts := srv.Options("right")
		synctest.Test(t, func(t *testing.T) {
			s := open(t, opts)
			defer s.Close()
			for range 2 {
				wantDiagnosis(t, s, objstore.ErrClockSkew)
			}
		})
	})
	t.Run("all right", func(t *testing.T) {
		for name, call := range calls {
			if err := call(t.Context(), good); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestCredentials: keys come from files that may change, or from the environment; what is
// missing is told without what is there.
func TestCredentials(t *testing.T) {
	srv := minio.Run(t, minio.Config{})
	if err := srv.CreateBucket(t.Context(), "keys"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	access, secret := filepath.Join(dir, "access"), filepath.Join(dir, "secret")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fromFiles := func() error {
		opts := srv.Options("keys")
		opts.Credentials = s3.FileCredentials(access, secret, "")
		s := open(t, opts)
		defer s.Close()
		return calls["put"](t.Context(), s)
	}
	write(access, minio.AccessKey+"\n")
	if err := fromFiles(); !errors.Is(err, objstore.ErrAuth) || !strings.Contains(err.Error(), secret) {
		t.Errorf("no secret file: %v", err)
	}
	for _, bad := range []string{"", "\n", "two words-hunter2", "two\nlines-hunter2", strings.Repeat("hunter2", 5000)} {
		write(secret, bad)
		if err := fromFiles(); !errors.Is(err, objstore.ErrAuth) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("secret file %.20q: %v", bad, err)
		}
	}
	write(secret, minio.SecretKey+"\n")
	if err := fromFiles(); err != nil {
		t.Errorf("right files: %v", err)
	}

	none := filepath.Join(dir, "none")
	for key, value := range map[string]string{"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": ""} {
		t.Setenv(key, value)
	}
	opts := srv.Options("keys")
	opts.Credentials = nil
	fromChain := func() error {
		s := open(t, opts)
		defer s.Close()
		return calls["put"](t.Context(), s)
	}
	if err := fromChain(); !errors.Is(err, objstore.ErrAuth) || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("empty chain: %v", err)
	}
	for _, kv := range srv.Env() {
		key, value, _ := strings.Cut(kv, "=")
		t.Setenv(key, value)
	}
	if err := fromChain(); err != nil {
		t.Errorf("chain with the environment: %v", err)
	}
}
