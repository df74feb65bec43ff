package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// A terminal runs commands of broker ctl.
type terminal struct {
	t      *testing.T
	folder string
	env    []string
}

// newTerminal is the terminal of an operator of a broker.
func newTerminal(t *testing.T, p *process) *terminal {
	t.Helper()
	w := &terminal{t: t, folder: t.TempDir()}
	w.env = []string{envMain + "=1", "BROKER=" + os.Args[0], "NO_PROXY=*",
		"PENSTOCK_PROFILES=" + filepath.Join(w.folder, "profiles.json")}
	if p != nil {
		w.env = append(w.env, "PENSTOCK_URL="+p.base, "PENSTOCK_TOKEN="+adminToken)
	}
	return w
}

// A said is what a command said.
type said struct {
	code           int
	stdout, stderr string
}

// run runs a line of a shell in which broker is the program.
func (w *terminal) run(line string, env ...string) said {
	w.t.Helper()
	return w.enter("", line, env...)
}

// enter is run with a standard input.
func (w *terminal) enter(in, line string, env ...string) said {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "bash", "-c", `broker() { "$BROKER" "$@"; }; `+line)
	cmd.Dir, cmd.Stdin = w.folder, strings.NewReader(in)
	cmd.Env = append(append(clearedEnv(), w.env...), env...)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errors, time.Second
	_ = cmd.Run() // its code says it
	return said{cmd.ProcessState.ExitCode(), out.String(), errors.String()}
}

// ok requires that a line succeeds, and returns what it prints.
func (w *terminal) ok(line string, env ...string) string {
	w.t.Helper()
	s := w.run(line, env...)
	require.Equal(w.t, 0, s.code, "%s\n%s%s", line, s.stdout, s.stderr)
	require.Empty(w.t, s.stderr, line)
	return s.stdout
}

// section returns the lines of a part of a help.
func section(help, title string) (lines []string) {
	_, rest, ok := strings.Cut(help, "\n"+title+":\n")
	if !ok {
		return nil
	}
	for line := range strings.Lines(rest) {
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// examples returns those of a command and of all under it, in the order of their help.
func (w *terminal) examples(command string) (all []string) {
	w.t.Helper()
	help := w.ok(command + " --help")
	require.True(w.t, strings.HasPrefix(help, "Usage: "+command), help)
	all = section(help, "Examples")
	commands := section(help, "Commands")
	require.NotEqual(w.t, 0, len(all)+len(commands), "%s has an example", command)
	for _, line := range commands {
		name, _, _ := strings.Cut(line, " ")
		all = append(all, w.examples(command+" "+name)...)
	}
	return all
}

// operated makes what the examples of ctl name: a message that waits, one that is dead.
func (p *process) operated() {
	p.t.Helper()
	p.put("/producer/shop", "token", "shop-token")
	p.put("/group/shop-team")
	p.put("/channel/orders", "token", "c-token")
	require.Equal(p.t, 200, p.do("POST", "/channel/orders/resume", "").status)
	p.put("/channel/orders/consumer/billing", "token", "k-token", "type", "pull", "maxRetries", "0")
	as := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token",
		"shop-token", "X-Broker-Message-ID"}
	post := func(id string) {
		r := p.do("POST", "/channel/orders/broadcast", "{}", append(slices.Clone(as), id)...)
		require.Contains(p.t, []int{201, 409}, r.status, r.body)
	}
	require.Equal(p.t, 200, p.do("POST", "/channel/orders/consumer/billing/resume", "").status)
	post(fmt.Sprintf("dead-%d", time.Now().UnixNano())) // a new one, so the claim has something to get
	worker := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Consumer-Token", "k-token", "X-Broker-Worker",
		"w-1; version=2; slots=3; tasks=a,b"}
	eventually(p.t, "a dead letter", func() bool {
		r := p.do("POST", "/channel/orders/consumer/billing/claim?wait=5s", "", worker...)
		require.Equal(p.t, 200, r.status, r.body)
		all := r.json(p.t)["Result"].([]any)
		for _, one := range all {
			job := one.(map[string]any)
			body, err := json.Marshal(map[string]any{"Updates": []any{map[string]any{"ID": job["ID"], "Lease": job["Lease"],
				"NextState": "DEAD", "Reason": "cannot be done"}}})
			require.NoError(p.t, err)
			require.Equal(p.t, 200, p.do("POST", "/channel/orders/consumer/billing/jobs", string(body), worker...).status)
		}
		return len(all) > 0
	})
	post("invoice-7")
	as[len(as)-1] = "X-Broker-Delay" // invoice-9 is scheduled
	r := p.do("POST", "/channel/orders/broadcast", "{}", append(slices.Clone(as), "1h", "X-Broker-Message-ID",
		"invoice-9")...)
	require.Contains(p.t, []int{201, 409}, r.status, r.body)
}

