package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

func TestConsumersOfThePast(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for name, story := range map[string]func(*testing.T, *process){
			"the past, then the present":         pastThenPresent,
			"from a time on, by priority":        pastFromATime,
			"a pull consumer":                    pastOfPull,
			"a filter for the past":              pastThroughAFilter,
			"more than the window":               pastInPieces,
			"keys in order":                      pastInOrder,
			"what a page shows":                  pastOnPages,
			"dead letters, and a replay of them": pastThatDies,
			"requests that cannot be":            badSince,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// attach creates consumer k with a form and returns the answer.
func (s *stage) attach(consumer string, form ...string) (view apitype.Consumer) {
	s.t.Helper()
	r := s.tryAttach(consumer, form...)
	require.Equal(s.t, 201, r.status, r.body)
	strictjson.Decode(s.t, []byte(r.body), &view)
	return view
}

func (s *stage) tryAttach(consumer string, form ...string) reply {
	s.t.Helper()
	values := url.Values{"token": {consumer + "-token"}}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	return s.do("PUT", s.path("/consumer/", consumer), values.Encode(), "Content-Type",
		"application/x-www-form-urlencoded")
}

// ever is a time before all messages.
const ever = "2020-01-01T00:00:00Z"

// send publishes messages m<from> to m<to-1>.
func (s *stage) send(from, to int, headers ...string) (bodies []string) {
	s.t.Helper()
	for i := from; i < to; i++ {
		bodies = append(bodies, fmt.Sprint("m", i))
		s.publish(bodies[i-from], headers...)
	}
	return bodies
}

// bodiesOf are the bodies that a sink got, in order.
func bodiesOf(sink *sink) (bodies []string) {
	for _, r := range sink.all() {
		bodies = append(bodies, r.body)
	}
	return bodies
}

func pastThenPresent(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t)
	all := s.send(0, 40)
	view := s.attach("k", "callbackUrl", sink.URL, "since", ever, "concurrency", "1")
	require.Equal(t, ever, view.Since.UTC().Format(time.RFC3339))
	require.NotNil(t, view.RemovedBefore, "2020 is before the retention")
	require.WithinDuration(t, time.Now().AddDate(0, 0, -30), view.RemovedBefore.Time, time.Hour)
	require.Nil(t, s.consumer("k").RemovedBefore)
	all = append(all, s.send(40, 80)...)
	eventually(t, "the deliveries", func() bool { return len(sink.all()) >= len(all) })
	s.over("k")
	require.Equal(t, all[:40], bodiesOf(sink)[:40], "the past comes first, and in its order")
	all = append(all, s.send(80, 90)...)
	eventually(t, "later ones", func() bool { return len(sink.all()) >= len(all) })
	got := bodiesOf(sink)
	slices.Sort(got)
	slices.Sort(all)
	require.Equal(t, all, got)
	books := s.books("").Result
	require.Len(t, books, 1)
	require.EqualValues(t, 90, books[0].Accepted)
}

func pastFromATime(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t)
	s.send(0, 4)
	last := s.message(s.publish("m4")) // the time of a message is that of the store's clock
	since := last.ReceivedAt.Add(time.Millisecond)
	time.Sleep(time.Second)
	low := s.send(5, 10)
	high := s.send(10, 15, "X-Broker-Message-Priority", "7")
	view := s.attach("k", "callbackUrl", sink.URL, "since", since.Format(time.RFC3339Nano), "concurrency", "1")
	require.Nil(t, view.RemovedBefore, "all of it is there")
	eventually(t, "the deliveries", func() bool { return len(sink.all()) >= 10 })
	s.over("k")
	require.Equal(t, append(high, low...), bodiesOf(sink))
}

func pastOfPull(t *testing.T, p *process) {
	s := p.stage(t)
	s.send(0, 3)
	s.attach("k", "type", "pull", "since", ever)
	jobs := s.awaitQueued("k", 3)
	for i, j := range jobs {
		require.Equal(t, fmt.Sprint("m", i), j.Message.Payload)
		require.Equal(t, 202, s.move("k", j.ID, to("INFLIGHT")).status)
		require.Equal(t, 202, s.move("k", j.ID, to("DELIVERED")).status)
	}
	s.over("k")
	s.send(3, 4)
	require.Equal(t, "m3", s.awaitQueued("k", 1)[0].Message.Payload)
}

