package metadata

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/wire"
)

// kinds are all numbers that are in use.
func recordKinds() []Record {
	var all []Record
	for kind := range uint64(1000) {
		if r := newRecord(kind); r != nil {
			all = append(all, r)
		}
	}
	return all
}

func commandKinds() []Command {
	var all []Command
	for kind := range uint64(1000) {
		if cmd := newCommand(kind); cmd != nil {
			all = append(all, cmd)
		}
	}
	return all
}

// fill sets every field below v to something that is not zero, so that a
// field which the codec forgets is noticed.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"k": strings.Repeat("v", int(*n%7)), "": "x"}))
	case reflect.String:
		v.SetString(strings.Repeat("s", int(*n%5)+1))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*n % 200))
	default:
		v.SetInt(-(*n % 100) - 1)
	}
}

func TestEveryFieldRoundTrips(t *testing.T) {
	n := int64(0)
	for _, r := range recordKinds() {
		fill(reflect.ValueOf(r), &n)
		got, err := DecodeRecords(EncodeRecords([]Record{r, r}))
		if err != nil || len(got) != 2 || !reflect.DeepEqual(got[1], r) {
			t.Errorf("%T: %v\n got %+v\nwant %+v", r, err, got, r)
		}
	}
	for _, cmd := range commandKinds() {
		fill(reflect.ValueOf(cmd), &n)
		got, err := DecodeCommand(EncodeCommand(cmd))
		if err != nil || !reflect.DeepEqual(got, cmd) {
			t.Errorf("%T: %v\n got %+v\nwant %+v", cmd, err, got, cmd)
		}
	}
}

// TestOlderAndNewer: fields are appended. A reader gives those that are
// missing their zero value and skips those that it does not know.
func TestOlderAndNewer(t *testing.T) {
	for _, r := range recordKinds() {
		n := int64(0)
		fill(reflect.ValueOf(r), &n)
		c := coder{}
		r.fields(&c)
		newer := appendFramed(nil, r.recordKind(), func(out *coder) {
			r.fields(out)
			out.string(new(string))
			out.b = append(out.b, 1, 2, 3)
		})
		if got, err := DecodeRecords(newer); err != nil || !reflect.DeepEqual(got[0], r) {
			t.Errorf("%T with fields of the future: %v", r, err)
		}
		older := appendFramed(nil, r.recordKind(), func(*coder) {})
		if got, err := DecodeRecords(older); err != nil || !reflect.DeepEqual(got[0], newRecord(r.recordKind())) {
			t.Errorf("%T without fields: %v", r, err)
		}
	}
}

func TestUnknownKindsNameTheVersion(t *testing.T) {
	future := appendFramed(nil, 999, func(*coder) {})
	reversioned := append([]byte{}, EncodeRecords([]Record{&Clock{}})...)
	reversioned[1] = formatVersion + 1
	for _, b := range [][]byte{future, reversioned} {
		if _, err := DecodeRecords(b); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), MetadataFeature) {
			t.Errorf("record: %v", err)
		}
	}
	if _, err := DecodeCommand(future); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), MetadataFeature) {
		t.Errorf("command: %v", err)
	}
}

func TestTruncatedInput(t *testing.T) {
	n := int64(0)
	for _, cmd := range commandKinds() {
		fill(reflect.ValueOf(cmd), &n)
		whole := EncodeCommand(cmd)
		for cut := range whole {
			if _, err := DecodeCommand(whole[:cut]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%T cut at %d of %d: %v", cmd, cut, len(whole), err)
			}
		}
	}
}

