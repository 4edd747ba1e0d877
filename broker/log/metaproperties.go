package log

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/varve-io/varve/wire"
)

// metaPropertiesFile says whose a log directory is.
const metaPropertiesFile = "meta.properties"

// metaVersion is the version of the file (Kafka's since KRaft), formatVersion that of what lies in the
// directory. A directory without formatVersionKey was formatted by Apache Kafka.
const (
	metaVersion      = "1"
	formatVersionKey = "varve.version"
	formatVersion    = "1"
)

// MetaProperties is the identity of one log directory.
type MetaProperties struct {
	ClusterID   string
	NodeID      int32
	DirectoryID wire.UUID
	Kafka       bool // written by Apache Kafka
}

func encodeMetaProperties(m MetaProperties) []byte {
	props := map[string]string{
		"version": metaVersion, formatVersionKey: formatVersion, "cluster.id": m.ClusterID,
		"node.id": strconv.Itoa(int(m.NodeID)), "directory.id": m.DirectoryID.String(),
	}
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&b, "%s=%s\n", key, propertyEscaper.Replace(props[key]))
	}
	return b.Bytes()
}

var propertyEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

func decodeMetaProperties(p []byte) (MetaProperties, error) {
	props, err := decodeProperties(p)
	if err != nil {
		return MetaProperties{}, fmt.Errorf("%s: %w", metaPropertiesFile, err)
	}
	m := MetaProperties{ClusterID: props["cluster.id"]}
	if props[formatVersionKey] == "" {
		if props["version"] == "" {
			// Kafka's has a version too: this is what a disk leaves that loses what it was told to keep.
			return m, fmt.Errorf("%w: %s is empty or cut short; restore that file", ErrFormat, metaPropertiesFile)
		}
		m.Kafka = true
		return m, nil
	}
	if v := props["version"]; v != metaVersion {
		return m, fmt.Errorf("%w: %s: version %q", ErrFormat, metaPropertiesFile, v)
	}
	if v := props[formatVersionKey]; v != formatVersion {
		return m, fmt.Errorf("%w: %s: %s=%s was written by a newer release; this one reads %s", ErrFormat, metaPropertiesFile, formatVersionKey, v, formatVersion)
	}
	id, err := strconv.ParseInt(props["node.id"], 10, 32)
	if err != nil || id < 0 {
		return m, fmt.Errorf("%w: %s: node.id %q", ErrFormat, metaPropertiesFile, props["node.id"])
	}
	m.NodeID = int32(id)
	if m.DirectoryID, err = wire.ParseUUID(props["directory.id"]); err != nil || m.DirectoryID.IsZero() {
		return m, fmt.Errorf("%w: %s: directory.id %q", ErrFormat, metaPropertiesFile, props["directory.id"])
	}
	return m, nil
}

// decodeProperties reads the subset of Java's property files that Kafka writes.
func decodeProperties(p []byte) (map[string]string, error) {
	props := map[string]string{}
	for line := range strings.Lines(string(p)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		i := strings.IndexAny(line, "=:")
		if i <= 0 {
			return nil, fmt.Errorf("%w: line %q", ErrFormat, line)
		}
		props[strings.TrimSpace(line[:i])] = unescapeProperty(strings.TrimSpace(line[i+1:]))
	}
	return props, nil
}

func unescapeProperty(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
				continue
			case 'r':
				b.WriteByte('\r')
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
