package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
	"github.com/penstock-broker/penstock/redisq"
)

// An authority that the system does not know is named by SSL_CERT_FILE.
func TestRedisOverTLSIsTrustedOnlyWithItsAuthority(t *testing.T) {
	parallel(t)
	server := servers.StartRedisTLS(t, "--requirepass", "s3cret")
	url := strings.Replace(server.URL(), "rediss://", "rediss://:s3cret@", 1)
	w := &world{t: t, env: []string{"BROKER_DATA_DIR=" + t.TempDir(), "BROKER_REDIS_URL=" + url}}
	w.with(patient...)

	stranger := w.launch()
	stranger.awaitEnd()
	require.Equal(t, exitStore, stranger.cmd.ProcessState.ExitCode(), "its authority is not known")
	require.Contains(t, stranger.log.String(), "certificate")
	require.NotContains(t, stranger.log.String(), "s3cret")

	plain := w.launch("BROKER_REDIS_URL=" + strings.Replace(url, "rediss://", "redis://", 1))
	plain.awaitEnd()
	require.Equal(t, exitStore, plain.cmd.ProcessState.ExitCode(), "it speaks TLS only")

	sink := newSink(t, nil)
	p := w.start("SSL_CERT_FILE=" + server.CAFile)
	p.sample("k="+sink.URL, "pull")
	p.publish("m-1")
	eventually(t, "a delivery over TLS", func() bool { return sink.times("m-1") == 1 })
	finishPull(t, p, "pull", 1)
	require.NotContains(t, p.log.String(), "s3cret")
}

// leastRights are the rules in docs/settings-together.md, without name and password, and without the
// command of a Redis whose clock went back.
var leastRights = slices.DeleteFunc(redisq.Rights(), func(rule string) bool { return rule == "+unlink" })

var scriptCommand = regexp.MustCompile(`redis\.call\('([A-Z]+)'`)

// A script that is rarely run needs its commands too.
func TestTheDocumentedRightsOfARedisUserCoverTheScripts(t *testing.T) {
	page, err := os.ReadFile("../../docs/settings-together.md")
	require.NoError(t, err)
	_, rules, found := strings.Cut(string(page), "ACL SETUSER penstock on >PASSWORD ")
	require.True(t, found)
	rules, _, found = strings.Cut(rules, "```")
	require.True(t, found)
	documented := strings.Fields(rules)
	require.ElementsMatch(t, redisq.Rights(), documented)
	scripts, err := filepath.Glob("../../redisq/lua/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, call := range scriptCommand.FindAllSubmatch(text, -1) {
			require.Contains(t, documented, "+"+strings.ToLower(string(call[1])), name)
		}
	}
}

// A broker on a Redis that it shares with others needs these commands, on its own
// keys and its channel: nothing is denied to it, and nothing allowed goes unused.
func TestRedisUserWithTheLeastRightsSuffices(t *testing.T) {
	parallel(t)
	server := servers.StartRedis(t)
	a := admin(t, server)
	rules := []any{"acl", "setuser", "penstock", "on", ">s3cret"}
	for _, rule := range leastRights {
		rules = append(rules, rule)
	}
	require.NoError(t, a.Do(t.Context(), rules...).Err())
	require.NoError(t, a.Do(t.Context(), "acl", "setuser", "default", "off").Err()) // we are logged in and stay so
	require.NoError(t, a.Do(t.Context(), "config", "resetstat").Err())
	url := strings.Replace(server.URL(), "redis://", "redis://penstock:s3cret@", 1)
	w := &world{t: t, env: []string{"BROKER_MYSQL_DSN=" + tables.MySQL(t), "BROKER_REDIS_URL=" + url}}
	w.with(patient...).with("BROKER_QUEUE_WINDOW=20")
	useEverything(t, w)

	denials, err := a.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	for _, d := range denials {
		t.Errorf("denied: %s %s as %s", d.Reason, d.Object, d.Username)
	}
	stats, err := a.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, rule := range leastRights {
		if command, ok := strings.CutPrefix(rule, "+"); ok && !strings.Contains(stats, "cmdstat_"+command+":") {
			t.Errorf("%s is allowed and not needed", command)
		}
	}
}

// useEverything runs two brokers through all that they ask of Redis: deliveries,
// retries, dead letters, pull jobs, a backlog beyond the window, and a stop.
func useEverything(t *testing.T, w *world) {
	t.Helper()
	var failed atomic.Int64
	sink := newSink(t, func(_ int, r received) int {
		if r.body == "m-fails" && failed.Add(1) <= 3 {
			return 500
		}
		return 204
	})
	p, other := w.start(), w.start()
	p.sample("k="+sink.URL, "pull")
	p.put("/channel/c/consumer/pull", "rateLimit", "1000/1s")
	p.put("/channel/c/consumer/k", "authorization", newTokenEndpoint(t).client())
	const messages = 60 // three windows
	for range messages {
		other.publish("m-x", "X-Broker-Message-Priority", "7")
	}
	p.publish("m-fails")
	eventually(t, "the jobs of more than a page", func() bool { return len(p.queued("pull", "limit=10")) == 10 })
	first := p.do("GET", "/channel/c/consumer/pull/queued-jobs?limit=5", "", consumerTokens("pull")...)
	next, ok := first.json(t)["Pages"].(map[string]any)["next"].(string)
	require.True(t, ok, first.body)
	require.Equal(t, 200, p.do("GET", next, "", consumerTokens("pull")...).status)
	var jobs []map[string]any
	eventually(t, "jobs to be listed", func() bool { jobs = p.queued("pull", "limit=1"); return len(jobs) == 1 })
	id := jobs[0]["ID"].(string)
	require.Equal(t, 200, p.do("GET", "/channel/c/consumer/pull/job/"+id+"/why", "").status)
	require.Equal(t, 202, p.move("pull", id, to("INFLIGHT")).status)
	require.Equal(t, 202, other.move("pull", id, to("DELIVERED")).status)
	eventually(t, "the deliveries", func() bool { return sink.times("m-x") == messages })
	eventually(t, "the attempts of the one that fails", func() bool { return sink.times("m-fails") == 3 })
	eventually(t, "a dead letter", func() bool {
		return strings.Contains(p.do("GET", "/channel/c/consumer/k/dlq", "").body, `"DEAD"`)
	})
	p.do("POST", "/channel/c/consumer/k/dlq", "requeue=k-token", "Content-Type", "application/x-www-form-urlencoded")
	eventually(t, "the redriven job", func() bool { return sink.times("m-fails") == 4 })
	jobs = p.queued("pull", "limit=1")
	require.NotEmpty(t, jobs)
	require.Equal(t, 202, p.move("pull", jobs[0]["ID"].(string), to("INFLIGHT")).status)
	eventually(t, "its lease to end", func() bool {
		return slices.ContainsFunc(p.queued("pull", "limit=100"), func(j map[string]any) bool {
			return j["Attempts"].(float64) > 0
		})
	})
	require.Zero(t, p.stop())
	require.Zero(t, other.stop())
}
