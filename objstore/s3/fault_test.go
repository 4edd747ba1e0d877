package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/objstoretest"
	"github.com/varve-io/varve/objstore/retry"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/minio"
	"github.com/varve-io/varve/test/proxy"
)

var quick = objstore.Backoff{Attempts: 8, Base: time.Millisecond, Max: 20 * time.Millisecond}

// partSize makes objects of parts small, for speed.
const partSize = 5 << 20

// behind is a bucket of a real MinIO behind a proxy for faults.
type behind struct {
	srv    *minio.Server
	bucket string
	proxy  *proxy.Store
	direct *s3.Store // past the proxy
	bare   *s3.Store // through it
}

func faulty(t *testing.T, change func(*s3.Options)) *behind {
	t.Helper()
	b := &behind{srv: minio.Run(t, minio.Config{}), bucket: "faults"}
	b.direct = b.srv.Store(t, b.bucket)
	b.proxy = proxy.RunStore(t, b.srv.Endpoint, 11)
	opts := b.srv.Options(b.bucket)
	opts.Endpoint, opts.Backoff, opts.PartSize = b.proxy.Endpoint(), quick, partSize
	if change != nil {
		change(&opts)
	}
	b.bare = open(t, opts)
	t.Cleanup(func() { b.bare.Close(); b.direct.Close() })
	return b
}

func (b *behind) retrying() objstore.Store { return retry.New(b.bare, retry.Options{Backoff: quick}) }

func (b *behind) client() *awss3.Client {
	return awss3.New(awss3.Options{BaseEndpoint: &b.srv.Endpoint, Region: s3.DefaultRegion, UsePathStyle: true, Credentials: b.srv.Credentials()})
}

// uploads lists the unfinished multipart uploads of name.
func (b *behind) uploads(t *testing.T, name string) (ids []*string) {
	t.Helper()
	out, err := b.client().ListMultipartUploads(t.Context(), &awss3.ListMultipartUploadsInput{Bucket: &b.bucket, Prefix: &name})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range out.Uploads {
		ids = append(ids, u.UploadId)
	}
	return ids
}

// TestKinds: what a store or proxy does to one request is told for what it is, and is never
// taken for success, an empty listing or an absent object.
func TestKinds(t *testing.T) {
	b := faulty(t, func(o *s3.Options) { o.Timeout = 300 * time.Millisecond })
	objstoretest.Put(t, b.direct, "there", objstoretest.Bytes(1, 10_000))
	get := func(ctx context.Context, s objstore.Store) error {
		_, err := s.Get(ctx, "there", 0, make([]byte, 10_000))
		return err
	}
	for _, c := range []struct {
		kind proxy.Kind
		call string
		want error
	}{
		{proxy.SlowDown, "put", objstore.ErrThrottled},
		{proxy.SlowDown, "get", objstore.ErrThrottled},
		{proxy.SlowDown, "head", objstore.ErrThrottled}, // without a body
		{proxy.SlowDown, "list", objstore.ErrThrottled},
		{proxy.SlowDown, "delete many", objstore.ErrThrottled},
		{proxy.Internal, "put", objstore.ErrUnavailable},
		{proxy.Internal, "head", objstore.ErrUnavailable},
		{proxy.Internal, "delete", objstore.ErrUnavailable},
		{proxy.FailAfter, "put", objstore.ErrUnavailable},
		{proxy.Silence, "put", objstore.ErrTimeout},
		{proxy.Silence, "get", objstore.ErrTimeout},
		{proxy.Silence, "list", objstore.ErrTimeout},
		{proxy.Reset, "put", objstore.ErrUnreachable},
		{proxy.Reset, "get", objstore.ErrUnreachable},
		{proxy.ErrorIn200, "put", objstore.ErrUnavailable},
		{proxy.ErrorIn200, "get", objstore.ErrUnavailable},
		{proxy.ErrorIn200, "head", objstore.ErrUnavailable},
		{proxy.ErrorIn200, "list", objstore.ErrUnavailable},
		{proxy.ErrorIn200, "delete many", objstore.ErrUnavailable},
		{proxy.FakeOK, "get", objstore.ErrUnavailable},
		{proxy.FakeOK, "head", objstore.ErrUnavailable},
		{proxy.FakeOK, "list", objstore.ErrUnavailable},
		{proxy.FakeOK, "delete many", objstore.ErrUnavailable},
		{proxy.Truncate, "get", objstore.ErrUnavailable},
		{proxy.Truncate, "list", objstore.ErrUnavailable},
		{proxy.Truncate, "delete many", objstore.ErrUnavailable},
		{proxy.FlipUp, "put", objstore.ErrChecksum},
	} {
		b.proxy.Set(proxy.Rule{Kind: c.kind})
		call := calls[c.call]
		if c.call == "get" {
			call = get
		}
		err := call(t.Context(), b.bare)
		if !errors.Is(err, c.want) {
			t.Errorf("%s with fault %d: %v, want %v", c.call, c.kind, err, c.want)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with fault %d: %v could be taken for the end of the object or the caller's deadline", c.call, c.kind, err)
		}
		if hits := b.proxy.Hits()[0]; c.call != "head" && hits != 1 {
			t.Errorf("%s with fault %d: %d requests, want 1: the SDK must not retry", c.call, c.kind, hits)
		}
	}
	b.proxy.Set()
	for name, call := range calls {
		if err := call(t.Context(), b.bare); err != nil {
			t.Errorf("%s after the faults: %v", name, err)
		}
	}
}

