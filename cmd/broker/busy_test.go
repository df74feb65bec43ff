package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// busyRepeats is how often ask repeats one request. A broker that refuses for longer has a fault.
const busyRepeats = 20

// busy reports whether an answer says that the stores have no time now and that the request
// changed nothing. An unknown outcome, a pause and a stop are other answers.
func busy(status int, code string) bool {
	return status == http.StatusServiceUnavailable && (code == "overloaded" || code == "unavailable")
}

func (r reply) busy() bool {
	var p apitype.Problem
	return r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") != "" &&
		json.Unmarshal([]byte(r.body), &p) == nil && busy(r.status, p.Code)
}

// busyRaw is busy of an answer as bytes.
func busyRaw(answer string) bool {
	return strings.HasPrefix(answer, "HTTP/1.1 503 ") && strings.Contains(answer, "\r\nRetry-After: ") &&
		(strings.Contains(answer, `"code":"overloaded"`) || strings.Contains(answer, `"code":"unavailable"`))
}

// ask sends a request as a patient client does: what a busy broker refused with a promise that
// nothing has changed is sent again after a while. On a machine that has other work a broker may
// refuse any request. A test of refusals uses try, which sends once. Of a batch ask repeats the
// lines that were refused.
func (p *process) ask(method, path, body string, headers ...string) (reply, error) {
	return p.askWith(method, path, body, headerOf(headers))
}

// askWith is ask with a header as it is.
func (p *process) askWith(method, path, body string, header http.Header) (reply, error) {
	r, err := p.send(method, path, body, header)
	for range busyRepeats {
		if err != nil {
			return r, err
		}
		var again reply
		lines, answers, refused := refusedLines(r, body)
		switch {
		case r.busy(), len(refused) > 0 && len(refused) == len(answers):
			p.pauseBusy(r)
			r, err = p.send(method, path, body, header)
		case len(refused) > 0 && len(lines) == len(answers):
			p.pauseBusy(r)
			var rest []string
			for _, i := range refused {
				rest = append(rest, lines[i])
			}
			if again, err = p.send(method, path, strings.Join(rest, "\n"), header); err == nil {
				r = merged(r, answers, refused, again)
			}
		default:
			return r, nil
		}
	}
	return r, err
}

// certain sends a publish until its outcome is known, as a producer does that gave the message an ID:
// on a machine that has other work a commit may take longer than the broker waits for it. Without an
// ID nobody can tell, and the first answer stays.
func certain(t testing.TB, post func() reply, headers []string) reply {
	t.Helper()
	r := post()
	if headerOf(headers).Get("X-Broker-Message-ID") == "" {
		return r
	}
	for range busyRepeats {
		if r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, `"outcome_unknown"`) {
			break
		}
		t.Logf("an outcome is unknown; the request is repeated: %s", tail(r.body, 300))
		if r = post(); r.stored() {
			r.status = http.StatusCreated // by this request or the one before
		}
	}
	return r
}

// pauseBusy waits as long as the answers of a busy broker ask for.
func (p *process) pauseBusy(r reply) {
	p.t.Logf("%s is busy; the request is repeated: %s", p.base, tail(r.body, 300))
	time.Sleep(time.Second)
}

// refusedLines returns the lines of a batch, its answers, and which of them a busy broker refused.
func refusedLines(r reply, body string) (lines, answers []string, refused []int) {
	if r.status != http.StatusOK || r.header.Get("Content-Type") != apitype.MediaLines {
		return nil, nil, nil
	}
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	for line := range strings.Lines(r.body) {
		var l apitype.BatchResult
		if json.Unmarshal([]byte(line), &l) == nil && busy(l.Status, l.Code) {
			refused = append(refused, len(answers))
		}
		answers = append(answers, line)
	}
	return lines, answers, refused
}

// merged puts the answers to repeated lines where those to the refused ones were.
func merged(r reply, answers []string, refused []int, again reply) reply {
	i := 0
	for line := range strings.Lines(again.body) {
		if again.status != http.StatusOK || i == len(refused) {
			break
		}
		answers[refused[i]] = line
		i++
	}
	r.body = strings.Join(answers, "")
	return r
}

