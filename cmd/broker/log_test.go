package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLogHasTheFormThatIsAskedFor(t *testing.T) {
	for _, tc := range []struct{ format, level, want string }{
		{"", "info", "json"}, // a buffer is no terminal
		{"json", "info", "json"},
		{"text", "info", "text"},
		{"json", "warn", "nothing"},
		{"text", "error", "nothing"},
	} {
		var out bytes.Buffer
		log, file, err := newLogger(config{LogFormat: tc.format, LogLevel: tc.level}, &out)
		require.NoError(t, err)
		log.Info("hello", "n", 1)
		file.Close()
		switch tc.want {
		case "json":
			var line map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &line))
			require.Equal(t, "hello", line["msg"])
			require.EqualValues(t, 1, line["n"])
		case "text":
			require.Contains(t, out.String(), "msg=hello n=1")
		default:
			require.Empty(t, out.String())
		}
	}
}

func TestTheLogGoesToItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "broker.log")
	var out bytes.Buffer
	log, file, err := newLogger(config{LogLevel: "info", LogFile: path}, &out)
	require.NoError(t, err)
	log.Info("hello")
	file.Close()
	require.Empty(t, out.String())
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, json.Valid(bytes.TrimSpace(written)), string(written))
}

func TestALogThatCannotBeWrittenIsToldAtStart(t *testing.T) {
	blocker := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocker, nil, 0o600))
	_, _, err := newLogger(config{LogLevel: "info", LogFile: filepath.Join(blocker, "broker.log")}, &bytes.Buffer{})
	require.ErrorContains(t, err, "BROKER_LOG_FILE")
	_, _, err = newLogger(config{LogLevel: "loud"}, &bytes.Buffer{})
	require.ErrorContains(t, err, "BROKER_LOG_LEVEL")
}

func TestAFolderIsNoLog(t *testing.T) {
	parent := t.TempDir()
	folder := filepath.Join(parent, "data")
	require.NoError(t, os.Mkdir(folder, 0o755))
	_, _, err := newLogger(config{LogLevel: "info", LogFile: folder}, &bytes.Buffer{})
	require.ErrorContains(t, err, "BROKER_LOG_FILE")
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.True(t, entries[0].IsDir() && entries[0].Name() == "data", "it is where it was")
}

func TestADeviceIsNeverRotated(t *testing.T) {
	dir := t.TempDir()
	device, file := filepath.Join(dir, "stdout"), filepath.Join(dir, "file")
	require.NoError(t, os.Symlink(os.DevNull, device))
	f, err := openLogFile(device)
	require.NoError(t, err)
	defer f.Close()
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range logFileMiB + 1 {
		_, err := f.rotating.Write(chunk)
		require.NoError(t, err)
	}
	target, err := os.Readlink(device)
	require.NoError(t, err, "what has the name is the link to the device")
	require.Equal(t, os.DevNull, target)

	f, err = openLogFile(file)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, logFileMiB, f.rotating.MaxSize)
}

func TestAReopenedLogGetsItsFolderBack(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "log")
	f, err := openLogFile(filepath.Join(folder, "broker.log"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, f.Reopen())
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.FileExists(t, filepath.Join(folder, "broker.log"))
}
