package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// services are the parts of a node that run. They are started one by one and
// stopped in reverse order, each waited for, within a bound for all.
type services struct {
	logger  *slog.Logger
	running []*service
	// ended takes the first service that ends without having been asked to.
	ended chan *service
}

type service struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

func newServices(logger *slog.Logger) *services {
	return &services{logger: logger, ended: make(chan *service, 1)}
}

// start runs a service until stop cancels its context. The context does not
// end with that of the node, since what others still need must not go first.
func (s *services) start(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	svc := &service{name: name, cancel: cancel, done: make(chan struct{})}
	s.running = append(s.running, svc)
	go func() {
		defer close(svc.done)
		svc.err = run(ctx)
		if ctx.Err() == nil {
			s.report(svc)
		}
	}()
}

// fail reports a part that cannot go on but may not be able to end.
func (s *services) fail(name string, err error) { s.report(&service{name: name, err: err}) }

// report keeps the first failure: it is the cause.
func (s *services) report(svc *service) {
	select {
	case s.ended <- svc:
	default:
	}
}

// wait blocks until ctx ends, which is no error, or a service ends by itself.
func (s *services) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case svc := <-s.ended:
		return svc.failure()
	}
}

// failure is the error of a service that ended by itself.
func (svc *service) failure() error {
	err := svc.err
	if err == nil {
		err = errors.New("ended unexpectedly")
	}
	return fmt.Errorf("%s: %w", svc.name, err)
}

// stop ends all services, the last started first, and reports those that
// failed to end in time.
func (s *services) stop(bound time.Duration) error {
	deadline := time.After(bound)
	var failed []error
	late := false
	for _, svc := range slices.Backward(s.running) {
		svc.cancel()
		if late {
			continue // all are told, none is waited for
		}
		began := time.Now()
		select {
		case <-svc.done:
			s.logger.Debug("stopped", "part", svc.name, "took", time.Since(began).Round(time.Millisecond))
			if svc.err != nil && !errors.Is(svc.err, context.Canceled) {
				failed = append(failed, fmt.Errorf("%s: %w", svc.name, svc.err))
			}
		case <-deadline:
			late = true
			failed = append(failed, fmt.Errorf("%s did not stop within %v", svc.name, bound))
		}
	}
	return errors.Join(failed...)
}
