package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerRow is one broker and what it has.
type brokerRow struct {
	ID       int32  `json:"id" col:"ID"`
	Address  string `json:"address" col:"ADDRESS"`
	Rack     string `json:"rack" col:"RACK"`
	State    string `json:"state" col:"STATE"` // active or fenced
	Replicas int    `json:"replicas" col:"REPLICAS"`
	Leads    int    `json:"leads" col:"LEADS"`
	Behind   int    `json:"notInSync" col:"NOT-IN-SYNC"`
}

func newClusterBrokers(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "brokers",
		Short: "Show the brokers, those out of service too, and what they have",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				rows, err := a.brokerRows(ctx, client)
				if err != nil {
					return err
				}
				return show(a, rows)
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) brokerRows(ctx context.Context, client *kgo.Client) ([]brokerRow, error) {
	brokers, err := a.listBrokers(ctx, client)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	topics, err := kadm.NewClient(client).ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, a.explain("topics", err)
	}
	var rows []brokerRow
	for _, b := range brokers {
		row := brokerRow{ID: b.NodeID, Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), Rack: deref(b.Rack), State: "active"}
		if b.IsFenced {
			row.State = "fenced"
		}
		for _, t := range topics {
			for _, p := range t.Partitions {
				if !slices.Contains(p.Replicas, b.NodeID) {
					continue
				}
				row.Replicas++
				if p.Leader == b.NodeID {
					row.Leads++
				}
				if !slices.Contains(p.ISR, b.NodeID) {
					row.Behind++
				}
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func brokerArg(arg string) (int32, error) {
	id, err := strconv.ParseInt(arg, 10, 32)
	if err != nil || id < 0 {
		return 0, &usageError{&problem{arg, errors.New("is not the id of a broker"), ""}}
	}
	return int32(id), nil
}

func newClusterDecommission(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "decommission ID",
		Short: "Move everything off a broker, and wait until it is empty",
		Long: "Move the replicas of a broker to the others that are in service, over racks and loads, and wait until it has none.\n" +
			"It goes on if it is interrupted: what was begun completes; run it again to see it through. Then stop the broker and\n" +
			"forget it with varve cluster unregister.",
		Example: "  varve cluster decommission 4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := brokerArg(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				return a.decommission(ctx, client, id)
			})
		},
	}
	a.clientFlags(cmd)
	return cmd
}

func (a *app) decommission(ctx context.Context, client *kgo.Client, id int32) error {
	brokers, err := a.listBrokers(ctx, client)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(brokers, func(b kmsg.DescribeClusterResponseBroker) bool { return b.NodeID == id }) {
		return unknownBroker(id)
	}
	told := -1
	for {
		left, err := a.moveOff(ctx, client, id)
		if err != nil {
			return err
		}
		if left != told {
			fmt.Fprintf(a.err, "broker %d has %d replicas\n", id, left)
			told = left
		}
		if left == 0 {
			fmt.Fprintf(a.err, "broker %d is empty: stop it, then varve cluster unregister %d\n", id, id)
			return nil
		}
		if err := sleep(ctx, waitInterval); err != nil {
			return err
		}
	}
}

func unknownBroker(id int32) error {
	return &problem{fmt.Sprintf("broker %d", id), errors.New("is not registered"), "varve cluster brokers shows who is"}
}

// moveOff begins to move what is not yet on its way, and returns how many
// replicas the broker has left.
func (a *app) moveOff(ctx context.Context, client *kgo.Client, id int32) (int, error) {
	replicas, err := a.replicasOf(ctx, client, nil)
	if err != nil {
		return 0, err
	}
	moving, err := a.reassignments(ctx, client)
	if err != nil {
		return 0, err
	}
	racks, err := a.brokerRacks(ctx, client)
	if err != nil {
		return 0, err
	}
	delete(racks, id)
	leaving := map[partition]bool{}
	target := map[partition][]int32{} // of what is on its way, for other reasons too
	for _, r := range moving {
		p := partition{r.Topic, r.Partition}
		leaving[p] = slices.Contains(r.Removing, id)
		target[p] = slices.DeleteFunc(slices.Clone(r.Replicas), func(b int32) bool { return slices.Contains(r.Removing, b) })
	}
	to, left, begin := newPlacement(racks, replicas), 0, map[partition][]int32{}
	for _, p := range sortedPartitions(replicas) {
		if !slices.Contains(replicas[p], id) {
			continue
		}
		if left++; leaving[p] {
			continue
		}
		now := replicas[p]
		if t, ok := target[p]; ok {
			now = t
		}
		if begin[p], err = to.replace(now, id); err != nil {
			return left, &problem{p.String(), err, "add a broker, or lower the number of replicas with varve topic reassign --replicas"}
		}
	}
	return left, a.alterReplicas(ctx, client, begin)
}

func newClusterUnregister(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unregister ID",
		Short: "Forget a broker that is stopped and has no replica",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := brokerArg(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				return a.unregister(ctx, client, id)
			})
		},
	}
	a.clientFlags(cmd)
	return cmd
}

func (a *app) unregister(ctx context.Context, client *kgo.Client, id int32) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = withMessage(kerr.ErrorForCode(resp.ErrorCode), deref(resp.ErrorMessage))
	}
	switch {
	case errors.Is(err, kerr.BrokerIDNotRegistered):
		return unknownBroker(id)
	case err != nil:
		return a.explain(fmt.Sprintf("broker %d", id), err)
	}
	fmt.Fprintf(a.err, "broker %d is forgotten\n", id)
	return nil
}
