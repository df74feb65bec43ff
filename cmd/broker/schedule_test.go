package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

func TestScheduledMessages(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for name, story := range map[string]func(*testing.T, *process){
			"a message at its time":         scheduledOnce,
			"a message that is deleted":     scheduledCancelled,
			"times that cannot be":          badSchedules,
			"repeats":                       scheduledRepeats,
			"repeats after its time":        scheduledRepeatsAfterItsTime,
			"a finite recurrence":           recurring,
			"a recurrence that is deleted":  recurringCancelled,
			"lines of a batch":              scheduledLines,
			"a list and its filter":         scheduledList,
			"all that a message has":        scheduledFields,
			"a channel that is paused":      scheduledInPause,
			"an ID per producer and others": scheduledScoped,
			"a delay":                       delayedOnce,
			"delays that cannot be":         badDelays,
			"repeats of a delay":            delayRepeats,
			"delays of a batch":             delayedLines,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// lead is how far ahead tests schedule what they do something with before: the machine is busy. No
// test says how late a message may be: docs/benchmarks.md does.
const lead = 8 * time.Second

func in(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339Nano) }

func (s *stage) later(at, body string, headers ...string) (location string) {
	s.t.Helper()
	r := s.post(body, append([]string{"X-Broker-Scheduled-For", at}, headers...)...)
	require.Equal(s.t, 201, r.status, r.body)
	require.Contains(s.t, r.header.Get("Location"), s.path("/scheduled-message/"))
	return r.header.Get("Location")
}

func (s *stage) scheduled(location string) (m apitype.ScheduledMessage) {
	s.t.Helper()
	r := s.do("GET", location, "")
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &m))
	return m
}

func (s *stage) counts() (c apitype.MessageCounts) {
	s.t.Helper()
	r := s.do("GET", s.path("/messages-status"), "")
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &c))
	return c
}

func scheduledOnce(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	due := time.Now().Add(lead)
	at := s.later(due.In(time.FixedZone("", 3*3600)).Format(time.RFC3339Nano), "one", "X-Broker-Message-ID", "a",
		"Content-Type", "text/plain", "X-Broker-Message-Priority", "7")
	require.Equal(t, s.path("/scheduled-message/a"), at)
	m := s.scheduled(at)
	require.Equal(t, "a", m.MessageID)
	require.Equal(t, "SCHEDULED", m.Status)
	require.Equal(t, "one", m.Payload)
	require.Equal(t, 7, m.Priority)
	require.Nil(t, m.DispatchedAt)
	require.WithinDuration(t, due, m.DispatchSchedule.Time, 2*time.Millisecond)
	require.Equal(t, 404, s.do("GET", s.path("/message/a"), "").status, "there is no message yet")
	require.Equal(t, 409, s.post("one", "X-Broker-Message-ID", "a").status, "its ID is taken")
	c := s.counts()
	require.Equal(t, 1, c.Counts.ScheduledWaiting.Count)
	require.NotNil(t, c.Next)
	requireOnce(t, sink, "one")
	got := sink.all()[0]
	require.False(t, got.at.Before(due), "never before its time")
	require.Equal(t, "a", got.header.Get("X-Broker-Message-Id"))
	require.Equal(t, "7", got.header.Get("X-Broker-Message-Priority"))
	m = s.scheduled(at)
	require.Equal(t, "DISPATCHED", m.Status)
	require.NotNil(t, m.DispatchedAt)
	require.Equal(t, "a", s.message(m.MessageURL).ID)
	require.Equal(t, "one", s.message(s.path("/message/a")).Payload)
	requireProblem(t, s.do("DELETE", at, ""), 409, "already_dispatched")
	require.Equal(t, 409, s.post("one", "X-Broker-Message-ID", "a").status)
	c = s.counts()
	require.Equal(t, [3]int{1, 0, 1}, [3]int{c.Counts.Dispatched.Count, c.Counts.ScheduledWaiting.Count,
		c.Counts.ScheduledDispatched.Count})
	require.Nil(t, c.Next)
}