func pastThroughAFilter(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t)
	var want []string
	for i := range 60 {
		body := fmt.Sprintf(`{"n":%d}`, i)
		s.publish(body, "Content-Type", "application/json", "X-Broker-Message-Priority", fmt.Sprint(i%2))
		if i%3 == 0 {
			want = append(want, body)
		}
	}
	s.attach("k", "callbackUrl", sink.URL, "since", ever, "filter", "int(payload.n) % 3 == 0")
	// The filter of the past is that of the creation.
	require.Equal(t, 200, s.tryAttach("k", "filter", "int(payload.n) % 2 == 0").status)
	s.publish(`{"n":63}`, "Content-Type", "application/json")
	s.publish(`{"n":64}`, "Content-Type", "application/json")
	want = append(want, `{"n":64}`)
	eventually(t, "the deliveries", func() bool { return len(sink.all()) >= len(want) })
	s.over("k")
	got := bodiesOf(sink)
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)
	books := s.books("").Result[0]
	require.EqualValues(t, 62, books.Accepted)
	require.EqualValues(t, 41, books.Filtered)
	require.EqualValues(t, 21, books.Delivered)
	require.True(t, books.Balanced)
}

func pastInPieces(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t)
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, `{"Payload":"m%04d"}`+"\n", i)
	}
	r := s.do("POST", s.path("/batch"), lines.String(), append([]string{"Content-Type", "application/x-ndjson"},
		producerTokens...)...)
	require.Equal(t, 200, r.status)
	s.attach("k", "callbackUrl", sink.URL, "since", ever)
	s.publish("present")
	eventually(t, "the deliveries", func() bool { return len(sink.all()) >= 3001 })
	s.over("k")
	got := bodiesOf(sink)
	require.Len(t, got, 3001)
	slices.Sort(got)
	require.Len(t, slices.Compact(got), 3001, "each once")
}

func pastInOrder(t *testing.T, p *process) {
	sink := newOrderedSink(t, .2)
	s := p.stage(t)
	const keys, each = 3, 20
	half := func(from, to int) {
		for n := from; n < to; n++ {
			for k := range keys {
				s.publish(fmt.Sprintf("%d %d", k, n), "X-Broker-Ordering-Key", fmt.Sprint(k))
			}
		}
	}
	half(0, each/2)
	s.attach("k", "callbackUrl", sink.URL, "since", ever, "ordered", "true", "backoff", "constant:10ms",
		"maxRetries", "50")
	half(each/2, each)
	eventually(t, "all deliveries", func() bool { return sink.delivered() >= keys*each })
	sink.require(t, keys, each)
}

func pastOnPages(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "other="+sink.URL)
	location := s.publish("m0")
	s.over("other")
	s.attach("k", "type", "pull", "since", ever)
	s.attach("later", "type", "pull")
	job := s.awaitQueued("k", 1)[0].ID
	m := s.message(location)
	require.Len(t, m.Jobs, 2, "not of the consumer that came later")
	require.Equal(t, "k", m.Jobs[1].ConsumerID)
	require.Equal(t, job, m.Jobs[1].ID)
	require.Equal(t, "QUEUED", m.Jobs[1].Status)
	var second apitype.Message
	r := s.do("GET", location+"?size=1", "")
	require.NoError(t, json.Unmarshal([]byte(r.body), &second))
	require.NotEmpty(t, second.Pages.Next)
	r = s.do("GET", second.Pages.Next, "")
	require.Equal(t, 200, r.status, r.body)
	second = apitype.Message{}
	require.NoError(t, json.Unmarshal([]byte(r.body), &second))
	require.Equal(t, job, second.Jobs[0].ID)
	s.finish("k", job)
	require.Equal(t, "DELIVERED", s.job("k", job).Status)
	var delivered []string
	for _, e := range s.timeline(location + "/timeline") {
		if e.Event == "DELIVERED" {
			delivered = append(delivered, e.ConsumerID)
		}
	}
	require.ElementsMatch(t, []string{"other", "k"}, delivered)
	// Another consumer's token does not move the job; that of one without a job finds none.
	r = s.do("POST", s.path("/consumer/later/job/", job), to("INFLIGHT"), append(consumerTokens("later"), "Content-Type",
		"application/json")...)
	require.Equal(t, 401, r.status, r.body)
}

