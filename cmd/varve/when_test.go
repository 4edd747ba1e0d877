package main

import (
	"testing"
	"time"
)

func TestParseWhen(t *testing.T) {
	zone := time.FixedZone("X", 2*3600)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, zone)
	at := func(text string) int64 {
		v, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return v.UnixMilli()
	}
	for text, want := range map[string]when{
		"start":                     {kind: whenStart},
		"end":                       {kind: whenEnd},
		"0":                         {kind: whenOffset, offset: 0},
		"42":                        {kind: whenOffset, offset: 42},
		"now":                       {kind: whenTime, millis: now.UnixMilli()},
		"-2h":                       {kind: whenTime, millis: at("2026-11-29T08:00:00Z")},
		"-1h30m":                    {kind: whenTime, millis: at("2026-11-29T08:30:00Z")},
		"-3d":                       {kind: whenTime, millis: at("2026-11-26T10:00:00Z")},
		"-1.5w":                     {kind: whenTime, millis: at("2026-11-18T22:00:00Z")},
		"@1700000000000":            {kind: whenTime, millis: 1700000000000},
		"2026-11-03T14:00:00Z":      {kind: whenTime, millis: at("2026-11-03T14:00:00Z")},
		"2026-11-03T14:00:00+01:00": {kind: whenTime, millis: at("2026-11-03T13:00:00Z")},
		"2026-11-03 14:00":          {kind: whenTime, millis: at("2026-11-03T12:00:00Z")},
		"2026-11-03":                {kind: whenTime, millis: at("2026-11-02T22:00:00Z")},
	} {
		want.text = text
		if got, err := parseWhen(text, now); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-5", "yesterday", "--2h", "-2x", "@", "@-1", "2026-13-01", "99999999999999999999"} {
		if got, err := parseWhen(text, now); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}