func scheduledCancelled(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	for _, id := range []string{"a", ""} {
		at := s.later(in(lead), "one", "X-Broker-Message-ID", id)
		r := s.do("DELETE", at, "")
		require.Equal(t, 204, r.status, r.body)
		require.Equal(t, 404, s.do("GET", at, "").status)
		requireProblem(t, s.do("DELETE", at, ""), 404, "scheduled_message_not_found")
	}
	require.Equal(t, 201, s.post("two", "X-Broker-Message-ID", "a").status, "the ID is free again")
	time.Sleep(lead + 1500*time.Millisecond) // past the times of what was cancelled
	requireOnce(t, sink, "two")
}

func badSchedules(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for _, c := range []struct {
		status int
		code   string
		header [2]string
	}{
		{400, "invalid_schedule", [2]string{"X-Broker-Scheduled-For", "tomorrow"}},
		{400, "invalid_schedule", [2]string{"X-Broker-Scheduled-For", "2026-12-01T00:00:00"}},
		{400, "invalid_schedule", [2]string{"X-Broker-Scheduled-For", "2030-12-01T00:00:00,5Z"}},
		{400, "invalid_schedule", [2]string{"X-Broker-Scheduled-For", "2030-12-01T00:00:00+24:00"}},
		{400, "invalid_schedule", [2]string{"X-Broker-Scheduled-For", "2099-12-01T00:00:00Z"}},
		{412, "schedule_too_soon", [2]string{"X-Broker-Scheduled-For", "2001-12-01T00:00:00Z"}},
		{412, "schedule_too_soon", [2]string{"X-Broker-Scheduled-For", in(-time.Second)}},
		{412, "schedule_too_soon", [2]string{"X-Broker-Recurrence", "R3/2001-12-01T00:00:00Z/PT1H"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "R3/2099-12-01/PT1H"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "R0/" + in(time.Hour) + "/PT1H"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "R3/" + in(time.Hour) + "/PT0.5S"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "R3/" + in(time.Hour) + "/P"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "R3/" + in(time.Hour) + "/-PT1H"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "cron:* * * *"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "cron:TZ=Europe/Berlim * * * * *"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "cron:TZ=Local * * * * *"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "cron:TZ=../../etc/localtime * * * * *"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "cron:0 0 30 2 *"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "cron:61 * * * *"}},
		{400, "invalid_recurrence", [2]string{"X-Broker-Recurrence", "daily"}},
	} {
		r := s.post("x", c.header[0], c.header[1])
		requireProblem(t, r, c.status, c.code)
		require.Contains(t, r.body, "nothing was stored")
	}
	require.Equal(t, 0, s.counts().Counts.ScheduledWaiting.Count)
	requireProblem(t, s.do("GET", s.path("/scheduled-messages?status=7"), ""), 400, "invalid_status")
	requireProblem(t, s.do("GET", s.path("/scheduled-message/nothing"), ""), 404, "scheduled_message_not_found")
}

