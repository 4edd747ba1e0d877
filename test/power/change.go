package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// changer changes metadata: it makes a topic and deletes the one before, over and over.
type changer struct {
	client *kgo.Client
	made   int
	states map[string]state // of every topic that it ever made
}

// state is what may be of a topic.
type state uint8

const (
	asked   state = iota // its creation or deletion was not answered: anything
	created              // it has to be there
	deleted              // it must not be there
)

// change goes on until ctx ends. Its last answer may be lost with the power.
func (c *changer) change(ctx context.Context, every time.Duration) {
	adm := kadm.NewClient(c.client)
	for before := ""; sleep(ctx, every) == nil; {
		name := fmt.Sprintf("change-%d", c.made)
		c.made++
		c.states[name] = asked
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, name); err != nil {
			continue
		}
		c.states[name] = created
		if before != "" {
			c.states[before] = asked
			if _, err := adm.DeleteTopic(ctx, before); err != nil {
				before = ""
				continue
			}
			c.states[before] = deleted
		}
		before = name
	}
}

// verify says whether what was answered holds.
func (c *changer) verify(ctx context.Context) error {
	all, err := kadm.NewClient(c.client).ListTopics(ctx)
	if err != nil {
		return err
	}
	return c.compare(all.Has)
}

// compare finds a topic of which there is not what was answered.
func (c *changer) compare(there func(name string) bool) error {
	for name, state := range c.states {
		if has := there(name); state == created && !has || state == deleted && has {
			return fmt.Errorf("topic %s is there: %v; its last acknowledged change said otherwise", name, has)
		}
	}
	return nil
}

// done is how many creations and deletions were acknowledged.
func (c *changer) done() (n int) {
	for _, state := range c.states {
		switch state {
		case created:
			n++
		case deleted:
			n += 2
		}
	}
	return n
}
