package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Workers report three jobs in time, and MySQL stands still for longer than their leases last. The
// broker holds the leases of the reports that wait, so no other worker gets the jobs.
func TestFaultPauseOfMySQLLetsNoLeaseOfAReportedJobEnd(t *testing.T) {
	parallel(t)
	w := ownMySQLWorld(t).with(quick...).with("BROKER_STOP_TIMEOUT=5s") // a lease lasts 5 s + 0.5 s
	p := w.start()
	s := p.stage(t, "k")
	for range 3 {
		s.publish("work")
	}
	jobs := s.awaitQueued("k", 3)
	single, batch, dead := jobs[0].ID, jobs[1].ID, jobs[2].ID
	var leases []string
	for _, id := range []string{single, batch, dead} {
		leases = append(leases, s.claim("k", id))
	}
	w.mysql.Pause()
	claimed := time.Now()
	answers := make(chan int, 3)
	report := func(path, body string, headers ...string) {
		r, _ := p.try("POST", s.path("/consumer/k/"+path), body, append(consumerTokens("k"), append(headers, "Content-Type",
			"application/json")...)...)
		answers <- r.status
	}
	go report("job/"+single, to("DELIVERED"), "X-Broker-Lease", leases[0])
	go report("job/"+dead, to("DEAD"))
	go report("jobs", `{"Updates":[{"ID":"`+batch+`","Lease":"`+leases[1]+`","NextState":"DELIVERED"}]}`)

	leased, queue := "", w.openRedis()
	keys, err := queue.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if n, err := queue.ZCard(t.Context(), key).Result(); err == nil && n == 3 {
			require.Empty(t, leased, "only the leases are three")
			leased = key
		}
	}
	require.NotEmpty(t, leased)
	for time.Since(claimed) < 9*time.Second {
		all, err := queue.ZRangeWithScores(t.Context(), leased, 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, all, 3, "nothing is due again")
		time.Sleep(100 * time.Millisecond)
	}
	w.mysql.Resume()
	for range 3 {
		require.Contains(t, []int{200, 202, 503}, <-answers)
	}
	for id, state := range map[string]string{single: "DELIVERED", batch: "DELIVERED", dead: "DEAD"} {
		var j apitype.JobDetail
		eventually(t, "the report of "+id, func() bool { j = s.job("k", id); return j.Status != "INFLIGHT" })
		require.Equal(t, state, j.Status)
		require.Equal(t, 1, j.Attempts)
	}
	require.Empty(t, s.queued("k", ""))
	require.Zero(t, leasesEnded(t, p))
}
