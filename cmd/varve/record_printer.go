package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"
)

// recordPrinter writes records as they come.
type recordPrinter interface {
	print(*kgo.Record) error
	end() error
}

// newRecordPrinter takes a format like kcat's, or the form of -o.
func newRecordPrinter(w io.Writer, format, output string) (recordPrinter, error) {
	if format != "" {
		return parseFormat(w, format)
	}
	switch output {
	case formatJSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return recordFunc(func(r *kgo.Record) error { return enc.Encode(newRecordRow(r)) }), nil
	case formatYAML:
		return recordFunc(func(r *kgo.Record) error { return printYAML(w, r) }), nil
	}
	return &tablePrinter{w: w, wide: output == formatWide}, nil
}

type recordFunc func(*kgo.Record) error

func (f recordFunc) print(r *kgo.Record) error { return f(r) }
func (f recordFunc) end() error                { return nil }

// recordRow is a record in JSON and YAML. Keys and values that are not UTF-8
// are in base64, under another name.
type recordRow struct {
	Topic       string      `json:"topic"`
	Partition   int32       `json:"partition"`
	Offset      int64       `json:"offset"`
	Timestamp   stamp       `json:"timestamp"`
	Key         *string     `json:"key"`
	KeyBase64   *string     `json:"keyBase64,omitempty"`
	Value       *string     `json:"value"`
	ValueBase64 *string     `json:"valueBase64,omitempty"`
	Headers     []headerRow `json:"headers,omitempty"`
}

type headerRow struct {
	Name        string  `json:"name"`
	Value       *string `json:"value"`
	ValueBase64 *string `json:"valueBase64,omitempty"`
}

func newRecordRow(r *kgo.Record) recordRow {
	row := recordRow{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: stamp(r.Timestamp.UnixMilli())}
	row.Key, row.KeyBase64 = textOf(r.Key)
	row.Value, row.ValueBase64 = textOf(r.Value)
	for _, h := range r.Headers {
		text, encoded := textOf(h.Value)
		row.Headers = append(row.Headers, headerRow{h.Key, text, encoded})
	}
	return row
}

func textOf(b []byte) (text, encoded *string) {
	if b == nil {
		return nil, nil
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

func printYAML(w io.Writer, r *kgo.Record) error {
	text, err := json.Marshal(newRecordRow(r))
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	plain(&doc)
	text, err = yaml.Marshal(&doc)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "---\n%s", text)
	return err
}

// tablePrinter writes columns of fixed width, as it cannot know what comes.
type tablePrinter struct {
	w      io.Writer
	wide   bool
	titled bool
}

func (t *tablePrinter) print(r *kgo.Record) error {
	if !t.titled {
		t.titled = true
		t.row("PARTITION", "OFFSET", "TIMESTAMP", "KEY", "HEADERS", "VALUE")
	}
	return t.row(strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.Offset, 10), stamp(r.Timestamp.UnixMilli()).String(),
		visible(r.Key), visibleHeaders(r.Headers), visible(r.Value))
}

func (t *tablePrinter) row(partition, offset, timestamp, key, headers, value string) error {
	line := fmt.Sprintf("%-9s  %-12s  %-24s  ", partition, offset, timestamp)
	if t.wide {
		line += fmt.Sprintf("%-16s  %-16s  ", key, headers)
	}
	_, err := fmt.Fprintln(t.w, line+value)
	return err
}

func (t *tablePrinter) end() error { return nil }

// visible keeps a record on its line and the terminal's state out of it.
func visible(b []byte) string {
	if b == nil {
		return "-"
	}
	quoted := strconv.Quote(string(b))
	if s := string(b); s != "" && quoted == `"`+s+`"` {
		return s
	}
	return quoted
}

func visibleHeaders(headers []kgo.RecordHeader) string {
	var pairs []string
	for _, h := range headers {
		pairs = append(pairs, h.Key+"="+visible(h.Value))
	}
	if len(pairs) == 0 {
		return "-"
	}
	return strings.Join(pairs, ",")
}

