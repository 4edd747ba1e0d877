package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reassignment is a partition on its way to other replicas.
type reassignment struct {
	Topic     string  `json:"topic" col:"TOPIC"`
	Partition int32   `json:"partition" col:"PARTITION"`
	Replicas  []int32 `json:"replicas" col:"REPLICAS"` // those to come and those to go included
	Adding    []int32 `json:"adding" col:"ADDING"`
	Removing  []int32 `json:"removing" col:"REMOVING"`
}

type reassignFlags struct {
	replicas, brokers []int32
	cancel, wait      bool
}

func newTopicReassign(a *app) *cobra.Command {
	var f reassignFlags
	cmd := &cobra.Command{
		Use:   "reassign [PARTITION...]",
		Short: "Move partitions to other brokers; without a target, show what is on its way",
		Long: "Move the replicas of partitions to other brokers. The new ones copy first; the old ones go once they are in sync.\n" + partitionsHelp + "\n" +
			"--replicas is the whole list, the preferred leader first; --brokers keeps what lies there already and spreads the rest over racks and loads.",
		Example: "  varve topic reassign\n  varve topic reassign orders:3 --replicas 4,5,6\n  varve topic reassign orders payments --brokers 4,5,6 --wait\n  varve topic reassign orders --cancel",
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parsePartitions(args)
			if err == nil {
				err = f.check(len(args))
			}
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				return a.reassign(ctx, client, named, f)
			})
		},
	}
	cmd.Flags().Int32SliceVar(&f.replicas, "replicas", nil, "ids of the brokers that shall have a replica, the preferred leader first")
	cmd.Flags().Int32SliceVar(&f.brokers, "brokers", nil, "ids of the brokers that replicas may lie on")
	cmd.Flags().BoolVar(&f.cancel, "cancel", false, "go back to the replicas before")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "until it is done")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (f *reassignFlags) check(named int) error {
	targets := 0
	for _, set := range []bool{len(f.replicas) > 0, len(f.brokers) > 0, f.cancel} {
		if set {
			targets++
		}
	}
	switch {
	case targets > 1:
		return &usageError{errors.New("--replicas, --brokers and --cancel exclude each other")}
	case targets == 1 && named == 0:
		return &usageError{errors.New("name the partitions")}
	case targets == 0 && f.wait && named == 0:
		return &usageError{errors.New("name the partitions to wait for")}
	}
	return nil
}

func (a *app) reassign(ctx context.Context, client *kgo.Client, named []partition, f reassignFlags) error {
	replicas, err := a.replicasOf(ctx, client, named)
	if err != nil {
		return err
	}
	if len(f.replicas) == 0 && len(f.brokers) == 0 && !f.cancel && !f.wait {
		moving, err := a.reassignments(ctx, client)
		if err != nil {
			return err
		}
		return show(a, among(moving, replicas))
	}
	targets, err := a.targets(ctx, client, replicas, f)
	if err == nil {
		err = a.alterReplicas(ctx, client, targets)
	}
	if err != nil || !f.wait {
		return err
	}
	return a.awaitReassignments(ctx, client, replicas)
}

// targets is what each partition shall have; nil cancels.
func (a *app) targets(ctx context.Context, client *kgo.Client, replicas map[partition][]int32, f reassignFlags) (map[partition][]int32, error) {
	out := map[partition][]int32{}
	moving := map[partition]bool{}
	var to *placement
	if len(f.brokers) > 0 {
		racks, err := a.brokerRacks(ctx, client)
		if err != nil {
			return nil, err
		}
		chosen := map[int32]string{}
		for _, id := range f.brokers {
			if _, alive := racks[id]; !alive {
				return nil, &problem{fmt.Sprintf("broker %d", id), errors.New("is not in service"), "varve cluster brokers shows who is"}
			}
			chosen[id] = racks[id]
		}
		all, err := a.replicasOf(ctx, client, nil)
		if err != nil {
			return nil, err
		}
		to = newPlacement(chosen, all)
	}
	if f.cancel {
		list, err := a.reassignments(ctx, client)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			moving[partition{r.Topic, r.Partition}] = true
		}
	}
	for _, p := range sortedPartitions(replicas) {
		switch {
		case to != nil:
			target, err := to.move(replicas[p])
			if err != nil {
				return nil, &problem{p.String(), err, "name more of them with --brokers"}
			}
			out[p] = target
		case len(f.replicas) > 0:
			out[p] = f.replicas
		case moving[p]:
			out[p] = nil
		}
	}
	return out, nil
}

// maxReassigned bounds the partitions of one request.
const maxReassigned = 1000

// alterReplicas asks for targets and tells of what was refused.
func (a *app) alterReplicas(ctx context.Context, client *kgo.Client, targets map[partition][]int32) error {
	list := sortedPartitions(targets)
	var failed []error
	for len(list) > 0 {
		n := min(len(list), maxReassigned)
		var req kadm.AlterPartitionAssignmentsReq
		for _, p := range list[:n] {
			req.Assign(p.topic, p.index, targets[p])
		}
		list = list[n:]
		ctx, cancel := context.WithTimeout(ctx, a.timeout)
		done, err := kadm.NewClient(client).AlterPartitionAssignments(ctx, req)
		cancel()
		if err != nil {
			return errors.Join(append(failed, a.explain("reassign", err))...)
		}
		for _, r := range done.Sorted() {
			if r.Err != nil {
				failed = append(failed, a.explain(partition{r.Topic, r.Partition}.String(), withMessage(r.Err, r.ErrMessage)))
			}
		}
	}
	return errors.Join(failed...)
}

// reassignments lists all that are under way.
func (a *app) reassignments(ctx context.Context, client *kgo.Client) ([]reassignment, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	resp, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(ctx, client)
	if err == nil {
		err = withMessage(kerr.ErrorForCode(resp.ErrorCode), deref(resp.ErrorMessage))
	}
	if err != nil {
		return nil, a.explain("reassignments", err)
	}
	var out []reassignment
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out = append(out, reassignment{t.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas})
		}
	}
	return out, nil
}

func among(list []reassignment, named map[partition][]int32) []reassignment {
	var out []reassignment
	for _, r := range list {
		if _, ok := named[partition{r.Topic, r.Partition}]; ok {
			out = append(out, r)
		}
	}
	return out
}

// waitInterval is between looks at what takes its time.
const waitInterval = time.Second

func (a *app) awaitReassignments(ctx context.Context, client *kgo.Client, named map[partition][]int32) error {
	told := -1
	for {
		list, err := a.reassignments(ctx, client)
		if err != nil {
			return err
		}
		left := len(among(list, named))
		if left != told {
			fmt.Fprintf(a.err, "%d of %d partitions are on their way\n", left, len(named))
			told = left
		}
		if left == 0 {
			return nil
		}
		if err := sleep(ctx, waitInterval); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
