package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestServicesStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServices(slog.New(slog.DiscardHandler))
		var stopped []string
		for _, name := range []string{"a", "b", "c"} {
			s.start(name, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				stopped = append(stopped, name)
				return ctx.Err()
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.wait(ctx); err != nil {
			t.Errorf("wait: %v", err)
		}
		if err := s.stop(time.Minute); err != nil || !slices.Equal(stopped, []string{"c", "b", "a"}) {
			t.Errorf("stopped %q, %v", stopped, err)
		}
	})
}

func TestServicesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServices(slog.New(slog.DiscardHandler))
		s.start("steady", func(ctx context.Context) error { <-ctx.Done(); return nil })
		broken := errors.New("broken")
		s.start("weak", func(context.Context) error { time.Sleep(time.Second); return broken })
		if err := s.wait(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "weak") {
			t.Errorf("wait: %v", err)
		}
		if err := s.stop(time.Minute); !errors.Is(err, broken) {
			t.Errorf("stop: %v", err)
		}
	})
}

// TestServicesStopIsBounded: one that hangs is named, and the others are told
// to stop all the same.
func TestServicesStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServices(slog.New(slog.DiscardHandler))
		told := make(chan struct{})
		s.start("first", func(ctx context.Context) error { <-ctx.Done(); close(told); return nil })
		release := make(chan struct{})
		s.start("stuck", func(context.Context) error { <-release; return nil })
		began := time.Now()
		err := s.stop(5 * time.Second)
		if err == nil || !strings.Contains(err.Error(), "stuck did not stop within 5s") || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		<-told
		close(release)
	})
}
