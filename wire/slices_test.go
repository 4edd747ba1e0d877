package wire

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// segment makes a file of n random bytes.
func segment(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	data := make([]byte, n)
	rng := mathrand.NewChaCha8([32]byte{1})
	rng.Read(data)
	name := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, data
}

// shapes of fetch responses: sizes of the ranges of each partition.
var shapes = map[string][][]int64{
	"one small":        {{100}},
	"one 16 KiB":       {{16 << 10}},
	"one 64 KiB":       {{64 << 10}},
	"one 1 MiB":        {{1 << 20}},
	"one 5 MiB":        {{5 << 20}},
	"sixteen 4 KiB":    sixteen(4 << 10),
	"sixteen 16 KiB":   sixteen(16 << 10),
	"sixteen 100 KiB":  sixteen(100 << 10),
	"nothing":          {{}, {}},
	"two files each":   {{300_000, 17}, {5, 300_000}},
	"small, big, none": {{10}, {}, {900_000}, {70_000}, {3}},
}

func sixteen(n int64) (s [][]int64) {
	for range 16 {
		s = append(s, []int64{n})
	}
	return s
}

// sliceHandler answers each Fetch with ranges of the shape, taken from data at
// random offsets, and remembers what the client must get.
type sliceHandler struct {
	informed *informed // what the ranges are read through, nil: f
	shape    [][]int64
	f        *os.File
	data     []byte
	fd       int
	recent   bool
	taken    atomic.Int64
	released atomic.Int64
}

func (h *sliceHandler) response(seed uint64) (*FetchResponse, [][]byte) {
	rng := mathrand.New(mathrand.NewPCG(seed, 1))
	resp := &FetchResponse{Topics: []FetchTopic{{Topic: "t"}}}
	var want [][]byte
	for i, sizes := range h.shape {
		p := FetchPartition{Partition: int32(i), PreferredReadReplica: -1}
		b := []byte{}
		for _, n := range sizes {
			off := rng.Int64N(int64(len(h.data)) - n)
			h.taken.Add(1)
			p.Records = append(p.Records, FileRange{ReaderAt: h.reader(), FD: h.fd, Off: off, Size: n, Recent: h.recent,
				Release: func() { h.released.Add(1) }})
			b = append(b, h.data[off:off+n]...)
		}
		want = append(want, b)
		resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, p)
	}
	return resp, want
}

func (h *sliceHandler) Handle(_ context.Context, group []*Request) {
	for _, r := range group {
		resp, _ := h.response(uint64(r.CorrelationID))
		r.Reply(resp)
	}
}

func (h *sliceHandler) check(t *testing.T, c net.Conn, n int) {
	t.Helper()
	go func() {
		for i := range int32(n) {
			c.Write(fetchFrame(i))
		}
	}()
	for i := range int32(n) {
		b := mustFrame(t, c)
		if correlation(b) != i {
			t.Fatalf("answer to %d, want %d", correlation(b), i)
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = 12
		if err := resp.ReadFrom(b[5:]); err != nil {
			t.Fatal(err)
		}
		_, want := h.response(uint64(i))
		h.taken.Add(-rangesOf(h.shape))
		for j, p := range resp.Topics[0].Partitions {
			if !bytes.Equal(p.RecordBatches, want[j]) {
				t.Fatalf("request %d partition %d: wrong bytes", i, j)
			}
		}
	}
	for begin := time.Now(); h.taken.Load() != h.released.Load(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("%d ranges taken, %d released", h.taken.Load(), h.released.Load())
		}
	}
}

func rangesOf(shape [][]int64) (n int64) {
	for _, s := range shape {
		n += int64(len(s))
	}
	return n
}

// TestSlices: every shape arrives whole by every way of sending.
func TestSlices(t *testing.T) {
	f, data := segment(t, 8<<20)
	for name, shape := range shapes {
		for _, way := range []string{"sendfile", "no descriptor", "tls", "small buffer"} {
			t.Run(name+" "+way, func(t *testing.T) {
				h := &sliceHandler{shape: shape, f: f, data: data, fd: int(f.Fd())}
				cfg := ServerConfig{Handler: h}
				var clientTLS *tls.Config
				switch way {
				case "no descriptor":
					h.fd = -1
				case "tls":
					cfg.TLS, clientTLS = certificates(t)
				case "small buffer":
					cfg.SendBuffer = 64 << 10
				}
				c := dial(t, start(t, cfg))
				if clientTLS != nil {
					c = tls.Client(c, clientTLS)
				}
				h.check(t, c, 8)
			})
		}
	}
}

