package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

func checkFormat(format string) error {
	switch format {
	case "", formatTable, formatWide, formatJSON, formatYAML:
		return nil
	}
	return fmt.Errorf("output %q: must be table, wide, json or yaml", format)
}

// show prints rows in the format asked for. The fields of a row with a tag
// col:"NAME" are the columns of a table, those with col:"NAME,wide" of a wide
// one; JSON and YAML have every field by its json name.
func show[T any](a *app, rows []T) error {
	if rows == nil {
		rows = []T{}
	}
	switch a.output {
	case formatJSON:
		return writeJSON(a.out, rows)
	case formatYAML:
		return writeYAML(a.out, rows)
	}
	return writeTable(a.out, rows, a.output == formatWide)
}

// showOne prints a single thing: a table of one row, or one object.
func showOne[T any](a *app, row T) error {
	switch a.output {
	case formatJSON:
		return writeJSON(a.out, row)
	case formatYAML:
		return writeYAML(a.out, row)
	}
	return writeTable(a.out, []T{row}, a.output == formatWide)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// writeYAML goes through JSON, so that both have the same names and forms; a
// YAML parser reads JSON and keeps its order.
func writeYAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	plain(&doc)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return err
	}
	return enc.Close()
}

// plain takes JSON's braces and quotes off; the encoder puts quotes where they
// are needed.
func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.DocumentNode {
		n.Style = 0
	}
	if n.Kind == yaml.ScalarNode && n.Style == yaml.DoubleQuotedStyle {
		n.Style = 0
		n.Tag = "!!str"
	}
	for _, child := range n.Content {
		plain(child)
	}
}

func writeTable[T any](w io.Writer, rows []T, wide bool) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	columns := columnsOf(reflect.TypeFor[T](), wide)
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	fmt.Fprintln(tw, strings.Join(names, "\t"))
	for _, row := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = cell(reflect.ValueOf(row).Field(c.field).Interface())
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

type column struct {
	name  string
	field int
}

func columnsOf(t reflect.Type, wide bool) []column {
	var columns []column
	for i := range t.NumField() {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("col"), ",")
		if name != "" && (wide || option != "wide") {
			columns = append(columns, column{name, i})
		}
	}
	return columns
}

// cell is a value in a table; "-" is none.
func cell(v any) string {
	switch v := v.(type) {
	case *int64:
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	case []int32:
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]")
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for _, name := range sortedKeys(v) {
			pairs = append(pairs, name+"="+v[name])
		}
		return strings.Join(pairs, " ")
	case string:
		if v == "" {
			return "-"
		}
		return v
	}
	return fmt.Sprint(v)
}

// size is a number of bytes: a round figure in tables, exact in JSON.
type size int64

func (s size) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(s), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", int64(s))
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

// stamp is a record's timestamp in Unix milliseconds: a date in tables and in
// JSON; -1 is none.
type stamp int64

const stampForm = "2006-01-02T15:04:05.000Z07:00"

func (s stamp) String() string {
	if s < 0 {
		return "-"
	}
	return time.UnixMilli(int64(s)).UTC().Format(stampForm)
}

func (s stamp) MarshalJSON() ([]byte, error) {
	if s < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(s.String())
}
