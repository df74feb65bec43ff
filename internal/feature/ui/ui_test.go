package ui

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// hostile is a text that a page must show and never obey.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>'{{.}}` + "\u202e\x00\xff</title></style>&amp;"

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// fill gives each text in a value the same content, each list two members, each number a value, each time one of
// the hour before now.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1_234_567)
	case reflect.Float64:
		v.SetFloat(12.5)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Type() != reflect.TypeFor[*apitype.WhyReason]() { // it contains itself
			fill(v.Elem(), text)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text)
		fill(value, text)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(now.Add(-time.Duration(30) * time.Minute)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	}
}

// A full source answers each question with everything, and each text the same.
type full struct{ text string }

func (f full) Overview(context.Context, Span) (o Overview) {
	fill(reflect.ValueOf(&o).Elem(), f.text)
	return o
}

func (full) Troubled() int { return 3 }

func (f full) Groups(string) ([]Group, string) {
	var g Group
	fill(reflect.ValueOf(&g).Elem(), f.text)
	return []Group{g, g}, f.text
}

func (f full) Group(string) (g Group, err error) {
	fill(reflect.ValueOf(&g).Elem(), f.text)
	return g, nil
}

func (f full) Consumer(context.Context, string, string, Span) (c Consumer, err error) {
	fill(reflect.ValueOf(&c).Elem(), f.text)
	c.Type = "pull"
	return c, nil
}

func (f full) Message(_ context.Context, _, _, _ string, responses bool) (m Message, err error) {
	fill(reflect.ValueOf(&m).Elem(), f.text)
	m.Coding, m.Job, m.Payload = "", nil, []byte(f.text)
	for i, code := range []string{"delivered", "dead"} {
		m.Why.Reasons[i].Code, m.Timeline.Result[i].Event = code, apitype.EventAttempt
	}
	return m, nil
}

func (f full) Job(ctx context.Context, _, _, _, _ string) (m Message, err error) {
	m, _ = f.Message(ctx, "", "", "", false)
	m.Job = &MessageJob{f.text, f.text}
	return m, nil
}

func (f full) Channels(context.Context, string, string) (list []Channel, next string) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	return list, f.text
}

func (f full) Channel(context.Context, string, Span) (c Channel, err error) {
	fill(reflect.ValueOf(&c).Elem(), f.text)
	return c, nil
}

func (f full) Scheduled(context.Context, string, string, string) (list []Scheduled, next, at string, err error) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	return list, f.text, f.text, nil
}

func (f full) Bulks(context.Context, string, string) (list []apitype.Bulk, next string, err error) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	return list, f.text, nil
}

func (f full) Replays(context.Context, string, string, string) (list []Replay, next string, err error) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	return list, f.text, nil
}

func (f full) ReplaysUnderWay() (list []Replay) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	return list
}

func (f full) Brokers() (list []Broker, a About) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	fill(reflect.ValueOf(&a).Elem(), f.text)
	return list, a
}

func (f full) Settings() (list []apitype.Setting) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	list[1].Secret = false
	return list
}

func (f full) Search(context.Context, string) (found Found) {
	fill(reflect.ValueOf(&found).Elem(), f.text)
	return found
}

func (f full) Consumers(string, string) (list []MessageJob) {
	fill(reflect.ValueOf(&list).Elem(), f.text)
	return list
}

func (f full) Jobs(context.Context, string, string, string, string, int) (j Jobs, err error) {
	fill(reflect.ValueOf(&j).Elem(), f.text)
	return j, nil
}

func (f full) Get(_ context.Context, _ string, _ map[string]string, _ url.Values, into any) error {
	fill(reflect.ValueOf(into).Elem(), f.text)
	return nil
}

func (full) Grant(context.Context, []byte) (Grant, error) {
	return Grant{}, problem.New(403, "api_token_mismatch", "No.")
}
func (full) Manage()                                              {}
func (full) GrantByID(string) (Grant, bool)                       { return Grant{}, false }
func (full) Act(string)                                           {}
func (full) Reveal(context.Context, string, string, string) error { return nil }
func (full) TokenOf(_, _ string, no uint32) (string, bool)        { return "t", no == 7 }

