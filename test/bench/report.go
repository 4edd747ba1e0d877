package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/varve-io/varve/test/node"
)

// report is everything that one call of the command found.
type report struct {
	Commit   string
	Date     time.Time
	Kafka    string // release
	Machine  machine
	Spinners bool
	Duration time.Duration
	Runs     int
	Starts   []startSample
	Rows     []row
}

// row is one workload at one durability.
type row struct {
	Workload   string
	About      string
	Durability durability
	Samples    []sample
}

func newReport(o options) *report {
	return &report{Commit: commit(), Date: time.Now().UTC().Truncate(time.Second), Kafka: node.KafkaVersion,
		Machine: describeMachine(), Spinners: o.spin, Duration: o.duration, Runs: o.runs}
}

// add measures one row, the sides taking turns.
func (r *report) add(ctx context.Context, c choice, sides []*side, o options) error {
	w := row{Workload: c.name, About: c.about, Durability: c.durability}
	for i := range o.runs {
		for _, s := range order(sides, i) {
			var other *side
			if len(sides) == 2 {
				other = sides[0]
				if other == s {
					other = sides[1]
				}
			}
			got, err := c.measure(ctx, s, other, c.durability, span{o.settle, o.duration, o.most})
			if err != nil {
				return err
			}
			got.Run = i
			progress("%s/%s run %d of %d: %s %.0f MB/s %.0f req/s %.3f CPU-s/GB p50 %v p99 %v", c.name, c.durability, i+1, o.runs, s.kind,
				got.Throughput(), got.Rate(), got.CPUPerGB(), got.Result.P50.Round(time.Microsecond), got.Result.P99.Round(time.Microsecond))
			w.Samples = append(w.Samples, got)
		}
	}
	r.Rows = append(r.Rows, w)
	return nil
}

// save writes the report as JSON; an empty path writes nothing.
func (r *report) save(path string) error {
	if path == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "Varve %s, Apache Kafka %s, %s\n", r.Commit, r.Kafka, r.Date.Format(time.RFC3339))
	fmt.Fprintf(w, "%s, %d cores, %d GiB, Linux %s, %s, spinners %v\n", r.Machine.CPU, r.Machine.Cores, (r.Machine.Memory+1<<29)>>30, r.Machine.Kernel, r.Machine.GoMaker, r.Spinners)
	fmt.Fprintf(w, "medians of %d alternated runs of %v; ratio = Varve / Kafka, median over neighbouring runs\n\n", r.Runs, r.Duration)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer t.Flush()
	fmt.Fprintln(t, "workload\tdurability\tmetric\tkafka\tvarve\tratio\t")
	for _, m := range []struct {
		name  string
		value func(startSample) float64
	}{
		{"start to first answer, s", func(s startSample) float64 { return s.StartUp.Seconds() }},
		{"idle resident, MB", func(s startSample) float64 { return float64(s.IdleRSS) / 1e6 }},
	} {
		printMetric(t, "empty folder", "", m.name, r.Starts, func(s startSample) string { return s.Side }, m.value)
	}
	for _, row := range r.Rows {
		for _, m := range metrics {
			printMetric(t, row.Workload, string(row.Durability), m.name, row.Samples, func(s sample) string { return s.Side }, m.value)
		}
	}
	t.Flush()
	fmt.Fprintln(w)
	r.printSettings(w)
}

// printSettings says what was sent, and which durability each side was set to.
func (r *report) printSettings(w io.Writer) {
	var seen []string
	once := func(line string) {
		if !slices.Contains(seen, line) {
			seen = append(seen, line)
			fmt.Fprintln(w, line)
		}
	}
	for _, row := range r.Rows {
		once(row.Workload + ": " + row.About)
	}
	for _, row := range r.Rows {
		for _, s := range row.Samples {
			once(fmt.Sprintf("%s, %s: acks=1 %s", s.Side, row.Durability, s.Settings))
		}
	}
}

var metrics = []struct {
	name  string
	value func(sample) float64
}{
	{"MB/s", sample.Throughput},
	{"requests/s", sample.Rate},
	{"broker CPU s/GB", sample.CPUPerGB},
	{"broker CPU us/request", sample.CPUPerRequest},
	{"p50 ms", func(s sample) float64 { return s.Result.P50.Seconds() * 1e3 }},
	{"p99 ms", func(s sample) float64 { return s.Result.P99.Seconds() * 1e3 }},
	{"peak resident MB", func(s sample) float64 { return float64(s.PeakRSS) / 1e6 }},
}

// printMetric prints both medians of one metric and the median ratio. Samples
// are in the order they were taken, so the n-th of each side are neighbours.
func printMetric[S any](w io.Writer, workload, durability, name string, samples []S, kind func(S) string, value func(S) float64) {
	bySide := map[string][]float64{}
	for _, s := range samples {
		bySide[kind(s)] = append(bySide[kind(s)], value(s))
	}
	kafka, varve := bySide["kafka"], bySide["varve"]
	var ratios []float64
	for i := range min(len(kafka), len(varve)) {
		ratios = append(ratios, varve[i]/kafka[i])
	}
	if len(kafka)+len(varve) == 0 {
		return
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", workload, durability, name, figure(kafka), figure(varve), figure(ratios))
}

// figure is a median in three digits, "-" without values.
func figure(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	m := median(values)
	switch {
	case m >= 100:
		return fmt.Sprintf("%.0f", m)
	case m >= 10:
		return fmt.Sprintf("%.1f", m)
	case m >= 1:
		return fmt.Sprintf("%.2f", m)
	}
	return fmt.Sprintf("%.3f", m)
}

// median of at least one value.
func median[T cmp.Ordered](values []T) T {
	s := slices.Clone(values)
	slices.Sort(s)
	return s[len(s)/2]
}
