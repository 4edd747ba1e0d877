package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/varve-io/varve/broker/admin"
	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/objstore"
)

// image is what the node says of the tier: by topic, both tiers' segments, and the partitions' starts and ends.
type image struct {
	segments   map[place]admin.Segments
	partitions map[place]admin.PartitionStatus
}

// askImage asks the node's HTTP listener.
func askImage(ctx context.Context, addr string) (image, error) {
	img := image{map[place]admin.Segments{}, map[place]admin.PartitionStatus{}}
	for _, t := range topics {
		for after := ""; ; {
			var page admin.Segments
			query := url.Values{"topic": {t.name}, "after": {after}, "limit": {"10000"}}
			if err := get(ctx, addr, "/v1/tier/segments?"+query.Encode(), &page); err != nil {
				return img, err
			}
			for _, s := range page.Remote {
				at := place{s.Topic, s.Partition}
				all := img.segments[at]
				all.Remote = append(all.Remote, s)
				img.segments[at] = all
			}
			for _, s := range page.Local {
				at := place{s.Topic, s.Partition}
				all := img.segments[at]
				all.Local = append(all.Local, s)
				img.segments[at] = all
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	var status admin.TierStatus
	if err := get(ctx, addr, "/v1/tier/status", &status); err != nil {
		return img, err
	}
	for _, p := range status.Partitions {
		img.partitions[place{p.Topic, p.Partition}] = p
	}
	return img, nil
}

func get(ctx context.Context, addr, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// live are the rows that records from the log start on are in.
func (img image) live(at place) (rows []admin.RemoteSegment) {
	for _, s := range img.segments[at].Remote {
		if s.End > img.partitions[at].LogStart {
			rows = append(rows, s)
		}
	}
	return rows
}

// check tells whether the segments of both tiers cover every partition without a gap, rows without an overlap,
// and whether total retention has left what it must.
func (img image) check() error {
	var errs []error
	for _, t := range topics {
		for p := range t.partitions {
			at := place{t.name, p}
			if err := img.checkPartition(at, t); err != nil {
				errs = append(errs, fmt.Errorf("segments of %v: %w", at, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (img image) checkPartition(at place, t topic) error {
	status, ok := img.partitions[at]
	if !ok {
		return errors.New("the node does not lead it")
	}
	next, size := int64(-1), int64(0)
	for _, s := range img.live(at) {
		if next < 0 && s.Base > status.LogStart || next >= 0 && s.Base != next {
			return fmt.Errorf("row [%d, %d) follows %d, the log starts at %d", s.Base, s.End, next, status.LogStart)
		}
		next, size = s.End, size+s.Size
	}
	if status.RemoteEnd != nil && next >= 0 && *status.RemoteEnd != next {
		return fmt.Errorf("rows end at %d, the remote end is %d", next, *status.RemoteEnd)
	}
	for _, s := range img.segments[at].Local {
		switch {
		case s.End <= next || s.End == s.Base:
			continue
		case next < 0 && s.Base > status.LogStart || next >= 0 && s.Base > next:
			return fmt.Errorf("local segment [%d, %d) follows %d, the log starts at %d", s.Base, s.End, next, status.LogStart)
		}
		next, size = s.End, size+s.Size
	}
	if next >= 0 && next != status.End {
		return fmt.Errorf("segments end at %d, the log at %d", next, status.End)
	}
	if t.start == startRetained && status.LogStart > 0 && size < retainedBytes {
		return fmt.Errorf("%d bytes are left by retention.bytes=%d", size, retainedBytes)
	}
	return nil
}

// quiet tells why the node still has work that needs no new record; nil once it has none.
func (img image) quiet() error {
	for _, t := range topics {
		for p := range t.partitions {
			if _, led := img.partitions[place{t.name, p}]; !led {
				return fmt.Errorf("%s-%d is not led yet", t.name, p)
			}
		}
	}
	for at, segments := range img.segments {
		for _, s := range segments.Local {
			if s.Sealed {
				return fmt.Errorf("segment [%d, %d) of %v is still local: %s", s.Base, s.End, at, s.Kept)
			}
		}
		for _, s := range segments.Remote {
			if s.End <= img.partitions[at].LogStart {
				return fmt.Errorf("row [%d, %d) of %v is still there below the log start", s.Base, s.End, at)
			}
		}
	}
	return nil
}

// bucket is what lies in the store: objects of segments by name, and how old they are.
func bucket(ctx context.Context, store objstore.Store) (map[string]time.Duration, error) {
	all := map[string]time.Duration{}
	err := store.List(ctx, "", "", func(o objstore.Info) error {
		if _, _, err := metadata.ParseObjectName(o.Name); err == nil {
			all[o.Name] = time.Since(o.Modified)
		}
		return nil
	})
	return all, err
}

// compare tells which objects no row names, and whether a row has no object. Both images stand around the listing: a row in
// both of them, from the log start on, has had its object all the time.
func compare(before, after image, objects map[string]time.Duration) (orphans []string, err error) {
	rows := map[string]bool{}
	for at, segments := range before.segments {
		for _, s := range segments.Remote {
			rows[s.Object] = true
			if _, there := objects[s.Object]; !there && s.End > after.partitions[at].LogStart {
				err = errors.Join(err, fmt.Errorf("row [%d, %d) of %v has no object %s", s.Base, s.End, at, s.Object))
			}
		}
	}
	for _, segments := range after.segments {
		for _, s := range segments.Remote {
			rows[s.Object] = true
		}
	}
	for name := range maps.Keys(objects) {
		if !rows[name] {
			orphans = append(orphans, name)
		}
	}
	slices.Sort(orphans)
	return orphans, err
}
