package api

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/redisq"
)

// contracts are the routes of package apitype by method and path.
func contracts(t *testing.T) map[string]apitype.Route {
	t.Helper()
	all := map[string]apitype.Route{}
	for _, r := range apitype.Routes() {
		name := r.Method + " " + r.Path
		require.NotContains(t, all, name, "a route occurs twice")
		all[name] = r
	}
	return all
}

func TestEveryRouteHasItsTypes(t *testing.T) {
	all := contracts(t)
	for _, r := range Routes() {
		name := r.Method + " " + r.Path
		require.Contains(t, all, name, "internal/model/apitype has no types of this route")
		c := all[name]
		delete(all, name)
		require.NotEmpty(t, c.Answers, name)
		for _, a := range c.Answers {
			require.True(t, a.Status >= 200 && a.Status < 300 || a.Status == 303, name)
			require.True(t, a.Media != "" || a.Value == nil, name)
			require.True(t, a.Media != apitype.MediaJSON && a.Media != apitype.MediaLines || a.Value != nil ||
				r.Path == "/openapi.json", name)
		}
		if c.Request.Media != "" {
			require.NotZero(t, r.Body, "%s takes no body", name)
		}
		require.True(t, c.Request.Media == "" || c.Request.Media == apitype.MediaAny || c.Request.Value != nil, name)
		require.True(t, r.Method != get || c.Request == apitype.Body{}, name)
	}
	require.Empty(t, all, "package api has no such routes")
}

// Each answer of the control plane has the type that apitype.Routes names, and each member of
// these types occurs in an answer.
func TestAnswersOfTheControlPlaneHaveTheirTypes(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Rates, o.Presence = oneASecond{}, oneWorker{} })
	all, members, called := contracts(t), strictjson.Of(apitype.Problem{}), map[string]bool{}
	for _, r := range Routes() {
		if r.serve != nil {
			for _, a := range all[r.Method+" "+r.Path].Answers {
				if a.Value != nil {
					maps.Copy(members, strictjson.Of(a.Value))
				}
				called[r.Method+" "+r.Path] = false
			}
		}
	}
	for _, e := range slices.Concat(exchanges(w), []wired{manyAttempts(w), slowConsumer(w), boundedProducer(w),
		limitedChannel(w)},
		workersOf(w), uiExchanges(w), referenceExchanges(w), tokenExchanges(w)) {
		body := apitype.Body{Media: apitype.MediaProblem, Value: apitype.Problem{}}
		if e.Status < 400 {
			answers := all[e.route].Answers
			i := slices.IndexFunc(answers, func(a apitype.Answer) bool {
				return a.Status == e.Status && strings.HasPrefix(e.Header("Content-Type"), a.Media)
			})
			require.GreaterOrEqual(t, i, 0, "%s answers %d with %q", e.route, e.Status, e.Header("Content-Type"))
			body, called[e.route] = answers[i].Body, true
		}
		switch {
		case body.Media == "":
			require.Empty(t, e.Body, e.path)
			continue
		case body.Value != nil:
			values := []string{e.Body}
			if body.Media == apitype.MediaLines {
				values = strings.Split(strings.TrimSpace(e.Body), "\n")
			}
			for _, value := range values {
				members.Decode(t, []byte(value), reflect.New(reflect.TypeOf(body.Value)).Interface())
			}
		}
		require.True(t, strings.HasPrefix(e.Header("Content-Type"), body.Media), e.path)
	}
	// Estimates and removed messages need a large and an old store, which the tests of replays and of
	// consumers of the past have. A warning needs a store that is older than its folder, as the test of
	// backups has. Coded payloads are those of the test of codings, and dead
	// replies those of the test of what has failed.
	rare := []string{"Replay.Estimated", "Replay.RemovedBefore", "ReplayEstimate.Estimated",
		"ReplayEstimate.RemovedBefore", "Consumer.Since", "Consumer.RemovedBefore", "Health.Warning",
		"Message.ContentEncoding", "ScheduledMessage.contentEncoding", "Job.InReplyTo", "Job.ChannelID"}
	// of a consumer that asks for rest, of a recurrence without room, and of a purge that takes long
	rare = append(rare, "Producer.HeldUntil", "Producer.HeldBy", "Consumer.HeldUntil", "Consumer.HeldBy", "Job.HeldUntil",
		"Consumer.LastAttemptAt", "Consumer.LastSuccessAt", "Consumer.LastStatus", "Consumer.LastError",
		"Consumer.LastClaimAt",
		"JobDetail.HeldUntil", "ScheduledMessage.reason", "WhyReason.Because", "WhyReason.Approximate", "Purged.More")
	// A redrive names jobs in the request alone. A count that stops needs many letters. The test of dead letters
	// by cause has redrives to another consumer.
	rare = append(rare, "DeadSelection.Jobs", "Redrive.Approximate", "RedriveEstimate.Approximate", "Redrive.Target",
		"Redrive.Replay")
	// Messages with a traceparent, and a broker that records traces, have the tests of cmd/broker.
	rare = append(rare, "Timeline.TraceID", "Timeline.TraceURL", "TimelineEvent.TraceID", "TimelineEvent.TraceURL")
	// Attempts go before their messages in a test of limits.
	rare = append(rare, "History.AttemptsRemovedBefore")
	// The other stores of an installation have tests in cmd/broker.
	rare = append(rare, "Channel.Store")
	// A token that has expired, and one of another key, have tests of their own.
	rare = append(rare, "ListedToken.Expired", "ListedToken.Refused", "NewToken.Expired", "NewToken.Refused",
		"NewToken.LastUsedAt")
	require.Subset(t, rare, members.Missing(), "no answer has these members")
	for route, was := range called {
		require.True(t, was, route)
	}
}

