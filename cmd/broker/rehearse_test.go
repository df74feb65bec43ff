package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/bench/rehearse"
)

// byHTTP returns a command for a shell that has f done.
func byHTTP(t *testing.T, f func()) string {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { f() }))
	t.Cleanup(s.Close)
	return "NO_PROXY='*' curl -fsS " + s.URL
}

func rehearsalOf(t *testing.T, p *process, scenario string, args ...string) *rehearse.Config {
	t.Helper()
	c, err := rehearse.Parse(append([]string{"--url", p.base, "--scenario", scenario, "--i-own-this-broker",
		"--calm", "2s", "--outage", "6s", "--wait", "3m"}, args...), nil)
	require.NoError(t, err)
	return c
}

// rehearsed runs a rehearsal in which nothing may be lost.
func rehearsed(t *testing.T, c *rehearse.Config) *rehearse.Verdict {
	t.Helper()
	progress := &syncBuffer{}
	v, err := rehearse.Run(t.Context(), c, progress)
	require.NoError(t, err, progress)
	require.True(t, v.OK(), "%+v\n%s", v, progress)
	require.True(t, v.Well, "%+v\n%s", v, progress)
	require.Zero(t, v.Unknown)
	require.Len(t, v.Phases, 3)
	require.Positive(t, v.Phases[0].Accepted)
	require.Positive(t, v.Phases[2].Accepted)
	require.GreaterOrEqual(t, v.Broken, 6.0)
	for _, x := range v.Consumers {
		require.Zero(t, x.DeadLetters)
		require.GreaterOrEqual(t, x.Delivered, v.Phases[0].Accepted+v.Phases[1].Accepted+v.Phases[2].Accepted)
	}
	require.Contains(t, progress.String(), "what the rehearsal made is removed")
	var text strings.Builder
	v.Print(&text)
	require.Contains(t, text.String(), c.Scenario+" at "+c.URL+": nothing was lost, and all was well ")
	return v
}

func TestARehearsalWithoutConsumers(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true")
		v := rehearsed(t, rehearsalOf(t, p, "consumer-down"))
		require.Len(t, v.Consumers, 2)
		for _, x := range v.Consumers {
			require.GreaterOrEqual(t, x.LongestSilence, 4.0, x.Consumer)
		}
		require.Positive(t, v.Phases[1].Accepted)
	})
}

func TestARehearsalOfAKilledBroker(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true")
		again := byHTTP(t, func() {
			w.launch("BROKER_ALLOW_DELETE=true", "BROKER_LISTEN="+strings.TrimPrefix(p.base, "http://"))
		})
		c := rehearsalOf(t, p, "broker-killed", "--break", byHTTP(t, p.kill), "--mend", again)
		v := rehearsed(t, c)
		require.Positive(t, v.Refused["no connection"])
		require.Positive(t, v.Phases[1].Refused)
	})
}

func TestARehearsalWithoutRedisAndOneWithoutMySQL(t *testing.T) {
	parallel(t)
	w := ownMySQLWorld(t)
	p := w.start("BROKER_ALLOW_DELETE=true")
	v := rehearsed(t, rehearsalOf(t, p, "redis-down", "--break", byHTTP(t, w.redis.Kill), "--mend",
		byHTTP(t, w.redis.Restart)))
	require.Positive(t, v.Phases[1].Accepted, "the store takes messages without Redis")
	v = rehearsed(t, rehearsalOf(t, p, "mysql-down", "--break", byHTTP(t, w.mysql.Kill), "--mend",
		byHTTP(t, w.mysql.Restart)))
	require.NotEmpty(t, v.Refused)
}

// What was taken away is given back, and what was made is removed, however the rehearsal ends.
func TestARehearsalThatEndsEarlyMends(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	mended := filepath.Join(t.TempDir(), "mended")
	end := func(ctx context.Context, breaking string) error {
		progress := &syncBuffer{}
		v, err := rehearse.Run(ctx, rehearsalOf(t, p, "redis-down", "--outage", "1h", "--rate", "5", "--break", breaking,
			"--mend", "touch "+mended), progress)
		require.Nil(t, v)
		require.Contains(t, progress.String(), "what the rehearsal made is removed")
		require.FileExists(t, mended)
		require.NoError(t, os.Remove(mended))
		return err
	}
	require.ErrorContains(t, end(t.Context(), "exit 3"), "the command of --break failed: exit status 3")
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, end(ctx, byHTTP(t, func() { time.AfterFunc(100*time.Millisecond, cancel) })), context.Canceled)
	for _, list := range []string{"/channels", "/producers"} {
		require.NotContains(t, p.do("GET", list, "").body, "rehearsal-")
	}

	c := rehearsalOf(t, p, "redis-down", "--break", "touch "+mended, "--mend", "true", "--policy", "maxRetries=x")
	_, err := rehearse.Run(t.Context(), c, &syncBuffer{})
	require.ErrorContains(t, err, "maxRetries")
	c = rehearsalOf(t, p, "redis-down", "--break", "touch "+mended, "--mend", "true", "--policy", "filter=false",
		"--calm", "4s")
	_, err = rehearse.Run(t.Context(), c, &syncBuffer{})
	require.ErrorContains(t, err, "all is not well before the outage")
	require.NoFileExists(t, mended, "nothing was broken")
}