func TestSnapshotDamage(t *testing.T) {
	c := newCluster(t)
	c.broker(1)
	c.topic("t", []int32{1})
	var buf bytes.Buffer
	if err := EncodeSnapshot(&buf, c.img); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	for i := range whole {
		if _, err := DecodeSnapshot(bytes.NewReader(whole[:i])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		bad := slices.Clone(whole)
		bad[i] ^= 0x10
		if m, err := DecodeSnapshot(bytes.NewReader(bad)); err == nil {
			t.Fatalf("byte %d flipped: accepted as %x", i, m.Hash())
		}
	}
	if _, err := DecodeSnapshot(bytes.NewReader(append(slices.Clone(whole), "more"...))); err != nil {
		t.Fatalf("reads beyond its end: %v", err)
	}
}

// TestSharing: an image costs what changed. A commit among many rows must not
// copy the others.
func TestSharing(t *testing.T) {
	m := New()
	topic := wire.NewUUID()
	var recs []Record
	recs = append(recs, &Topic{ID: topic, Name: "t", NumPartitions: 1}, &Partition{TopicID: topic, RemoteEnd: RemoteNone})
	for i := range int64(20_000) {
		recs = append(recs, &Segment{TopicID: topic, Base: i, End: i + 1})
	}
	m = m.Replay(recs, 1, 1)
	bytes := testing.AllocsPerRun(20, func() {
		m = m.Replay([]Record{&Segment{TopicID: topic, Base: int64(m.NumSegments()), End: int64(m.NumSegments()) + 1}}, m.Index()+1, 1)
	})
	if bytes > 200 {
		t.Errorf("%v allocations for one row among %d", bytes, m.NumSegments())
	}
	first, ok := m.SegmentAt(topic, 0, 19_999)
	if !ok || first.Base != 19_999 || m.LastSegment(topic, 0).Base != int64(m.NumSegments()-1) {
		t.Errorf("%+v", first)
	}
	if _, ok := m.SegmentAt(topic, 0, -1); ok {
		t.Error("offset -1 is in a segment")
	}
}

func FuzzDecodeRecords(f *testing.F) {
	n := int64(0)
	for _, r := range recordKinds() {
		fill(reflect.ValueOf(r), &n)
		f.Add(EncodeRecords([]Record{r}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		recs, err := DecodeRecords(b)
		if err != nil {
			return
		}
		again, err := DecodeRecords(EncodeRecords(recs))
		if err != nil || !bytes.Equal(EncodeRecords(again), EncodeRecords(recs)) {
			t.Fatalf("%v: does not round trip", err)
		}
		New().Replay(recs, 1, 1).Hash()
	})
}

func FuzzDecodeEntry(f *testing.F) {
	n := int64(0)
	for _, cmd := range commandKinds() {
		fill(reflect.ValueOf(cmd), &n)
		f.Add(EncodeEntry(Entry{TimeMs: 5, Commands: []Command{cmd}}))
	}
	base := New()
	base, _, _ = Apply(base, &FormCluster{ClusterID: "c", Features: []Feature{{MetadataFeature, MetadataVersion}}}, Meta{Index: 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		if again, err := DecodeEntry(EncodeEntry(e)); err != nil || len(again.Commands) != len(e.Commands) {
			t.Fatalf("%v: does not round trip", err)
		}
		next, recs, _ := ApplyEntry(base, e, 2, 1)
		if base.Replay(recs, 2, 1).Hash() != next.Hash() {
			t.Fatal("records do not lead to the image")
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	c := newCluster(&testing.T{})
	c.broker(1)
	var buf bytes.Buffer
	if err := EncodeSnapshot(&buf, c.img); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeSnapshot(bytes.NewReader(b))
		if err == nil {
			checkSnapshot(t, m)
		}
	})
}

func FuzzParseObjectName(f *testing.F) {
	f.Add(ObjectName("c", &Segment{TopicID: wire.NewUUID(), Object: wire.NewUUID(), End: 5}))
	f.Fuzz(func(t *testing.T, name string) {
		if cluster, s, err := ParseObjectName(name); err == nil && ObjectName(cluster, &s) != name {
			t.Fatalf("%q is read as %+v", name, s)
		}
	})
}

// TestMapsAreOrdered: two replicas encode equal maps equally.
func TestMapsAreOrdered(t *testing.T) {
	entries := map[string]string{}
	for _, k := range "abcdefghijklmnop" {
		entries[string(k)] = string(k)
	}
	want := EncodeRecords([]Record{&Config{Entries: entries}})
	for range 20 {
		if !bytes.Equal(want, EncodeRecords([]Record{&Config{Entries: maps.Clone(entries)}})) {
			t.Fatal("the order of a map leaks")
		}
	}
}