// TestPartsSurvive: an upload in parts through every fault that may heal arrives byte for byte, is
// sent once more only where it must be, and leaves no parts behind.
func TestPartsSurvive(t *testing.T) {
	b := faulty(t, func(o *s3.Options) { o.Timeout = 2 * time.Second })
	data := objstoretest.Bytes(5, 4*partSize+1)
	crc := objstore.CRC32C(0, data)
	const part, complete = "partNumber=2", "/o?uploadId="
	for name, rule := range map[string]proxy.Rule{
		"create fails":          {Kind: proxy.Internal, Method: "POST", Path: "?uploads", Times: 2},
		"part fails after":      {Kind: proxy.FailAfter, Method: "PUT", Path: part, Times: 2},
		"part fails before":     {Kind: proxy.Internal, Method: "PUT", Path: part, Times: 2},
		"part reset":            {Kind: proxy.Reset, Method: "PUT", Path: part, Times: 2},
		"part flipped":          {Kind: proxy.FlipUp, Method: "PUT", Path: part, Times: 2},
		"part answered 200":     {Kind: proxy.ErrorIn200, Method: "PUT", Path: part, Times: 2},
		"complete fails":        {Kind: proxy.Internal, Method: "POST", Path: complete, Times: 2},
		"complete reply lost":   {Kind: proxy.Reset, Method: "POST", Path: complete, Times: 1},
		"complete fails after":  {Kind: proxy.FailAfter, Method: "POST", Path: complete, Times: 1},
		"complete answered 200": {Kind: proxy.ErrorIn200, Method: "POST", Path: complete, Times: 2},
		"complete truncated":    {Kind: proxy.Truncate, Method: "POST", Path: complete, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b.proxy.Set(rule)
			before := b.proxy.Seen("PUT")
			opts := objstore.PutOptions{CRC32C: &crc, IfAbsent: true}
			if err := b.bare.Put(t.Context(), "o", bytes.NewReader(data), int64(len(data)), opts); err != nil {
				t.Fatal(err)
			}
			if b.proxy.Hits()[0] != rule.Times {
				t.Errorf("the fault struck %d times, want %d", b.proxy.Hits()[0], rule.Times)
			}
			if parts := b.proxy.Seen("PUT") - before; parts > 5+rule.Times {
				t.Errorf("%d parts were sent, want 5 and %d again", parts, rule.Times)
			}
			objstoretest.Want(t, b.direct, "o", data)
			if err := b.direct.Delete(t.Context(), "o"); err != nil {
				t.Fatal(err)
			}
			if left := b.uploads(t, "o"); len(left) > 0 {
				t.Errorf("%d unfinished uploads left", len(left))
			}
		})
	}
}

