package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/console"
	"github.com/penstock-broker/penstock/internal/tool/privatefile"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/redisq"
)

// Rotation of BROKER_LOG_FILE.
const (
	logFileMiB  = 100
	logFiles    = 5
	logFileDays = 28
)

// flushWithin bounds how long the end of a process waits for those who read its lines.
const flushWithin = 2 * time.Second

// A logFile is the log file of a broker; nil means none. Only its owner can read it.
type logFile struct {
	rotating *lumberjack.Logger
	lines    *console.Writer // in front of it: a device or another machine may take no lines for long
}

func openLogFile(path string) (*logFile, error) {
	f := &logFile{rotating: &lumberjack.Logger{Filename: filepath.Clean(path), MaxSize: logFileMiB, MaxBackups: logFiles,
		MaxAge: logFileDays, Compress: true}}
	if err := f.Reopen(); err != nil {
		return nil, err
	}
	f.lines = console.New(f.rotating, "file")
	return f, nil
}

// Reopen continues in the file that has the name now. It closes a file that another program has
// renamed or removed.
func (f *logFile) Reopen() error {
	if f == nil {
		return nil
	}
	if err := f.rotating.Close(); err != nil {
		return err
	}
	if err := privatefile.Folder(filepath.Dir(f.rotating.Filename)); err != nil {
		return err
	}
	if err := privatefile.Make(f.rotating.Filename); err != nil {
		return err
	}
	if err := f.keepWhatIsNoLog(); err != nil {
		return err
	}
	_, err := f.rotating.Write(nil) // opens it
	return err
}

// keepWhatIsNoLog returns an error for a path that cannot be appended to, such as a folder, because
// the rotation would rename it as a broken log. For the same reason it disables the rotation of
// files that are not regular, such as /dev/stdout.
func (f *logFile) keepWhatIsNoLog() error {
	file, err := os.OpenFile(f.rotating.Filename, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if f.rotating.MaxSize = logFileMiB; !info.Mode().IsRegular() {
		f.rotating.MaxSize = math.MaxInt32
	}
	return nil
}

// Close writes what is left, and closes the file. It does not wait for a file that takes no lines.
func (f *logFile) Close() {
	if f != nil && f.lines.Close(flushWithin) {
		_ = f.rotating.Close()
	}
}

// newLogger returns the logger that the settings ask for, and its file.
// No caller ever passes it a token, a payload or a DSN.
func newLogger(cfg config, stderr io.Writer) (*slog.Logger, *logFile, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return nil, nil, fmt.Errorf("BROKER_LOG_LEVEL: %w", err)
	}
	out, file := stderr, (*logFile)(nil)
	if cfg.LogFile != "" {
		var err error
		if file, err = openLogFile(cfg.LogFile); err != nil {
			return nil, nil, fmt.Errorf("BROKER_LOG_FILE cannot be written: %w", err)
		}
		out = file.lines
	}
	handler := func(to io.Writer) slog.Handler {
		options := &slog.HandlerOptions{Level: level, ReplaceAttr: errorsAsSentences}
		if cfg.LogFormat == "text" || cfg.LogFormat == "" && cfg.LogFile == "" && isTerminal(stderr) {
			return slog.NewTextHandler(to, options)
		}
		return slog.NewJSONHandler(to, options)
	}
	if lines, ok := out.(*console.Writer); ok {
		lines.Announce(func(dropped int) []byte {
			var b bytes.Buffer
			slog.New(handler(&b)).Error("lines of the log were dropped here, because nobody read them", "lines", dropped)
			return b.Bytes()
		})
	}
	return slog.New(handler(out)), file, nil
}

// errorsAsSentences shows the errors of a line without the names of packages. Those of a store say
// which one it is.
func errorsAsSentences(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	err, ok := a.Value.Any().(error)
	if !ok {
		return a
	}
	text := sentence.Of(err)
	switch {
	case errors.Is(err, redisq.ErrFailed) && !strings.Contains(text, "Redis"):
		text = "Redis: " + text
	case errors.Is(err, durable.ErrFailed) && !strings.Contains(text, "store"):
		text = "store: " + text
	}
	a.Value = slog.StringValue(text)
	return a
}

// checkLogFile tries whether the log file can be written.
func (c *config) checkLogFile(f *faults) {
	if c.LogFile == "" {
		return
	}
	file, err := openLogFile(c.LogFile)
	if err != nil {
		f.add("BROKER_LOG_FILE", "cannot be written: %v", err)
	} else {
		file.Close()
	}
}

// reopenAtHangup reopens the log file at each SIGHUP, which programs that rotate logs send after a
// rename. The signal never ends the process, since main ignores it until here. The result stops the
// reopening.
func reopenAtHangup(hangups chan os.Signal, file *logFile, log *slog.Logger, stderr io.Writer) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range hangups {
			if err := file.Reopen(); err != nil {
				fmt.Fprintf(stderr, "broker: BROKER_LOG_FILE cannot be reopened: %v\n", sentence.Of(err))
				continue
			}
			log.Info("SIGHUP: the log was reopened", "file", file != nil)
		}
	}()
	return func() {
		signal.Ignore(syscall.SIGHUP)
		close(hangups)
		select {
		case <-done:
		case <-time.After(flushWithin): // the file takes no lines, so it cannot be reopened
		}
	}
}

// redisLog receives the log of the Redis client, which otherwise prints to stderr without the
// format and level of the broker's log. It contains each failed dial, and the calls report those
// too.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "redis client", "detail", fmt.Sprintf(format, v...))
	}
}

// isTerminal reports whether lines that are written to w go to a terminal.
func isTerminal(w io.Writer) bool {
	lines, ok := w.(*console.Writer)
	return ok && lines.Terminal()
}
