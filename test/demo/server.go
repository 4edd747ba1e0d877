package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/varve-io/varve/broker/admin"
	"github.com/varve-io/varve/test/node"
)

// Settings of the show: small segments and hardly any local retention, so that
// what takes days elsewhere takes seconds here.
const (
	segmentBytes = 1 << 20
	// wantRemote is the share of segments that must be in the store alone.
	wantRemote  = 0.9
	offloadPoll = 200 * time.Millisecond
	offloadWait = 3 * time.Minute
	stopGrace   = 40 * time.Second
)

// server is the node of the show.
type server struct {
	cfg    config
	broker *node.Broker
	admin  string // URL
	store  string // directory
	cache  string // directory
}

func startServer(ctx context.Context, cfg config) (*server, error) {
	s := &server{cfg: cfg, store: filepath.Join(cfg.dir, "store"), cache: filepath.Join(cfg.dir, "cache")}
	return s, s.start(ctx)
}

func (s *server) start(ctx context.Context) error {
	adminAddr, err := freeAddr()
	if err != nil {
		return err
	}
	s.admin = "http://" + adminAddr
	s.broker, err = node.StartVarve(ctx, node.VarveConfig{Binary: s.cfg.binary, Dir: s.cfg.dir, Settings: []string{
		"varve.admin.listener=" + adminAddr,
		"varve.tier.cache.dir=" + s.cache,
		"log.retention.check.interval.ms=500",
		"remote.log.manager.task.interval.ms=500",
		"log.segment.delete.delay.ms=500",
	}})
	return err
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *server) stop() error { return s.broker.Stop(stopGrace) }

// varve runs a command of the program against the node.
func (s *server) varve(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.cfg.binary, args...)
	cmd.Env = append(os.Environ(), "VARVE_BOOTSTRAP_SERVER="+s.broker.Addr, "VARVE_ADMIN="+s.admin)
	return cmd
}

// output runs a command to its end; an error holds what it said.
func (s *server) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := s.varve(ctx, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("varve %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}

func (s *server) createTopic(ctx context.Context) error {
	_, err := s.output(ctx, "topic", "create", topic, "--partitions", fmt.Sprint(s.cfg.partitions),
		"-c", "remote.storage.enable=true", "-c", fmt.Sprintf("segment.bytes=%d", segmentBytes),
		"-c", "retention.ms=-1", "-c", "local.retention.ms=1000", "-c", "local.retention.bytes=1")
	return err
}

// where counts segments by place.
type where struct {
	onlyRemote, local       int
	remoteBytes, localBytes int64
}

func (w where) share() float64 {
	return float64(w.onlyRemote) / float64(max(1, w.onlyRemote+w.local))
}

func (s *server) look(ctx context.Context) (where, error) {
	var w where
	out, err := s.output(ctx, "tier", "status", topic, "-o", "json")
	if err != nil {
		return w, err
	}
	var status admin.TierStatus
	if err := json.Unmarshal(out, &status); err != nil {
		return w, err
	}
	for _, p := range status.Partitions {
		w.onlyRemote += p.OnlyRemote
		w.remoteBytes += p.RemoteBytes
	}
	w.local, w.localBytes, err = measure(s.broker.LogDir, func(path string) bool {
		return strings.HasSuffix(path, ".log") && strings.Contains(path, topic+"-")
	})
	return w, err
}

// measure counts files and their bytes below a directory. Files may vanish
// meanwhile.
func measure(dir string, count func(path string) bool) (files int, size int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() || !count(path) {
			return err
		}
		if info, err := d.Info(); err == nil {
			files++
			size += info.Size()
		}
		return nil
	})
	return files, size, err
}

func everything(string) bool { return true }

func (s *server) awaitOffload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, offloadWait)
	defer cancel()
	var last where
	for {
		w, err := s.look(ctx)
		if err == nil {
			last = w
			if w.share() >= wantRemote {
				return nil
			}
		}
		select {
		case <-time.After(offloadPoll):
		case <-s.broker.Exited():
			return fmt.Errorf("the node ended; see %s", s.broker.LogPath())
		case <-ctx.Done():
			return fmt.Errorf("after %v only %.0f %% of the segments are in the store alone (%d, and %d local): %w", offloadWait, 100*last.share(), last.onlyRemote, last.local, errorsOr(err, ctx.Err()))
		}
	}
}

func errorsOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// restartWithoutCache stops the node, removes the chunk cache and starts
// again: whatever is read then comes from disk or from the store.
func (s *server) restartWithoutCache(ctx context.Context) error {
	if err := s.stop(); err != nil {
		return err
	}
	if err := os.RemoveAll(s.cache); err != nil {
		return err
	}
	return s.start(ctx)
}

// report prints what lies where.
func (s *server) report(ctx context.Context) error {
	w, err := s.look(ctx)
	if err != nil {
		return err
	}
	_, cached, err := measure(s.cache, everything)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	objects, stored, err := measure(s.store, everything)
	if err != nil {
		return err
	}
	say(s.cfg, "segments  %d in the store alone, %d on the local disk: %.1f %% are remote only", w.onlyRemote, w.local, 100*w.share())
	say(s.cfg, "bytes     local %d, cache %d, store %d in %d objects", w.localBytes, cached, stored, objects)
	out, err := s.output(ctx, "tier", "status", topic)
	say(s.cfg, "\n%s", out)
	return err
}

// removeObject deletes the oldest segment's object from the store's directory.
func (s *server) removeObject() (string, error) {
	out, err := s.output(context.Background(), "tier", "segments", topic, "-o", "json")
	if err != nil {
		return "", err
	}
	var segments []struct{ Object string }
	if err := json.Unmarshal(out, &segments); err != nil {
		return "", err
	}
	for _, segment := range segments {
		if name := segment.Object; name != "" {
			return name, os.Remove(filepath.Join(s.store, filepath.FromSlash(name)))
		}
	}
	return "", errNoObject
}

// consume reads the topic with `varve consume` and sums it up. Each record
// comes as the lengths of key and value, then both.
func (s *server) consume(ctx context.Context, from string) (*digest, error) {
	cmd := s.varve(ctx, "consume", topic, "--from", from, "--to", "end", "--timeout", s.cfg.patience.String(), "-f", `%K %S\n%k%s`)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d, err := sumRecords(bufio.NewReaderSize(out, 1<<20))
	if waitErr := cmd.Wait(); waitErr != nil {
		return nil, fmt.Errorf("varve consume: %w: %s", waitErr, strings.TrimSpace(errs.String()))
	}
	return d, err
}

func sumRecords(r *bufio.Reader) (*digest, error) {
	d := newDigest()
	buf := make([]byte, 0, 2*maxValue)
	for {
		var keySize, valueSize int
		line, err := r.ReadString('\n')
		if err == io.EOF && line == "" {
			return d, nil
		}
		if _, err := fmt.Sscanf(line, "%d %d\n", &keySize, &valueSize); err != nil || keySize < 0 || valueSize < 0 || valueSize > maxValue {
			return nil, fmt.Errorf("record %d begins %.80q", d.records, line)
		}
		buf = append(buf[:0], make([]byte, keySize+valueSize)...)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, fmt.Errorf("record %d: %w", d.records, err)
		}
		d.add(buf[:keySize], buf[keySize:])
	}
}
