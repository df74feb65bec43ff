package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

func TestScheduledMessagesAreChanged(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for name, story := range map[string]func(*testing.T, *process){
			"to an earlier time":          changedToEarlier,
			"to a later time":             changedToLater,
			"to another content":          changedContent,
			"to and from a recurrence":    changedRecurrence,
			"to what cannot be":           badChanges,
			"once they are due":           changedTooLate,
			"and the first request again": changedRepeats,
			"of a producer with secrets":  changedSigned,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// reschedule puts a scheduled message with the tokens of its producer.
func (s *stage) reschedule(location, body string, headers ...string) reply {
	s.t.Helper()
	return s.do("PUT", location, body, append(append([]string{}, producerTokens...), headers...)...)
}

func (s *stage) rescheduled(location, body string, headers ...string) (m apitype.ScheduledMessage) {
	s.t.Helper()
	r := s.reschedule(location, body, headers...)
	require.Equal(s.t, 200, r.status, r.body)
	require.Equal(s.t, s.do("GET", location, "").body, r.body, "the answer is what GET shows")
	strictjson.Decode(s.t, []byte(r.body), &m)
	return m
}

func changedToEarlier(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	byTime, byDelay, now := s.later(in(time.Hour), "time"), s.delayed("1h", "delay", "X-Broker-Message-ID",
		"d"), s.delayed("2h", "now")
	began := time.Now()
	due := began.Add(1500 * time.Millisecond)
	require.WithinDuration(t, due, s.rescheduled(byTime, "", "X-Broker-Scheduled-For",
		due.Format(time.RFC3339Nano)).DispatchSchedule.Time, 2*time.Millisecond)
	delayed := s.rescheduled(byDelay, "", "X-Broker-Delay", "1500ms").DispatchSchedule.Time
	r := s.reschedule(now, "", "X-Broker-Delay", "0")
	require.Equal(t, 200, r.status, r.body)
	requireOnce(t, sink, "time", "delay", "now")
	for _, got := range sink.all() {
		if got.body == "time" {
			require.False(t, got.at.Before(due), "never before its time")
		}
		if got.body == "delay" {
			require.False(t, got.at.Before(delayed), "never before its time")
			require.Equal(t, "d", got.header.Get("X-Broker-Message-ID"))
		}
	}
}

func changedToLater(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	at := s.later(in(lead), "moved")
	s.later(in(lead), "stays")
	s.rescheduled(at, "", "X-Broker-Delay", "1h")
	requireOnce(t, sink, "stays")
	time.Sleep(time.Second)
	requireOnce(t, sink, "stays")
	require.Equal(t, 204, s.do("DELETE", at, "").status)
}

func changedContent(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL, "other")
	at := s.later(in(time.Hour), "one", "X-Broker-Message-ID", "a", "Content-Type", "text/one",
		"X-Broker-Message-Priority", "7", "X-Broker-Metadata-Headers", "X-Tenant", "X-Tenant", "T", "X-Broker-Consumers", "k")
	before := s.scheduled(at)
	after := s.rescheduled(at, "two", "Content-Type", "text/two", "X-Broker-Message-Priority", "3",
		"X-Broker-Metadata-Headers", "X-Kind", "X-Kind", "K", "X-Broker-Consumers", "k")
	require.Equal(t, [4]any{"two", "text/two", 3, map[string]string{"X-Kind": "K"}},
		[4]any{after.Payload, after.ContentType, after.Priority, after.Headers})
	require.Equal(t, [3]any{before.ID, "a", before.DispatchSchedule}, [3]any{after.ID, after.MessageID,
		after.DispatchSchedule})
	after = s.rescheduled(at, "three")
	require.Equal(t, [4]any{"three", "application/octet-stream", 0, map[string]string{}},
		[4]any{after.Payload, after.ContentType, after.Priority, after.Headers}, "a body is a new content as a whole")
	binary := "\x00\xff"
	require.Equal(t, "base64", s.rescheduled(at, binary, "Content-Type", "image/x", "X-Broker-Consumers",
		"k").PayloadEncoding)
	after = s.rescheduled(at, "", "X-Broker-Delay", "1s")
	require.Equal(t, "image/x", after.ContentType, "the content stays")
	requireOnce(t, sink, binary)
	require.Equal(t, "image/x", sink.all()[0].header.Get("Content-Type"))
	require.Equal(t, "a", sink.all()[0].header.Get("X-Broker-Message-ID"))
	require.Empty(t, s.message(s.scheduled(at).MessageURL).Jobs[1:], "the addresses are those of the change")

	event := s.post(`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, "Content-Type",
		"application/cloudevents+json", "X-Broker-Delay", "1h")
	require.Equal(t, 201, event.status, event.body)
	at = event.header.Get("Location")
	requireProblem(t, s.reschedule(at, `{"specversion":"1.0"}`, "Content-Type", "application/cloudevents+json"), 400,
		"invalid_cloudevent")
	requireProblem(t, s.reschedule(at, `[]`, "Content-Type", "application/cloudevents-batch+json"), 400, "invalid_request")
	require.Equal(t, "v", s.rescheduled(at, "x", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t",
		"ce-other", "v").Headers["ce-other"])
}

func changedRecurrence(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	at := s.delayed("1h", "tick", "X-Broker-Message-ID", "a")
	every := func(n int) string { return fmt.Sprintf("R%d/%s/PT1S", n, in(time.Second)) }
	text := every(2)
	m := s.rescheduled(at, "", "X-Broker-Recurrence", text)
	require.Equal(t, [2]any{text, 1}, [2]any{m.Recurrence, m.Occurrence})
	eventually(t, "the first message", func() bool { return sink.times("tick") >= 1 })
	if r := s.reschedule(at, "tock", "X-Broker-Recurrence", every(1000)); r.status != 200 { // on a slow machine it is over
		requireProblem(t, r, 409, "already_dispatched")
		return
	}
	eventually(t, "two messages of the second recurrence", func() bool { return sink.times("tock") >= 2 })
	m = s.rescheduled(at, "last", "X-Broker-Delay", "1s")
	require.Equal(t, [2]any{"", 0}, [2]any{m.Recurrence, m.Occurrence}, "a time alone makes it one message")
	eventually(t, "the last message", func() bool { return sink.times("last") == 1 })
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, 1, sink.times("last"))
	var ids []string
	for _, got := range sink.all() {
		ids = append(ids, got.header.Get("X-Broker-Message-ID"))
	}
	require.Equal(t, sink.count(), len(slices.Compact(slices.Sorted(slices.Values(ids)))), "%v", ids)
	for i := range sink.count() - 1 {
		require.Contains(t, ids, fmt.Sprint("a.", i+1), "the IDs go on")
	}
	require.Contains(t, ids, "a")

	at = s.delayed("1h", "cron")
	m = s.rescheduled(at, "", "X-Broker-Recurrence", "cron:TZ=Europe/Warsaw 0 8 * * *", "X-Broker-Scheduled-For",
		"2027-07-01T12:00:00Z")
	require.Equal(t, "2027-07-02T06:00:00Z", m.DispatchSchedule.UTC().Format(time.RFC3339))
}

func badChanges(t *testing.T, p *process) {
	s := p.stage(t, "k")
	long := strings.Repeat("x", 250)
	at, named := s.delayed("1h", "one", "X-Broker-Message-ID", "a"), s.delayed("1h", "one", "X-Broker-Message-ID", long)
	before := s.do("GET", at, "").body
	for _, c := range []struct {
		status  int
		code    string
		body    string
		headers []string
	}{
		{400, "invalid_schedule", "", nil},
		{400, "invalid_schedule", "", []string{"X-Broker-Scheduled-For", "soon"}},
		{400, "invalid_schedule", "x", []string{"X-Broker-Delay", "soon"}},
		{400, "invalid_schedule", "", []string{"X-Broker-Delay", "1h", "X-Broker-Scheduled-For", in(time.Hour)}},
		{400, "invalid_schedule", "", []string{"X-Broker-Delay", "4000d"}},
		{400, "invalid_recurrence", "", []string{"X-Broker-Recurrence", "daily"}},
		{400, "invalid_recurrence", "", []string{"X-Broker-Recurrence", "cron:TZ=Nowhere * * * * *"}},
		{412, "schedule_too_soon", "", []string{"X-Broker-Scheduled-For", in(-time.Minute)}},
		{400, "invalid_schedule", "", []string{"X-Broker-Delay", "2h", "X-Broker-Message-Priority", "3"}},
		{400, "invalid_priority", "x", []string{"X-Broker-Message-Priority", "1024"}},
		{400, "unknown_consumer", "x", []string{"X-Broker-Consumers", "nobody"}},
		{400, "unknown_header", "x", []string{"X-Broker-Schedule-For", in(time.Hour)}},
		{413, "body_too_large", strings.Repeat("x", 5<<20), nil},
		{412, "precondition_failed", "x", []string{"If-Match", `"other"`}},
	} {
		requireProblem(t, s.reschedule(at, c.body, c.headers...), c.status, c.code)
	}
	requireProblem(t, s.reschedule(named, "", "X-Broker-Recurrence", "cron:* * * * *"), 400, "invalid_message_id")
	requireProblem(t, s.reschedule(s.path("/scheduled-message/none"), "x"), 404, "scheduled_message_not_found")
	requireProblem(t, s.reschedule("/channel/none/scheduled-message/a", "x"), 404, "channel_not_found")
	require.Equal(t, before, s.do("GET", at, "").body)
}

func changedTooLate(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	at := s.delayed("1", "one")
	requireOnce(t, sink, "one")
	requireProblem(t, s.reschedule(at, "two", "X-Broker-Delay", "1h"), 409, "already_dispatched")
	requireProblem(t, s.reschedule(at, "", "X-Broker-Delay", "1h"), 409, "already_dispatched")
	requireOnce(t, sink, "one")
}

// The request that made the schedule, once more: with a message ID it is another message by now, with
// an Idempotency-Key it gets its first answer.
func changedRepeats(t *testing.T, p *process) {
	s := p.stage(t, "k")
	at, keyed := s.delayed("1h", "one", "X-Broker-Message-ID", "a"), s.delayed("1h", "one", "Idempotency-Key", "x")
	s.rescheduled(at, "two")
	s.rescheduled(keyed, "two")
	requireProblem(t, s.post("one", "X-Broker-Delay", "1h", "X-Broker-Message-ID", "a"), 409, "message_id_conflict")
	requireProblem(t, s.post("two", "X-Broker-Delay", "1h", "X-Broker-Message-ID", "a"), 409, "duplicate_message_id")
	r := s.post("one", "X-Broker-Delay", "1h", "Idempotency-Key", "x")
	require.Equal(t, 201, r.status, r.body)
	require.Equal(t, keyed, r.header.Get("Location"))
	require.Equal(t, "two", s.scheduled(keyed).Payload)
}

// The payload of a producer that signs is signed, whoever changes it. Times are not.
func changedSigned(t *testing.T, p *process) {
	s := p.stage(t, "k")
	tokens := s.as(s.own())
	r := s.do("POST", s.path("/broadcast"), "one", append([]string{"X-Broker-Delay", "1h"}, tokens...)...)
	require.Equal(t, 201, r.status, r.body)
	at := r.header.Get("Location")
	s.put("/producer/"+s.own(), "publishSecret", "0123456789abcdef")
	for _, who := range [][]string{tokens, {"X-Broker-Admin-Token", adminToken}} {
		requireProblem(t, s.do("PUT", at, "two", who...), 401, "signature_required")
		require.Equal(t, 200, s.do("PUT", at, "", append([]string{"X-Broker-Delay", "2h"}, who...)...).status)
	}
	require.Equal(t, "one", s.scheduled(at).Payload)
}

// What producers may store counts the new content instead of the old one.
func TestAChangedScheduleCountsForItsProducer(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	s := p.stage(t, "k")
	s.put("/producer/p", "maxStoredBytes", "3000")
	at := s.delayed("1h", strings.Repeat("x", 1000))
	require.Equal(t, 429, s.reschedule(at, strings.Repeat("x", 3001)).status)
	s.rescheduled(at, strings.Repeat("x", 2500))
	require.Equal(t, 429, s.post(strings.Repeat("x", 600), "X-Broker-Delay", "1h").status, "at once")
	s.rescheduled(at, "small")
	eventually(t, "the room to be counted", func() bool {
		return s.post(strings.Repeat("x", 600), "X-Broker-Delay", "1h").status == 201
	})
}

// Changes race with brokers that send: each message is sent once, in the form of the last change that
// was answered with 200, and never before the time of that.
func TestChangesRaceWithTheBrokersThatSendReal(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	sink := newSink(t, nil)
	brokers := []*process{w.start(), w.start()}
	s := brokers[0].stage(t, "k="+sink.URL)
	const n = 60
	forms := make([][]string, n) // what may be sent of each
	dues := make([]time.Time, n)
	var wg sync.WaitGroup
	for i := range n {
		due := time.Now().Add(3*time.Second + time.Duration(i%10)*40*time.Millisecond)
		at := s.later(due.Format(time.RFC3339Nano), fmt.Sprintf("m-%d first", i))
		forms[i], dues[i] = []string{fmt.Sprintf("m-%d first", i)}, due
		wg.Go(func() {
			time.Sleep(time.Until(due) - time.Duration(i)*2*time.Millisecond)
			on := s.on(brokers[i%2])
			body, later := fmt.Sprintf("m-%d second", i), time.Now().Add(2*time.Second)
			switch r := on.reschedule(at, body, "X-Broker-Scheduled-For", later.Format(time.RFC3339Nano)); r.status {
			case 200:
				forms[i], dues[i] = []string{body}, later
			case 409:
			default:
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	wg.Wait()
	eventually(t, "all of them", func() bool { return sink.count() >= n })
	time.Sleep(time.Second)
	require.Equal(t, n, sink.count())
	for i := range n {
		require.Equal(t, 1, sink.times(forms[i][0]), "%v", forms[i])
	}
	for _, got := range sink.all() {
		var i int
		_, err := fmt.Sscanf(got.body, "m-%d", &i)
		require.NoError(t, err)
		require.False(t, got.at.Before(dues[i]), got.body)
	}
}

// A broker that is killed after the commit of a change has made it, though it has not said so.
func TestFaultKillAfterTheChangeOfASchedule(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		sink := newSink(t, nil)
		p := w.start()
		p.sample("k=" + sink.URL)
		s := &stage{process: p, channel: "c"}
		at := s.delayed("1h", "one", "X-Broker-Message-ID", "a")
		p.stop()
		p = w.start(envKill + "=" + failpoint.AfterSchedule + ":1")
		_, err := p.ask("PUT", at, "two", append([]string{"X-Broker-Delay", "2s"}, producerTokens...)...)
		require.Error(t, err)
		p.awaitEnd()
		p = w.start()
		s = &stage{process: p, channel: "c"}
		requireOnce(t, sink, "two")
		requireProblem(t, s.reschedule(at, "three", "X-Broker-Delay", "1h"), 409, "already_dispatched")
	})
}

// A body that comes slowly is checked when it is whole.
func TestAChangeThatComesSlowlyGoesByTheTokensOfItsEnd(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with("BROKER_OPEN_MANAGEMENT=false").start()
	admin := []string{"X-Broker-Admin-Token", adminToken, "Content-Type", formType}
	p.do("PUT", "/channel/c", "token=c-token", admin...)
	p.do("PUT", "/producer/p", "token=p-token", admin...)
	s := &stage{process: p, channel: "c"}
	at := s.delayed("1h", "one")
	rest := s.slow("PUT", at, producerTokens, strings.Repeat("x", 20_000))
	p.do("PUT", "/producer/p", "token=new", admin...)
	requireProblem(t, rest(), 403, "producer_token_mismatch")
	r := s.do("GET", at, "", admin[:2]...)
	require.Contains(t, r.body, `"payload":"one"`)
}
