package proxy

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kind is one way for a request to an object store to go wrong.
type Kind int

// What may happen to a request.
const (
	SlowDown   Kind = iota + 1 // 503, not passed on
	Internal                   // 500, not passed on
	Silence                    // not passed on, no answer until the client gives up
	Slow                       // Rule.Delay before it is passed on
	Reset                      // passed on; the connection is reset instead of an answer
	FailAfter                  // passed on; 500 whatever came of it: success reported as failure
	FakeOK                     // not passed on, 200 with an ETag: failure reported as success
	ErrorIn200                 // not passed on, 200 with an error in the body
	Truncate                   // the answer's body breaks off half way
	FlipDown                   // one bit of the answer's body differs
	FlipUp                     // one bit of the request's body differs on arrival
)

// Rule is one fault. It strikes a request that matches with a probability.
type Rule struct {
	Kind   Kind
	Method string        // "GET", "PUT" ...; "" = all
	Path   string        // part of path and query; "" = all
	Prob   float64       // 0 = always
	Times  int           // strikes in all, 0 = without end
	Delay  time.Duration // for Slow
}

// Store passes HTTP requests on to an object store. Signatures stay valid: host and headers
// are passed on as they came.
type Store struct {
	ln      net.Listener
	server  *http.Server
	forward *httputil.ReverseProxy
	wg      sync.WaitGroup
	mu      sync.Mutex
	rng     *rand.Rand
	rules   []Rule
	hits    []int
	seen    map[string]int
}

// StartStore listens on a free loopback port and passes requests on to endpoint, http://host:port.
func StartStore(endpoint string, seed uint64, rules ...Rule) (*Store, error) {
	target, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("start store proxy: %w", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start store proxy: %w", err)
	}
	s := &Store{ln: ln, rng: rand.New(rand.NewPCG(seed, 1)), seen: map[string]int{}}
	s.Set(rules...)
	quiet := log.New(io.Discard, "", 0)
	s.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		ErrorLog:  quiet,
	}
	s.server = &http.Server{Handler: s, ErrorLog: quiet}
	s.wg.Go(func() { s.server.Serve(ln) })
	return s, nil
}

// RunStore starts a store proxy that ends with the test.
func RunStore(t testing.TB, endpoint string, seed uint64, rules ...Rule) *Store {
	t.Helper()
	s, err := StartStore(endpoint, seed, rules...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Endpoint is what clients use as the store's, http://host:port.
func (s *Store) Endpoint() string { return "http://" + s.ln.Addr().String() }

// Set replaces the rules; none at all makes the store heal.
func (s *Store) Set(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.hits = rules, make([]int, len(rules))
}

// Hits tells how often each rule has struck since Set.
func (s *Store) Hits() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.hits...)
}

// Seen tells how many requests of a method have come since the start.
func (s *Store) Seen(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[method]
}

// Close ends the proxy, requests under way included.
func (s *Store) Close() {
	s.server.Close()
	s.wg.Wait()
	s.forward.Transport.(*http.Transport).CloseIdleConnections()
}

func (s *Store) strike(r *http.Request) (rule Rule, random uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[r.Method]++
	for i, rule := range s.rules {
		if rule.Method != "" && rule.Method != r.Method || rule.Times > 0 && s.hits[i] >= rule.Times ||
			!strings.Contains(r.URL.RequestURI(), rule.Path) {
			continue
		}
		if rule.Prob > 0 && s.rng.Float64() >= rule.Prob {
			continue
		}
		s.hits[i]++
		return rule, s.rng.Uint64()
	}
	return Rule{}, 0
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule, random := s.strike(r)
	switch rule.Kind {
	case SlowDown:
		answer(w, r, http.StatusServiceUnavailable, "SlowDown")
	case Internal:
		answer(w, r, http.StatusInternalServerError, "InternalError")
	case ErrorIn200:
		answer(w, r, http.StatusOK, "InternalError")
	case FakeOK:
		io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
		w.WriteHeader(http.StatusOK)
	case Silence:
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case Reset:
		s.forward.ServeHTTP(discard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case FailAfter:
		s.forward.ServeHTTP(discard{http.Header{}}, r)
		answer(w, r, http.StatusInternalServerError, "InternalError")
	case Truncate:
		s.forward.ServeHTTP(&truncating{ResponseWriter: w, left: -1}, r)
	case FlipDown:
		s.forward.ServeHTTP(&flipping{ResponseWriter: w, random: random}, r)
	case FlipUp:
		if r.ContentLength > 0 {
			r.Body = &flippedBody{ReadCloser: r.Body, at: int64(random>>3) & (1<<60 - 1) % r.ContentLength, bit: 1 << (random & 7)}
		}
		s.forward.ServeHTTP(w, r)
	case Slow:
		select {
		case <-time.After(rule.Delay):
			s.forward.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	default:
		s.forward.ServeHTTP(w, r)
	}
}

// answer sends an error as S3 does. A HEAD gets no body.
func answer(w http.ResponseWriter, r *http.Request, status int, code string) {
	io.Copy(io.Discard, r.Body)
	body := `<?xml version="1.0" encoding="UTF-8"?>` + "\n<Error><Code>" + code + "</Code><Message>injected</Message></Error>"
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		io.WriteString(w, body)
	}
}

// discard is an answer that nobody reads.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// truncating announces the whole body and breaks off half way.
type truncating struct {
	http.ResponseWriter
	left int64 // -1 = the header has not been seen yet
}

func (t *truncating) WriteHeader(status int) {
	size, err := strconv.ParseInt(t.Header().Get("Content-Length"), 10, 64)
	if t.left = size / 2; err != nil {
		t.left = 0
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *truncating) Write(p []byte) (int, error) {
	if int64(len(p)) <= t.left {
		t.left -= int64(len(p))
		return t.ResponseWriter.Write(p)
	}
	t.ResponseWriter.Write(p[:t.left])
	http.NewResponseController(t.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// flipping changes one bit of the body.
type flipping struct {
	http.ResponseWriter
	random uint64
	size   int64
	pos    int64
}

func (f *flipping) WriteHeader(status int) {
	f.size, _ = strconv.ParseInt(f.Header().Get("Content-Length"), 10, 64)
	f.ResponseWriter.WriteHeader(status)
}

func (f *flipping) Write(p []byte) (int, error) {
	if f.size > 0 {
		if at := int64(f.random>>3)&(1<<60-1)%f.size - f.pos; at >= 0 && at < int64(len(p)) {
			p = append([]byte(nil), p...)
			p[at] ^= 1 << (f.random & 7)
		}
	}
	f.pos += int64(len(p))
	return f.ResponseWriter.Write(p)
}

// flippedBody changes one bit of a request.
type flippedBody struct {
	io.ReadCloser
	at  int64 // from here
	bit byte
}

func (f *flippedBody) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= f.bit
	}
	f.at -= int64(n)
	return n, err
}
