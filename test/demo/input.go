package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// input is a tree of real files.
type input struct {
	what  string
	root  string
	files []string // below root, sorted
	bytes int64
}

// leastInput is what a whole run must have to show anything.
const leastInput = 100e6

// findInput takes the sources of the Go toolchain.
func findInput(ctx context.Context, limit int64) (input, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return input{}, fmt.Errorf("go env: %w", err)
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	in := input{what: "sources of the toolchain " + version, root: filepath.Join(goroot, "src")}
	err = filepath.WalkDir(in.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if limit > 0 && in.bytes >= limit {
			return filepath.SkipAll
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(in.root, path)
		in.files = append(in.files, name)
		in.bytes += info.Size()
		return err
	})
	if err == nil && limit == 0 && in.bytes < leastInput {
		err = fmt.Errorf("%s holds only %d bytes: a toolchain with its sources is needed", in.root, in.bytes)
	}
	slices.Sort(in.files)
	return in, err
}

const (
	topic = "go-sources"
	// maxValue is the most of a file that goes into one record.
	maxValue = 256 << 10
)

// sent is what the records must add up to when they are read back.
type sent struct {
	all    *digest
	late   *digest // of the records from middle on
	middle int64   // Unix milliseconds
}

// produce writes every file as one record or more, its name being the key; so
// all of a file is in one partition, in order.
func (in input) produce(ctx context.Context, addr string) (sent, error) {
	s := sent{all: newDigest(), late: newDigest()}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return s, err
	}
	defer client.Close()
	failed := make(chan error, 1)
	send := func(r *kgo.Record) {
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	for i, name := range in.files {
		content, err := os.ReadFile(filepath.Join(in.root, name))
		if err != nil {
			return s, err
		}
		late := i >= len(in.files)/2
		if late && s.middle == 0 {
			time.Sleep(2 * time.Millisecond) // so that a millisecond lies between the halves
			s.middle = time.Now().UnixMilli()
		}
		for first := true; first || len(content) > 0; first = false {
			r := &kgo.Record{Key: []byte(name), Value: content[:min(len(content), maxValue)], Timestamp: time.Now()}
			content = content[len(r.Value):]
			s.all.add(r.Key, r.Value)
			if late {
				s.late.add(r.Key, r.Value)
			}
			send(r)
		}
	}
	if err := client.Flush(ctx); err != nil {
		return s, err
	}
	select {
	case err := <-failed:
		return s, fmt.Errorf("produce: %w", err)
	default:
		return s, nil
	}
}

// digest sums up records so that the order of records with different keys does
// not matter: a hash for each key, and one over these by name.
type digest struct {
	keys           map[string]hash.Hash
	records, bytes int64
}

func newDigest() *digest { return &digest{keys: map[string]hash.Hash{}} }

func (d *digest) add(key, value []byte) {
	h := d.keys[string(key)]
	if h == nil {
		h = sha256.New()
		d.keys[string(key)] = h
	}
	h.Write(value)
	d.records++
	d.bytes += int64(len(value))
}

func (d *digest) sum() string {
	total := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(d.keys)) {
		fmt.Fprintf(total, "%s %x\n", key, d.keys[key].Sum(nil))
	}
	return hex.EncodeToString(total.Sum(nil))
}

var errNoObject = errors.New("the store has no object")