func (full) Load(context.Context, string, string) (Load, error) {
	return Load{State: "ACTIVE", Type: "push", Counted: true, Waiting: 3, Delayed: 2, Dead: 1}, nil
}

func (f full) Do(Request) (Answer, error) { return Answer{Status: 200, Body: []byte(`{}`)}, nil }

// An empty source knows nothing; a failing one answers errors.
type empty struct{ err error }

func (empty) Overview(context.Context, Span) Overview { return Overview{} }
func (empty) Troubled() int                           { return 0 }
func (empty) Groups(string) ([]Group, string)         { return nil, "" }
func (e empty) Group(string) (Group, error)           { return Group{}, e.err }
func (e empty) Consumer(context.Context, string, string, Span) (Consumer, error) {
	return Consumer{}, e.err
}

func (e empty) Message(context.Context, string, string, string, bool) (Message, error) {
	return Message{}, e.err
}

func (e empty) Job(context.Context, string, string, string, string) (Message, error) {
	return Message{}, e.err
}

func (empty) Channels(context.Context, string, string) ([]Channel, string) { return nil, "" }
func (e empty) Channel(context.Context, string, Span) (Channel, error)     { return Channel{}, e.err }
func (empty) ReplaysUnderWay() []Replay                                    { return nil }
func (empty) Brokers() ([]Broker, About)                                   { return nil, About{} }
func (empty) Settings() []apitype.Setting                                  { return nil }
func (empty) Search(context.Context, string) Found                         { return Found{} }
func (empty) Consumers(string, string) []MessageJob                        { return nil }
func (e empty) Jobs(context.Context, string, string, string, string, int) (Jobs, error) {
	return Jobs{}, e.err
}

func (e empty) Scheduled(context.Context, string, string, string) ([]Scheduled, string, string, error) {
	return nil, "", "", e.err
}

func (e empty) Bulks(context.Context, string, string) ([]apitype.Bulk, string, error) {
	return nil, "", e.err
}
func (e empty) Replays(context.Context, string, string, string) ([]Replay, string, error) {
	return nil, "", e.err
}

func (e empty) Get(_ context.Context, _ string, _ map[string]string, _ url.Values, into any) error {
	if e.err != nil {
		return e.err
	}
	return json.Unmarshal([]byte("{}"), into)
}

func (empty) Grant(context.Context, []byte) (Grant, error) {
	return Grant{}, problem.New(403, "api_token_mismatch", "No.")
}
func (empty) Manage()                                                {}
func (empty) GrantByID(string) (Grant, bool)                         { return Grant{}, false }
func (empty) Act(string)                                             {}
func (e empty) Reveal(context.Context, string, string, string) error { return nil }
func (empty) TokenOf(string, string, uint32) (string, bool)          { return "", false }
func (e empty) Load(context.Context, string, string) (Load, error)   { return Load{}, e.err }
func (e empty) Do(Request) (Answer, error)                           { return Answer{Body: []byte("{}")}, e.err }