func scheduledRepeats(t *testing.T, p *process) {
	s := p.stage(t, "k")
	when := in(time.Hour)
	at := s.later(when, "one", "X-Broker-Message-ID", "a")
	r := s.post("one", "X-Broker-Scheduled-For", when, "X-Broker-Message-ID", "a")
	requireProblem(t, r, 409, "duplicate_message_id")
	require.Equal(t, at, r.header.Get("Location"))
	requireProblem(t, s.post("two", "X-Broker-Scheduled-For", when, "X-Broker-Message-ID", "a"), 409,
		"message_id_conflict")
	requireProblem(t, s.post("one", "X-Broker-Scheduled-For", in(2*time.Hour), "X-Broker-Message-ID", "a"), 409,
		"message_id_conflict")
	requireProblem(t, s.post("one", "X-Broker-Message-ID", "a"), 409, "message_id_conflict")
	s.put(s.path(), "duplicates", "acknowledge")
	r = s.post("one", "X-Broker-Scheduled-For", when, "X-Broker-Message-ID", "a")
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, at, r.header.Get("Location"))

	at = s.later(when, "one", "Idempotency-Key", `"x"`)
	r = s.post("one", "X-Broker-Scheduled-For", when, "Idempotency-Key", `"x"`)
	require.Equal(t, 201, r.status, r.body)
	require.Equal(t, at, r.header.Get("Location"))
	require.Equal(t, "true", r.header.Get(replayed))
	requireProblem(t, s.post("one", "X-Broker-Scheduled-For", in(2*time.Hour), "Idempotency-Key", `"x"`), 422,
		"idempotency_key_reused")
	requireProblem(t, s.post("one", "Idempotency-Key", `"x"`), 422, "idempotency_key_reused")
	require.Equal(t, 2, s.counts().Counts.ScheduledWaiting.Count)

	s.publish("plain", "X-Broker-Message-ID", "b")
	requireProblem(t, s.post("plain", "X-Broker-Scheduled-For", when, "X-Broker-Message-ID", "b"), 409,
		"message_id_conflict")
}

// A request whose answer was lost is repeated when its time has passed. It is told of its message, and not
// that nothing was stored.
func scheduledRepeatsAfterItsTime(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	when := in(lead)
	ids := s.later(when, "by ID", "X-Broker-Message-ID", "a")
	key := s.later(when, "by key", "Idempotency-Key", `"x"`)
	start := "R1/" + when + "/PT1H"
	r := s.post("again", "X-Broker-Recurrence", start, "X-Broker-Message-ID", "r")
	require.Equal(t, 201, r.status, r.body)
	recurs := r.header.Get("Location")
	eventually(t, "the messages", func() bool { return sink.distinct() == 3 })
	for range 2 {
		r := s.post("by ID", "X-Broker-Scheduled-For", when, "X-Broker-Message-ID", "a")
		requireProblem(t, r, 409, "duplicate_message_id")
		require.Equal(t, ids, r.header.Get("Location"))
		r = s.post("by key", "X-Broker-Scheduled-For", when, "Idempotency-Key", `"x"`)
		require.Equal(t, 201, r.status, r.body)
		require.Equal(t, key, r.header.Get("Location"))
		require.Equal(t, "true", r.header.Get(replayed))
		r = s.post("again", "X-Broker-Recurrence", start, "X-Broker-Message-ID", "r")
		requireProblem(t, r, 409, "duplicate_message_id")
		require.Equal(t, recurs, r.header.Get("Location"))
	}
	line := func(id string) string {
		return fmt.Sprintf(`{"Payload":"by ID","MessageID":%q,"ScheduledFor":%q}`, id, when)
	}
	lines := s.lines(line("a"), line("b"))
	require.Equal(t, [2]int{409, 412}, [2]int{lines[0].Status, lines[1].Status})
	requireProblem(t, s.post("other", "X-Broker-Scheduled-For", when, "X-Broker-Message-ID", "a"), 409,
		"message_id_conflict")
	requireProblem(t, s.post("other", "X-Broker-Scheduled-For", when, "Idempotency-Key", `"x"`), 422,
		"idempotency_key_reused")
	requireProblem(t, s.post("new", "X-Broker-Scheduled-For", when, "X-Broker-Message-ID", "b"), 412,
		"schedule_too_soon")
	requireProblem(t, s.post("new", "X-Broker-Scheduled-For", when, "Idempotency-Key", `"y"`), 412,
		"schedule_too_soon")
	require.Equal(t, 201, s.post("new", "X-Broker-Message-ID", "b").status, "the refused one took no ID")
	require.Equal(t, 201, s.post("new", "Idempotency-Key", `"y"`).status)
}

