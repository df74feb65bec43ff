package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// settingsPages are the pages of docs/settings with their first setting. A page has the settings from there to the
// first one of the next page, in the order of config.
var settingsPages = []struct{ file, first string }{
	{"listening.md", "BROKER_LISTEN"},
	{"access.md", "BROKER_ADMIN_TOKEN"},
	{"delivery.md", "BROKER_DELIVERY_TIMEOUT"},
	{"messages.md", "BROKER_TTL"},
	{"calls.md", "BROKER_ALERT_SMTP_URL"},
	{"watching.md", "BROKER_LOG_LEVEL"},
}

// A settingsPage is what the program says of the settings of a page: a table with a line for each, and their names.
type settingsPage struct {
	table string
	names []string
}

// settingsByPage returns the pages in the order of settingsPages.
func settingsByPage(t *testing.T) (pages []settingsPage) {
	t.Helper()
	for f := range fields() {
		name := f.Tag.Get("env")
		if next := len(pages); next < len(settingsPages) && settingsPages[next].first == name {
			pages = append(pages, settingsPage{table: "| name | default | meaning |\n| --- | --- | --- |\n"})
		}
		require.NotEmpty(t, pages, "%s is before the first page", name)
		last := &pages[len(pages)-1]
		last.table += settingLine(f)
		last.names = append(last.names, "`"+name+"`")
	}
	require.Len(t, pages, len(settingsPages), "the first settings of the pages are in the order of config")
	return pages
}

func settingLine(f reflect.StructField) string {
	value := "empty"
	if v := f.Tag.Get("envDefault"); v != "" {
		value = "`" + v + "`"
	} else if v := f.Tag.Get("default"); v != "" {
		if value = v; strings.ContainsAny(v, "<>") {
			value = "`" + v + "`" // else it reads as HTML
		}
	}
	meaning := f.Tag.Get("doc")
	if f.Tag.Get("secret") == "true" {
		meaning += " Secret."
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", f.Tag.Get("env"), value, meaning)
}

// The tables of docs/settings have each setting with its default, and docs/configuration.md says on which page it is.
func TestThePageOfSettingsIsTrue(t *testing.T) {
	index := "| page | settings |\n| --- | --- |\n"
	for i, page := range settingsByPage(t) {
		file := "settings/" + settingsPages[i].file
		title, _, _ := strings.Cut(fromRoot(t, "docs/"+file), "\n")
		title = strings.TrimPrefix(title, "# Settings: ")
		index += fmt.Sprintf("| [%s](%s) | %s |\n", title, file, strings.Join(page.names, ", "))
		requireTable(t, "docs/"+file, "settings", page.table)
	}
	requireTable(t, "docs/configuration.md", "pages", index)
	files, err := filepath.Glob("../../docs/settings/*.md")
	require.NoError(t, err)
	require.Len(t, files, len(settingsPages), "docs/settings has a page that the program does not write")
}

// requireTable compares what stands between the two comments of a table with what the program says. With -update it
// writes that.
func requireTable(t *testing.T, file, name, want string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	head, rest, ok := strings.Cut(fromRoot(t, file), begin)
	require.True(t, ok, file)
	table, tail, ok := strings.Cut(rest, end)
	require.True(t, ok, file)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join("../..", file), []byte(head+begin+want+end+tail), 0o644))
		return
	}
	require.Equal(t, want, table, "%s: go test ./cmd/broker -run PageOfSettings -update rewrites it", file)
}
