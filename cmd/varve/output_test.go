package main

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type sampleRow struct {
	Name  string  `json:"name" col:"NAME"`
	End   *int64  `json:"end" col:"END"`
	Size  size    `json:"size" col:"SIZE"`
	At    stamp   `json:"at" col:"AT,wide"`
	Nodes []int32 `json:"nodes" col:"NODES,wide"`
}

func sampleRows() []sampleRow {
	end := int64(7)
	return []sampleRow{{"a", &end, 1536, 1700000000123, []int32{1, 2}}, {"true", nil, 12, -1, nil}}
}

func TestShow(t *testing.T) {
	for format, want := range map[string]string{
		formatTable: "NAME  END  SIZE\na     7    1.5 KiB\ntrue  -    12 B\n",
		formatWide:  "NAME  END  SIZE     AT                        NODES\na     7    1.5 KiB  2023-11-14T22:13:20.123Z  1,2\ntrue  -    12 B     -                         \n",
		formatYAML: `- name: a
  end: 7
  size: 1536
  at: "2023-11-14T22:13:20.123Z"
  nodes:
    - 1
    - 2
- name: "true"
  end: null
  size: 12
  at: null
  nodes: null
`,
		formatJSON: `[
  {
    "name": "a",
    "end": 7,
    "size": 1536,
    "at": "2023-11-14T22:13:20.123Z",
    "nodes": [
      1,
      2
    ]
  },
  {
    "name": "true",
    "end": null,
    "size": 12,
    "at": null,
    "nodes": null
  }
]
`,
	} {
		var out strings.Builder
		a := &app{stdio: stdio{out: &out}, output: format}
		if err := show(a, sampleRows()); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%s:\n%s\nwant:\n%s", format, out.String(), want)
		}
	}
}

func TestShowNothing(t *testing.T) {
	var out strings.Builder
	a := &app{stdio: stdio{out: &out}, output: formatJSON}
	if err := show[sampleRow](a, nil); err != nil || out.String() != "[]\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestRecordFormats(t *testing.T) {
	r := &kgo.Record{
		Topic: "t", Partition: 3, Offset: 42, Timestamp: time.UnixMilli(1700000000123), Key: []byte("k"), Value: []byte("v\x00\xff"),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "i"}},
	}
	tombstone := &kgo.Record{Topic: "t", Timestamp: time.UnixMilli(0)}
	for _, test := range []struct{ format, output, want string }{
		{`%s\n`, "", "v\x00\xff\n\n"},
		{`%t/%p/%o %T %k:%K %S %h %%\t\x41\\;`, "", "t/3/42 1700000000123 k:1 3 h=1,i= %\tA\\;t/0/0 0 :-1 -1  %\tA\\;"},
		{"", formatJSON, `{"topic":"t","partition":3,"offset":42,"timestamp":"2023-11-14T22:13:20.123Z","key":"k","value":null,"valueBase64":"dgD/","headers":[{"name":"h","value":"1"},{"name":"i","value":null}]}
{"topic":"t","partition":0,"offset":0,"timestamp":"1970-01-01T00:00:00.000Z","key":null,"value":null}
`},
		{"", formatTable, "PARTITION  OFFSET        TIMESTAMP                 VALUE\n3          42            2023-11-14T22:13:20.123Z  \"v\\x00\\xff\"\n0          0             1970-01-01T00:00:00.000Z  -\n"},
	} {
		var out strings.Builder
		p, err := newRecordPrinter(&out, test.format, test.output)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*kgo.Record{r, tombstone} {
			if err := p.print(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.end(); err != nil || out.String() != test.want {
			t.Errorf("%s%s: %q, want %q", test.format, test.output, out.String(), test.want)
		}
	}
	for _, bad := range []string{"%z", "%", `\q`, `\`, `\x4`} {
		if _, err := newRecordPrinter(nil, bad, ""); err == nil {
			t.Errorf("format %q is taken", bad)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[size]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB"} {
		if got := n.String(); got != want {
			t.Errorf("%d is %s, want %s", int64(n), got, want)
		}
	}
}