func recurring(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	start := time.Now().Add(time.Second)
	text := "R3/" + start.Format(time.RFC3339Nano) + "/PT1S"
	r := s.post("tick", "X-Broker-Recurrence", text, "X-Broker-Message-ID", "a")
	require.Equal(t, 201, r.status, r.body)
	at := r.header.Get("Location")
	require.Equal(t, text, s.scheduled(at).Recurrence)
	require.Equal(t, 1, s.scheduled(at).Occurrence)
	s.publish("rival", "X-Broker-Message-ID", "a.2")
	eventually(t, "the three messages", func() bool { return sink.times("tick") == 3 })
	time.Sleep(1200 * time.Millisecond)
	require.Equal(t, 3, sink.times("tick"))
	ids := map[string]bool{}
	n := 0
	for _, got := range sink.all() {
		ids[got.header.Get("X-Broker-Message-Id")] = true
		if got.body == "tick" {
			due := start.Add(time.Duration(n) * time.Second)
			require.False(t, got.at.Before(due))
			n++
		}
	}
	require.Len(t, ids, 4)
	require.True(t, ids["a.1"] && ids["a.2"] && ids["a.3"], "%v", ids)
	m := s.scheduled(at)
	require.Equal(t, "DISPATCHED", m.Status)
	requireProblem(t, s.do("DELETE", at, ""), 409, "already_dispatched")
}

func recurringCancelled(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	r := s.post("tick", "X-Broker-Recurrence", "R/"+in(lead)+"/PT1S")
	require.Equal(t, 201, r.status, r.body)
	eventually(t, "two messages", func() bool { return sink.times("tick") == 2 })
	require.Equal(t, 204, s.do("DELETE", r.header.Get("Location"), "").status)
	n := sink.count()
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, n, sink.count())
	r = s.post("tock", "X-Broker-Recurrence", "cron:*/5 * * * *", "X-Broker-Scheduled-For", "2027-01-01T00:01:00Z")
	require.Equal(t, 201, r.status, r.body)
	m := s.scheduled(r.header.Get("Location"))
	require.Equal(t, "2027-01-01T00:05:00Z", m.DispatchSchedule.UTC().Format(time.RFC3339))
	require.Equal(t, 204, s.do("DELETE", r.header.Get("Location"), "").status)
	zoned := "cron:TZ=Europe/Warsaw 30 2 * * *"
	r = s.post("tock", "X-Broker-Recurrence", zoned, "X-Broker-Scheduled-For", "2027-03-28T00:00:00Z")
	require.Equal(t, 201, r.status, r.body)
	m = s.scheduled(r.header.Get("Location"))
	require.Equal(t, "2027-03-28T01:00:00Z", m.DispatchSchedule.UTC().Format(time.RFC3339),
		"02:30 does not exist on that day")
	require.Equal(t, zoned, m.Recurrence)
	require.Contains(t, s.post("x", "X-Broker-Recurrence", "cron:TZ=Europe/Berlim * * * * *").body, "Europe/Berlim")
}

func scheduledLines(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	when := in(lead)
	got := s.lines(
		`{"Payload":"now"}`,
		`{"Payload":"a","MessageID":"a","ScheduledFor":"`+when+`"}`,
		`{"Payload":"b","ScheduledFor":"`+when+`","Headers":{"X-Tenant":"T"},"Priority":3}`,
		`{"Payload":"c","ScheduledFor":"2001-01-01T00:00:00Z"}`,
		`{"Payload":"d","ScheduledFor":"soon"}`,
		`{"Payload":"a","MessageID":"a","ScheduledFor":"`+when+`"}`,
		`{"Payload":"e","Recurrence":"R2/`+in(lead)+`/PT1S"}`,
		`{"Payload":"f","Recurrence":"never"}`,
	)
	want := []int{201, 201, 201, 412, 400, 409, 201, 400}
	for i, l := range got {
		require.Equal(t, want[i], l.Status, "%d: %+v", i, l)
	}
	require.Equal(t, s.path("/scheduled-message/a"), got[1].Location)
	require.Contains(t, got[2].Location, "/scheduled-message/"+got[2].MessageID)
	require.Equal(t, "T", s.scheduled(got[2].Location).Headers["X-Tenant"])
	require.Equal(t, 409, s.lines(`{"Payload":"later","MessageID":"a"}`)[0].Status)
	requireOnce(t, sink, "now", "a", "b", "e", "e")
	r := s.do("POST", s.path("/batch"), `{"Payload":"x"}`+"\n"+`{"Payload":"y","ScheduledFor":"`+in(2*time.Hour)+`"}`+"\n",
		append([]string{"Content-Type", "application/x-ndjson", "X-Broker-Scheduled-For", in(time.Hour)},
			producerTokens...)...)
	require.Equal(t, 2, strings.Count(r.body, "/scheduled-message/"), r.body)
}