// readAt runs a function before a reader is read.
type readAt struct {
	io.ReaderAt
	before func(off int64) error
}

func (r readAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.before(off); err != nil {
		return 0, err
	}
	return r.ReaderAt.ReadAt(p, off)
}

// TestUploadForgotten: a store that loses the upload half way gets it again from the start.
func TestUploadForgotten(t *testing.T) {
	b := faulty(t, nil)
	data := objstoretest.Bytes(6, 4*partSize+1)
	var once sync.Once
	r := readAt{bytes.NewReader(data), func(off int64) error {
		if off >= 3*partSize {
			once.Do(func() {
				for _, id := range b.uploads(t, "o") {
					in := &awss3.AbortMultipartUploadInput{Bucket: &b.bucket, Key: aws.String("o"), UploadId: id}
					if _, err := b.client().AbortMultipartUpload(t.Context(), in); err != nil {
						t.Error(err)
					}
				}
			})
		}
		return nil
	}}
	if err := b.bare.Put(t.Context(), "o", r, int64(len(data)), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	objstoretest.Want(t, b.direct, "o", data)
}

// TestAbort: what fails for good or is given up leaves neither an object nor parts.
func TestAbort(t *testing.T) {
	b := faulty(t, nil)
	data := objstoretest.Bytes(6, 4*partSize+1)
	broken := errors.New("disk on fire")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, c := range []struct {
		fail func() error // when the fourth part is read
		want error
	}{
		{func() error { return broken }, broken},
		{func() error { cancel(); return nil }, context.Canceled},
	} {
		r := readAt{bytes.NewReader(data), func(off int64) error {
			if off > 3*partSize {
				return c.fail()
			}
			return nil
		}}
		if err := b.bare.Put(ctx, "o", r, int64(len(data)), objstore.PutOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
		if left := b.uploads(t, "o"); len(left) > 0 {
			t.Errorf("%v: %d unfinished uploads left", c.want, len(left))
		}
	}
	if _, err := b.direct.Head(t.Context(), "o"); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("head: %v", err)
	}
}

// TestStorm: a third of all requests fail in every way there is, uploads and reads go on with the right
// bytes, and when it is over nothing lags and no descriptor is left open.
func TestStorm(t *testing.T) {
	b := faulty(t, func(o *s3.Options) { o.Timeout = 2 * time.Second })
	store := b.retrying()
	files := openFiles(t)
	b.proxy.Set(
		proxy.Rule{Kind: proxy.SlowDown, Prob: .1}, proxy.Rule{Kind: proxy.Internal, Prob: .05}, proxy.Rule{Kind: proxy.Reset, Prob: .05},
		proxy.Rule{Kind: proxy.FailAfter, Prob: .05}, proxy.Rule{Kind: proxy.Truncate, Method: "GET", Prob: .05},
		proxy.Rule{Kind: proxy.FlipUp, Method: "PUT", Prob: .05}, proxy.Rule{Kind: proxy.ErrorIn200, Prob: .05},
	)
	var failed atomic.Int64
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 40 {
				name, data := fmt.Sprintf("w%d/%d", w, i), objstoretest.Bytes(uint64(w*1000+i), 20_000)
				crc := objstore.CRC32C(0, data)
				opts := objstore.PutOptions{CRC32C: &crc, IfAbsent: true}
				if err := store.Put(t.Context(), name, bytes.NewReader(data), int64(len(data)), opts); err != nil {
					failed.Add(1)
					t.Errorf("put %s: %v", name, err)
					continue
				}
				got := make([]byte, 5000)
				if _, err := store.Get(t.Context(), name, 7000, got); err != nil {
					failed.Add(1)
					t.Errorf("get %s: %v", name, err)
				} else if !bytes.Equal(got, data[7000:12000]) {
					t.Errorf("get %s: wrong bytes", name)
				}
			}
		})
	}
	wg.Wait()
	b.proxy.Set()
	start := time.Now()
	for w := range 4 {
		for i := range 40 {
			objstoretest.Want(t, store, fmt.Sprintf("w%d/%d", w, i), objstoretest.Bytes(uint64(w*1000+i), 20_000))
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("healed, 160 reads took %v", took)
	}
	b.bare.Close()
	if left := openFiles(t); left > files+20 {
		t.Errorf("%d descriptors open, %d before", left, files)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// recorder is a store that notes what it is sent and answers as told.
type recorder struct {
	mu      sync.Mutex
	headers []http.Header
	bodies  []string
	answer  func(w http.ResponseWriter, r *http.Request)
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	rec.mu.Lock()
	rec.headers, rec.bodies = append(rec.headers, r.Header.Clone()), append(rec.bodies, string(body))
	rec.mu.Unlock()
	rec.answer(w, r)
}

// TestHeaders: in crc32c mode our checksum is sent and the payload not hashed again; in mode none
// nothing is sent that a store from before 2025 would refuse, and the payload is signed.
func TestHeaders(t *testing.T) {
	rec := &recorder{answer: func(w http.ResponseWriter, r *http.Request) { w.Header().Set("ETag", `"e"`) }}
	srv := httptest.NewServer(rec)
	defer srv.Close()
	fake := minio.Server{Endpoint: srv.URL}
	for _, mode := range []s3.Checksum{s3.ChecksumCRC32C, s3.ChecksumNone} {
		opts := fake.Options("b")
		opts.Checksum = mode
		s := open(t, opts)
		rec.headers, rec.bodies = nil, nil
		objstoretest.Put(t, s, "x", []byte("payload"))
		s.Delete(t.Context(), "x")
		s.Close()
		if rec.bodies[0] != "payload" {
			t.Errorf("%s: body %q: chunked or changed", mode, rec.bodies[0])
		}
		var sums []string
		for _, h := range rec.headers {
			for key := range h {
				if key = strings.ToLower(key); strings.HasPrefix(key, "x-amz-checksum-") || strings.HasPrefix(key, "x-amz-sdk-checksum") || strings.HasPrefix(key, "x-amz-trailer") {
					sums = append(sums, key)
				}
			}
		}
		signed := rec.headers[0].Get("X-Amz-Content-Sha256")
		if mode == s3.ChecksumCRC32C && (signed != "UNSIGNED-PAYLOAD" || len(sums) != 1 || sums[0] != "x-amz-checksum-crc32c") {
			t.Errorf("crc32c: payload hash %s, checksums %q", signed, sums)
		}
		if mode == s3.ChecksumNone && (len(signed) != 64 || len(sums) != 0) {
			t.Errorf("none: payload hash %s, checksums %q", signed, sums)
		}
	}
}

// TestNoConditionalWrites: a store that does not know If-None-Match is asked first, and says
// so from then on.
func TestNoConditionalWrites(t *testing.T) {
	var exists atomic.Bool
	rec := &recorder{answer: func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotImplemented)
		case r.Method == http.MethodHead && !exists.Load():
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodHead:
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("Last-Modified", "Sun, 29 Nov 2026 12:00:00 GMT")
		case r.Method == http.MethodPut:
			exists.Store(true)
			w.Header().Set("ETag", `"e"`)
		case r.Method == http.MethodGet:
			io.WriteString(w, `<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount></ListBucketResult>`)
		}
	}}
	srv := httptest.NewServer(rec)
	defer srv.Close()
	fake := minio.Server{Endpoint: srv.URL}
	s := open(t, fake.Options("b"))
	defer s.Close()
	if !s.Capabilities().IfAbsent {
		t.Error("not hoped for at first")
	}
	opts := objstore.PutOptions{IfAbsent: true}
	if err := s.Put(t.Context(), "x", strings.NewReader("1"), 1, opts); err != nil {
		t.Errorf("first: %v", err)
	}
	if s.Capabilities().IfAbsent {
		t.Error("still believed in")
	}
	if err := s.Put(t.Context(), "x", strings.NewReader("2"), 1, opts); !errors.Is(err, objstore.ErrExist) {
		t.Errorf("second: %v", err)
	}
}

