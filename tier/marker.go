package tier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/varve-io/varve/objstore"
)

// markerName is the object that says whose prefix this is. It lies beside the clusters' folders, so that a prefix is
// never shared by mistake even though the names of two clusters' objects could not collide.
const markerName = "varve-cluster.json"

// maxMarkerSize bounds what is read of it.
const maxMarkerSize = 64 << 10

// marker is its content.
type marker struct {
	ClusterID string    `json:"clusterId"`
	Version   int       `json:"version"`
	Created   time.Time `json:"created"`
}

// CheckPrefix makes sure that the store's prefix is this cluster's, and marks it so if it is nobody's. The
// error wraps ErrForeignPrefix and tells the way out, or ErrStoreUnavailable.
func (m *Manager) CheckPrefix(ctx context.Context) error {
	ctx, cancel := m.during(ctx)
	defer cancel()
	err := m.checkMarker(ctx)
	if errors.Is(err, objstore.ErrNotExist) {
		if err = m.writeMarker(ctx); err == nil || errors.Is(err, objstore.ErrExist) || objstore.Ambiguous(err) {
			err = m.checkMarker(ctx) // two may have written at once: what is there counts
		}
	}
	m.health.note(errors.Join(ignoreForeign(err)))
	switch {
	case err == nil || errors.Is(err, ErrForeignPrefix) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion):
		return err
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return context.Cause(ctx)
	}
	return storeError(err)
}

// ignoreForeign leaves of an error what is the store's fault.
func ignoreForeign(err error) error {
	if errors.Is(err, ErrForeignPrefix) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) {
		return nil
	}
	return err
}

func (m *Manager) checkMarker(ctx context.Context) error {
	info, err := m.cfg.Store.Head(ctx, markerName)
	if err != nil {
		return err
	}
	if info.Size > maxMarkerSize {
		return corrupt("%s has %d bytes", markerName, info.Size)
	}
	p := make([]byte, info.Size)
	if _, err := m.cfg.Store.Get(ctx, markerName, 0, p); err != nil {
		return err
	}
	var found marker
	if err := json.Unmarshal(p, &found); err != nil || found.ClusterID == "" {
		return corrupt("%s does not say which cluster the prefix belongs to", markerName)
	}
	if found.ClusterID != m.cfg.ClusterID {
		return fmt.Errorf("%w: the object store's prefix holds cluster %s, this is cluster %s: "+
			"give this cluster a prefix of its own in varve.store.url, or start that one with its own log.dirs "+
			"(rebuilding it from the bucket, `varve recover`, comes with a later release)",
			ErrForeignPrefix, found.ClusterID, m.cfg.ClusterID)
	}
	if found.Version > version {
		return fmt.Errorf("%w: the prefix was last used by a newer release (format %d, this one knows %d)", ErrVersion, found.Version, version)
	}
	return nil
}

func (m *Manager) writeMarker(ctx context.Context) error {
	p, err := json.Marshal(marker{ClusterID: m.cfg.ClusterID, Version: version, Created: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	crc := objstore.CRC32C(0, p)
	return m.cfg.Store.Put(ctx, markerName, bytes.NewReader(p), int64(len(p)), objstore.PutOptions{CRC32C: &crc, IfAbsent: true})
}
