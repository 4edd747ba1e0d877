package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/file"
	"github.com/varve-io/varve/objstore/limit"
	"github.com/varve-io/varve/objstore/mem"
	"github.com/varve-io/varve/objstore/metrics"
	"github.com/varve-io/varve/objstore/retry"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/wire/config"
)

// wrapStore puts around a store what every store gets: limits inside, tries
// again around them, and metrics of what callers see outside.
func wrapStore(store objstore.Store, cfg config.Store, reg prometheus.Registerer) objstore.Store {
	store = limit.New(store, limit.Options{Reads: cfg.Concurrency, Writes: cfg.Concurrency})
	backoff := objstore.DefaultBackoff
	backoff.Attempts = cfg.Retries + 1
	store = retry.New(store, retry.Options{Backoff: backoff, Registerer: reg})
	return metrics.New(store, reg)
}

// openProvider opens the store that varve.store.url names.
func openProvider(ctx context.Context, cfg config.Store) (objstore.Store, error) {
	store, err := openURL(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("varve.store.url=%s: %w", cfg.URL, err)
	}
	return store, nil
}

func openURL(ctx context.Context, cfg config.Store) (objstore.Store, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "file":
		if err := os.MkdirAll(u.Path, 0o755); err != nil {
			return nil, err
		}
		return file.New(u.Path)
	case "mem":
		return mem.New(), nil
	case "s3":
		opts := s3.Options{
			Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"),
			Endpoint: cfg.Endpoint, Region: cfg.Region, PathStyle: cfg.PathStyle,
			Checksum: s3.Checksum(cfg.Checksum), Timeout: cfg.Timeout,
		}
		if cfg.AccessKeyFile != "" {
			opts.Credentials = s3.FileCredentials(cfg.AccessKeyFile, cfg.SecretKeyFile, cfg.SessionTokenFile)
		}
		return s3.New(ctx, opts)
	}
	return nil, fmt.Errorf("unknown scheme %q", u.Scheme)
}
