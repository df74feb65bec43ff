package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Schedules, bulks, replays, requests and exports are what the API has afterwards.
func TestCtlSchedulesBulksReplaysAndRequests(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.operated()
	w.ok("broker ctl publish orders later --id s-1 --at 2036-01-31T15:04:05Z")
	w.ok("broker ctl publish orders daily --id s-2 --recurrence 'cron:0 8 * * *'")
	list := w.ok("broker ctl schedule ls orders")
	require.Contains(t, list, "cron:0 8 * * *")
	require.Contains(t, w.ok("broker ctl schedule show orders/s-1"), "2036-01-31T15:04:05.000Z")
	require.Equal(t, "orders/s-1 is deleted\n", w.ok("broker ctl schedule rm orders/s-1"))
	require.Equal(t, 404, p.do("GET", "/channel/orders/scheduled-message/s-1", "").status)
	require.Equal(t, 2, w.run("broker ctl schedule rm orders/s-1").code)

	w.write("rows.ndjson", `{"Payload":"a"}`+"\n"+`{"Payload":"b","MessageID":"`+"b-1"+`"}`+"\nnothing\n")
	require.Contains(t, w.ok("broker ctl bulk publish orders -f rows.ndjson --wait"),
		"is done: 2 messages, 1 bad rows, 0 duplicates")
	require.Equal(t, 200, p.do("GET", "/channel/orders/message/b-1", "").status)
	require.Contains(t, w.ok("broker ctl bulk ls orders"), "DONE")

	before := p.do("GET", "/channel/orders/consumer/billing/dlq", "").json(t)["DeadJobs"].([]any)
	exported := w.ok("broker ctl dlq export orders/billing")
	require.Equal(t, len(before), strings.Count(exported, "\n"))
	var letter struct {
		Job     struct{ ID, ReasonCode string }
		Message struct{ Payload, ProducedBy string }
	}
	line, _, _ := strings.Cut(exported, "\n")
	require.NoError(t, json.Unmarshal([]byte(line), &letter))
	require.Equal(t, before[0].(map[string]any)["ID"], letter.Job.ID)
	require.Equal(t, "by_consumer", letter.Job.ReasonCode)
	require.Equal(t, "{}", letter.Message.Payload)

	require.Contains(t, w.ok("broker ctl replay start orders/billing --since 1h --dry-run"),
		"0 messages of orders/billing are meant")
	require.Contains(t, w.ok("broker ctl replay start orders/billing --since 1h --only dead --rate 1/1h"), "is RUNNING")
	name := strings.Fields(strings.Split(w.ok("broker ctl replay ls orders/billing"), "\n")[1])[0]
	w.ok("broker ctl replay pause " + name)
	require.Contains(t, w.ok("broker ctl replay show "+name), "PAUSED")
	require.Equal(t, 2, w.run("broker ctl replay start orders/billing --since 1h").code, "one at a time")
	w.ok("broker ctl replay cancel " + name)
	require.Contains(t, w.run("broker ctl replay resume "+name).stderr, "(replay_ended)")

	require.Contains(t, w.run("broker ctl request orders x").stderr, "(no_responder)")
	echo := newSink(t, func(int, received) int { return 200 })
	p.put("/channel/orders/consumer/echo", "callbackUrl", echo.URL, "responses", "store")
	require.Contains(t, w.ok("broker ctl request orders x --wait 1m --json"), `"ConsumerID":"echo"`)
	p.put("/channel/orders/consumer/echo", "responses", "off")
	p.put("/channel/orders/consumer/billing", "responses", "store")
	s := w.run("broker ctl request orders x --wait 1s")
	require.Equal(t, 2, s.code)
	require.Contains(t, s.stderr, "the message is stored, and no consumer has responded in time")

	for line, want := range map[string]string{
		"broker ctl schedule show orders":                                   `"orders" is no CHANNEL/ID`,
		"broker ctl bulk show orders/..":                                    `".." is no bulk`,
		"broker ctl bulk publish orders":                                    "the file is missing",
		"broker ctl bulk publish orders -f none.csv":                        "open none.csv",
		"broker ctl bulk publish orders -f message":                         "says what message is",
		"broker ctl replay show orders/billing":                             "is no CHANNEL/CONSUMER/REPLAY",
		"broker ctl replay start orders/billing":                            "one of --from TIME and --since DURATION",
		"broker ctl replay start orders/billing --from x":                   `"x" is no time`,
		"broker ctl replay start orders/billing --from x --since 1h":        "one of --from TIME and --since DURATION",
		"broker ctl publish orders x --at tomorrow":                         `"tomorrow" is no time`,
		"broker ctl request orders":                                         "the payload is missing",
		"broker ctl dlq export orders":                                      "is no CHANNEL/CONSUMER",
		"broker ctl schedule ls orders/x":                                   `"orders/x" is no channel`,
		"broker ctl bulk publish orders/x -f - --type application/x-ndjson": `"orders/x" is no channel`,
	} {
		s := w.run(line)
		require.Equal(t, 1, s.code, "%s: %s", line, s.stderr)
		require.Contains(t, s.stderr, want, line)
	}
}

// The archive of doctor says what is wrong and where that is explained, and has no secret.
func TestCtlDoctorWritesAnArchive(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.operated()
	p.put("/channel/orders/consumer/hook", "callbackUrl", "http://127.0.0.1:9/x?key=query-word", "token", "token-word",
		"headers", "X-Key: header-word", "authorization", "bearer bearer-word")
	w.ok("broker ctl publish orders payload-word")
	out := w.ok("broker ctl doctor -o a.tar.gz")
	require.Contains(t, out, "orders/billing has 1 dead letters (docs/deadletters.md)")
	all := w.ok("tar xzf a.tar.gz && cat penstock-doctor/*")
	for _, file := range []string{"findings.txt", "resources.yaml", "consumers.ndjson", "trouble.ndjson", "metrics.txt",
		"metrics-consumers.txt", "history.json", "version.json", "readyz.json"} {
		require.FileExists(t, filepath.Join(w.folder, "penstock-doctor", file))
	}
	require.Contains(t, all, "cannot be done", "the cause of the dead letter")
	for _, secret := range []string{"query-word", "token-word", "header-word", "bearer-word", "payload-word", "c-token",
		"k-token", "shop-token", adminToken} {
		require.NotContains(t, all, secret)
	}
	source := fromRoot(t, "internal/feature/ctl/doctor.go")
	for _, page := range regexp.MustCompile(`docs/[a-z/-]+\.md`).FindAllString(source, -1) {
		fromRoot(t, page) // it is there
	}
	require.Equal(t, 1, w.run("broker ctl doctor -o a.tar.gz").code, "it replaces no file")
	require.Equal(t, 3, w.run("broker ctl doctor -o b.tar.gz --url http://"+freeAddr(t)).code)
	require.NoFileExists(t, filepath.Join(w.folder, "b.tar.gz"))
}