// exampled puts what there is for the names of things in an example that only the broker gives.
func (p *process) exampled(line string) string {
	p.t.Helper()
	as := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token",
		"shop-token", "Content-Type", "application/x-ndjson", "X-Broker-Bulk-Rate", "1/1h"}
	if strings.Contains(line, "06gvk862do0000000000") {
		r := p.do("POST", "/channel/orders/bulk", strings.Repeat(`{"Payload":"x"}`+"\n", 9), as...)
		require.Equal(p.t, 202, r.status, r.body)
		line = strings.ReplaceAll(line, "06gvk862do0000000000", filepath.Base(r.header.Get("Location")))
	}
	const replays = "/channel/orders/consumer/billing/replay"
	if strings.Contains(line, "ctl replay") {
		for _, one := range p.do("GET", replays+"s", "").json(p.t)["Result"].([]any) {
			p.do("POST", replays+"/"+one.(map[string]any)["ID"].(string)+"/cancel", "")
		}
	}
	if strings.Contains(line, "orders/billing/7") {
		r := p.do("POST", replays, `{"From":"2026-01-31T15:04:05Z","Only":"dead","Rate":"1/1h"}`, "Content-Type",
			"application/json")
		require.Equal(p.t, 202, r.status, r.body)
		line = strings.ReplaceAll(line, "billing/7", "billing/"+r.json(p.t)["ID"].(string))
	}
	return strings.ReplaceAll(line, "http://127.0.0.1:8080", p.base)
}

// Every example in a help is true: it runs against a broker, and ends with 0.
func TestEveryExampleOfCtlRuns(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	w := newTerminal(t, p)
	w.write("message.json", `{"order":2}`)
	w.write("orders.ndjson", `{"Payload":"a"}`)
	w.write("people.csv", "Payload\nAnn\n")
	answers := newSink(t, func(int, received) int { return 200 })
	all := w.examples("broker ctl")
	require.Greater(t, len(all), 40)
	for _, line := range all {
		p.operated()
		switch {
		case strings.Contains(line, "channel rm"):
			require.Equal(t, 204, p.do("DELETE", "/channel/orders/consumer/billing", "").status)
		case strings.Contains(line, "--dead 0"):
			require.Equal(t, 204, p.do("DELETE", "/channel/orders/consumer/billing/dlq", "").status)
		case strings.Contains(line, "ctl request"):
			p.put("/channel/orders/consumer/answers", "callbackUrl", answers.URL, "responses", "store")
		}
		out := w.ok(p.exampled(line))
		if strings.Contains(line, "ctl request") {
			require.Equal(t, 204, p.do("DELETE", "/channel/orders/consumer/answers", "").status)
		}
		if strings.Contains(line, "--json") {
			for text := range strings.Lines(out) {
				require.True(t, json.Valid([]byte(text)), "%s: %s", line, text)
			}
		}
		require.NotContains(t, out, adminToken, line)
	}
}

// The commands of the page work as they stand there.
func TestTheCommandsOfThePageOfCtlWork(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	w := newTerminal(t, p)
	w.ok("broker ctl channel set orders && broker ctl consumer set orders/billing type=pull")
	text := strings.NewReplacer("https://broker.example", p.base, "pass show penstock", "echo "+adminToken).Replace(
		script.Commands(t, "docs/ctl.md"))
	out := w.ok("set -e -o pipefail\n" + text)
	require.Contains(t, out, "PENSTOCK OK - ")
	require.Contains(t, out, "takes the token")
	require.FileExists(t, filepath.Join(w.folder, "billing.json"))
	for _, line := range section(w.ok("broker ctl --help"), "Commands") {
		name, _, _ := strings.Cut(line, " ")
		require.Contains(t, fromRoot(t, "docs/ctl.md"), "`"+name, "the page lists the commands")
	}
}

