// Package minio runs a real MinIO for tests and benchmarks: the binary that `make minio`
// builds, on a free loopback port, over a directory of the caller's.
package minio

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/varve-io/varve/objstore/s3"
)

// Credentials of every server that is started here.
const (
	AccessKey = "varve-test"
	SecretKey = "varve-test-secret"
)

// Binary names a MinIO to use instead of the one in .cache/bin.
const Binary = "VARVE_MINIO"

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 5 * time.Second
	startTries   = 5 // a free port may be taken between finding and using it
)

// Config of a server. The zero value will do.
type Config struct {
	Dir    string    // objects; "" = a temporary directory, removed by Close
	Region string    // "" = any region is right
	Domain string    // buckets are also hosts below it: BUCKET.Domain
	TLS    bool      // https, with a certificate that only CAFile vouches for
	Log    io.Writer // the server's output; nil = dropped
}

// Server is a running MinIO. Close ends it.
type Server struct {
	Addr     string // host:port on loopback
	Endpoint string // http://host:port, or https
	CAFile   string // PEM, with Config.TLS
	Dir      string
	cfg      Config
	ownDir   bool
	cmd      *exec.Cmd
	exited   chan struct{}
}

// Start starts a server and waits until it serves.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	bin, err := binary()
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: cfg.Dir, cfg: cfg}
	if s.Dir == "" {
		if s.Dir, err = os.MkdirTemp("", "varve-minio-"); err != nil {
			return nil, fmt.Errorf("start minio: %w", err)
		}
		s.ownDir = true
	}
	for range startTries {
		if err = s.start(ctx, bin); err == nil {
			return s, nil
		}
	}
	s.Close()
	return nil, fmt.Errorf("start minio: %w", err)
}

// Run starts a server that ends with the test.
func Run(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (c Config) scheme() string {
	if c.TLS {
		return "https://"
	}
	return "http://"
}

// binary is where `make minio` puts it, in the repository that the working directory is in.
func binary() (string, error) {
	if name := os.Getenv(Binary); name != "" {
		return name, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/varve-io/varve\n") {
			name := filepath.Join(dir, ".cache", "bin", "minio")
			if _, err := os.Stat(name); err != nil {
				return "", fmt.Errorf("no MinIO at %s: run `make minio` once", name)
			}
			return name, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("not inside the repository: set %s to a MinIO binary", Binary)
		}
		dir = filepath.Dir(dir)
	}
}

func (s *Server) start(ctx context.Context, bin string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Addr = ln.Addr().String()
	s.Endpoint = s.cfg.scheme() + s.Addr
	if err := ln.Close(); err != nil {
		return err
	}
	data, home := filepath.Join(s.Dir, "data"), filepath.Join(s.Dir, "home")
	if err := errors.Join(os.MkdirAll(data, 0o755), os.MkdirAll(home, 0o755)); err != nil {
		return err
	}
	if s.cfg.TLS {
		if s.CAFile, err = writeCertificate(home); err != nil {
			return err
		}
	}
	cmd := exec.Command(bin, "server", "--quiet", "--address", s.Addr, "--certs-dir", home, data)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "MINIO_ROOT_USER=" + AccessKey, "MINIO_ROOT_PASSWORD=" + SecretKey,
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_SITE_REGION=" + s.cfg.Region, "MINIO_DOMAIN=" + s.cfg.Domain}
	cmd.Stdout, cmd.Stderr = s.cfg.Log, s.cfg.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // do not outlive a killed test
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) { // ends with the process, which Close ends
		cmd.Wait()
		close(exited)
	}(s.exited)
	if err := s.waitReady(ctx); err != nil {
		s.stop()
		return err
	}
	return nil
}

func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready on %s: %w", s.Addr, ctx.Err())
		case <-s.exited:
			return fmt.Errorf("ended at once: %s", s.cmd.ProcessState)
		case <-tick.C:
		}
		req, err := http.NewRequestWithContext(ctx, "GET", s.Endpoint+"/minio/health/cluster", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
}

// Pid of the server, for measuring it.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Kill ends the server as a crash would; the directory stays, and Restart serves it again.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// Restart serves the same directory again, on a port that may differ.
func (s *Server) Restart(ctx context.Context) error {
	bin, err := binary()
	if err != nil {
		return err
	}
	return s.start(ctx, bin)
}

func (s *Server) stop() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		s.Kill()
	}
}

// Close ends the server and removes the directory if it was a temporary one.
func (s *Server) Close() error {
	s.stop()
	if s.ownDir {
		return os.RemoveAll(s.Dir)
	}
	return nil
}

// Credentials of the server.
func (s *Server) Credentials() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")
}

// Env are the variables by which the AWS default chain finds the credentials.
func (s *Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey, "AWS_EC2_METADATA_DISABLED=true"}
}

// Options for a store in bucket on this server.
func (s *Server) Options(bucket string) s3.Options {
	return s3.Options{Bucket: bucket, Endpoint: s.Endpoint, Region: s.cfg.Region, PathStyle: true, Credentials: s.Credentials()}
}

// CreateBucket makes a bucket, which Varve itself never does.
func (s *Server) CreateBucket(ctx context.Context, bucket string) error {
	region := s.cfg.Region
	if region == "" {
		region = s3.DefaultRegion
	}
	client := awss3.New(awss3.Options{BaseEndpoint: &s.Endpoint, Region: region, UsePathStyle: true, Credentials: s.Credentials()})
	if _, err := client.CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: &bucket}); err != nil {
		return fmt.Errorf("create bucket %s: %w", bucket, err)
	}
	return nil
}

// Store makes a bucket of a name not used before and opens it. The caller closes the store.
func (s *Server) Store(t testing.TB, bucket string) *s3.Store {
	t.Helper()
	if err := s.CreateBucket(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	store, err := s3.New(t.Context(), s.Options(bucket))
	if err != nil {
		t.Fatal(err)
	}
	return store
}
