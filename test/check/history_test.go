package check

import (
	"bytes"
	"errors"
	"reflect"
	"sync"
	"testing"
)

func TestHistoryReadsBack(t *testing.T) {
	var file bytes.Buffer
	h := NewHistory(&file)
	var wg sync.WaitGroup
	for proc := range 4 {
		wg.Go(func() {
			for i := range uint32(100) {
				v, began := Of(1, uint16(proc), i+1), h.Now()
				h.Add(Op{Proc: proc, Type: OK, F: FSend, Start: began, End: h.Now(), Sends: []Send{{KeyOf("t", int32(proc)), v, int64(i)}}})
			}
		})
	}
	wg.Wait()
	h.Add(Op{Proc: 9, Type: Info, F: FPoll, Uncommitted: true, Reread: 2, Error: "gone", Polls: []Poll{{Key: a, Offset: 1, Changed: "x"}}, Assigned: []Position{{a, -1}}})
	if err := h.Flush(); err != nil {
		t.Fatal(err)
	}
	var back []Op
	for op, err := range Decode(&file) {
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, op)
	}
	if !reflect.DeepEqual(back, h.Ops()) {
		t.Errorf("%d operations read back are not the %d that were added", len(back), len(h.Ops()))
	}
}

func TestDecodeTornLine(t *testing.T) {
	n, last := 0, error(nil)
	for _, err := range Decode(bytes.NewBufferString("{\"proc\":1}\n{\"proc\":")) {
		n, last = n+1, err
	}
	if n != 2 || last == nil {
		t.Errorf("%d operations, %v", n, last)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

func TestHistoryKeepsTheFirstError(t *testing.T) {
	h := NewHistory(brokenWriter{})
	h.Add(Op{})
	if err := h.Flush(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	h.Add(Op{})
	if err := h.Flush(); !errors.Is(err, errors.ErrUnsupported) || len(h.Ops()) != 2 {
		t.Error(err, len(h.Ops()))
	}
}
