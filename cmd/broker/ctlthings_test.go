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
		"metrics-consumers.txt", "history.json", "version.json", "readyz.json", "settings.json"} {
		require.FileExists(t, filepath.Join(w.folder, "penstock-doctor", file))
	}
	require.Contains(t, all, "cannot be done", "the cause of the dead letter")
	for _, secret := range []string{"query-word", "token-word", "header-word", "bearer-word", "payload-word", "c-token",
		"k-token", "shop-token", adminToken} {
		require.NotContains(t, all, secret)
	}
	require.Contains(t, all, `"Name":"BROKER_LISTEN"`)
	require.Contains(t, out, "BROKER_DATA_DIR is a folder that a restart")
	source := fromRoot(t, "internal/feature/ctl/doctor.go") + fromRoot(t, "internal/feature/ctl/advice.go")
	for _, page := range regexp.MustCompile(`docs/[a-z/-]+\.md`).FindAllString(source, -1) {
		fromRoot(t, page) // it is there
	}
	require.Equal(t, 1, w.run("broker ctl doctor -o a.tar.gz").code, "it replaces no file")
	require.Equal(t, 3, w.run("broker ctl doctor -o b.tar.gz --url http://"+freeAddr(t)).code)
	require.NoFileExists(t, filepath.Join(w.folder, "b.tar.gz"))
}

// A portal link of the command line opens the pages of its consumer, and a wrong one says why there is none.
func TestCtlMakesAPortalLink(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.operated()
	out := w.ok("broker ctl consumer portal-link orders/billing --ttl 2h")
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/ui/portal\?link=\S+ opens the pages of orders/billing until \S+Z, for`, out)
	link, _, _ := strings.Cut(out, " ")
	require.Equal(t, 303, p.do("GET", strings.TrimPrefix(link, p.base), "").status)
	require.Regexp(t, `^\{"URL":"http.*","ExpiresAt":"\S+Z"\}\n$`, w.ok("broker ctl consumer portal-link orders/billing --json"))
	for _, ttl := range []string{"25h", "1s", "-1h", "soon", "''"} {
		r := w.run("broker ctl consumer portal-link orders/billing --ttl " + ttl)
		if ttl == "''" { // the usual time
			require.Equal(t, 0, r.code, r)
			continue
		}
		require.Equal(t, 2, r.code, r)
		require.Contains(t, r.stderr, "(invalid_ttl)")
	}
	require.Equal(t, 2, w.run("broker ctl consumer portal-link orders/none").code)
	require.Equal(t, 1, w.run("broker ctl consumer portal-link orders").code)
	require.Equal(t, 1, w.run("broker ctl channel portal-link orders").code)
}

// top shows counts again and again, and a message what became of it.
func TestCtlShowsCountsAndTimelines(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.operated()
	var out string
	eventually(t, "it looks again", func() bool {
		out = w.ok("broker ctl top --for 1s --every 100ms")
		return strings.Count(out, "accepted ") > 1
	})
	require.Regexp(t, `orders/billing +pull +ACTIVE +1 +0 +1 +\d`, out)
	out = w.ok("broker ctl top --for 1ms --json --sort dead")
	require.Contains(t, out, `"ID":"billing"`)
	require.NotContains(t, out, "k-token")
	commanded := w.enter("d\n/bill\nnonsense\n/none\np\nq\n", "broker ctl top --commands --every 1h")
	require.Equal(t, 0, commanded.code, commanded)
	var by []string
	for _, m := range regexp.MustCompile(`(?m)^(by .*)\. o, d or u: sort`).FindAllStringSubmatch(commanded.stdout, -1) {
		by = append(by, m[1])
	}
	const some = "by dead, with bill"
	require.Equal(t, []string{"by oldest", "by dead", some, some, "by dead, with none"}, by)
	views := strings.Split(commanded.stdout, "accepted ")
	require.Len(t, views, 6)
	require.Contains(t, views[3], "orders/billing")
	require.NotContains(t, views[5], "orders/billing")
	require.Contains(t, w.run("broker ctl top --sort colour").stderr, "(invalid_query)")
	require.Equal(t, 1, w.run("broker ctl top --every 1ms").code)
	require.Equal(t, 3, w.run("broker ctl top --url http://"+freeAddr(t)).code)
	require.Regexp(t, `^\S+ invoice-7 ACCEPTED\n$`, w.ok("broker ctl message invoice-7 --timeline"))
	require.Contains(t, w.ok("broker ctl message invoice-7 --timeline --json --channel orders"), `"Event":"ACCEPTED"`)
	require.Equal(t, 2, w.run("broker ctl message none --timeline").code)
}

// An assistant may ask, and nothing else.
func TestCtlAnswersAnAssistant(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.operated()
	call := func(id int, name, argument, value string) string {
		text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call",
			"params": map[string]any{"name": name, "arguments": map[string]string{argument: value}}})
		require.NoError(t, err)
		return string(text) + "\n"
	}
	s := w.enter(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`+"\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n\n"+"nonsense\n"+
		call(3, "why", "id", "orders/billing")+call(4, "why", "id", "invoice-7")+call(5, "why", "id", "a/b/../c")+
		call(6, "causes", "consumer", "orders/billing")+call(7, "timeline", "message", "orders/invoice-7")+
		call(8, "consumers_in_trouble", "", "")+call(9, "check", "", "")+call(10, "purge", "", "")+
		call(11, "why", "id", ""), "broker ctl mcp")
	require.Equal(t, 0, s.code, s.stderr)
	require.Empty(t, s.stderr)
	lines := strings.Split(strings.TrimSpace(s.stdout), "\n")
	require.Len(t, lines, 12)
	for i, want := range []string{`"protocolVersion":"2025-06-18"`, `"readOnlyHint":true`,
		`"id":null,"error":{"code":-32700`, `"isError":false`, `"isError":false`, `"isError":true`, "cannot be done", "ACCEPTED", `orders/billing`, "WARNING|OK",
		"there is no such tool", "needs the argument id"} {
		require.Regexp(t, want, lines[i])
	}
	require.NotContains(t, s.stdout, "k-token")
	require.NotContains(t, s.stdout, adminToken)
	long := w.enter(strings.Repeat("x", 2<<20), "broker ctl mcp")
	require.Equal(t, 1, long.code)
	require.Contains(t, long.stderr, "a request has more than")
}

