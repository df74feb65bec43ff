package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Leases that end soon: stop timeout 1 s and rational delay 0.5 s.
func TestPullVisibility(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_STOP_TIMEOUT=1s", "BROKER_DELIVERY_TIMEOUT=5s",
			"BROKER_MAX_RETRIES=1")
		for name, story := range map[string]func(*testing.T, *process){
			"a job that is not finished in time is queued again, and then dead": expiry,
			"IncrementalTimeout adds to the visibility timeout":                 longerVisibility,
			"to ask for the same state does not extend the lease":               noExtension,
			"a worker that is too late is told so":                              lateWorker,
			"a reopened job that times out is dead again":                       reopenedExpiry,
			"GET shows the length of a lease":                                   shownVisibility,
			"a renewal lasts as long as it says":                                saidRenewal,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

const visible = 1500 * time.Millisecond

// awaitReturn waits until the job is not in flight any more.
func (s *stage) awaitReturn(consumer, id string) apitype.JobDetail {
	s.t.Helper()
	var j apitype.JobDetail
	eventually(s.t, "the lease of "+id+" to end", func() bool {
		j = s.job(consumer, id)
		return j.Status != "INFLIGHT"
	})
	return j
}

func expiry(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	start := time.Now()
	s.claim("k", id)
	require.Equal(t, 1, s.job("k", id).Attempts)
	j := s.awaitReturn("k", id)
	require.GreaterOrEqual(t, time.Since(start), visible)
	require.Equal(t, "QUEUED", j.Status)
	require.Equal(t, 1, j.Attempts, "the lost attempt is counted")
	listed := s.awaitQueued("k", 1)[0]
	require.Equal(t, id, listed.ID)
	require.Equal(t, 1, listed.Attempts)
	start = time.Now()
	s.claim("k", id)
	require.Equal(t, 2, s.job("k", id).Attempts)
	eventually(t, "the death of the job", func() bool { return s.job("k", id).Status == "DEAD" })
	require.GreaterOrEqual(t, time.Since(start), visible)
	dead := s.dead("k", 10)
	require.Len(t, dead, 1)
	require.Equal(t, id, dead[0].ID)
	require.Equal(t, 2, dead[0].Attempts, "max retries and one")
	require.Contains(t, dead[0].Reason, "lease")
	require.Empty(t, s.queued("k", ""))
}

func longerVisibility(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.publish("short")
	s.publish("long")
	jobs := s.awaitQueued("k", 2)
	short, long := jobs[0].ID, jobs[1].ID
	start := time.Now()
	require.NotEmpty(t, s.move("k", long, `{"NextState":"INFLIGHT","IncrementalTimeout":3}`).header.Get("X-Broker-Lease"))
	s.claim("k", short)
	require.Equal(t, "QUEUED", s.awaitReturn("k", short).Status)
	require.Equal(t, "INFLIGHT", s.job("k", long).Status)
	require.Equal(t, "QUEUED", s.awaitReturn("k", long).Status)
	require.GreaterOrEqual(t, time.Since(start), visible+3*time.Second)
	// It was for that lease only.
	start = time.Now()
	s.claim("k", long)
	require.Equal(t, "DEAD", s.awaitReturn("k", long).Status)
	require.GreaterOrEqual(t, time.Since(start), visible)
	// From DEAD as well.
	start = time.Now()
	require.NotEmpty(t, s.move("k", long, `{"NextState":"INFLIGHT","IncrementalTimeout":1}`).header.Get("X-Broker-Lease"))
	require.Equal(t, "DEAD", s.awaitReturn("k", long).Status)
	require.GreaterOrEqual(t, time.Since(start), visible+time.Second)
}

func shownVisibility(t *testing.T, p *process) {
	for timeouts, length := range map[string]time.Duration{"": visible, "30s": 30 * time.Second,
		"30s, then none": visible} {
		s := p.stage(t, "k", "push=http://127.0.0.1:1/")
		shown := func(consumer string) (k apitype.Consumer) {
			require.NoError(t, json.Unmarshal([]byte(s.do("GET", s.path("/consumer/", consumer), "").body), &k))
			return k
		}
		own, _, again := strings.Cut(timeouts, ",")
		s.put(s.path("/consumer/k"), "timeout", own)
		if again {
			s.put(s.path("/consumer/k"), "timeout", "")
		}
		require.Equal(t, length.String(), shown("k").Policy.Timeout, timeouts)
		require.Equal(t, length == visible, slices.Contains(shown("k").Inherited, "Timeout"), timeouts)
		require.Equal(t, "5s", shown("push").Policy.Timeout, "of the whole exchange of a push attempt")

		s.newJob("k")
		before := time.Now()
		r := s.claimWith("", `{"Limit":1}`, "application/json")
		var page apitype.ClaimedJobs
		require.NoError(t, json.Unmarshal([]byte(r.body), &page), r.body)
		require.Len(t, page.Result, 1)
		require.WithinRange(t, page.Result[0].Deadline, before.Add(length-time.Second), time.Now().Add(length+time.Second))
	}
}

func saidRenewal(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	lease := s.claim("k", id)
	renew := func(members string) string {
		return s.do("POST", s.path("/consumer/k/jobs"), `{"Updates":[{"ID":"`+id+`","Lease":"`+lease+`"`+members+`}]}`,
			consumerTokens("k")...).body
	}
	for members, length := range map[string]time.Duration{
		`,"NextState":"INFLIGHT","Timeout":60`:                           time.Minute,
		`,"NextState":"INFLIGHT","Timeout":30,"IncrementalTimeout":3`:    33 * time.Second,
		`,"nextState":"INFLIGHT","timeout":20`:                           20 * time.Second,
		`,"NextState":"INFLIGHT","IncrementalTimeout":50,"Timeout":null`: visible + 50*time.Second,
	} {
		before := time.Now()
		require.Contains(t, renew(members), `"Status":202`, members)
		until := s.job("k", id).LeaseUntil
		require.NotNil(t, until)
		require.WithinRange(t, until.Time, before.Add(length-time.Second), time.Now().Add(length+time.Second), members)
	}
	for _, members := range []string{`,"NextState":"INFLIGHT","Timeout":604801`, `,"NextState":"INFLIGHT","Timeout":-1`,
		`,"NextState":"QUEUED","Timeout":1`, `,"NextState":"DELIVERED","Timeout":1`} {
		require.Contains(t, renew(members), `"code":"invalid_timeout"`, members)
	}
	require.Contains(t, s.move("k", id, `{"NextState":"INFLIGHT","Timeout":9}`).body, "lease_required")
	require.Equal(t, 202, s.move("k", id, `{"NextState":"INFLIGHT","Timeout":9,"Lease":"`+lease+`"}`).status)
	require.WithinRange(t, s.job("k", id).LeaseUntil.Time, time.Now(), time.Now().Add(10*time.Second))
	require.Contains(t, renew(`,"NextState":"DELIVERED"`), `"Status":202`)
}

func noExtension(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	lease := s.claim("k", id)
	changed := s.job("k", id).StatusChangedAt
	s.move("k", id, to("INFLIGHT"))
	require.Equal(t, changed, s.job("k", id).StatusChangedAt, "nothing was stored")
	var again string
	// If asking extended the lease it would never end.
	eventually(t, "the lease to end while its holder keeps asking", func() bool {
		r := s.move("k", id, to("INFLIGHT"))
		require.Equal(t, 202, r.status, r.body)
		again = r.header.Get("X-Broker-Lease")
		return again != ""
	})
	require.NotEqual(t, lease, again)
	require.Equal(t, 2, s.job("k", id).Attempts)
	require.False(t, s.job("k", id).StatusChangedAt.Before(changed.Time), "the end of the first lease is stored")
}

func lateWorker(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	first := s.claim("k", id)
	s.awaitReturn("k", id)
	requireProblem(t, s.move("k", id, to("DELIVERED"), "X-Broker-Lease", first), 409, "lease_lost")
	requireProblem(t, s.move("k", id, to("DELIVERED")), 400, "invalid_transition")
	require.Equal(t, "QUEUED", s.job("k", id).Status)
	second := s.claim("k", id)
	requireProblem(t, s.move("k", id, to("DELIVERED"), "X-Broker-Lease", first), 409, "lease_lost")
	requireProblem(t, s.move("k", id, to("DEAD"), "X-Broker-Lease", first), 409, "lease_lost")
	require.Equal(t, "INFLIGHT", s.job("k", id).Status)
	require.Equal(t, 202, s.move("k", id, to("DELIVERED"), "X-Broker-Lease", second).status)
	require.Equal(t, "DELIVERED", s.job("k", id).Status)
	require.Equal(t, 2, s.job("k", id).Attempts)
}

func reopenedExpiry(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	s.claim("k", id)
	require.Equal(t, 202, s.move("k", id, to("DEAD")).status)
	s.claim("k", id)
	require.Equal(t, "DEAD", s.awaitReturn("k", id).Status)
	j := s.job("k", id)
	require.Equal(t, 2, j.Attempts)
	require.True(t, strings.Contains(j.Reason, "lease"), j.Reason)
	require.Empty(t, s.queued("k", ""))
	s.claim("k", id)
	require.Equal(t, 3, s.job("k", id).Attempts, "reopening is not bounded by the retries")
	require.Equal(t, 202, s.move("k", id, to("DELIVERED")).status)
}
