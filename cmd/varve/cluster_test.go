package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParsePartitions(t *testing.T) {
	got, err := parsePartitions([]string{"orders", "pay:3"})
	if err != nil || fmt.Sprint(got) != "[orders:-1 pay:3]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"t:", "t:x", "t:-1", "t:1:2", "t:4294967296"} {
		if _, err := parsePartitions([]string{bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestPlacement: what may stay stays, at its place; what must go goes to another rack if there is one, and to who has least.
func TestPlacement(t *testing.T) {
	racks := map[int32]string{1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
	on := func(ids ...int32) map[int32]string {
		some := map[int32]string{}
		for _, id := range ids {
			some[id] = racks[id]
		}
		return some
	}
	for _, tt := range []struct {
		name     string
		brokers  []int32
		replicas []int32
		load     map[int32]int
		want     []int32 // nil: it cannot be
	}{
		{"nothing to do", []int32{1, 2, 3, 4, 5}, []int32{3, 1, 5}, nil, []int32{3, 1, 5}},
		{"another rack", []int32{1, 2, 4, 5}, []int32{3, 1}, nil, []int32{4, 1}},
		{"the least load", []int32{1, 4, 5}, []int32{3, 1}, map[int32]int{4: 7, 5: 2}, []int32{5, 1}},
		{"a rack twice rather than none", []int32{1, 2}, []int32{3, 1}, nil, []int32{2, 1}},
		{"all elsewhere", []int32{3, 4}, []int32{1, 2}, nil, []int32{3, 4}},
		{"too few", []int32{1, 2}, []int32{1, 3, 4}, nil, nil},
	} {
		p := newPlacement(on(tt.brokers...), nil)
		for id, n := range tt.load {
			p.load[id] = n
		}
		got, err := p.move(tt.replicas)
		if !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if got, err := newPlacement(on(1, 2, 3, 5), nil).replace([]int32{4, 1}, 4); err != nil || !slices.Equal(got, []int32{3, 1}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := newPlacement(on(1), nil).replace([]int32{4, 1}, 4); err == nil {
		t.Error("a second replica on one broker")
	}
}

// TestEvenPlacement: many partitions of a broker that goes spread over the rest.
func TestEvenPlacement(t *testing.T) {
	p := newPlacement(map[int32]string{1: "", 2: "", 3: ""}, nil)
	count := map[int32]int{}
	for range 300 {
		got, err := p.replace([]int32{4}, 4)
		if err != nil {
			t.Fatal(err)
		}
		count[got[0]]++
	}
	for id, n := range count {
		if n != 100 {
			t.Errorf("broker %d gets %d", id, n)
		}
	}
}

// TestClusterCommands are those that one node can answer.
func TestClusterCommands(t *testing.T) {
	n := newTestNode(t)
	n.start()
	n.awaitReady()
	n.cli("", "topic", "create", "t", "--partitions", "2")
	if out := n.cli("", "cluster", "brokers", "-o", "json"); !strings.Contains(out, `"state": "active"`) || !strings.Contains(out, `"leads": 2`) {
		t.Error(out)
	}
	for _, quiet := range []string{"topic reassign", "topic reassign t:1", "cluster accept-loss", "cluster accept-loss -o yaml"} {
		if out := n.cli("", strings.Fields(quiet)...); strings.Contains(out, "t ") {
			t.Errorf("%s: %s", quiet, out)
		}
	}
	for _, tt := range []struct {
		args, says string
		code       int
	}{
		{"topic elect --all", "no partition needs an election", exitOK},
		{"topic elect t", "t:0 needs no election\nt:1 needs no election", exitOK},
		{"topic elect t:9", "t:9: there is no such partition", exitFailed},
		{"topic elect none", "topic none: does not exist", exitFailed},
		{"topic elect", "name partitions, or --all", exitUsage},
		{"topic reassign t --replicas 77", "t:0: ", exitFailed},
		{"topic reassign t --brokers 77", "broker 77: is not in service", exitFailed},
		{"topic reassign --brokers 1", "name the partitions", exitUsage},
		{"topic reassign t --brokers 1 --cancel", "exclude each other", exitUsage},
		{"topic reassign t --cancel", "", exitOK},
		{"topic reassign t --wait", "0 of 2 partitions are on their way", exitOK},
		{"cluster accept-loss t", "all of them have a leader", exitOK},
		{"cluster decommission 77", "broker 77: is not registered", exitFailed},
		{"cluster decommission x", "is not the id of a broker", exitUsage},
		{"cluster decommission 1", "t:0: all 0 brokers that remain have a replica", exitFailed},
		{"cluster unregister 77", "broker 77: is not registered", exitFailed},
		{"cluster unregister 1", "is alive: stop it first", exitFailed},
	} {
		_, stderr, code := n.try("", strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: exit %d: %s", tt.args, code, stderr)
		}
	}
	if err := n.stop(); err != nil {
		t.Error(err)
	}
}