// What a command does is what the API says afterwards.
func TestCtlChangesWhatItSays(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	billing := func() map[string]any { return p.do("GET", "/channel/orders/consumer/billing", "").json(t) }

	require.Equal(t, "the channel orders is made\n", w.ok("broker ctl channel set orders name='All of them'"))
	set := "broker ctl consumer set orders/billing "
	require.Equal(t, "the consumer orders/billing is made\n", w.ok(set+"type=pull maxRetries=3"))
	require.Equal(t, "the consumer orders/billing is changed\n", w.ok(set+"timeout=7s"))
	policy := billing()["Policy"].(map[string]any)
	require.Equal(t, "3", policy["MaxRetries"])
	require.Equal(t, "7s", policy["Timeout"])
	w.ok(set + "maxRetries=")
	shown := w.ok("broker ctl --json consumer show orders/billing")
	require.Contains(t, shown, `"Token":"`)
	w.ok("broker ctl consumer show orders/billing --json > saved.json")
	w.ok(set + "timeout=9s")
	w.ok("broker ctl consumer set orders/billing -f - < saved.json")
	require.Equal(t, "7s", billing()["Policy"].(map[string]any)["Timeout"], "what is shown can be set")

	people := w.ok("broker ctl consumer show orders/billing")
	require.NotContains(t, people, billing()["Token"])
	require.Contains(t, people, "Timeout = 7s")
	require.NotContains(t, people, "MaxRetries")

	publish := "broker ctl publish orders '{\"a\":1}' --id m-1 --header X-Kind=big --consumer billing"
	require.Equal(t, "m-1 is published\n", w.ok(publish))
	require.Contains(t, w.ok(publish), "stored already")
	m := p.do("GET", "/channel/orders/message/m-1", "").json(t)
	require.Equal(t, "application/json", m["ContentType"])
	require.Equal(t, "big", m["Headers"].(map[string]any)["X-Kind"])
	require.Contains(t, w.ok("broker ctl message m-1"), "QUEUED of billing, 0 attempts")

	w.ok("broker ctl consumer pause orders/billing")
	require.Equal(t, "PAUSED", billing()["State"])
	why := w.ok("broker ctl why orders/billing")
	require.Contains(t, why, "paused (billing) since ")
	require.Contains(t, w.ok("broker ctl why m-1"), "paused (billing)")
	job := m["Jobs"].([]any)[0].(map[string]any)["ID"].(string)
	require.Contains(t, w.ok("broker ctl why orders/billing/"+job), "paused (billing)")
	w.ok("broker ctl publish orders later --id m-2 --delay 1h")
	require.Contains(t, w.ok("broker ctl why m-2 --channel orders"), "scheduled")
	w.ok("broker ctl consumer resume orders/billing")
	require.Equal(t, "ACTIVE", billing()["State"])

	require.Equal(t, "1 jobs of orders/billing are ended\n", w.ok("broker ctl consumer purge orders/billing"))
	var letter map[string]any
	require.NoError(t, json.Unmarshal([]byte(w.ok("broker ctl dlq ls orders/billing --json")), &letter))
	require.Equal(t, job, letter["ID"])
	require.Equal(t, "1 dead letters of orders/billing are meant\n",
		w.ok("broker ctl dlq redrive orders/billing --dry-run --job "+job))
	w.ok("broker ctl dlq redrive orders/billing --job " + job)
	eventually(t, "the redriven job", func() bool {
		return strings.Contains(w.ok("broker ctl message m-1 --channel orders"), "QUEUED of billing")
	})
	w.ok("broker ctl channel pause orders")
	require.Equal(t, "PAUSED", p.do("GET", "/channel/orders", "").json(t)["State"])
	w.ok("broker ctl channel resume orders")
}

