package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/oldbroker"
)

// importCommands are the commands of the page about the older implementation, in its order.
func importCommands(t *testing.T) (out []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/move-from-webhook-broker.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(page)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "broker import ") {
			out = append(out, line)
		}
	}
	require.Len(t, out, 3)
	return out
}

// A spoken is what a command has printed so far.
type spoken struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// imports starts a command of the page; end waits for its exit code.
func (w *world) imports(line string, more ...string) (c *exec.Cmd, said *spoken, end func() int) {
	w.t.Helper()
	said = &spoken{}
	c = exec.Command(os.Args[0], append(strings.Fields(strings.TrimPrefix(line, "broker ")), more...)...)
	c.Env = append(append(clearedEnv(), envMain+"=1"), w.env...)
	c.Stdout, c.Stderr = said, said
	require.NoError(w.t, c.Start())
	return c, said, func() int { _ = c.Wait(); return c.ProcessState.ExitCode() }
}

// The page about the older implementation, word for word: look, copy, follow, switch, deliver.
func TestRealServersTheCommandsOfThePageMoveABroker(t *testing.T) {
	parallel(t)
	target := newSink(t, nil)
	old := oldbroker.New(t)
	old.Producer("till", "till-token")
	old.Channel("orders", "orders-token")
	billing := old.Consumer("orders", "billing", 1)
	old.Exec("UPDATE consumer SET callbackUrl = ? WHERE id = ?", target.URL+"/hook", billing)
	first := old.Message(oldbroker.Message{ID: "first", Channel: "orders", Producer: "till"})
	there := old.Job(first, billing, 1001, 0)
	made := old.Message(oldbroker.Message{Channel: "orders", Producer: "till"})
	old.Job(made, billing, 1002, 0)
	old.Job(old.Message(oldbroker.Message{ID: "dead", Channel: "orders", Producer: "till"}), billing, 1004, 5)

	ini := t.TempDir() + "/webhook-broker.cfg"
	require.NoError(t, os.WriteFile(ini, []byte("[rdbms]\ndialect=mysql\nconnection-url="+
		old.DSN+"\n[broker]\nmax-retry=7\nretry-backoff-delays-in-seconds=5,30,60\n"+
		"[initial-channels]\norders=Orders\n[initial-channel-tokens]\norders=orders-token\n"), 0o600))
	w := embeddedWorld(t)
	commands := importCommands(t)
	for i, line := range commands {
		commands[i] = strings.Replace(line, "--seed webhook-broker.cfg", "--seed "+ini, 1)
	}

	_, said, end := w.imports(commands[0])
	require.Zero(t, end(), said)
	require.Contains(t, said.String(), "BROKER_RETRY_BACKOFF=5s,30s,60s")
	require.Contains(t, said.String(), "BROKER_MAX_RETRIES=7")
	require.Contains(t, said.String(), "would be here")
	require.NotContains(t, said.String(), "-token")

	c, said, end := w.imports(commands[1])
	eventually(t, "the first look", func() bool { return strings.Contains(said.String(), "following") })
	old.Set(there, 1003)
	old.Job(old.Message(oldbroker.Message{ID: "new", Channel: "orders", Producer: "till"}), billing, 1001, 0)
	eventually(t, "what is new", func() bool { return strings.Contains(said.String(), "new rows") })
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.Zero(t, end(), said)

	_, said, end = w.imports(commands[2], "--dsn", old.DSN)
	require.Zero(t, end(), said)
	require.Contains(t, said.String(), "1 consumers are resumed")

	p := w.start()
	eventually(t, "the open jobs", func() bool { return target.count() >= 2 })
	ids := map[string]bool{}
	for _, got := range target.all() {
		ids[got.header.Get("X-Broker-Message-Id")] = true
		require.Equal(t, "billing-token", got.header.Get("X-Broker-Consumer-Token"))
	}
	require.Equal(t, map[string]bool{made: true, "new": true}, ids)
	require.Contains(t, p.do("GET", "/dlq-status", "").body, `"deadCount":1`)
	require.Equal(t, 200, p.do("GET", "/channel/orders/message/"+made, "").status)
	for _, wrong := range [][]string{{"import"}, {"import", "other"}, {"import", "webhook-broker", "--dsn", "nonsense"},
		{"import", "webhook-broker", "--dry-run", "--follow"}, {"import", "webhook-broker", "--nonsense"}} {
		_, said, end := w.imports(strings.Join(wrong, " "))
		require.NotZero(t, end(), "%q", wrong)
		require.Contains(t, said.String(), "broker import: ")
	}
	_, said, end = w.imports("import webhook-broker --dsn " + old.DSN)
	require.Equal(t, exitStore, end())
	require.Contains(t, said.String(), "in use by another broker")
}