func scheduledList(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for i := range 5 {
		s.later(in(time.Duration(5-i)*time.Hour), "x", "X-Broker-Message-ID", fmt.Sprint("m", i))
	}
	s.later(in(lead), "now", "X-Broker-Message-ID", "sent")
	eventually(t, "the first to be sent", func() bool { return s.counts().Counts.ScheduledDispatched.Count == 1 })
	list := func(query string) (all []string) {
		for query != "" {
			r := s.do("GET", query, "")
			require.Equal(t, 200, r.status, r.body)
			var page apitype.ScheduledList
			require.NoError(t, json.Unmarshal([]byte(r.body), &page))
			for _, link := range page.Result {
				all = append(all, strings.TrimPrefix(link, s.path("/scheduled-message/")))
			}
			query = page.Pages.Next
		}
		return all
	}
	at := s.path("/scheduled-messages")
	require.Equal(t, []string{"sent", "m4", "m3", "m2", "m1", "m0"}, list(at))
	require.Equal(t, []string{"sent", "m4", "m3", "m2", "m1", "m0"}, list(at+"?size=2"))
	require.Equal(t, []string{"m4", "m3", "m2", "m1", "m0"}, list(at+"?size=2&status=101"))
	require.Equal(t, []string{"sent"}, list(at+"?status=102"))
	require.Equal(t, []string{"sent"}, list(at+"?status=DISPATCHED"))
	requireProblem(t, s.do("GET", at+"?first=none", ""), 400, "unknown_first")
}

func scheduledFields(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	body := "\x00\xff bytes"
	at := s.later(in(lead), body, "Content-Type", "image/x", "X-Tenant", "T", "X-Broker-Metadata-Headers", "X-Tenant",
		"X-Broker-Ordering-Key", "o", "X-Broker-Message-TTL", "60s", "X-Broker-Message-Priority", "9")
	m := s.scheduled(at)
	require.Equal(t, "base64", m.PayloadEncoding)
	requireOnce(t, sink, body)
	got := sink.all()[0].header
	require.Equal(t, "T", got.Get("X-Tenant"))
	require.Equal(t, "image/x", got.Get("Content-Type"))
	require.Equal(t, "9", got.Get("X-Broker-Message-Priority"))
}

// A producer sees and deletes its own scheduled messages only.
func TestScheduledMessagesBelongToTheirProducer(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with("BROKER_OPEN_MANAGEMENT=false").start()
	admin := []string{"X-Broker-Admin-Token", adminToken}
	p.do("PUT", "/channel/c", "token=c-token", append(admin, "Content-Type", formType)...)
	s := &stage{process: p, channel: "c"}
	tokens := func(id string) []string {
		p.do("PUT", "/producer/"+id, "token="+id, append(admin, "Content-Type", formType)...)
		return []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", id, "X-Broker-Producer-Token", id}
	}
	one, two := tokens("one"), tokens("two")
	r := s.do("POST", s.path("/broadcast"), "x", append([]string{"X-Broker-Scheduled-For", in(time.Hour)}, one...)...)
	require.Equal(t, 201, r.status, r.body)
	at := r.header.Get("Location")
	require.Equal(t, 200, s.do("GET", at, "", one...).status)
	require.Equal(t, 404, s.do("GET", at, "", two...).status)
	require.Equal(t, 404, s.do("DELETE", at, "", two...).status)
	require.Equal(t, 404, s.do("PUT", at, "x", two...).status)
	require.Equal(t, 401, s.do("PUT", at, "x").status)
	require.Equal(t, 200, s.do("PUT", at, "x", one...).status)
	require.Equal(t, 401, s.do("GET", at, "").status)
	require.Equal(t, 401, s.do("GET", s.path("/scheduled-messages"), "").status)
	require.Equal(t, 404, s.do("GET", "/channel/none/scheduled-messages", "", "X-Broker-Admin-Token", adminToken).status)
	r = s.do("DELETE", at, "", one...)
	require.Equal(t, 204, r.status, r.body)
}