// Lists go on beyond a page, and a limit ends them.
func TestCtlListsAllThereIs(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.put("/channel/c")
	for i := range 120 {
		p.put("/producer/p-" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
	}
	require.Equal(t, 121, strings.Count(w.ok("broker ctl producer ls --limit 0"), "\n"), "a line of titles")
	require.Equal(t, 101, strings.Count(w.ok("broker ctl producer ls"), "\n"))
	require.Equal(t, 7, strings.Count(w.ok("broker ctl producer ls --limit 7 --json"), "\n"))
	require.Empty(t, w.ok("broker ctl consumer ls c --json"))
}

func TestCtlSaysByItsCodeWhatWentWrong(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	nobody := "http://" + freeAddr(t)
	for line, want := range map[string]said{
		"broker ctl chanel ls":                             {code: 1, stderr: "did you mean channel?"},
		"broker ctl consumer listen":                       {code: 1, stderr: `unknown command "listen"`},
		"broker ctl listen":                                {code: 1, stderr: "broker ctl --help lists the commands"},
		"broker ctl channel ls --colour":                   {code: 1, stderr: "unknown flag: --colour"},
		"broker ctl channel show":                          {code: 1, stderr: "an argument is missing"},
		"broker ctl channel show a b":                      {code: 1, stderr: `unexpected argument "b"`},
		"broker ctl consumer show orders":                  {code: 1, stderr: `"orders" is no CHANNEL/CONSUMER`},
		"broker ctl channel set c name":                    {code: 1, stderr: `"name" is no FIELD=VALUE of its own`},
		"broker ctl publish c":                             {code: 1, stderr: "the payload is missing"},
		"broker ctl publish c -f none":                     {code: 1, stderr: "open none"},
		"broker ctl channel ls --url nonsense":             {code: 1, stderr: "the URL of the broker must be like"},
		"broker ctl channel ls --profile none":             {code: 1, stderr: `there is no profile "none"`},
		"broker ctl channel show none":                     {code: 2, stderr: "(channel_not_found)"},
		"broker ctl channel set c nmae=x":                  {code: 2, stderr: "(unknown_field)"},
		"broker ctl publish none x":                        {code: 2, stderr: "(channel_not_found)"},
		"broker ctl why none":                              {code: 2, stderr: "(message_not_found)"},
		"broker ctl channel rm none":                       {code: 2, stderr: "BROKER_ALLOW_DELETE"},
		"broker ctl channel ls --url " + nobody:            {code: 3, stderr: "the broker cannot be reached"},
		"broker ctl check --url " + nobody:                 {code: 3},
		"broker ctl profile add 'a b' --url " + nobody:     {code: 1, stderr: "the name of a profile"},
		"broker ctl completion tcsh":                       {code: 1, stderr: `"tcsh" is none of bash, zsh, fish`},
		"broker ctl dlq redrive orders/k --from yesterday": {code: 1, stderr: `"yesterday" is no time`},
	} {
		got := w.run(line)
		require.Equal(t, want.code, got.code, "%s: %s%s", line, got.stdout, got.stderr)
		require.Contains(t, got.stderr, want.stderr, line)
		require.NotContains(t, got.stderr+got.stdout, adminToken, line)
		require.LessOrEqual(t, strings.Count(got.stderr, "\n"), 2, got.stderr)
	}
	require.Equal(t, 404, p.do("GET", "/channel/none", "").status, "a misspelt channel is not made")
	closed := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	refused := newTerminal(t, closed).run("broker ctl channel ls --token wrong")
	require.Equal(t, 2, refused.code, refused.stderr)
	require.Contains(t, refused.stderr, "(admin_token_mismatch)")
}

// The line and the code of check are those of monitoring systems.
func TestCtlCheckSpeaksToMonitoring(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	require.Regexp(t, `^PENSTOCK OK - 0 consumers, .* \| consumers=0 queued=0 inflight=0 dead=0 oldest=0s\n$`,
		w.ok("broker ctl check"))
	p.operated()
	require.Contains(t, w.ok("broker ctl check"), "1 dead letters")
	s := w.run("broker ctl check --dead 0")
	require.Equal(t, 1, s.code)
	require.Contains(t, s.stdout, "PENSTOCK WARNING - orders/billing has 1 dead letters | consumers=1 queued=1")
	p.put("/channel/orders/consumer/billing", "maxAge", "100ms")
	eventually(t, "an old job", func() bool {
		s = w.run("broker ctl check --json")
		return s.code == 2
	})
	var r struct {
		Status   string
		Findings []string
	}
	require.NoError(t, json.Unmarshal([]byte(s.stdout), &r))
	require.Equal(t, "CRITICAL", r.Status)
	require.Contains(t, r.Findings[0], "the oldest job of orders/billing waits for")
}

// A profile keeps no token, and a dangerous one asks before it destroys.
func TestProfilesOfCtlSayWhichBrokerIsMeant(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	w := newTerminal(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(w.folder, "token"), []byte(adminToken+"\n"), 0o600))
	require.Equal(t, 1, w.run("broker ctl profile add x --url "+p.base+" --token "+adminToken).code)
	w.ok("broker ctl profile add staging --url " + p.base + " --token-file token")
	w.ok("broker ctl profile add prod --url " + p.base + " --token-command 'cat " + w.folder + "/token' --danger")
	kept, err := os.ReadFile(filepath.Join(w.folder, "profiles.json"))
	require.NoError(t, err)
	require.NotContains(t, string(kept), adminToken)
	info, err := os.Stat(filepath.Join(w.folder, "profiles.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Regexp(t, `(?m)^staging +\S+ +file +yes$`, w.ok("broker ctl profile ls"), "the first one is in use")
	require.Contains(t, w.ok("broker ctl profile check"), "takes the token")
	require.Contains(t, w.ok("cd / && broker ctl profile check staging"), "takes the token", "from any folder")
	w.ok("broker ctl profile use prod")
	w.ok("broker ctl channel set c && broker ctl consumer set c/k type=pull")

	s := w.enter("c/other\n", "broker ctl consumer purge c/k")
	require.Equal(t, 1, s.code)
	require.Contains(t, s.stderr, "Type c/k to purge it: ")
	require.Contains(t, s.stderr, "nothing was done")
	require.Equal(t, 1, w.run("broker ctl consumer purge c/k --confirm c/K").code)
	require.Equal(t, 0, w.enter("c/k\n", "broker ctl consumer purge c/k").code)
	w.ok("broker ctl consumer purge c/k --confirm c/k")
	w.ok("broker ctl consumer purge c/k --profile staging")

	other := w.run("broker ctl channel ls", "PENSTOCK_URL="+p.base)
	require.Equal(t, 2, other.code, "the token of a profile goes to its own broker")
	other = w.run("broker ctl channel ls --url " + p.base)
	require.Equal(t, 2, other.code)
	w.ok("broker ctl profile add bare --url " + p.base)
	other = w.run("broker ctl channel ls --profile bare", "PENSTOCK_TOKEN="+adminToken)
	require.Equal(t, 2, other.code, "the token of the environment goes to no broker of a profile")
	require.Equal(t, 1, w.run("broker ctl channel ls --profile bare --url "+p.base).code)
	w.ok("broker ctl profile add broken --url " + p.base + " --token-command 'echo secret-word; exit 3'")
	s = w.run("broker ctl channel ls --profile broken")
	require.Equal(t, 1, s.code)
	require.NotContains(t, s.stderr, "secret-word")
}

// A shell completes commands, and names that the broker has.
func TestCtlCompletesNamesOfTheBroker(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.operated()
	p.put("/channel/others")
	completes := func(line string) (names []string) {
		t.Helper()
		s := w.run("broker __completeNoDesc " + line)
		require.Equal(t, 0, s.code, s.stderr)
		for name := range strings.Lines(s.stdout) {
			if name = strings.TrimSpace(name); !strings.HasPrefix(name, ":") {
				names = append(names, name)
			}
		}
		return names
	}
	require.Contains(t, completes("''"), "serve")
	require.Contains(t, completes("''"), "ctl")
	require.Contains(t, completes("ctl cons"), "consumer")
	for line, want := range map[string][]string{
		"ctl consumer pause o":       {"orders/", "others/"},
		"ctl consumer pause orders/": {"orders/billing"},
		"ctl channel show o":         {"orders", "others"},
		"ctl producer show sh":       {"shop"},
		"ctl why --channel ord":      {"orders"},
	} {
		eventually(t, line+": names that come in time", func() bool { return slices.Equal(want, completes(line)) })
	}
	require.Equal(t, []string{"bash", "zsh", "fish"}, completes("ctl completion ''"))
	require.Empty(t, completes("ctl --url http://"+freeAddr(t)+" consumer pause o"))
	eventually(t, "a name in bash", func() bool {
		return w.ok(`source <(broker ctl completion bash)
words=(broker ctl consumer pause orders/b); COMP_WORDS=("${words[@]}"); COMP_CWORD=4; COMP_LINE="${words[*]}"; COMP_POINT=${#COMP_LINE}
COMP_TYPE=9; _init_completion() { cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; }
__start_broker 2>/dev/null; printf '%s\n' "${COMPREPLY[@]}"`) == "orders/billing\n"
	})
}