// TestAnswers: what other stores than MinIO answer is understood too.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header [2]string
		body   string
		want   error
		text   string
	}{
		"416 without a body":  {416, [2]string{}, "", io.ErrUnexpectedEOF, ""},
		"503 without a body":  {503, [2]string{}, "", objstore.ErrThrottled, ""},
		"429":                 {429, [2]string{}, "", objstore.ErrThrottled, ""},
		"502 of a proxy":      {502, [2]string{}, "<html>bad gateway</html>", objstore.ErrUnavailable, ""},
		"200 of a portal":     {200, [2]string{}, "<html>please log in</html>", objstore.ErrUnavailable, ""},
		"401":                 {401, [2]string{}, "", objstore.ErrAuth, ""},
		"403 without a body":  {403, [2]string{}, "", objstore.ErrDenied, ""},
		"redirect":            {301, [2]string{"X-Amz-Bucket-Region", "eu-west-7"}, "<Error><Code>PermanentRedirect</Code></Error>", objstore.ErrRegion, "eu-west-7"},
		"404 without a body":  {404, [2]string{}, "", objstore.ErrNotExist, ""},
		"expired token":       {400, [2]string{}, "<Error><Code>ExpiredToken</Code></Error>", objstore.ErrAuth, ""},
		"skew":                {403, [2]string{}, "<Error><Code>RequestTimeTooSkewed</Code></Error>", objstore.ErrClockSkew, ""},
		"another range":       {206, [2]string{"Content-Range", "bytes 5-5/10"}, "x", objstore.ErrUnavailable, "5-5"},
		"range of the object": {206, [2]string{"Content-Range", "bytes 0-0/1"}, "x", io.ErrUnexpectedEOF, ""},
	} {
		rec := &recorder{answer: func(w http.ResponseWriter, r *http.Request) {
			if c.header[0] != "" {
				w.Header().Set(c.header[0], c.header[1])
			}
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		}}
		srv := httptest.NewServer(rec)
		fake := minio.Server{Endpoint: srv.URL}
		s := open(t, fake.Options("b"))
		_, err := s.Get(t.Context(), "x", 0, make([]byte, 2))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		s.Close()
		srv.Close()
	}
}