func pastThatDies(t *testing.T, p *process) {
	sink := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t)
	s.send(0, 3)
	s.attach("k", "callbackUrl", sink.URL, "since", ever, "maxRetries", "0")
	eventually(t, "the dead letters", func() bool { return len(s.dead("k", 10)) == 3 })
	replay := s.replay("k", everSince+`,"Only":"dead"`)
	require.EqualValues(t, 3, s.awaitReplay(replay, "DONE").Dead)
	require.Len(t, s.dead("k", 10), 3)
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	eventually(t, "the attempts after the redrive", func() bool { return sink.count() >= 9 })
}

func badSince(t *testing.T, p *process) {
	s := p.stage(t)
	for value, code := range map[string]string{
		"yesterday":                "invalid_since",
		"2020-01-01":               "invalid_since",
		"2020-01-01 00:00:00Z":     "invalid_since",
		"1600-01-01T00:00:00Z":     "invalid_since",
		"2999-01-01T00:00:00Z":     "invalid_since",
		"2020-02-30T00:00:00Z":     "invalid_since",
		"2020-01-01T00:00:00+9:00": "invalid_since",
	} {
		requireProblem(t, s.tryAttach("k", "type", "pull", "since", value), 400, code)
	}
	r := s.tryAttach("k", "type", "pull", "since", ever, "ttl", "1h")
	require.Equal(t, 400, r.status, r.body)
	require.Contains(t, r.body, "ttl")
	require.Equal(t, 404, s.do("GET", s.path("/consumer/k"), "").status, "nothing was created")
	s.attach("k", "type", "pull", "since", ever)
	require.Equal(t, 200, s.tryAttach("k", "since", ever).status, "the same once more")
	require.Equal(t, 200, s.tryAttach("k", "name", "other").status)
	requireProblem(t, s.tryAttach("k", "since", "2021-01-01T00:00:00Z"), 409, "since_fixed")
	s.join("plain")
	require.Equal(t, 409, s.tryAttach("plain", "since", ever).status)
	require.Equal(t, ever, s.consumer("k").Since.UTC().Format(time.RFC3339))
}

// allDeliveries counts the stored deliveries.
func (w *world) allDeliveries() (n int) {
	w.t.Helper()
	for _, of := range w.deliveriesOf() {
		n += of
	}
	return n
}

// The past that a consumer gets outlives kills at each point of its way, each of which empties the
// embedded Redis too, and a wiped Redis: each message once, but for what was in flight.
func TestFaultThePastOfAConsumerOutlivesKillsAndWipes(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		for _, point := range []string{failpoint.AfterConfig, failpoint.AfterPage, failpoint.AfterPost} {
			t.Run(point, func(t *testing.T) {
				sink := newSink(t, nil)
				p := w.start()
				others := w.allDeliveries()
				s := p.stage(t)
				var want []string
				for i := range 60 {
					body := fmt.Sprintf(`{"n":%d}`, i)
					s.publish(body)
					if i%2 == 0 {
						want = append(want, body)
					}
				}
				require.Zero(t, p.stop())

				p = w.start(envKill + "=" + point + ":1")
				s = s.on(p)
				form := url.Values{"token": {"k-token"}, "callbackUrl": {sink.URL}, "since": {ever},
					"filter": {"int(payload.n) % 2 == 0"}}
				r, err := p.try("PUT", s.path("/consumer/k"), form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
				if point == failpoint.AfterConfig {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
					require.Equal(t, 201, r.status, r.body)
				}
				p.awaitEnd()
				sink.awaitClosed(t)
				inFlight := sink.count() - (w.allDeliveries() - others)

				s = s.on(w.start())
				s.publish(`{"n":60}`)
				want = append(want, `{"n":60}`)
				eventually(t, "the deliveries", func() bool { return sink.hasAll(want) })
				s.over("k")
				if w.setting("BROKER_REDIS_URL") != "" {
					require.NoError(t, w.openRedis().FlushAll(t.Context()).Err())
				}
				s.over("k")
				s.awaitWalk()
				require.LessOrEqual(t, sink.count(), len(want)+inFlight, "only what was in flight")
				for _, body := range bodiesOf(sink) {
					require.Contains(t, want, body, "the filter refused it")
				}
				books := s.books("").Result[0]
				require.Equal(t, [3]int64{61, 31, 30}, [3]int64{books.Accepted, books.Delivered, books.Filtered})
				require.Zero(t, s.stop())
			})
		}
	})
}