func newDashboard() *Dashboard {
	return New(Options{AdminToken: "token", Key: []byte("key"), Version: hostile, Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

// visit asks for a page.
func visit(d *Dashboard, page string, from Source) *fasthttp.RequestCtx {
	var rq fasthttp.Request
	rq.SetRequestURI(page + "?sort=dead&channel=c&first=f&q=" + url.QueryEscape(hostile))
	rc := &fasthttp.RequestCtx{}
	rc.Init(&rq, nil, nil)
	for _, name := range []string{"channel", "consumer", "message", "job"} {
		rc.SetUserValue(name, "id")
	}
	d.Serve(context.Background(), rc, Visit{Page: page, Open: true, Source: from})
	return rc
}

// unscripted is a page without the one script that it has.
func unscripted(rc *fasthttp.RequestCtx) string {
	script := regexp.MustCompile(`<script src="/ui/script.js" nonce="[0-9a-f]{32}"></script>`)
	body := string(rc.Response.Body())
	if at := script.FindStringIndex(body); at != nil {
		return body[:at[0]] + body[at[1]:]
	}
	return body
}

func TestPagesShowHostileTextsAsText(t *testing.T) {
	d := newDashboard()
	for path := range d.pages {
		for _, text := range []string{hostile, strings.Repeat(hostile, 30), "", "a"} {
			rc := visit(d, path, full{text})
			body := unscripted(rc)
			require.Equal(t, 200, rc.Response.StatusCode(), path)
			for _, tag := range []string{"<script", "<img", "</style", "<title></title>", "onerror=alert(1)>'"} {
				require.NotContains(t, body, tag, path)
			}
			require.Equal(t, 1, strings.Count(body, "<h1"), path)
			require.Equal(t, 1, strings.Count(body, "</title>"), path)
			require.Less(t, len(body), mostPage, path)
			for _, wrong := range []string{"ZgotmplZ", "%!", "<no value>", "NaN"} {
				require.NotContains(t, body, wrong, path)
			}
		}
	}
}

func TestPagesOfNothingSaySo(t *testing.T) {
	d := newDashboard()
	for path := range d.pages {
		rc := visit(d, path, empty{})
		require.Equal(t, 200, rc.Response.StatusCode(), "%s: %s", path, rc.Response.Body())
		require.Contains(t, string(rc.Response.Body()), "<h1>", path)
	}
}

func TestAPageSaysWhyThereIsNone(t *testing.T) {
	d := newDashboard()
	for path := range d.pages {
		switch path {
		case "/ui/", "/ui/channels", "/ui/brokers", "/ui/bench", "/ui/replays", "/ui/redrives", "/ui/search",
			"/ui/publish", "/ui/groups":
			continue // they show what the broker knows
		}
		rc := visit(d, path, empty{problem.New(404, "none_such", hostile)})
		require.Equal(t, 404, rc.Response.StatusCode(), path)
		require.Contains(t, string(rc.Response.Body()), "none_such")
		require.NotContains(t, unscripted(rc), "<script")
		rc = visit(d, path, empty{context.DeadlineExceeded})
		require.Equal(t, 503, rc.Response.StatusCode(), path)
	}
}

func TestATooLongPageIsRefused(t *testing.T) {
	d := newDashboard()
	rc := &fasthttp.RequestCtx{}
	d.render(rc, 200, "refused", frame{Title: strings.Repeat("x", mostPage)})
	require.Equal(t, 500, rc.Response.StatusCode())
	require.Less(t, len(rc.Response.Body()), 10_000)
}

func TestStandingsAreOrderedByNeed(t *testing.T) {
	for _, c := range []struct {
		s    Standing
		want Need
	}{
		{Standing{}, Fine}, {Standing{Dead: 1}, Letters}, {Standing{Oldest: now.Add(-59 * time.Second)}, Fine},
		{Standing{Oldest: now.Add(-61 * time.Second), Dead: 1}, Late}, {Standing{Stopped: true, Dead: 1}, Stopped},
		{Standing{Oldest: now.Add(-time.Hour), MaxAge: 2 * time.Hour}, Fine},
		{Standing{Oldest: now.Add(-3 * time.Second), MaxAge: 2 * time.Second}, Late},
	} {
		require.Equal(t, c.want, c.s.Need(now), "%+v", c.s)
	}
}

func TestAConsumerIsDescribedByItsReason(t *testing.T) {
	at := func(ago time.Duration) *apitype.Time { return &apitype.Time{Time: now.Add(-ago)} }
	n := func(n int) *int { return &n }
	for _, c := range []struct {
		c           apitype.Consumer
		class, word string
	}{
		{apitype.Consumer{Type: "push", Queued: n(0)}, "", "Nothing waits"},
		{apitype.Consumer{Type: "push", Queued: n(3), OldestQueuedAt: at(time.Second)}, "", "Working"},
		{apitype.Consumer{Type: "push"}, "off", "Redis does not say what waits"},
		{apitype.Consumer{Type: "push", Queued: n(0), DeadLetters: n(1)}, "warn", "1 dead letter"},
		{apitype.Consumer{State: "GONE"}, "bad", "It answered 410, and gets nothing until it is resumed"},
		{apitype.Consumer{State: "DEAD", HeldBy: "probing"}, "warn", "It was revived, and one probe decides"},
		{apitype.Consumer{State: "PAUSED", StateChangedAt: *at(time.Hour)}, "off", "It is paused since 11:00:00"},
		{apitype.Consumer{State: "PAUSED", StateChangedAt: *at(24 * time.Hour), OldestQueuedAt: at(time.Hour)}, "warn",
			"It is paused since 2026-11-25 12:00:00"},
		{apitype.Consumer{HeldUntil: at(-time.Minute)}, "off", "It asked for no jobs until 12:01:00"},
		{apitype.Consumer{Type: "push", LastError: "e", LastStatus: 503, LastAttemptAt: at(time.Second)}, "warn",
			"The endpoint answers 503"},
		{apitype.Consumer{Type: "push", LastError: "e", LastAttemptAt: at(time.Second), LastSuccessAt: at(time.Hour),
			OldestQueuedAt: at(time.Hour)}, "bad", "The last attempt failed"},
		{apitype.Consumer{Type: "push", LastError: "e", LastAttemptAt: at(time.Hour), LastSuccessAt: at(time.Second),
			Queued: n(0)}, "", "Nothing waits"},
		{apitype.Consumer{Type: "pull", OldestQueuedAt: at(time.Hour)}, "warn", "No worker has claimed"},
		{apitype.Consumer{Type: "pull", OldestQueuedAt: at(time.Hour), LastClaimAt: at(6 * time.Minute)}, "warn",
			"No worker has claimed for 6 min"},
		{apitype.Consumer{Type: "pull", OldestQueuedAt: at(3 * time.Hour), LastClaimAt: at(time.Second)}, "warn",
			"Its oldest job has waited for 3 h"},
	} {
		m := markOf(&apitype.ListedConsumer{Consumer: c.c}, now)
		require.Equal(t, c.class+" "+c.word, m.Class+" "+m.Word, "%+v", c.c)
	}
}

func TestNumbersAndAgesAreWrittenForPeople(t *testing.T) {
	for want, n := range map[string]any{"0": 0, "999": 999, "1\u202f842": 1842, "-1\u202f234\u202f567": -1234567,
		"–": (*int)(nil), "0.25": 0.25, "3.1": 3.14, "13": 12.7, "1\u202f842 ": 1842.4, "0 ": 0.0, "7 ": int64(7)} {
		require.Equal(t, strings.TrimSuffix(want, " "), number(n))
	}
	for want, d := range map[string]time.Duration{"less than 1 s": time.Millisecond, "119 s": 119 * time.Second,
		"2 min": 2 * time.Minute, "2 h": 2*time.Hour + time.Minute, "47 h": 47 * time.Hour, "2 d": 49 * time.Hour} {
		require.Equal(t, want, age(d))
	}
	require.Equal(t, "é…", cut("éé", 3))
	require.Equal(t, "éé", cut("éé", 4))
	require.Equal(t, "12345678901234…ABCDEFGHIJ", short("12345678901234567890123456789ABCDEFGHIJ"))
}

func TestTheAnswersToPublishesAreShares(t *testing.T) {
	for want, of := range map[string][3]float64{"– none lately": {}, "100 % 201 · 0 % 202 · 0 % 503": {3, 0, 0},
		"99.5 % 201 · 0.25 % 202 · 0.25 % 503": {398, 1, 1}, "0 % 201 · 0 % 202 · 100 % 503": {0, 0, 0.2},
		"100 % 201 · 0 % 202 · under 0.01 % 503": {1e6, 0, 1}} {
		got := answers(of)
		require.Equal(t, want, got.Value+" "+got.Small)
	}
}

func TestALineIsInsideItsChart(t *testing.T) {
	require.Equal(t, "", path(nil, 1, 10, 10))
	require.Equal(t, "M0.0 9.0L10.0 9.0", path([]float64{0}, 0, 10, 10))
	require.Equal(t, "M0.0 9.0L5.0 2.0L10.0 5.5", path([]float64{0, 4, 2}, 4, 10, 10))
	require.False(t, math.IsNaN(highest()))
}

func TestASessionEnds(t *testing.T) {
	d := newDashboard()
	for ends, want := range map[time.Duration]bool{time.Minute: true, -time.Minute: false} {
		rc := &fasthttp.RequestCtx{}
		rc.Request.Header.SetCookie(cookieName, d.newSession(time.Now().Add(ends)))
		require.Equal(t, want, d.admits(rc))
	}
}
