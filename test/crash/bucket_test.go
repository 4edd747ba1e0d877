package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/broker/admin"
)

// tiers is an image in which the rows and local segments of every partition reach from 0 to 30 without a gap.
func tiers() (image, map[string]time.Duration) {
	img := image{map[place]admin.Segments{}, map[place]admin.PartitionStatus{}}
	objects := map[string]time.Duration{}
	for _, t := range topics {
		for p := range t.partitions {
			at := place{t.name, p}
			end := int64(20)
			s := admin.Segments{Local: []admin.LocalSegment{{Base: 20, End: 30, Size: 1 << 20}}}
			for base := int64(0); base < 20; base += 10 {
				name := at.String() + string(rune('a'+base/10))
				s.Remote = append(s.Remote, admin.RemoteSegment{Base: base, End: base + 10, Size: retainedBytes, Object: name})
				objects[name] = 0
			}
			img.segments[at] = s
			img.partitions[at] = admin.PartitionStatus{RemoteEnd: &end, End: 30}
		}
	}
	return img, objects
}

// TestImageFaults: a gap, an overlap and too much retention are told.
func TestImageFaults(t *testing.T) {
	kept, retained := place{"kept", 1}, place{"retained", 0}
	for _, test := range []struct {
		name  string
		spoil func(img image)
		want  string
	}{
		{"whole", func(image) {}, ""},
		{"a partition without a leader", func(img image) { delete(img.partitions, kept) }, "does not lead"},
		{"first row missing", func(img image) {
			s := img.segments[kept]
			s.Remote = s.Remote[1:]
			img.segments[kept] = s
		}, "row [10, 20) follows -1, the log starts at 0"},
		{"rows with a gap", func(img image) { img.segments[kept].Remote[1].Base++ }, "row [11, 20) follows 10"},
		{"rows that overlap", func(img image) { img.segments[kept].Remote[1].Base-- }, "row [9, 20) follows 10"},
		{"last row missing", func(img image) {
			s := img.segments[kept]
			s.Remote = s.Remote[:1]
			img.segments[kept] = s
		}, "rows end at 10, the remote end is 20"},
		{"gap between the tiers", func(img image) { img.segments[kept].Local[0].Base++ }, "local segment [21, 30) follows 20"},
		{"end missing", func(img image) { img.segments[kept].Local[0].End-- }, "segments end at 29, the log at 30"},
		{"too little retained", func(img image) {
			p := img.partitions[retained]
			p.LogStart = 20
			img.partitions[retained] = p
		}, "1048576 bytes are left by retention.bytes"},
	} {
		img, _ := tiers()
		test.spoil(img)
		err := img.check()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: said %v, want %q", test.name, err, test.want)
		}
	}
}

// TestQuiet: what is still to be uploaded, deleted locally or deleted in the store is told.
func TestQuiet(t *testing.T) {
	img, _ := tiers()
	if err := img.quiet(); err != nil {
		t.Fatal(err)
	}
	at := place{"kept", 0}
	img.segments[at].Local[0].Sealed = true
	if err := img.quiet(); err == nil {
		t.Error("a sealed local segment was not told")
	}
	img, _ = tiers()
	delete(img.partitions, at)
	if err := img.quiet(); err == nil {
		t.Error("a partition without a leader was not told")
	}
	img, _ = tiers()
	img.partitions[at] = admin.PartitionStatus{LogStart: 10, End: 30}
	if err := img.quiet(); err == nil {
		t.Error("a row below the log start was not told")
	}
}

// TestCompare: objects without a row and rows without an object are told.
func TestCompare(t *testing.T) {
	img, objects := tiers()
	if orphans, err := compare(img, img, objects); err != nil || len(orphans) > 0 {
		t.Fatalf("orphans %v, %v; want none", orphans, err)
	}
	objects["left behind"] = time.Second
	delete(objects, "kept-0a")
	orphans, err := compare(img, img, objects)
	if len(orphans) != 1 || orphans[0] != "left behind" {
		t.Errorf("orphans %v, want the one", orphans)
	}
	if err == nil || !strings.Contains(err.Error(), "row [0, 10) of kept-0 has no object") {
		t.Errorf("said %v of a row without an object", err)
	}
	later, _ := tiers() // the row's records went by retention meanwhile
	later.partitions[place{"kept", 0}] = admin.PartitionStatus{LogStart: 10}
	if _, err := compare(img, later, objects); err != nil {
		t.Errorf("a row below the log start: %v", err)
	}
}