func scheduledScoped(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path(), "identity", "producer")
	one, two := s.as("ss-one"), s.as("ss-two")
	for i, tokens := range [][]string{one, two} {
		r := s.do("POST", s.path("/broadcast"), fmt.Sprint(i), append([]string{"X-Broker-Scheduled-For", in(lead),
			"X-Broker-Message-ID", "x"}, tokens...)...)
		require.Equal(t, 201, r.status, r.body)
		m := s.scheduled(r.header.Get("Location"))
		require.Equal(t, "x", m.MessageID)
		require.Equal(t, fmt.Sprint(i), m.Payload)
	}
	requireOnce(t, sink, "0", "1")
	require.NotEqual(t, sink.all()[0].header.Get("X-Broker-Message-ID"), sink.all()[1].header.Get("X-Broker-Message-ID"))
}

func scheduledInPause(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	other := p.stage(t, "k="+sink.URL)
	s.later(in(lead), "waits")
	require.Equal(t, 200, s.do("POST", s.path("/pause"), "").status)
	require.Equal(t, 503, s.post("x", "X-Broker-Scheduled-For", in(time.Hour)).status)
	due := time.Now().Add(lead)
	other.later(due.Format(time.RFC3339Nano), "goes")
	requireOnce(t, sink, "goes")
	require.Equal(t, 200, s.do("POST", s.path("/resume"), "").status)
	requireOnce(t, sink, "goes", "waits")
}

// Ten thousand messages of one second are sent, each once.
func TestScheduledMessagesOfOneSecond(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for ahead := 20 * time.Second; !scheduledCrowd(t, p, ahead); ahead *= 2 {
			require.Less(t, ahead, 5*time.Minute, "they are not even accepted")
		}
	})
}

// scheduledCrowd reports whether all messages were accepted before their time. It repeats what a
// store that is too busy did not take, as the answer says.
func scheduledCrowd(t *testing.T, p *process, ahead time.Duration) bool {
	const n = 10_000
	s := p.stage(t, "k")
	due := time.Now().Add(ahead)
	line := `{"Payload":"x","ScheduledFor":"` + due.Format(time.RFC3339Nano) + `"}`
	for stored, posts := 0, 0; stored < n; posts++ {
		require.Less(t, posts, 30)
		for _, l := range s.lines(slices.Repeat([]string{line}, min(1000, n-stored))...) {
			switch l.Status {
			case 412:
				return false
			case 503:
				require.Equal(t, "unavailable", l.Code)
			default:
				require.Equal(t, 201, l.Status, "%+v", l)
				stored++
			}
		}
	}
	eventually(t, "all to be through", func() bool { return s.counts().Counts.Dispatched.Count == n })
	t.Logf("through %v after their time", time.Since(due))
	return true
}

