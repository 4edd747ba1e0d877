package s3_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/objstoretest"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
)

// stubVariable makes this test binary a store that costs nothing, in a process of its own, so that
// what a benchmark measures is the client alone.
const stubVariable = "VARVE_S3_STUB"

func TestMain(m *testing.M) {
	if os.Getenv(stubVariable) != "" {
		serveStub()
		return
	}
	os.Exit(m.Run())
}

// serveStub throws PUTs away and answers GETs with zeros, until its standard input ends.
func serveStub() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	zeros := make([]byte, 1<<20)
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("ETag", `"e"`)
			return
		}
		var first, last int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, int64(1)<<40))
		w.Header().Set("Content-Length", strconv.Itoa(last-first+1))
		w.WriteHeader(http.StatusPartialContent)
		for left := last - first + 1; left > 0; left -= len(zeros) {
			w.Write(zeros[:min(left, len(zeros))])
		}
	}))
	io.Copy(io.Discard, os.Stdin)
}

func startStub(b *testing.B) (endpoint string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), stubVariable+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stdin.Close(); cmd.Wait() })
	line := make([]byte, 64)
	n, err := stdout.Read(line)
	if err != nil {
		b.Fatal(err)
	}
	return "http://" + strings.TrimSpace(string(line[:n]))
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// transfer runs fn b.N times, four at a time, and reports what a GB cost this process.
func transfer(b *testing.B, size int, fn func(i int) error) {
	b.SetBytes(int64(size))
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	start := cpu()
	for range 4 {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				if err := fn(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric((cpu()-start).Seconds()/(float64(size)*float64(b.N)/1e9), "cpu-s/GB")
}

// BenchmarkStore measures 8 MiB objects, four at a time: the client's processor time per GB of bodies, over
// a stub and over MinIO.
func BenchmarkStore(b *testing.B) {
	const size = 8 << 20
	data := objstoretest.Bytes(1, size)
	crc := objstore.CRC32C(0, data)
	srv, err := minio.Start(b.Context(), minio.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	if err := srv.CreateBucket(b.Context(), "bench"); err != nil {
		b.Fatal(err)
	}
	stub := startStub(b)
	for _, endpoint := range []string{stub, srv.Endpoint} {
		opts := srv.Options("bench")
		opts.Endpoint = endpoint
		where := "stub"
		if endpoint != stub {
			where = "minio"
		}
		for _, mode := range []s3.Checksum{s3.ChecksumCRC32C, s3.ChecksumNone} {
			opts.Checksum = mode
			s := open(b, opts)
			b.Run(fmt.Sprintf("put/%s/%s", where, mode), func(b *testing.B) {
				transfer(b, size, func(i int) error {
					return s.Put(b.Context(), fmt.Sprint("o", i%16), bytes.NewReader(data), size, objstore.PutOptions{CRC32C: &crc})
				})
			})
			if mode == s3.ChecksumCRC32C {
				pool := sync.Pool{New: func() any { return new([size]byte) }}
				b.Run("get/"+where, func(b *testing.B) {
					transfer(b, size, func(i int) error {
						p := pool.Get().(*[size]byte)
						defer pool.Put(p)
						_, err := s.Get(b.Context(), "o1", 0, p[:])
						return err
					})
				})
			}
			s.Close()
		}
	}
}
