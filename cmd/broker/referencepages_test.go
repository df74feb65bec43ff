package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownCommand is this program as a command of a script: broker.
func ownCommand(p *process, more string) string {
	return fmt.Sprintf("env %s=1 PENSTOCK_URL='%s' PENSTOCK_TOKEN='%s' %s '%s'", envMain, p.base, adminToken, more,
		os.Args[0])
}

// The commands of these pages work at a broker that has the channel and the consumer of their examples, in any order,
// and again.
func TestTheCommandsOfTheReferencePagesWork(t *testing.T) {
	parallel(t)
	target, folder := newSink(t, nil), t.TempDir()
	p := embeddedWorld(t).start("BROKER_EGRESS=private")
	p.put("/channel/orders", "token", "c-token")
	p.put("/channel/orders/consumer/billing", "token", "k-token", "callbackUrl", target.URL)
	archive := filepath.Join(folder, "archive")
	require.NoError(t, os.MkdirAll(filepath.Join(archive, "orders"), 0o700))
	for range 2 {
		for page, pairs := range map[string][]string{
			"docs/groups.md":    nil,
			"docs/notices.md":   nil,
			"docs/openapi.md":   {"> penstock.json", "> /dev/null"},
			"docs/operating.md": nil,
			"docs/portal.md":    nil,
			"docs/audit.md": {"broker ctl", ownCommand(p, "") + " ctl", "> audit.ndjson", "> /dev/null",
				"https://siem.example/in", target.URL},
			"docs/operate/keeping.md": nil,
			"docs/operate/archive.md": {"broker archive ls", ownCommand(p, "") + " archive ls",
				"broker archive grep 'order-1'", ownCommand(p, "") + " archive grep order-1 || test $? -eq 1", // it has none
				"broker archive restore /var/lib/penstock/archive/orders/20260131T*", "true", // the archive is empty
				"/var/lib/penstock/archive\n", archive + "\n"},
			"docs/brokers.md": {"bench run --duration 10s --html reports/first.html\nBROKER_UI_BENCH=reports broker\n",
				"true\n"}, // make bench runs it
		} {
			runPage(t, p, page, pairs...)
		}
	}
}

// A backup of a running broker, and its way back into a folder of its own.
func TestTheCommandsOfThePageAboutBackupsWork(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start()
	p.sample("pull")
	p.publish(`{"order":1}`)
	file, other := filepath.Join(t.TempDir(), "penstock.db"), t.TempDir()
	runPage(t, p, "docs/operate/backup.md",
		"BROKER_DATA_DIR=/var/lib/penstock broker backup /backup/penstock-2026-11-25.db",
		ownCommand(p, "BROKER_DATA_DIR="+w.setting("BROKER_DATA_DIR"))+" backup "+file,
		"BROKER_DATA_DIR=/var/lib/penstock broker restore /backup/penstock-2026-11-25.db",
		ownCommand(p, "BROKER_DATA_DIR="+other)+" restore "+file)
	require.NotEmpty(t, mustList(t, other))
}

func mustList(t *testing.T, folder string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(folder)
	require.NoError(t, err)
	return list
}
