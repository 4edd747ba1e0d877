package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/broker/admin"
)

// tierRow is a partition in the table. Ends are exclusive.
type tierRow struct {
	Topic      string `col:"TOPIC"`
	Partition  int32  `col:"PARTITION"`
	Tiered     bool   `col:"TIERED"`
	Start      int64  `col:"START"`
	LocalStart int64  `col:"LOCAL-START"`
	RemoteEnd  *int64 `col:"REMOTE-END"`
	End        int64  `col:"END"`
	Local      size   `col:"LOCAL"`
	Remote     size   `col:"REMOTE"`
	Segments   int    `col:"SEGMENTS"`
	OnlyRemote int    `col:"ONLY-REMOTE,wide"`
	Unuploaded string `col:"NOT-UPLOADED"` // age of the oldest record that is not in the store
	Error      string `col:"ERROR,wide"`
}

func newTierStatus(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [TOPIC]",
		Short: "Show how the object store does and what is where",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if len(args) > 0 {
				query.Set("topic", args[0])
			}
			var status admin.TierStatus
			if err := a.get(cmd.Context(), "/v1/tier/status", query, &status); err != nil {
				return err
			}
			return a.showTier(status)
		},
	}
	a.adminFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) showTier(status admin.TierStatus) error {
	if a.output == formatJSON || a.output == formatYAML {
		return showOne(a, status)
	}
	a.showStore(status.Store)
	var rows []tierRow
	for _, p := range status.Partitions {
		row := tierRow{p.Topic, p.Partition, p.Tiered, p.LogStart, p.LocalStart, p.RemoteEnd, p.End, size(p.LocalBytes), size(p.RemoteBytes), p.RemoteSegments, p.OnlyRemote, "", p.UploadError}
		if p.UnuploadedMs > 0 {
			row.Unuploaded = (time.Duration(p.UnuploadedMs) * time.Millisecond).Round(time.Second).String()
		}
		rows = append(rows, row)
	}
	return show(a, rows)
}

// showStore heads the table with the state of the store.
func (a *app) showStore(s *admin.StoreStatus) {
	switch {
	case s == nil:
		fmt.Fprintf(a.out, "store  none (varve.store.url is not set)\n\n")
	case s.Healthy:
		fmt.Fprintf(a.out, "store  %s ok, cache %s of %s\n\n", s.URL, size(s.CacheBytes), size(s.CacheLimit))
	default:
		fmt.Fprintf(a.out, "store  %s FAILING: %s\n       %s\n       %s\n\n", s.URL, s.Cause, s.Remedy, s.Error)
	}
}
