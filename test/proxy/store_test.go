package proxy_test

import (
	"bytes"
	"io"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/test/proxy"
)

// origin is a store of one object; it keeps the last body that was put.
type origin struct {
	body []byte
	puts int
	host string
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.host = r.Host
	if r.Method == http.MethodPut {
		o.body, _ = io.ReadAll(r.Body)
		o.puts++
	}
	w.Header().Set("ETag", `"real"`)
	if r.Method == http.MethodGet {
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(o.body))
	}
}

func TestStoreFaults(t *testing.T) {
	data := bytes.Repeat([]byte("varve"), 20_000)
	do := func(t *testing.T, o *origin, method string, kind proxy.Kind) (*http.Response, []byte, error) {
		srv := httptest.NewServer(o)
		defer srv.Close()
		p := proxy.RunStore(t, srv.URL, 3, proxy.Rule{Kind: kind, Method: method, Path: "/bucket/", Delay: 30 * time.Millisecond})
		var body io.Reader
		if method == http.MethodPut {
			body = bytes.NewReader(data)
		}
		req, err := http.NewRequest(method, p.Endpoint()+"/bucket/x", body)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			return nil, nil, err
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if p.Hits()[0] != 1 || p.Seen(method) != 1 {
			t.Errorf("hits %v, seen %d, want one", p.Hits(), p.Seen(method))
		}
		if o.host != "" && o.host != strings.TrimPrefix(p.Endpoint(), "http://") {
			t.Errorf("host %q did not pass: signatures would break", o.host)
		}
		return resp, got, err
	}
	for _, c := range []struct {
		name   string
		kind   proxy.Kind
		status int // 0 = no complete answer
		stored int // puts that arrived
		flips  int // bits of the stored object that differ
	}{
		{"none", 0, 200, 1, 0},
		{"slow down", proxy.SlowDown, 503, 0, 0},
		{"internal", proxy.Internal, 500, 0, 0},
		{"silence", proxy.Silence, 0, 0, 0},
		{"slow", proxy.Slow, 200, 1, 0},
		{"reset", proxy.Reset, 0, 1, 0},
		{"fail after", proxy.FailAfter, 500, 1, 0},
		{"fake ok", proxy.FakeOK, 200, 0, 0},
		{"error in 200", proxy.ErrorIn200, 200, 0, 0},
		{"flip up", proxy.FlipUp, 200, 1, 1},
	} {
		t.Run("put "+c.name, func(t *testing.T) {
			o := &origin{}
			resp, _, err := func() (*http.Response, []byte, error) {
				if c.kind == 0 {
					return do(t, o, http.MethodPut, proxy.Slow)
				}
				return do(t, o, http.MethodPut, c.kind)
			}()
			if c.status == 0 != (err != nil) || err == nil && resp.StatusCode != c.status {
				t.Fatalf("answer %v, %v, want status %d", resp, err, c.status)
			}
			if o.puts != c.stored {
				t.Errorf("%d puts arrived, want %d", o.puts, c.stored)
			}
			if c.stored > 0 && differ(o.body, data) != c.flips {
				t.Errorf("%d bits differ, want %d", differ(o.body, data), c.flips)
			}
		})
	}
	t.Run("get truncate", func(t *testing.T) {
		_, got, err := do(t, &origin{body: data}, http.MethodGet, proxy.Truncate)
		if err == nil || len(got) != len(data)/2 || !bytes.HasPrefix(data, got) {
			t.Errorf("%d bytes, %v, want half and an error", len(got), err)
		}
	})
	t.Run("get flip", func(t *testing.T) {
		_, got, err := do(t, &origin{body: data}, http.MethodGet, proxy.FlipDown)
		if err != nil || differ(got, data) != 1 {
			t.Errorf("%d bits differ, %v, want 1", differ(got, data), err)
		}
	})
}

// differ counts the bits in which a and b differ; -1 if their lengths do.
func differ(a, b []byte) int {
	if len(a) != len(b) {
		return -1
	}
	n := 0
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n
}
