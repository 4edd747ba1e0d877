package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitionsHelp says how commands name partitions.
const partitionsHelp = "Partitions are named TOPIC:PARTITION; TOPIC alone is all of them."

// parsePartitions reads the partitions of a command line; an index of -1 is
// all of the topic's.
func parsePartitions(args []string) ([]partition, error) {
	var out []partition
	for _, arg := range args {
		topic, index, one := strings.Cut(arg, ":")
		p := partition{topic, -1}
		if one {
			n, err := strconv.ParseUint(index, 10, 31)
			if err != nil {
				return nil, &usageError{&problem{arg, errors.New("is neither TOPIC nor TOPIC:PARTITION"), ""}}
			}
			p.index = int32(n)
		}
		out = append(out, p)
	}
	return out, nil
}

// withClient runs do with a client; do bounds its requests itself, for it may
// wait long.
func (a *app) withClient(ctx context.Context, do func(ctx context.Context, client *kgo.Client) error) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

// replicasOf lists the replicas of the named partitions; of all, if none is named.
func (a *app) replicasOf(ctx context.Context, client *kgo.Client, named []partition) (map[partition][]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	topics, err := kadm.NewClient(client).ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, a.explain("topics", err)
	}
	all := map[partition][]int32{}
	for _, t := range topics.Sorted() {
		for _, p := range t.Partitions {
			all[partition{t.Topic, p.Partition}] = p.Replicas
		}
	}
	if len(named) == 0 {
		return all, nil
	}
	out := map[partition][]int32{}
	for _, n := range named {
		found := false
		for p, replicas := range all {
			if p.topic == n.topic && (n.index < 0 || p.index == n.index) {
				out[p], found = replicas, true
			}
		}
		if !found && n.index >= 0 && topics.Has(n.topic) {
			return nil, &problem{n.String(), errors.New("there is no such partition"), "varve topic describe " + n.topic + " shows those that there are"}
		} else if !found {
			return nil, a.explain("topic "+n.topic, kerr.UnknownTopicOrPartition)
		}
	}
	return out, nil
}

func sortedPartitions[V any](m map[partition]V) []partition {
	return slices.SortedFunc(maps.Keys(m), comparePartitions)
}

func topicsSet(list []partition) kadm.TopicsSet {
	var s kadm.TopicsSet
	for _, p := range list {
		s.Add(p.topic, p.index)
	}
	return s
}

// brokerRacks lists the racks of the brokers in service.
func (a *app) brokerRacks(ctx context.Context, client *kgo.Client) (map[int32]string, error) {
	brokers, err := a.listBrokers(ctx, client)
	if err != nil {
		return nil, err
	}
	racks := map[int32]string{}
	for _, b := range brokers {
		if !b.IsFenced {
			racks[b.NodeID] = deref(b.Rack)
		}
	}
	return racks, nil
}

func (a *app) listBrokers(ctx context.Context, client *kgo.Client) ([]kmsg.DescribeClusterResponseBroker, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, a.explain("brokers", err)
	}
	slices.SortFunc(resp.Brokers, func(x, y kmsg.DescribeClusterResponseBroker) int { return int(x.NodeID) - int(y.NodeID) })
	return resp.Brokers, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// electLeaders has leaders elected and tells of each; what needed none is no error.
func (a *app) electLeaders(ctx context.Context, client *kgo.Client, how kadm.ElectLeadersHow, list []partition) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var set kadm.TopicsSet
	if list != nil {
		set = topicsSet(list)
	}
	results, err := kadm.NewClient(client).ElectLeaders(ctx, how, set)
	if err != nil {
		return a.explain("elect leaders", err)
	}
	var failed []error
	done := map[partition]kadm.ElectLeadersResult{}
	for topic, parts := range results {
		for i, r := range parts {
			done[partition{topic, i}] = r
		}
	}
	for _, p := range sortedPartitions(done) {
		switch r := done[p]; {
		case r.Err == nil:
			fmt.Fprintf(a.err, "elected a leader of %s\n", p)
		case errors.Is(r.Err, kerr.ElectionNotNeeded):
			fmt.Fprintf(a.err, "%s needs no election\n", p)
		default:
			failed = append(failed, a.explain(p.String(), withMessage(r.Err, r.ErrMessage)))
		}
	}
	if len(done) == 0 {
		fmt.Fprintln(a.err, "no partition needs an election")
	}
	return errors.Join(failed...)
}
