package controller

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger brings the library's log into ours. Its notices are of interest
// only to whoever debugs an election; its warnings are part of any.
func raftLogger(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(raftSink{logger})
	return l
}

type raftSink struct{ logger *slog.Logger }

func (s raftSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch {
	case level >= hclog.Error:
		to = slog.LevelError
	case level == hclog.Warn:
		to = slog.LevelInfo
	}
	s.logger.Log(context.Background(), to, msg, append([]any{"source", name}, args...)...)
}
