package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newCluster(a *app) *cobra.Command {
	return group("cluster", "Show the cluster, change who controls it and who is part of it",
		newClusterDescribe(a), newClusterBrokers(a), newClusterDecommission(a), newClusterUnregister(a), newClusterAcceptLoss(a),
		group("controllers", "List, add, replace and remove controllers",
			newControllersList(a), newControllersAdd(a), newControllersReplace(a), newControllersRemove(a)))
}

// clusterRow is the cluster as one thing.
type clusterRow struct {
	ID          string  `json:"clusterId" col:"CLUSTER"`
	Controller  int32   `json:"activeController" col:"CONTROLLER"` // -1: none
	Epoch       int32   `json:"controllerEpoch" col:"EPOCH"`
	Index       int64   `json:"metadataIndex" col:"METADATA-INDEX"`
	Controllers []int32 `json:"controllers" col:"CONTROLLERS"`
	Waiting     []int32 `json:"waitingControllers" col:"WAITING,wide"`
	Brokers     []int32 `json:"brokers" col:"BROKERS"`
}

func newClusterDescribe(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "Show the cluster's id, its controllers and its brokers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.quorum(cmd.Context(), func(ctx context.Context, client *kgo.Client, q quorum) error {
				m, err := kadm.NewClient(client).BrokerMetadata(ctx)
				if err != nil {
					return a.explain("cluster", err)
				}
				row := clusterRow{ID: m.Cluster, Controller: q.LeaderID, Epoch: q.LeaderEpoch, Index: q.HighWatermark,
					Controllers: replicas(q.CurrentVoters), Waiting: replicas(q.Observers), Brokers: m.Brokers.NodeIDs()}
				return showOne(a, row)
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// replicaState is what Kafka tells of one member of the quorum.
type replicaState = kmsg.DescribeQuorumResponseTopicPartitionReplicaState

func replicas(states []replicaState) []int32 {
	ids := []int32{}
	for _, s := range states {
		ids = append(ids, s.ReplicaID)
	}
	return ids
}

// quorum is what the active controller says of the controllers.
type quorum struct {
	kmsg.DescribeQuorumResponseTopicPartition
	addresses map[int32]kmsg.DescribeQuorumResponseNodeListener
}

// quorum runs do with what the active controller says of the quorum.
func (a *app) quorum(ctx context.Context, do func(ctx context.Context, client *kgo.Client, q quorum) error) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	q, err := a.describeQuorum(ctx, client)
	if err != nil {
		return err
	}
	return do(ctx, client, q)
}

func (a *app) describeQuorum(ctx context.Context, client *kgo.Client) (quorum, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = withText(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return quorum{}, a.explain("controllers", err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return quorum{}, &problem{"controllers", errors.New("the answer describes no quorum"), ""}
	}
	q := quorum{resp.Topics[0].Partitions[0], map[int32]kmsg.DescribeQuorumResponseNodeListener{}}
	if err := withText(q.ErrorCode, q.ErrorMessage); err != nil {
		return quorum{}, a.explain("controllers", err)
	}
	for _, n := range resp.Nodes {
		for _, l := range n.Listeners {
			q.addresses[n.NodeID] = l // of a replaced one the last: that which waits
		}
	}
	return q, nil
}

// withText is the error of a code, with the broker's own words.
func withText(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil || message == nil {
		return err
	}
	return withMessage(err, *message)
}

// find returns the state of a controller among states.
func find(states []replicaState, id int32) *replicaState {
	for i := range states {
		if states[i].ReplicaID == id {
			return &states[i]
		}
	}
	return nil
}

// controllerID reads the one argument of commands that change a controller.
func controllerID(args []string) (int32, error) {
	n, err := strconv.ParseInt(args[0], 10, 32)
	if err != nil || n < 0 {
		return 0, badFlag("controller "+args[0], errors.New("is not a node id"))
	}
	return int32(n), nil
}

// changeController is a command that changes one controller of the quorum.
func (a *app) changeController(use, short, long string, change func(ctx context.Context, client *kgo.Client, q quorum, id int32) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " ID", Short: short, Long: short + ".\n" + long, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := controllerID(args)
			if err != nil {
				return err
			}
			return a.quorum(cmd.Context(), func(ctx context.Context, client *kgo.Client, q quorum) error { return change(ctx, client, q, id) })
		},
	}
	a.clientFlags(cmd)
	return cmd
}

func ago(ms int64) string {
	if ms < 0 {
		return ""
	}
	return max(time.Since(time.UnixMilli(ms)), 0).Round(time.Second).String()
}

func addressOf(q quorum, id int32) string {
	if l, ok := q.addresses[id]; ok {
		return fmt.Sprintf("%s:%d", l.Host, l.Port)
	}
	return ""
}