// A range that is not in the page cache is read by the cold pool, then sent.
func TestColdSlices(t *testing.T) {
	f, data := segment(t, 32<<20)
	f.Sync()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	h := &sliceHandler{shape: [][]int64{{200_000}, {50}}, f: f, data: data, fd: int(f.Fd())}
	h.check(t, dial(t, start(t, ServerConfig{Handler: h, Registerer: reg})), 20)
	if n := counter(t, reg, "varve_wire_cold_slices_total"); n == 0 {
		t.Log("the file system kept every page: nothing was cold")
	}
}

// Bytes just written are read at once; those that a file lacks are nobody's to read now.
func TestReadNow(t *testing.T) {
	f, data := segment(t, 100_000)
	b := make([]byte, 60_000)
	if done, cold := readNow(int(f.Fd()), b, 40_000); !done || cold || !bytes.Equal(b, data[40_000:]) {
		t.Fatalf("done %v, cold %v", done, cold)
	}
	if done, cold := readNow(int(f.Fd()), b, 40_001); done || !cold {
		t.Fatalf("past the end: done %v, cold %v", done, cold)
	}
}

// informed counts what is read through it.
type informed struct {
	*os.File
	reads atomic.Int64
}

func (f *informed) ReadAt(p []byte, off int64) (int, error) {
	f.reads.Add(1)
	return f.File.ReadAt(p, off)
}

func (h *sliceHandler) reader() io.ReaderAt {
	if h.informed != nil {
		return h.informed
	}
	return h.f
}

// A file that ends before its range breaks the frame, so the connection ends; what was taken is released, and its reader
// learns of it.
func TestCutSlice(t *testing.T) {
	for _, fd := range []bool{true, false} {
		f, data := segment(t, 1<<20)
		h := &sliceHandler{shape: [][]int64{{900_000}}, f: f, data: data, fd: -1}
		if fd {
			h.fd = int(f.Fd())
		}
		os.Truncate(f.Name(), 1000)
		h.informed = &informed{File: f}
		c := dial(t, start(t, ServerConfig{Handler: h}))
		c.Write(fetchFrame(1))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Logf("reset: %v", err)
		}
		for begin := time.Now(); h.released.Load() != 1; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 5*time.Second {
				t.Fatalf("released %d times", h.released.Load())
			}
		}
		if h.informed.reads.Load() == 0 {
			t.Errorf("descriptor %v: the reader has not been asked", fd)
		}
	}
}

func certificates(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "varve"}, DNSNames: []string{"varve"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: roots, ServerName: "varve"}
}

func BenchmarkFetch(b *testing.B) {
	f, data := segment(b, 64<<20)
	for _, k := range []struct {
		name  string
		shape [][]int64
	}{{"1x16K", [][]int64{{16 << 10}}}, {"1x64K", [][]int64{{64 << 10}}}, {"1x1M", [][]int64{{1 << 20}}}, {"16x4K", sixteen(4 << 10)}, {"16x16K", sixteen(16 << 10)}, {"16x64K", sixteen(64 << 10)}} {
		for _, fd := range []bool{true, false} {
			way := "/copy"
			if fd {
				way = "/auto"
			}
			b.Run(k.name+way, func(b *testing.B) {
				h := &sliceHandler{shape: k.shape, f: f, data: data, fd: -1}
				if fd {
					h.fd = int(f.Fd())
				}
				c := dial(b, start(b, ServerConfig{Handler: h, SendBuffer: 128 << 10}))
				c.SetDeadline(time.Time{})
				buf := make([]byte, 4<<20)
				b.SetBytes(total(k.shape))
				b.ReportAllocs()
				for i := range int32(b.N) {
					c.Write(fetchFrame(i))
					var l [4]byte
					io.ReadFull(c, l[:])
					n := int(l[0])<<24 | int(l[1])<<16 | int(l[2])<<8 | int(l[3])
					io.ReadFull(c, buf[:n])
				}
			})
		}
	}
}

func total(shape [][]int64) (n int64) {
	for _, s := range shape {
		for _, k := range s {
			n += k
		}
	}
	return n
}

func BenchmarkProduce(b *testing.B) {
	for _, k := range []struct {
		name string
		size int
	}{{"1K", 1 << 10}, {"16K", 16 << 10}, {"1M", 1 << 20}} {
		b.Run(k.name, func(b *testing.B) {
			c := dial(b, start(b, ServerConfig{Handler: echo}))
			c.SetDeadline(time.Time{})
			frame := produceFrame(1, 1, k.size)
			depth := max(1, min(64, 256<<10/k.size))
			b.SetBytes(int64(k.size))
			b.ReportAllocs()
			window := make(chan struct{}, depth)
			go func() {
				for range b.N {
					window <- struct{}{}
					c.Write(frame)
				}
			}()
			for range b.N {
				mustFrame(b, c)
				<-window
			}
		})
	}
}
