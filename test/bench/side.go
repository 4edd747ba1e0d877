package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/test/node"
)

// durability is what an acknowledgement promises.
type durability string

const (
	pageCache durability = "pagecache" // in the broker's page cache
	fsynced   durability = "fsync"     // on the disk
)

// topicSettings gives each kind of broker the same durability, in its own words.
var topicSettings = map[string]map[durability]map[string]string{
	"kafka": {pageCache: {}, fsynced: {"flush.messages": "1"}},
	"varve": {pageCache: {"varve.durability": "replicated"}, fsynced: {"varve.durability": "fsync"}},
}

// flushSettings are read back from the brokers and printed.
var flushSettings = []string{"flush.messages", "flush.ms", "varve.durability"}

// deleteSoon makes Kafka remove a deleted topic's files at once, so that the
// next run gets their memory back.
var deleteSoon = []string{"log.segment.delete.delay.ms=100", "log.initial.task.delay.ms=100"}

// side is one of the two brokers that are compared.
type side struct {
	kind  string // "kafka" or "varve"
	start func(ctx context.Context, dir string) (*node.Broker, error)

	// while it runs:
	broker *node.Broker
	client *kgo.Client
	admin  *kadm.Client
	topics int // created so far, for names
}

// open starts the broker in a new folder below dir.
func (s *side) open(ctx context.Context, dir string) error {
	home, err := os.MkdirTemp(dir, s.kind+"-")
	if err != nil {
		return err
	}
	return s.openIn(ctx, home)
}

// openIn starts the broker in a folder of its own.
func (s *side) openIn(ctx context.Context, home string) (err error) {
	if s.broker, err = s.start(ctx, home); err != nil {
		return err
	}
	if s.client, err = kgo.NewClient(kgo.SeedBrokers(s.broker.Addr)); err != nil {
		return err
	}
	s.admin = kadm.NewClient(s.client)
	return nil
}

// close ends the broker and removes its folder.
func (s *side) close() error {
	if s.broker == nil {
		return nil
	}
	if s.client != nil {
		s.client.Close()
	}
	err := s.broker.Stop(30 * time.Second)
	if err != nil {
		err = fmt.Errorf("stop %s: %w", s.kind, err)
	}
	err = errors.Join(err, os.RemoveAll(s.broker.Dir))
	s.broker, s.client, s.admin = nil, nil, nil
	return err
}

// topic is a topic of one run.
type topic struct {
	name string
	id   [16]byte
}

// create makes a topic with a durability and waits until all its partitions
// have a leader.
func (s *side) create(ctx context.Context, partitions int, d durability) (topic, error) {
	s.topics++
	name := fmt.Sprintf("bench-%04d", s.topics)
	configs := map[string]*string{"file.delete.delay.ms": kadm.StringPtr("100")}
	for k, v := range topicSettings[s.kind][d] {
		configs[k] = kadm.StringPtr(v)
	}
	if _, err := s.admin.CreateTopic(ctx, int32(partitions), 1, configs, name); err != nil {
		return topic{}, fmt.Errorf("%s: create topic: %w", s.kind, err)
	}
	t, err := s.await(ctx, name, partitions)
	if err != nil {
		return topic{}, fmt.Errorf("%s: wait for a new topic: %w", s.kind, err)
	}
	return t, nil
}

// await returns once the leader of every partition answers for it: metadata
// may name a leader that does not yet know.
func (s *side) await(ctx context.Context, name string, partitions int) (topic, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		ends, err := s.admin.ListEndOffsets(ctx, name)
		if err == nil {
			err = ends.Error()
		}
		if err == nil && len(ends[name]) == partitions {
			topics, err := s.admin.ListTopics(ctx, name)
			return topic{name, topics[name].ID}, err
		}
		select {
		case <-ctx.Done():
			return topic{}, errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settings reads back which flush settings a topic has.
func (s *side) settings(ctx context.Context, t topic) (string, error) {
	all, err := s.admin.DescribeTopicConfigs(ctx, t.name)
	if err != nil {
		return "", fmt.Errorf("%s: describe topic: %w", s.kind, err)
	}
	var out []string
	for _, r := range all {
		if r.Err != nil {
			return "", fmt.Errorf("%s: describe topic: %w", s.kind, r.Err)
		}
		for _, c := range r.Configs {
			if slices.Contains(flushSettings, c.Key) {
				out = append(out, c.Key+"="+c.MaybeValue())
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, " "), nil
}

// remove deletes a topic and waits until its folders are gone.
func (s *side) remove(ctx context.Context, t topic) error {
	if _, err := s.admin.DeleteTopic(ctx, t.name); err != nil {
		return fmt.Errorf("%s: delete topic: %w", s.kind, err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		left, err := filepath.Glob(filepath.Join(s.broker.LogDir, t.name+"*"))
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %s is still there long after its topic was deleted", s.kind, left[0])
		}
		time.Sleep(20 * time.Millisecond)
	}
}
