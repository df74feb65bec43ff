package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Rotation of BROKER_LOG_FILE.
const (
	logFileMiB  = 100
	logFiles    = 5
	logFileDays = 28
)

// newLogger returns the logger that the settings ask for, and what closes it.
// No caller ever passes it a token, a payload or a DSN.
func newLogger(cfg config, stderr io.Writer) (*slog.Logger, func(), error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return nil, nil, fmt.Errorf("BROKER_LOG_LEVEL: %w", err)
	}
	out, closeLog := stderr, func() {}
	if cfg.LogFile != "" {
		file := &lumberjack.Logger{Filename: filepath.Clean(cfg.LogFile), MaxSize: logFileMiB, MaxBackups: logFiles, MaxAge: logFileDays, Compress: true}
		if _, err := file.Write(nil); err != nil {
			return nil, nil, fmt.Errorf("BROKER_LOG_FILE cannot be written: %w", err)
		}
		out, closeLog = file, func() { _ = file.Close() }
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "text" || cfg.LogFormat == "" && cfg.LogFile == "" && isTerminal(stderr) {
		return slog.New(slog.NewTextHandler(out, options)), closeLog, nil
	}
	return slog.New(slog.NewJSONHandler(out, options)), closeLog, nil
}

// redisLog takes what the Redis client would print to stderr, past the format and
// level of our log. It tells of each failed dial, and the calls report those too.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "redis client", "detail", fmt.Sprintf(format, v...))
	}
}

// isTerminal reports whether w is a character device, as terminals are.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
