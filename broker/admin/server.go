package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/varve-io/varve/broker/replica"
	"github.com/varve-io/varve/controller/metadata"
)

// Config is what the pages show. All functions are called from many
// goroutines and must not block.
type Config struct {
	NodeID    int32
	ClusterID func() string
	// Ready returns why clients cannot be served yet or fully, a sentence each;
	// none is ready.
	Ready func() []string
	// Degraded returns what does not work although clients are served.
	Degraded func() []string
	// Healthy returns why the process cannot go on, or nil.
	Healthy    func() error
	Gatherer   prometheus.Gatherer
	Image      func() *metadata.Image
	Partitions func() iter.Seq[*replica.Partition]
	// Store describes the object store, nil if there is none.
	Store  func() *StoreStatus
	Logger *slog.Logger
}

// Limits of the listener: it has a handful of well-behaved users.
const (
	readTimeout     = 10 * time.Second
	writeTimeout    = 60 * time.Second
	shutdownTimeout = 2 * time.Second
	maxHeaderBytes  = 16 << 10
)

// Server serves the pages.
type Server struct {
	cfg Config
}

// New returns a server; Serve starts it.
func New(cfg Config) *Server { return &Server{cfg} }

// Handler returns the pages.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
		ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /v1/tier/status", s.tierStatus)
	mux.HandleFunc("GET /v1/tier/segments", s.tierSegments)
	return mux
}

// Serve answers on the listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler: s.Handler(), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		stopped <- srv.Shutdown(grace)
	})
	err := srv.Serve(ln)
	if !stop() {
		return errors.Join(<-stopped, srv.Close())
	}
	return fmt.Errorf("admin listener %s: %w", ln.Addr(), err)
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := s.cfg.Healthy(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if reasons := s.cfg.Ready(); len(reasons) > 0 {
		http.Error(w, strings.Join(reasons, "\n"), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, strings.Join(append([]string{"ready"}, s.cfg.Degraded()...), "\n"))
}

// Error is what the JSON API answers when it cannot.
type Error struct {
	Message string `json:"error"`
}

func (s *Server) reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.cfg.Logger.Debug("admin reply", "error", err)
	}
}

func (s *Server) fail(w http.ResponseWriter, status int, format string, args ...any) {
	s.reply(w, status, Error{fmt.Sprintf(format, args...)})
}