const (
	defaultFormat = `%s\n`
	formatHelp    = `A format is as kcat's: %s value, %S its length (-1: null), %k key, %K its length, %t topic, %p partition,
%o offset, %T timestamp in Unix milliseconds, %h headers, %% a percent sign; \n \t \r \0 \\ and \xNN.`
)

// formatPrinter writes literals and fields in turn.
type formatPrinter struct {
	w      io.Writer
	fields []func(buf []byte, r *kgo.Record) []byte
	buf    []byte
}

func (f *formatPrinter) print(r *kgo.Record) error {
	f.buf = f.buf[:0]
	for _, field := range f.fields {
		f.buf = field(f.buf, r)
	}
	_, err := f.w.Write(f.buf)
	return err
}

func (f *formatPrinter) end() error { return nil }

var formatFields = map[byte]func([]byte, *kgo.Record) []byte{
	's': func(b []byte, r *kgo.Record) []byte { return append(b, r.Value...) },
	'S': func(b []byte, r *kgo.Record) []byte { return appendLength(b, r.Value) },
	'k': func(b []byte, r *kgo.Record) []byte { return append(b, r.Key...) },
	'K': func(b []byte, r *kgo.Record) []byte { return appendLength(b, r.Key) },
	't': func(b []byte, r *kgo.Record) []byte { return append(b, r.Topic...) },
	'p': func(b []byte, r *kgo.Record) []byte { return strconv.AppendInt(b, int64(r.Partition), 10) },
	'o': func(b []byte, r *kgo.Record) []byte { return strconv.AppendInt(b, r.Offset, 10) },
	'T': func(b []byte, r *kgo.Record) []byte { return strconv.AppendInt(b, r.Timestamp.UnixMilli(), 10) },
	'h': appendHeaders,
	'%': func(b []byte, _ *kgo.Record) []byte { return append(b, '%') },
}

func appendLength(b, field []byte) []byte {
	if field == nil {
		return append(b, "-1"...)
	}
	return strconv.AppendInt(b, int64(len(field)), 10)
}

func appendHeaders(b []byte, r *kgo.Record) []byte {
	for i, h := range r.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, h.Key...), '='), h.Value...)
	}
	return b
}

func parseFormat(w io.Writer, format string) (*formatPrinter, error) {
	f := &formatPrinter{w: w}
	var literal bytes.Buffer
	flush := func() {
		if text := bytes.Clone(literal.Bytes()); len(text) > 0 {
			f.fields = append(f.fields, func(b []byte, _ *kgo.Record) []byte { return append(b, text...) })
		}
		literal.Reset()
	}
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c == '%' && i+1 < len(format) && formatFields[format[i+1]] != nil:
			flush()
			f.fields = append(f.fields, formatFields[format[i+1]])
			i++
		case c == '%':
			return nil, badFlag(fmt.Sprintf("--format %q", format), fmt.Errorf("has no field after the %% at position %d", i+1))
		case c == '\\':
			b, n, err := unescape(format[i+1:])
			if err != nil {
				return nil, badFlag(fmt.Sprintf("--format %q", format), err)
			}
			literal.WriteByte(b)
			i += n
		default:
			literal.WriteByte(c)
		}
	}
	flush()
	return f, nil
}

// unescape reads what follows a backslash and how long that is.
func unescape(s string) (b byte, n int, err error) {
	if s == "" {
		return 0, 0, fmt.Errorf("ends in a backslash")
	}
	if i := strings.IndexByte(`ntr0\`, s[0]); i >= 0 {
		return "\n\t\r\x00\\"[i], 1, nil
	}
	if s[0] == 'x' && len(s) >= 3 {
		if v, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
			return byte(v), 3, nil
		}
	}
	return 0, 0, fmt.Errorf("has an unknown escape \\%c", s[0])
}
