package main

import (
	"io"
	"log/slog"
)

// newLogger writes text for people or JSON for machines.
func newLogger(w io.Writer, format, level string) *slog.Logger {
	opts := &slog.HandlerOptions{}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err == nil {
		opts.Level = l
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
