package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// Every route of the data plane answers with the status, the media type and the JSON that package
// apitype says. The tests of package api do the same for the control plane.
func TestAnswersOfTheDataPlaneHaveTheirTypes(t *testing.T) {
	s := embeddedWorld(t).start().stage(t, "k")
	routes := map[string]apitype.Route{} // not called yet
	for _, r := range apitype.Routes() {
		routes[r.Method+" "+r.Path] = r
	}
	call := func(route, job, media, body string, more ...string) {
		t.Helper()
		require.Contains(t, routes, route)
		want := routes[route].Answers[0]
		if len(more) > 0 { // the client does not want to wait
			want = routes[route].Answers[1]
		}
		delete(routes, route)
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{channel}", s.channel, "{consumer}", "k", "{job}", job).Replace(path)
		r := s.do(method, path, body, slices.Concat([]string{"Content-Type", media}, consumerTokens("k"),
			producerTokens, more)...)
		require.Equal(t, want.Status, r.status, "%s: %s", route, r.body)
		if want.Media == "" {
			require.Empty(t, r.body, route)
			return
		}
		require.Equal(t, want.Media, r.header.Get("Content-Type"), route)
		texts := []string{r.body}
		if want.Media == apitype.MediaLines {
			texts = slices.Collect(strings.Lines(r.body))
			require.Len(t, texts, strings.Count(body, "\n"))
		}
		for _, text := range texts {
			strictjson.Decode(t, []byte(text), reflect.New(reflect.TypeOf(want.Value)).Interface())
		}
	}
	const channel, consumer = "/channel/{channel}", "/channel/{channel}/consumer/{consumer}"
	call("POST "+channel+"/broadcast", "", "text/plain", "one")
	call("POST "+channel+"/batch", "", apitype.MediaLines, `{"Payload":"two"}`+"\n"+`{"Payload":2}`+"\n")
	first := s.awaitQueued("k", 2)[0].ID
	call("POST "+channel+"/bulk", "", apitype.MediaLines, `{"Payload":"three"}`+"\n")
	require.Equal(t, 200, s.do("PUT", "/channel/"+s.channel+"/consumer/k", "responses=store", "Content-Type",
		"application/x-www-form-urlencoded").status)
	call("POST "+channel+"/request", "", "text/plain", "four", "Prefer", "wait=0")
	call("GET "+consumer+"/queued-jobs", "", "", "")
	call("POST "+consumer+"/job/{job}", first, apitype.MediaJSON, to("INFLIGHT"))
	call("POST "+consumer+"/claim", "", apitype.MediaJSON, `{"Limit":1}`)
	call("POST "+consumer+"/jobs", "", apitype.MediaJSON, `{"Updates":[{"ID":"`+first+
		`","NextState":"DELIVERED"},{"ID":"x","NextState":"DEAD"}]}`)
	for _, r := range api.Routes() {
		if r.Access == api.AccessData {
			require.NotContains(t, routes, r.Method+" "+r.Path, "the route is not called")
		}
	}
}
