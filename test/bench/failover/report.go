package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/varve-io/varve/test/node"
)

// report prints the distributions of every side, and the ratio of their medians.
func report(out io.Writer, found map[string][]round, o options) error {
	timeouts := "default timeouts"
	if o.equal {
		timeouts = "equal timeouts"
	}
	fmt.Fprintf(out, "%s of a leader, %s client, %s, 3 nodes, %d partitions; seconds from the fault to the first acknowledged write\n", o.fault, o.client, timeouts, o.partitions)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "side\thit\tfaults\tp50\tp99\tmax\tfirst partition p50\tback in sync p50\t")
	for _, kind := range sides {
		rounds := found[kind]
		row := func(hit string, which func(round) bool) {
			some := slices.DeleteFunc(slices.Clone(rounds), func(r round) bool { return !which(r) })
			if len(some) == 0 {
				return
			}
			last := times(some, func(r round) time.Duration { return r.last })
			first := times(some, func(r round) time.Duration { return r.first })
			whole := times(some, func(r round) time.Duration { return r.whole })
			fmt.Fprintf(t, "%s\t%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t\n", kind, hit, len(some), quantile(last, 50), quantile(last, 99), last[len(last)-1], quantile(first, 50), quantile(whole, 50))
		}
		row("leader", func(r round) bool { return !r.controller })
		row("leader and controller", func(r round) bool { return r.controller })
		row("all", func(round) bool { return true })
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, kind := range sides {
		if rounds := found[kind]; len(rounds) > 0 {
			fmt.Fprintf(out, "%s, in order:", kind)
			for _, r := range rounds {
				fmt.Fprintf(out, " %.3f", r.last.Seconds())
			}
			fmt.Fprintln(out)
		}
	}
	if len(found["kafka"]) > 0 && len(found["varve"]) > 0 {
		median := func(kind string) float64 {
			return quantile(times(found[kind], func(r round) time.Duration { return r.last }), 50)
		}
		fmt.Fprintf(out, "Varve / Kafka %s, ratio of the medians: %.3f\n", node.KafkaVersion, median("varve")/median("kafka"))
	}
	return nil
}

// times are one figure of all rounds in seconds, sorted.
func times(rounds []round, of func(round) time.Duration) []float64 {
	var out []float64
	for _, r := range rounds {
		out = append(out, of(r).Seconds())
	}
	slices.Sort(out)
	return out
}

// quantile is the value that percent of the sorted values do not exceed.
func quantile(sorted []float64, percent int) float64 {
	return sorted[(len(sorted)*percent+99)/100-1]
}