// A broker that is killed at any step between schedule and message neither loses nor repeats one.
func TestFaultKillOfScheduledMessages(t *testing.T) {
	parallel(t)
	for _, point := range []string{failpoint.AfterSchedule, failpoint.BeforeDispatch, failpoint.BeforeCommit,
		failpoint.AfterCommit,
		failpoint.AfterDispatch, failpoint.BeforeFanout, failpoint.AfterFanout} {
		t.Run(point, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, w *world) {
				w.with(quick...)
				sink := newSink(t, nil)
				p := w.start()
				p.sample("k=" + sink.URL)
				p.stop()
				p = w.start(envKill + "=" + point + ":1")
				var acked []string
				doubtful := ""
				for i := 0; i < 20; i++ {
					body := fmt.Sprint("m-", i)
					headers := append([]string{"X-Broker-Scheduled-For", in(1500 * time.Millisecond)}, producerTokens...)
					if i%2 > 0 { // an ID of the producer alone would keep a second message out
						headers = append(headers, "X-Broker-Message-ID", body)
					}
					r, err := p.ask("POST", "/channel/c/broadcast", body, headers...)
					if err != nil { // killed: on a busy machine the first is due before the last is posted
						doubtful = body
						break
					}
					if r.status == 412 { // it took that long to arrive
						i--
						continue
					}
					require.Equal(t, 201, r.status, r.body)
					acked = append(acked, body)
				}
				if point == failpoint.AfterSchedule {
					require.Equal(t, "m-0", doubtful)
					acked = append(acked, doubtful) // stored, not answered
				}
				p.awaitEnd()
				s := &stage{process: w.start(), channel: "c"}
				eventually(t, "the messages", func() bool { return sink.jobsOf("") >= len(acked) })
				time.Sleep(1500 * time.Millisecond)
				most := len(acked)
				if doubtful != "" && !slices.Contains(acked, doubtful) {
					most++
				}
				require.LessOrEqual(t, s.counts().Counts.Dispatched.Count, most,
					"each schedule is one message, delivered by now or not")
				for _, body := range acked {
					require.Equal(t, 1, sink.jobsOf(body), body)
				}
				if slices.Contains(acked, doubtful) {
					doubtful = ""
				}
				unsure := 0
				if doubtful != "" {
					unsure = sink.jobsOf(doubtful)
				}
				require.LessOrEqual(t, unsure, 1, doubtful)
				require.Equal(t, len(acked)+unsure, sink.jobsOf(""))
			})
		})
	}
}

// Two brokers send each scheduled message once, when one is killed and Redis is wiped as well.
func TestFaultTwoBrokersSendScheduledMessagesOnce(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	sink := newSink(t, nil)
	a, b := w.start(), w.start()
	a.sample("k=" + sink.URL)
	eventually(t, "two brokers", func() bool { return a.gauge(t, "penstock_brokers") == 2 })
	const n, ahead = 300, 30 * time.Second
	begin := time.Now()
	var lines [2][]string
	for i := range n {
		lines[i%2] = append(lines[i%2], fmt.Sprintf(`{"Payload":"m-%d","ScheduledFor":%q}`, i,
			begin.Add(ahead+time.Duration(i)*10*time.Millisecond).Format(time.RFC3339Nano)))
	}
	for i, p := range []*process{a, b} {
		for _, r := range p.batch(lines[i]...) {
			require.Equal(t, 201, r.Status, r.Detail)
		}
	}
	require.Less(t, time.Since(begin), ahead)
	time.Sleep(time.Until(begin.Add(ahead + time.Second)))
	a.kill()
	time.Sleep(500 * time.Millisecond)
	wipe := w.flushed(sink)
	wipe.flushall()
	eventually(t, "the messages", func() bool { return sink.distinct() >= n })
	w.awaitRest(sink)
	seen := map[string]int{}
	for _, r := range sink.all() {
		seen[r.body]++
	}
	require.Len(t, seen, n)
	extra := wipe.requireNoMore()
	page := b.do("GET", "/channel/c/messages-status", "")
	require.Contains(t, page.body, fmt.Sprintf(`"DISPATCHED":{"Count":%d,`, n), "each became one message")
	worst := time.Duration(0)
	for _, r := range sink.all() {
		var i int
		_, err := fmt.Sscanf(r.body, "m-%d", &i)
		require.NoError(t, err)
		late := r.at.Sub(begin.Add(ahead + time.Duration(i)*10*time.Millisecond))
		require.GreaterOrEqual(t, late, -2*time.Millisecond, r.body)
		worst = max(worst, late)
	}
	t.Logf("the latest was %v late, %d copies", worst, extra)
}