// manyAttempts is a GET of a job that has more attempts than an answer shows. The queue of w is
// down.
func manyAttempts(w *world) wired {
	k, m := w.cat.Consumer("c", "pull"), w.insert(durable.Message{})
	for n := 1; n <= maxAttempts+1; n++ {
		w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID, Attempts: n,
			AtMs: time.Now().UnixMilli(), Tracked: true, Phase: durable.PhaseNotSent})
	}
	w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID, Attempts: maxAttempts + 2,
		AtMs: time.Now().UnixMilli(), Tracked: true, Phase: durable.PhaseLeaseEnded})
	w.record(durable.Outcome{Kind: durable.OutcomeGivenBack, ConsumerNo: k.No, ID: m.ID, Attempts: maxAttempts + 2,
		AtMs: time.Now().UnixMilli(), Tracked: true, Phase: durable.PhaseGivenBack})
	return wired{"GET /channel/{channel}/consumer/{consumer}/job/{job}", jobPath(k, m), w.get(jobPath(k, m)).is(200)}
}

// oneWorker is a Presence of a consumer with one worker.
type oneWorker struct{}

func (oneWorker) Of(context.Context, uint32) (presence.Presence, error) {
	return presence.Presence{Workers: []presence.Seen{{AtMs: 1, Address: "192.0.2.7",
		Worker: presence.Worker{Name: "w", Version: "1", Slots: 2, Tasks: []string{"a"}}}}}, nil
}

func (oneWorker) InFlight(context.Context, ...uint32) (map[string]int, error) {
	return map[string]int{"w": 3}, nil
}

// workersOf are GETs of a worker, and of a job that it declared dead.
func workersOf(w *world) []wired {
	k, m := w.cat.Consumer("c", "pull"), w.insert(durable.Message{})
	w.record(durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: k.No, ID: m.ID, Attempts: 1,
		Reason: durable.ByConsumer, AtMs: time.Now().UnixMilli(), Tracked: true, Worker: "w;1", Error: "why",
		Answer: []byte("detail")})
	const of = "/channel/{channel}/consumer/{consumer}"
	var out []wired
	for route, path := range map[string]string{
		of + "/workers": "/channel/c/consumer/pull/workers", of + "/job/{job}": jobPath(k, m),
		of + "/dlq": "/channel/c/consumer/pull/dlq?limit=100", of + "/job/{job}/timeline": jobPath(k, m) + "/timeline",
	} {
		out = append(out, wired{"GET " + route, path, w.get(path).is(200)})
	}
	return out
}

// Each form has the fields of its struct and no others.
func TestFormsHaveTheFieldsOfTheirTypes(t *testing.T) {
	for _, c := range []struct {
		form   any
		fields []string
	}{
		{apitype.ProducerForm{}, producerFields},
		{apitype.ChannelForm{}, channelFields},
		{apitype.ConsumerForm{}, consumerFields},
		{apitype.RedriveForm{}, redriveFields},
	} {
		require.ElementsMatch(t, c.fields, strictjson.Names(c.form), "%T", c.form)
	}
}

// A setting that package policy has, and apitype.Policy has not, could not be shown.
func TestThePolicyOfAConsumerHasTheSettingsOfPackagePolicy(t *testing.T) {
	var names []string
	for _, s := range policy.NewBook(policy.Policy{}).Show("", false) {
		names = append(names, s.Name)
	}
	members := strictjson.Names(apitype.Policy{})
	require.ElementsMatch(t, names, members)
	require.True(t, slices.IsSorted(members))
	for _, field := range reflect.VisibleFields(reflect.TypeFor[apitype.Policy]()) {
		require.Equal(t, field.Name, strictjson.Name(field), "the field is found by the name of the member")
	}
}

// oneASecond is the pace of every adaptive consumer.
type oneASecond struct{}

func (oneASecond) Mode(uint32) durable.PaceMode { return durable.PaceSlow }
func (oneASecond) Pace(uint32) redisq.Rate      { return redisq.Rate{N: 1, Per: time.Second} }

// slowConsumer is GET of an adaptive consumer that is slowed down.
func slowConsumer(w *world) wired {
	const path = "/channel/c/consumer/slow"
	w.put(path, "callbackUrl=http://127.0.0.1:1/slow&adaptive=true").is(201)
	r := w.get(path)
	require.Contains(w.t, r.Body, `"Rate":"SLOW","CurrentRate":"1/1s"`)
	return wired{"GET /channel/{channel}/consumer/{consumer}", "GET " + path, r}
}

// boundedProducer is a GET of a producer that may store so much and no more.
func boundedProducer(w *world) wired {
	const path = "/producer/bounded"
	w.put(path, "maxStoredBytes=1048576&maxScheduled=10&publishRate=5/1s").is(201)
	return wired{"GET /producer/{producer}", "GET " + path, w.get(path)}
}

// limitedChannel is a GET of a channel with limits of its own on what it keeps.
func limitedChannel(w *world) wired {
	const path = "/channel/limited"
	w.put(path, "retention=1h&retentionMessages=1000&retentionBytes=1GiB&deadRetention=2h&attemptRetention=1h").is(201)
	return wired{"GET /channel/{channel}", "GET " + path, w.get(path)}
}