// The commands of a group change what its routes show.
func TestCtlTakesGroups(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.put("/channel/in-it", "token", "c-token")
	require.Contains(t, w.ok("broker ctl group set tenants name=Tenants maxChannels=7 publishRate=100/1s"), "tenants")
	w.ok("broker ctl channel set in-it group=tenants")
	line := strings.Fields(strings.Split(w.ok("broker ctl group ls"), "\n")[1])
	require.Equal(t, []string{"tenants", "Tenants", "ACTIVE", "1", "7", "100/1s"}, line)
	require.Contains(t, w.ok("broker ctl channel ls --group tenants"), "in-it")
	var shown struct{ MaxChannels int }
	require.NoError(t, json.Unmarshal([]byte(w.ok("broker ctl group show tenants --json")), &shown))
	require.Equal(t, 7, shown.MaxChannels)
	w.ok("broker ctl group pause tenants")
	require.Equal(t, "PAUSED", p.do("GET", "/group/tenants", "").json(t)["State"])
	w.ok("broker ctl group resume tenants")
	require.Equal(t, "ACTIVE", p.do("GET", "/group/tenants", "").json(t)["State"])
	require.Contains(t, w.run("broker ctl group set tenants maxChannels=many").stderr, "(invalid_policy)")
	require.Equal(t, 2, w.run("broker ctl group show nobody").code)
	require.Equal(t, 1, w.run("broker ctl group show").code)
	require.Contains(t, w.ok("broker ctl export"), "tenants:")
}
