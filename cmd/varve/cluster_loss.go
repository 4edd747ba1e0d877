package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offlineRow is a partition that nobody leads, and who could.
type offlineRow struct {
	Topic     string  `json:"topic" col:"TOPIC"`
	Partition int32   `json:"partition" col:"PARTITION"`
	Replicas  []int32 `json:"replicas" col:"REPLICAS"`
	Offline   []int32 `json:"offlineReplicas" col:"OFFLINE"`
	ELR       []int32 `json:"eligibleLeaderReplicas" col:"ELIGIBLE"`    // lead at once when they come back
	Known     []int32 `json:"lastKnownEligibleReplicas" col:"MAY-LACK"` // had all, and may have lost some
}

func newClusterAcceptLoss(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "accept-loss [PARTITION...]",
		Short: "Go on without replicas that are lost; without names, show what nobody can lead",
		Long: "Elect the best replica that lives as leader of partitions that nobody leads, although it may lack acknowledged records.\n" +
			"What the others have more is lost for good, also if they come back; a tiered topic keeps all that is in the store.\n" + partitionsHelp + "\n" +
			"Without names it shows the partitions without a leader. Brokers that are eligible lead as soon as they come back, without any loss.",
		Example: "  varve cluster accept-loss\n  varve cluster accept-loss orders:3 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := parsePartitions(args)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				rows, err := a.offline(ctx, client, named)
				switch {
				case err != nil:
					return err
				case len(named) == 0:
					return show(a, rows)
				}
				return a.acceptLoss(ctx, client, rows, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "really")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) acceptLoss(ctx context.Context, client *kgo.Client, rows []offlineRow, yes bool) error {
	if len(rows) == 0 {
		fmt.Fprintln(a.err, "all of them have a leader")
		return nil
	}
	var list []partition
	for _, r := range rows {
		list = append(list, partition{r.Topic, r.Partition})
	}
	if !yes {
		if err := show(a, rows); err != nil {
			return err
		}
		return &problem{fmt.Sprintf("%d partitions", len(rows)), errors.New("would lose what only replicas have that are not there"), "repeat it with --yes to accept that"}
	}
	return a.electLeaders(ctx, client, kadm.ElectLiveReplica, list)
}

// offline lists the partitions without a leader among those named, or of all.
func (a *app) offline(ctx context.Context, client *kgo.Client, named []partition) ([]offlineRow, error) {
	replicas, err := a.replicasOf(ctx, client, named)
	if err != nil {
		return nil, err
	}
	var rows []offlineRow
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, p := range sortedPartitions(replicas) {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic {
			t := kmsg.NewDescribeTopicPartitionsRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
	}
	for len(req.Topics) > 0 {
		resp, err := a.describePartitions(ctx, client, req)
		if err != nil {
			return nil, err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if _, wanted := replicas[partition{deref(t.Topic), p.Partition}]; wanted && p.LeaderID < 0 {
					rows = append(rows, offlineRow{deref(t.Topic), p.Partition, p.Replicas, p.OfflineReplicas, p.EligibleLeaderReplicas, p.LastKnownELR})
				}
			}
		}
		if resp.NextCursor == nil {
			break
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	return rows, nil
}

func (a *app) describePartitions(ctx context.Context, client *kgo.Client, req *kmsg.DescribeTopicPartitionsRequest) (*kmsg.DescribeTopicPartitionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, a.explain("partitions", err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, a.explain("topic "+deref(t.Topic), err)
		}
	}
	return resp, nil
}