// TestSlowCredentials: a service for instance roles that does not answer is a matter of
// credentials, not a bucket that cannot be reached.
func TestSlowCredentials(t *testing.T) {
	opts := (&minio.Server{Endpoint: "http://127.0.0.1:1"}).Options("b")
	opts.Timeout = 50 * time.Millisecond
	opts.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		<-ctx.Done()
		return aws.Credentials{}, ctx.Err()
	})
	s := open(t, opts)
	defer s.Close()
	if _, err := s.Head(t.Context(), "x"); !errors.Is(err, objstore.ErrAuth) {
		t.Errorf("%v, want %v", err, objstore.ErrAuth)
	}
}

// paced is a reader that takes its time over what is sent, and none over what is only summed.
type paced struct {
	readAt
	sums *atomic.Int64
}

func (p paced) Sum(off, size int64) (uint32, error) {
	p.sums.Add(size)
	return objstore.CRC32COf(p.ReaderAt, off, size)
}

// TestPutAtTheCallersRate: a request that only the caller's own limit makes slow is not given up, and each byte
// is read at that pace once.
func TestPutAtTheCallersRate(t *testing.T) {
	b := faulty(t, func(o *s3.Options) {
		o.Timeout, o.MinRate, o.Backoff = 500*time.Millisecond, 1<<40, objstore.Backoff{Attempts: 1}
	})
	for _, size := range []int{partSize, 4*partSize + 1} { // whole, in parts
		data := objstoretest.Bytes(7, size)
		crc := objstore.CRC32C(0, data)
		var once sync.Once
		var sums atomic.Int64
		r := paced{readAt{bytes.NewReader(data), func(int64) error {
			once.Do(func() { time.Sleep(1500 * time.Millisecond) })
			return nil
		}}, &sums}
		err := b.bare.Put(t.Context(), "o", r, int64(size), objstore.PutOptions{CRC32C: &crc, Rate: int64(size) / 20})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if size > partSize && sums.Load() != int64(size) {
			t.Errorf("%d of %d bytes were summed apart", sums.Load(), size)
		}
		objstoretest.Want(t, b.direct, "o", data)
	}
}
