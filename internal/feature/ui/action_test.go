package ui

import (
	"context"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// actOn asks for an action, or does it with a form.
func actOn(d *Dashboard, from Source, consumer, name, query, form string) *fasthttp.RequestCtx {
	var rq fasthttp.Request
	rq.SetRequestURI("/ui/x" + query)
	if form != "" {
		rq.Header.SetMethod(fasthttp.MethodPost)
		rq.SetBodyString(form)
	}
	rc := &fasthttp.RequestCtx{}
	rc.Init(&rq, nil, nil)
	rc.SetUserValue("channel", "c")
	if consumer != "" {
		rc.SetUserValue("consumer", consumer)
	}
	rc.SetUserValue("action", name)
	d.Serve(context.Background(), rc, Visit{Page: "/ui/action", Open: true, Source: from})
	return rc
}

var sealOn = regexp.MustCompile(`name="bound" value="([^"]*)"><input type="hidden" name="seal" value="([^"]*)"`)

func TestEachActionAsksAndShowsHostileTextsAsText(t *testing.T) {
	d := newDashboard()
	d.o.AllowDelete = true
	query := "?" + url.Values{"fingerprint": {hostile}, "redrive": {hostile}, "canary": {"true"}}.Encode()
	all := maps.Clone(consumerActions)
	for name := range channelActions {
		all["channel "+name] = channelActions[name]
	}
	for name := range all {
		own, onChannel := strings.CutPrefix(name, "channel ")
		consumer := "k"
		if onChannel {
			consumer = ""
		}
		rc := actOn(d, full{hostile}, consumer, own, query, "")
		body := unscripted(rc)
		require.Equal(t, 200, rc.Response.StatusCode(), "%s: %s", name, body)
		for _, tag := range []string{"<script", "<img", "onerror=alert(1)>'", "ZgotmplZ", "%!"} {
			require.NotContains(t, body, tag, name)
		}
		require.Equal(t, 1, strings.Count(body, "<h1"), name)
		rc = actOn(d, empty{problem.New(404, "none_such", hostile)}, consumer, own, query, "")
		require.Equal(t, 404, rc.Response.StatusCode(), name)
		require.NotContains(t, unscripted(rc), "<script")
	}
}

// A refusing source answers questions, and refuses to do anything.
type refusing struct{ full }

func (refusing) Do(Request) (Answer, error) {
	return Answer{}, problem.New(503, "unavailable", "The store does not answer.")
}

func TestARefusalOfTheAPIIsShown(t *testing.T) {
	d := newDashboard()
	rc := actOn(d, refusing{full{"x"}}, "k", "purge", "", "")
	m := sealOn.FindStringSubmatch(string(rc.Response.Body()))
	require.Len(t, m, 3)
	rc = actOn(d, refusing{full{"x"}}, "k", "purge", "", url.Values{"bound": {m[1]}, "seal": {m[2]}}.Encode())
	require.Equal(t, 503, rc.Response.StatusCode())
	require.Contains(t, string(rc.Response.Body()), "The store does not answer.")
}

// An uncounted source knows the state of a consumer and not its jobs.
type uncounted struct{ full }

func (uncounted) Load(context.Context, string, string) (Load, error) {
	return Load{State: active, Type: "push"}, nil
}

func TestAPauseNeedsNoRedisAndAPurgeDoes(t *testing.T) {
	d := newDashboard()
	rc := actOn(d, uncounted{}, "k", "pause", "", "")
	require.Equal(t, 200, rc.Response.StatusCode())
	require.Contains(t, string(rc.Response.Body()), "Redis does not say how many jobs wait.")
	for _, name := range []string{"purge", "retry"} {
		require.Equal(t, 503, actOn(d, uncounted{}, "k", name, "", "").Response.StatusCode())
	}
}

func TestASmallDifferenceOfALargeNumberIsNoChange(t *testing.T) {
	for _, c := range []struct {
		was, is string
		want    bool
	}{{"0", "0", false}, {"0", "1", true}, {"1", "0", true}, {"99", "100", true}, {"100", "101", false},
		{"100", "102", true}, {"1000", "990", false}, {"1000", "989", true}, {"x", "1", true}, {"", "", true}} {
		require.Equal(t, c.want, differ(c.was, c.is), "%s to %s", c.was, c.is)
	}
}
