package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve-io/varve/objstore"
)

func TestCombineCRC32C(t *testing.T) {
	data := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog ", 5000))
	whole := objstore.CRC32C(0, data)
	for _, cut := range []int{0, 1, 7, 64, 1000, 65536, len(data) - 1, len(data)} {
		a, b := data[:cut], data[cut:]
		got := objstore.CombineCRC32C(objstore.CRC32C(0, a), objstore.CRC32C(0, b), int64(len(b)))
		if got != whole {
			t.Errorf("cut at %d: %08x, want %08x", cut, got, whole)
		}
	}
}

func TestCRC32COf(t *testing.T) {
	r := strings.NewReader(strings.Repeat("0123456789", 100_000))
	got, err := objstore.CRC32COf(r, 5, 700_000)
	if want := objstore.CRC32C(0, []byte(strings.Repeat("5678901234", 70_000))); err != nil || got != want {
		t.Errorf("%08x, %v, want %08x", got, err, want)
	}
	if _, err := objstore.CRC32COf(r, 0, 2_000_000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("past the end: %v", err)
	}
}

// TestDiagnose: every kind of failure has its own cause and remedy, through any wrapping.
func TestDiagnose(t *testing.T) {
	kinds := []error{
		objstore.ErrNotExist, objstore.ErrExist, objstore.ErrChecksum, objstore.ErrAuth, objstore.ErrDenied, objstore.ErrNoBucket,
		objstore.ErrRegion, objstore.ErrClockSkew, objstore.ErrThrottled, objstore.ErrUnavailable, objstore.ErrUnreachable,
		objstore.ErrResolve, objstore.ErrTimeout, context.DeadlineExceeded,
	}
	seen := map[string]error{}
	for _, kind := range kinds {
		err := fmt.Errorf("start: %w", &objstore.Error{Op: "list", Name: "p/", Kind: kind, Err: errors.New("detail")})
		cause, remedy := objstore.Diagnose(err)
		for _, text := range []string{cause, remedy} {
			if text == "" || strings.Contains(text, "detail") {
				t.Errorf("%v: diagnosis %q", kind, text)
			}
			if other := seen[text]; other != nil {
				t.Errorf("%v and %v share the text %q", kind, other, text)
			}
			seen[text] = kind
		}
	}
	if cause, remedy := objstore.Diagnose(nil); cause != "" || remedy != "" {
		t.Errorf("nil: %q, %q", cause, remedy)
	}
	if cause, _ := objstore.Diagnose(errors.New("odd")); cause != "odd" {
		t.Errorf("unknown: %q", cause)
	}
}

func TestLabel(t *testing.T) {
	for err, want := range map[error]string{
		nil:                                    "ok",
		errors.New("x"):                        "other",
		objstore.ErrResolve:                    "resolve",
		objstore.ErrTimeout:                    "timeout",
		objstore.ErrUnreachable:                "unreachable",
		&objstore.Error{Err: context.Canceled}: "cancelled",
		&objstore.Error{Kind: objstore.ErrThrottled, Err: errors.New("503")}: "throttled",
	} {
		if got := objstore.Label(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := objstore.Backoff{Attempts: 4, Base: time.Second, Max: 3 * time.Second}
		tried, start := 0, time.Now()
		err := b.Do(t.Context(), func(attempt int) error {
			if attempt != tried {
				t.Errorf("attempt %d, want %d", attempt, tried)
			}
			tried++
			return objstore.ErrThrottled
		})
		if waited := time.Since(start); tried != 4 || waited > 6*time.Second || !errors.Is(err, objstore.ErrThrottled) {
			t.Errorf("tried %d times in %v: %v", tried, waited, err)
		}
		tried = 0
		b.Do(t.Context(), func(int) error { tried++; return objstore.ErrNotExist })
		if tried != 1 {
			t.Errorf("tried a final error %d times", tried)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start = time.Now()
		b = objstore.Backoff{Attempts: 1000, Base: time.Hour, Max: time.Hour}
		err = b.Do(ctx, func(int) error { return objstore.ErrTimeout })
		if time.Since(start) > time.Second || !errors.Is(err, objstore.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the context's end: %v, %v", time.Since(start), err)
		}
	})
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "a/b.c-d_e", "…", strings.Repeat("x", 1024)} {
		if err := objstore.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "/", "a/", "/a", "a//b", ".", "..", "a/..", "\x7f", "\xc3\x28", strings.Repeat("x", 1025)} {
		if err := objstore.CheckName(name); !errors.Is(err, objstore.ErrBadName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
