package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/wire"
)

type controllerRow struct {
	ID        int32  `json:"nodeId" col:"CONTROLLER"`
	State     string `json:"state" col:"STATE"` // active, follower, away or waiting
	Address   string `json:"address" col:"ADDRESS"`
	LogEnd    int64  `json:"logEnd" col:"LOG-END"` // -1: unknown
	Lag       int64  `json:"lag" col:"LAG"`        // entries behind what is committed
	Directory string `json:"directoryId" col:"DIRECTORY,wide"`
	Heard     string `json:"lastHeard,omitempty" col:"HEARD,wide"`
}

func newControllersList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the controllers, and those that wait to be added",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.quorum(cmd.Context(), func(_ context.Context, _ *kgo.Client, q quorum) error {
				return show(a, controllerRows(q))
			})
		},
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func controllerRows(q quorum) []controllerRow {
	var rows []controllerRow
	row := func(s replicaState, state string) {
		r := controllerRow{ID: s.ReplicaID, State: state, Address: addressOf(q, s.ReplicaID), LogEnd: s.LogEndOffset, Lag: -1,
			Directory: wire.UUID(s.ReplicaDirectoryID).String(), Heard: ago(s.LastFetchTimestamp)}
		if s.LogEndOffset >= 0 {
			r.Lag = max(q.HighWatermark-s.LogEndOffset, 0)
		}
		rows = append(rows, r)
	}
	for _, s := range q.CurrentVoters {
		switch {
		case s.ReplicaID == q.LeaderID:
			row(s, "active")
		case s.LogEndOffset < 0:
			row(s, "away")
		default:
			row(s, "follower")
		}
	}
	for _, s := range q.Observers {
		row(s, "waiting")
	}
	return rows
}

func newControllersAdd(a *app) *cobra.Command {
	return a.changeController("add", "Add a controller that waits for it",
		"Start the new node first, with process.roles of a controller and the present ones in controller.quorum.voters; controllers list then shows it as waiting.", a.addController)
}

func newControllersRemove(a *app) *cobra.Command {
	return a.changeController("remove", "Take a controller out of the quorum",
		"It is refused if no majority of the others is alive.", a.removeController)
}

func newControllersReplace(a *app) *cobra.Command {
	return a.changeController("replace", "Take a controller with a new directory in the place of the one that was lost",
		"Start the node with its empty directory first; controllers list then shows it as waiting. The old member goes before the new one comes.", a.replaceController)
}

func (a *app) addController(ctx context.Context, client *kgo.Client, q quorum, id int32) error {
	waiting := find(q.Observers, id)
	if waiting == nil {
		return a.notWaiting(q, id)
	}
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID, req.TimeoutMillis = id, waiting.ReplicaDirectoryID, int32(a.timeout.Milliseconds())
	l, at := kmsg.NewAddRaftVoterRequestListener(), q.addresses[id]
	l.Name, l.Host, l.Port = at.Name, at.Host, at.Port
	req.Listeners = append(req.Listeners, l)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = withText(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return a.explain(fmt.Sprintf("add controller %d", id), err)
	}
	fmt.Fprintf(a.err, "added controller %d (directory %s)\n", id, wire.UUID(waiting.ReplicaDirectoryID))
	return nil
}

func (a *app) removeController(ctx context.Context, client *kgo.Client, q quorum, id int32) error {
	voter := find(q.CurrentVoters, id)
	if voter == nil {
		return &problem{fmt.Sprintf("controller %d", id), errors.New("is none"), "varve cluster controllers list shows which there are"}
	}
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = id, voter.ReplicaDirectoryID
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = withText(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return a.explain(fmt.Sprintf("remove controller %d", id), err)
	}
	fmt.Fprintf(a.err, "removed controller %d (directory %s)\n", id, wire.UUID(voter.ReplicaDirectoryID))
	return nil
}

// replaceController may be given again after it was cut short: what is done is done.
func (a *app) replaceController(ctx context.Context, client *kgo.Client, q quorum, id int32) error {
	if find(q.Observers, id) == nil {
		return a.notWaiting(q, id)
	}
	if find(q.CurrentVoters, id) != nil {
		if err := a.removeController(ctx, client, q, id); err != nil {
			return err
		}
	}
	return a.addController(ctx, client, q, id)
}

// notWaiting says why a controller cannot be added.
func (a *app) notWaiting(q quorum, id int32) error {
	if find(q.CurrentVoters, id) != nil {
		return &problem{fmt.Sprintf("controller %d", id), errors.New("is a controller, and none with a new directory waits in its place"),
			"start it with an empty directory, and see that controllers list shows it as waiting"}
	}
	return &problem{fmt.Sprintf("controller %d", id), errors.New("does not wait to be added"),
		"start it with the present controllers in its controller.quorum.voters, and see that controllers list shows it as waiting"}
}
