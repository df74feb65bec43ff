package main

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

func nobodyThere(t *testing.T, p *process) {
	s := p.stage(t)
	before := s.publish("before anybody came")
	m := s.message(before)
	require.Equal(t, "DISPATCHED", m.Status, "there is nothing left to dispatch")
	require.Empty(t, m.Jobs)
	early := newSink(t, nil)
	s.join("early=" + early.URL)
	s.publish("for one")
	late := newSink(t, nil)
	s.join("late=" + late.URL)
	s.join("pull")
	s.publish("for all")
	eventually(t, "the last message everywhere", func() bool { return early.count() == 2 && late.count() == 1 })
	require.Equal(t, "for all", s.awaitQueued("pull", 1)[0].Message.Payload)
	// The fail-safe and a re-trigger do not enlarge the audience afterwards.
	s.awaitWalk()
	require.Equal(t, 202, s.do("POST", before+"/re-trigger", "", "X-Broker-Admin-Token", adminToken).status)
	s.awaitRest(early)
	s.awaitRest(late)
	require.Zero(t, early.times("before anybody came")+late.times("before anybody came")+late.times("for one"))
	require.Equal(t, 1, early.times("for one"))
	require.Empty(t, s.message(before).Jobs)
	s.awaitQueued("pull", 1)
}

// atFirstAttempt fails the first attempt of each message after f has run.
func atFirstAttempt(t *testing.T, f func()) *sink {
	var once sync.Once
	return newSink(t, func(_ int, r received) int {
		if r.header.Get("X-Broker-Attempt") == "1" {
			once.Do(f)
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
}

func changedCallback(t *testing.T, p *process) {
	s := p.stage(t)
	moved := newSink(t, nil)
	old := atFirstAttempt(t, func() { s.put(s.path("/consumer/k"), "callbackUrl", moved.URL) })
	s.join("k=" + old.URL)
	s.awaitStatus(s.publish("body"), "DELIVERED")
	require.Equal(t, 1, old.count())
	require.Equal(t, 1, moved.count())
	got := moved.all()[0].header
	require.Equal(t, "2", got.Get("X-Broker-Attempt"))
	require.Equal(t, old.all()[0].header.Get("X-Broker-Message-ID"), got.Get("X-Broker-Message-ID"))
	require.Equal(t, "k-token", got.Get("X-Broker-Consumer-Token"), "an absent token keeps the old one")
}

func changedToken(t *testing.T, p *process) {
	s := p.stage(t)
	sink := atFirstAttempt(t, func() { s.put(s.path("/consumer/k"), "token", "rotated") })
	s.join("k=" + sink.URL)
	s.awaitStatus(s.publish("body"), "DELIVERED")
	var tokens []string
	for _, got := range sink.all() {
		tokens = append(tokens, got.header.Get("X-Broker-Consumer-Token"))
	}
	require.Equal(t, []string{"k-token", "rotated"}, tokens)
}

func changedType(t *testing.T, p *process) {
	s := p.stage(t)
	sink := atFirstAttempt(t, func() { s.put(s.path("/consumer/k"), "type", "pull") })
	s.join("k=" + sink.URL)
	at := s.publish("body")
	// The attempt under way ends as a push; what is left is for pulling.
	eventually(t, "the consumer to be a pull consumer", func() bool {
		return s.do("GET", s.path("/consumer/k"), "").json(t)["Type"] == "pull"
	})
	job := s.awaitQueued("k", 1)[0]
	require.Equal(t, 1, job.Attempts)
	require.Equal(t, "body", job.Message.Payload)
	s.publish("second")
	require.Equal(t, "second", s.awaitQueued("k", 2)[1].Message.Payload)
	require.Equal(t, 1, sink.count())
	s.claim("k", job.ID)
	require.Equal(t, 202, s.move("k", job.ID, to("DELIVERED")).status)
	s.awaitStatus(at, "DELIVERED")
	s.put(s.path("/consumer/k"), "type", "push")
	eventually(t, "the second one to be pushed again", func() bool { return sink.times("second") == 2 })
	require.Equal(t, 1, sink.times("body"))
}

func pullIsNotCalled(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t)
	s.put(s.path("/consumer/k"), "token", "k-token", "type", "pull", "callbackUrl", sink.URL)
	id := s.newJob("k")
	s.awaitWalk()
	s.claim("k", id)
	require.Equal(t, 202, s.move("k", id, to("DELIVERED")).status)
	require.Zero(t, sink.count())
}

func independentStatus(t *testing.T, p *process) {
	good := newSink(t, nil)
	bad := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "good="+good.URL, "bad="+bad.URL, "pull")
	at := s.publish("body")
	var jobs []apitype.Job
	eventually(t, "each job to have its own status", func() bool {
		jobs = s.message(at).Jobs
		return jobs[0].Status == "DELIVERED" && jobs[1].Status == "DEAD" && jobs[2].Status == "QUEUED"
	})
	require.Equal(t, []string{"good", "bad", "pull"}, []string{jobs[0].ConsumerID, jobs[1].ConsumerID, jobs[2].ConsumerID})
	require.Equal(t, 1, good.count())
	require.Equal(t, 2, bad.count())
}

// The names that deliveries carry can be chosen.
func TestPushTheTokenHeaderAndTheUserAgentAreSettings(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with("BROKER_USER_AGENT=Acme Hooks/2", "BROKER_CONSUMER_TOKEN_HEADER=X-Acme-Token")
	sink := newSink(t, nil)
	s := w.start().stage(t, "k="+sink.URL)
	s.awaitStatus(s.publish("body", "X-Broker-Metadata-Headers", "X-Acme-Token", "X-Acme-Token", "forged"), "DELIVERED")
	h := sink.all()[0].header
	require.Equal(t, []string{"k-token"}, h.Values("X-Acme-Token"))
	require.Equal(t, []string{"Acme Hooks/2"}, h.Values("User-Agent"))
	require.Empty(t, h.Values("X-Broker-Consumer-Token"))
}
