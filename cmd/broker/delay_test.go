package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (s *stage) delayed(delay, body string, headers ...string) (location string) {
	s.t.Helper()
	r := s.post(body, append([]string{"X-Broker-Delay", delay}, headers...)...)
	require.Equal(s.t, 201, r.status, r.body)
	require.Contains(s.t, r.header.Get("Location"), s.path("/scheduled-message/"))
	return r.header.Get("Location")
}

func delayedOnce(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	began := time.Now().Add(-time.Second) // of the store: its clock is another one
	at := s.delayed("2s", "one", "X-Broker-Message-ID", "a")
	due := s.scheduled(at).DispatchSchedule.Time
	require.WithinRange(t, due, began.Add(2*time.Second), time.Now().Add(2*time.Second+time.Second))
	for delay, want := range map[string]time.Duration{"3600": time.Hour, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour} {
		began := time.Now().Add(-time.Second)
		at := s.delayed(delay, "later")
		require.WithinRange(t, s.scheduled(at).DispatchSchedule.Time, began.Add(want), time.Now().Add(want+time.Second),
			delay)
	}
	r := s.post("now", "X-Broker-Delay", "0s")
	require.Equal(t, 201, r.status, r.body)
	require.Contains(t, r.header.Get("Location"), s.path("/message/"))
	r = s.post("cron", "X-Broker-Delay", "24h", "X-Broker-Recurrence", "cron:* * * * *")
	require.Equal(t, 201, r.status, r.body)
	require.WithinRange(t, s.scheduled(r.header.Get("Location")).DispatchSchedule.Time, began.Add(24*time.Hour),
		time.Now().Add(24*time.Hour+time.Minute))
	requireOnce(t, sink, "one", "now")
	for _, got := range sink.all() {
		if got.body == "one" {
			require.False(t, got.at.Before(due), "never before its time")
		}
	}
}

func badDelays(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for _, delay := range []string{"-1s", "-1", "soon", "10 s", "1.5", "4000d", "99999999999999999999",
		"2026-12-01T00:00:00Z", "+5s"} {
		r := s.post("x", "X-Broker-Delay", delay)
		requireProblem(t, r, 400, "invalid_schedule")
		require.Contains(t, r.body, "nothing was stored")
		require.Equal(t, 400, s.lines(`{"Payload":"x","Delay":"` + delay + `"}`)[0].Status, delay)
	}
	requireProblem(t, s.post("x", "X-Broker-Delay", ""), 400, "invalid_schedule")
	requireProblem(t, s.post("x", "X-Broker-Delay", "1h", "X-Broker-Scheduled-For", in(time.Hour)), 400,
		"invalid_schedule")
	requireProblem(t, s.post("x", "X-Broker-Delay", "1h", "X-Broker-Recurrence", "R3/"+in(time.Hour)+"/PT1H"), 400,
		"invalid_recurrence")
	requireProblem(t, s.do("PUT", s.path(), "", "X-Broker-Delay", "1h"), 400, "unknown_header")
	s.put(s.path("/consumer/k"), "responses", "store")
	requireProblem(t, s.do("POST", s.path("/request"), "x", append([]string{"X-Broker-Delay", "1h"},
		producerTokens...)...), 400, "invalid_request")
	require.Equal(t, 0, s.counts().Counts.ScheduledWaiting.Count)
}

// A retry of a lost answer comes seconds later, so its time is another one. It is the same request.
func delayRepeats(t *testing.T, p *process) {
	s := p.stage(t, "k")
	at := s.delayed("1h", "one", "X-Broker-Message-ID", "a")
	due := s.scheduled(at).DispatchSchedule
	keyed := s.delayed("1h", "one", "Idempotency-Key", `"x"`)
	now := s.delayed("1s", "soon", "X-Broker-Message-ID", "b")
	eventually(t, "the message of the short delay", func() bool { return s.scheduled(now).Status == "DISPATCHED" })
	r := s.post("one", "X-Broker-Delay", "3600", "X-Broker-Message-ID", "a")
	requireProblem(t, r, 409, "duplicate_message_id")
	require.Equal(t, at, r.header.Get("Location"))
	require.Equal(t, due, s.scheduled(at).DispatchSchedule)
	r = s.post("one", "X-Broker-Delay", "60m", "Idempotency-Key", `"x"`)
	require.Equal(t, 201, r.status, r.body)
	require.Equal(t, keyed, r.header.Get("Location"))
	require.Equal(t, "true", r.header.Get(replayed))
	r = s.post("soon", "X-Broker-Delay", "1s", "X-Broker-Message-ID", "b")
	requireProblem(t, r, 409, "duplicate_message_id")
	require.Equal(t, now, r.header.Get("Location"), "also when it was sent")
	requireProblem(t, s.post("one", "X-Broker-Delay", "2h", "X-Broker-Message-ID", "a"), 409, "message_id_conflict")
	requireProblem(t, s.post("two", "X-Broker-Delay", "1h", "X-Broker-Message-ID", "a"), 409, "message_id_conflict")
	requireProblem(t, s.post("one", "X-Broker-Delay", "2h", "Idempotency-Key", `"x"`), 422, "idempotency_key_reused")
	requireProblem(t, s.post("one", "X-Broker-Scheduled-For", due.Format(time.RFC3339Nano), "Idempotency-Key", `"x"`), 422,
		"idempotency_key_reused")
	requireProblem(t, s.post("one", "Idempotency-Key", `"x"`), 422, "idempotency_key_reused")
}

func delayedLines(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	when := in(2 * time.Hour)
	got := s.lines(
		`{"Payload":"now"}`,
		`{"Payload":"a","MessageID":"a","Delay":"1h"}`,
		`{"Payload":"a","MessageID":"a","Delay":3600}`,
		`{"Payload":"b","Delay":0}`,
		`{"Payload":"c","Delay":null}`,
		`{"Payload":"d","Delay":1.5}`,
		`{"Payload":"e","Delay":-1}`,
		`{"Payload":"f","Delay":true}`,
		`{"Payload":"g","Delay":"1h","ScheduledFor":"`+when+`"}`,
	)
	want := []int{201, 201, 409, 201, 201, 400, 400, 400, 400}
	for i, l := range got {
		require.Equal(t, want[i], l.Status, "%d: %+v", i, l)
	}
	requireOnce(t, sink, "now", "b", "c")
	r := s.do("POST", s.path("/batch"), `{"Payload":"default","MessageID":"d1"}`+"\n"+
		`{"Payload":"own","MessageID":"d2","ScheduledFor":"`+when+`"}`+"\n"+`{"Payload":"at once","Delay":"0"}`+"\n",
		append([]string{"Content-Type", "application/x-ndjson", "X-Broker-Delay", "1h"}, producerTokens...)...)
	require.Equal(t, 200, r.status, r.body)
	require.WithinDuration(t, time.Now().Add(time.Hour),
		s.scheduled(s.path("/scheduled-message/d1")).DispatchSchedule.Time, time.Minute)
	require.WithinDuration(t, time.Now().Add(2*time.Hour),
		s.scheduled(s.path("/scheduled-message/d2")).DispatchSchedule.Time, time.Minute)
	r = s.do("POST", s.path("/batch"), `{"Payload":"x"}`+"\n", append([]string{"Content-Type", "application/x-ndjson",
		"X-Broker-Delay", "1h", "X-Broker-Scheduled-For", when}, producerTokens...)...)
	requireProblem(t, r, 400, "invalid_schedule")
	requireOnce(t, sink, "now", "b", "c", "at once")
}