// Two brokers read the same schedules, and each stands still once before it stores their messages,
// for longer than the other one waits for it. Each schedule is one message all the same.
func TestFaultABrokerThatStoodStillSendsNoScheduledMessageAgain(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...).with(envStand + "=" + failpoint.BeforeDispatch + ":2:2s")
	a, b := w.start(), w.start()
	a.sample("k")
	eventually(t, "two brokers", func() bool {
		return a.gauge(t, "penstock_brokers") == 2 &&
			b.gauge(t, "penstock_brokers") == 2
	})
	const n = 200
	var lines []string
	for i, begin := 0, time.Now().Add(2*lead); i < n; i++ {
		lines = append(lines, fmt.Sprintf(`{"Payload":"m-%d","ScheduledFor":%q}`, i,
			begin.Add(time.Duration(i)*20*time.Millisecond).Format(time.RFC3339Nano)))
	}
	for _, r := range a.batch(lines...) {
		require.Equal(t, 201, r.Status, r.Detail)
	}
	s := &stage{process: b, channel: "c"}
	eventually(t, "the messages", func() bool { return s.counts().Counts.Dispatched.Count >= n })
	time.Sleep(3 * time.Second) // who stood still goes on
	b.requireEach(n)
}

// A broker that starts late sends what is overdue once: of a recurrence with a count each message,
// of one without a count one.
func TestOverdueSchedulesAreSentAfterARestart(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		sink := newSink(t, nil)
		p := w.start()
		s := p.stage(t, "k="+sink.URL)
		start := in(lead)
		s.later(start, "once")
		for _, text := range []string{"R4/" + start + "/PT1S", "R/" + start + "/PT1H"} {
			require.Equal(t, 201, s.post(text[:2], "X-Broker-Recurrence", text).status)
		}
		p.stop()
		time.Sleep(lead + 4*time.Second)
		s = s.on(w.start())
		requireOnce(t, sink, "once", "R4", "R4", "R4", "R4", "R/")
		c := s.counts()
		require.Equal(t, [2]int{1, 2}, [2]int{c.Counts.ScheduledWaiting.Count, c.Counts.ScheduledDispatched.Count})
	})
}

// Deleting a channel or a producer ends its schedules, and the minimum delay is kept.
func TestSchedulesEndWithTheirProducerAndChannel(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with("BROKER_ALLOW_DELETE=true", "BROKER_MIN_SCHEDULE_DELAY=500ms")
	p := w.start()
	sink := newSink(t, nil)
	s, gone := p.stage(t, "k="+sink.URL), p.stage(t)
	requireProblem(t, s.post("x", "X-Broker-Scheduled-For", in(300*time.Millisecond)), 412, "schedule_too_soon")
	requireProblem(t, s.post("x", "X-Broker-Delay", "499ms"), 412, "schedule_too_soon")
	one := s.as("leaves")
	r := s.do("POST", s.path("/broadcast"), "of a deleted producer", append([]string{"X-Broker-Scheduled-For", in(lead)},
		one...)...)
	require.Equal(t, 201, r.status, r.body)
	at := r.header.Get("Location")
	gone.later(in(lead), "of a deleted channel")
	s.later(in(lead), "stays")
	s.delete("/producer/leaves")
	gone.delete(gone.path())
	requireOnce(t, sink, "stays")
	eventually(t, "the schedule of the producer to be removed", func() bool { return s.do("GET", at, "").status == 404 })
	store := w.openStore()
	eventually(t, "the schedule of the channel to be removed", func() bool {
		var n int
		require.NoError(t, store.QueryRow("SELECT COUNT(*) FROM scheduled").Scan(&n))
		return n == 1 // of the message that stays
	})
}
