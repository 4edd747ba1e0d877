package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/objstore"
	"github.com/varve-io/varve/objstore/s3"
	"github.com/varve-io/varve/test/node"
)

// Plain GETs: ranges of the size of a chunk, as many at a time as the broker reads ahead.
const (
	plainRange  = 8 << 20
	plainAtOnce = 8
)

// plain reads all objects through the same proxy and drops the bytes, in MB/s.
func (r *rig) plain(ctx context.Context) (rate float64, err error) {
	opts := r.store.Options(bucket)
	opts.Endpoint = "http://" + r.way.Addr()
	store, err := s3.New(ctx, opts)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	type part struct {
		name string
		off  int64
		size int64
	}
	var parts []part
	bytes := int64(0)
	err = store.List(ctx, "", "", func(i objstore.Info) error {
		for off := int64(0); off < i.Size; off += plainRange {
			parts = append(parts, part{i.Name, off, min(plainRange, i.Size-off)})
		}
		bytes += i.Size
		return nil
	})
	if err != nil {
		return 0, err
	}
	queue := make(chan part, len(parts))
	for _, p := range parts {
		queue <- p
	}
	close(queue)
	errs := make([]error, plainAtOnce)
	var wg sync.WaitGroup
	begin := time.Now()
	for w := range plainAtOnce {
		wg.Go(func() {
			buf := make([]byte, plainRange)
			for p := range queue {
				if _, err := store.Get(ctx, p.name, p.off, buf[:p.size]); err != nil {
					errs[w] = err
				}
			}
		})
	}
	wg.Wait()
	return float64(bytes) / 1e6 / time.Since(begin).Seconds(), errors.Join(errs...)
}

// counters are what a replay is measured by.
type counters struct {
	cpu, storeCPU time.Duration
	ownCPU        time.Duration
	rss           int64
	gets, fetched float64
}

func (r *rig) look() (c counters, err error) {
	var errs [5]error
	c.cpu, errs[0] = r.broker.CPU()
	c.storeCPU, errs[1] = node.CPU(r.store.Pid())
	c.ownCPU, errs[4] = node.CPU(os.Getpid())
	m, err := r.broker.Memory()
	c.rss, errs[2] = m.Peak, err
	errs[3] = r.metrics(map[string]*float64{
		`varve_objstore_operations_total{operation="get",result="ok"}`: &c.gets,
		`varve_objstore_transferred_bytes_total{operation="get"}`:      &c.fetched,
	})
	return c, errors.Join(errs[:]...)
}

// metrics reads some of the node's; one that is absent is zero.
func (r *rig) metrics(want map[string]*float64) error {
	resp, err := http.Get("http://" + r.broker.Admin + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("metrics: %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if into := want[name]; into != nil {
			if *into, err = strconv.ParseFloat(value, 64); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}
