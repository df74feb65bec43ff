package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/penstock-broker/penstock/internal/privatefile"
)

// Rotation of BROKER_LOG_FILE.
const (
	logFileMiB  = 100
	logFiles    = 5
	logFileDays = 28
)

// A logFile is the log file of a broker; nil means none. Only its owner can read it.
type logFile struct{ rotating *lumberjack.Logger }

func openLogFile(path string) (*logFile, error) {
	f := &logFile{&lumberjack.Logger{Filename: filepath.Clean(path), MaxSize: logFileMiB, MaxBackups: logFiles, MaxAge: logFileDays, Compress: true}}
	return f, f.Reopen()
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

// Close closes the file.
func (f *logFile) Close() {
	if f != nil {
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
		out = file.rotating
	}
	options := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "text" || cfg.LogFormat == "" && cfg.LogFile == "" && isTerminal(stderr) {
		return slog.New(slog.NewTextHandler(out, options)), file, nil
	}
	return slog.New(slog.NewJSONHandler(out, options)), file, nil
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
				fmt.Fprintf(stderr, "broker: BROKER_LOG_FILE cannot be reopened: %v\n", err)
				continue
			}
			log.Info("SIGHUP: the log was reopened", "file", file != nil)
		}
	}()
	return func() {
		signal.Ignore(syscall.SIGHUP)
		close(hangups)
		<-done
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

// isTerminal reports whether w is a character device, as terminals are.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
