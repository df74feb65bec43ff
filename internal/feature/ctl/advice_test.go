package ctl

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ordinary are settings of which there is nothing to say.
func ordinary() map[string]string {
	return map[string]string{"BROKER_LISTEN": "127.0.0.1:8080", "BROKER_OPEN_MANAGEMENT": "true",
		"BROKER_ALLOW_DELETE": "false", "BROKER_DATA_DIR": "/var/lib/penstock", "BROKER_REAPER": "true",
		"BROKER_FETCH_EGRESS": "public", "BROKER_RETENTION": "720h", "BROKER_DLQ": "keep", "BROKER_UI": "on",
		"BROKER_UI_PAYLOADS":   "show",
		"BROKER_DRAIN_TIMEOUT": "30s", "BROKER_DELIVERY_TIMEOUT": "30s", "BROKER_LOG_LEVEL": "info"}
}

// remotely are those of a broker of a cluster, with a set of secrets.
func remotely(change map[string]string) map[string]string {
	s := ordinary()
	for name, value := range map[string]string{"BROKER_LISTEN": ":8080", "BROKER_OPEN_MANAGEMENT": "false",
		"BROKER_UI_PAYLOADS": "keys", "BROKER_MYSQL_DSN": "", "BROKER_ALERT_WEBHOOK_URL": ""} {
		s[name] = value
	}
	for name, value := range change {
		s[name] = value
	}
	return s
}

// answered is the answer of a broker with settings; those without a value are secrets that are set.
func answered(t *testing.T, of map[string]string) []byte {
	t.Helper()
	var list []map[string]any
	for name, value := range of {
		list = append(list, map[string]any{"Name": name, "Value": value, "Set": value == "", "Secret": value == ""})
	}
	text, err := json.Marshal(map[string]any{"Result": list})
	require.NoError(t, err)
	return text
}

func TestSettingsThatAreDangerousAreFound(t *testing.T) {
	require.Empty(t, advise(answered(t, ordinary())))
	require.Empty(t, advise(answered(t, remotely(nil))))
	seen := map[string]bool{}
	for words, c := range map[string]struct {
		of   map[string]string
		more int // findings besides
	}{
		"reads all tokens": {remotely(map[string]string{"BROKER_OPEN_MANAGEMENT": "true"}), 0},
		"deletes channels": {remotely(map[string]string{"BROKER_OPEN_MANAGEMENT": "true",
			"BROKER_ALLOW_DELETE": "true"}), 1},
		"may empty":                     {remotely(map[string]string{"BROKER_DATA_DIR": "/tmp/x"}), 0},
		"BROKER_REAPER":                 {remotely(map[string]string{"BROKER_REAPER": "false"}), 0},
		"BROKER_FETCH_EGRESS":           {remotely(map[string]string{"BROKER_FETCH_EGRESS": "private"}), 0},
		"BROKER_RETENTION":              {remotely(map[string]string{"BROKER_RETENTION": "0s"}), 0},
		"BROKER_DLQ":                    {remotely(map[string]string{"BROKER_DLQ": "expire:24h"}), 0},
		"BROKER_UI_PAYLOADS":            {remotely(map[string]string{"BROKER_UI_PAYLOADS": "show"}), 0},
		"BROKER_DRAIN_TIMEOUT":          {remotely(map[string]string{"BROKER_DRAIN_TIMEOUT": "5s"}), 0},
		"BROKER_LOG_LEVEL":              {remotely(map[string]string{"BROKER_LOG_LEVEL": "debug"}), 0},
		"the only copy of all messages": {remotely(map[string]string{"BROKER_MYSQL_DSN": "none"}), 0},
		"~alerts":                       {remotely(map[string]string{"BROKER_ALERT_WEBHOOK_URL": "none"}), 0},
	} {
		found := advise(answered(t, c.of))
		require.Len(t, found, 1+c.more, words)
		last := found[len(found)-1]
		require.Contains(t, last.Text, words)
		page, _, _ := strings.Cut(last.Page, "#")
		require.True(t, strings.HasPrefix(page, "docs/"), page)
		require.FileExists(t, "../../../"+page)
		seen[last.Text] = true
	}
	require.Len(t, seen, len(advices), "each advice is tried")
}

func TestWhatAnswersToOtherMachinesIsRemote(t *testing.T) {
	for listen, want := range map[string]bool{"127.0.0.1:80": false, "localhost:80": false, "[::1]:80": false,
		"127.8.8.8:1": false,
		":80":         true, "0.0.0.0:80": true, "[::]:80": true, "10.0.0.1:80": true, "broker:80": true,
		"[::ffff:127.0.0.1]:80": false, "": false} {
		s := settings{"BROKER_LISTEN": {Value: listen}}
		require.Equal(t, want, s.remote(), listen)
	}
	for folder, want := range map[string]bool{"/tmp": true, "/tmp/": true, "/var/tmp/a": true, "/var/../tmp": true,
		"./data":    false,
		"/tmpfiles": false, "/data/tmp": false} {
		require.Equal(t, want, temporary(folder), folder)
	}
}

func TestAnAnswerThatIsNoListOfSettingsSaysNothing(t *testing.T) {
	for _, text := range []string{"", "null", "[]", "{}", `{"Result":[]}`, `{"Result":"x"}`, "<html>", `{"Result":[1]}`} {
		require.Empty(t, advise([]byte(text)), text)
	}
}