// A patient client repeats what a busy broker promises not to have done, and nothing else.
func TestBusyAnswersAreRepeatedByTheHarness(t *testing.T) {
	problem := func(code string) string { return `{"status":503,"code":"` + code + `"}` }
	for name, c := range map[string]struct {
		answers []string // problems, or lines
		bodies  []string // what was sent
		status  int
		body    string
	}{
		"overloaded": {[]string{problem("overloaded"), problem("unavailable"), "stored"}, []string{"a\n\nb", "a\n\nb",
			"a\n\nb"}, 200, "stored"},
		"outcome unknown": {[]string{problem("outcome_unknown")}, []string{"a\n\nb"}, 503, problem("outcome_unknown")},
		"paused":          {[]string{problem("channel_paused")}, []string{"a\n\nb"}, 503, problem("channel_paused")},
		"some lines": {[]string{`{"Status":503,"code":"overloaded"}` + "\n" + `{"Status":201}` + "\n",
			`{"Status":409}` + "\n"},
			[]string{"a\n\nb", "a"}, 200, `{"Status":409}` + "\n" + `{"Status":201}` + "\n"},
		"all lines": {[]string{strings.Repeat(`{"Status":503,"code":"unavailable"}`+"\n", 2), `{"Status":201}` + "\n" +
			`{"Status":400}` + "\n"},
			[]string{"a\n\nb", "a\n\nb"}, 200, `{"Status":201}` + "\n" + `{"Status":400}` + "\n"},
		"lines of unknown outcome": {[]string{`{"Status":503,"code":"outcome_unknown"}` + "\n"}, []string{"a\n\nb"}, 200,
			`{"Status":503,"code":"outcome_unknown"}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			var bodies []string
			base := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
				body, _ := io.ReadAll(r.Body)
				bodies = append(bodies, string(body))
				answer := c.answers[min(len(bodies), len(c.answers))-1]
				if strings.HasPrefix(answer, `{"status":503`) {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(503)
				} else {
					w.Header().Set("Content-Type", apitype.MediaLines)
				}
				_, _ = w.Write([]byte(answer))
			})
			p := &process{t: t, base: base}
			r := p.do("POST", "/channel/c/batch", "a\n\nb")
			require.Equal(t, c.status, r.status)
			require.Equal(t, c.body, r.body)
			require.Equal(t, c.bodies, bodies)
		})
	}
}

// An unknown outcome is asked for again under the same ID, and what cannot be known stays unknown.
func TestUnknownOutcomesAreAskedForAgainByTheHarness(t *testing.T) {
	unknown := reply{status: 503, body: `{"status":503,"code":"outcome_unknown"}`}
	for name, c := range map[string]struct {
		answers []reply
		headers []string
		status  int
		asked   int
	}{
		"stored meanwhile": {[]reply{unknown, {status: 409, body: `{"code":"duplicate_message_id"}`}},
			[]string{"X-Broker-Message-ID", "m"}, 201, 2},
		"stored now": {[]reply{unknown, unknown, {status: 201}}, []string{"X-Broker-Message-ID", "m"}, 201, 3},
		"another message": {[]reply{unknown, {status: 409, body: `{"code":"message_id_conflict"}`}},
			[]string{"X-Broker-Message-ID", "m"}, 409, 2},
		"a repeat at first": {[]reply{{status: 409, body: `{"code":"duplicate_message_id"}`}},
			[]string{"X-Broker-Message-ID", "m"}, 409, 1},
		"without an ID": {[]reply{unknown, {status: 201}}, nil, 503, 1},
		"another refusal": {[]reply{{status: 503, body: `{"code":"channel_paused"}`}}, []string{"X-Broker-Message-ID",
			"m"}, 503, 1},
		"unknown to the end": {[]reply{unknown}, []string{"X-Broker-Message-ID", "m"}, 503, 1 + busyRepeats},
	} {
		asked := 0
		r := certain(t, func() reply { asked++; return c.answers[min(asked, len(c.answers))-1] }, c.headers)
		require.Equal(t, c.status, r.status, name)
		require.Equal(t, c.asked, asked, name)
	}
}
