package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A door takes JSON. text is a body with one place for members, of which member is one that has the
// value. post sends the body and returns the status and the code of the answer. A body with the member
// once is taken, unless once is false.
type door struct {
	text, member, value string
	post                func(s *stage, text string) (status int, code string)
	once                bool
}

func posts(method, path, contentType string, tokens ...string) func(*stage, string) (int, string) {
	return func(s *stage, text string) (int, string) {
		s.t.Helper()
		path := strings.ReplaceAll(path, "{channel}", s.channel)
		if strings.Contains(path, "{job}") {
			path = strings.ReplaceAll(path, "{job}", s.queued("k", "limit=1")[0].ID)
		}
		r := s.do(method, path, text,
			append([]string{"Content-Type", contentType}, tokens...)...)
		var p apitype.Problem
		if r.status == 400 {
			require.NoError(s.t, json.Unmarshal([]byte(r.body), &p), r.body)
			requireProblem(s.t, r, 400, p.Code)
		}
		return r.status, p.Code
	}
}

func postsLine(s *stage, text string) (int, string) {
	r := s.lines(text)
	require.Len(s.t, r, 1)
	return r[0].Status, r[0].Code
}

func postsEvents(s *stage, text string) (int, string) {
	r := s.events("/batch", text)
	require.NotEmpty(s.t, r)
	return r[0].Status, r[0].Code
}

// postsRow returns 400 for a row that is rejected, else 201.
func postsRow(headers ...string) func(*stage, string) (int, string) {
	return func(s *stage, text string) (int, string) {
		b := s.awaitBulk(s.bulk("application/x-ndjson", text, headers...), "DONE")
		if b.Rejected == 1 {
			return 400, "invalid_line"
		}
		return 201, ""
	}
}

// doors are all ways in that read JSON.
func doors() map[string]door {
	const asJSON = "application/json"
	broadcast := posts("POST", "/channel/{channel}/broadcast", structured, producerTokens...)
	file := posts("POST", "/channel/{channel}/bulk", asJSON, producerTokens...)
	form := posts("POST", "/channel/{channel}/bulk", uploadType, producerTokens...)
	pull := func(path string) func(*stage, string) (int, string) {
		return posts("POST", "/channel/{channel}/consumer/k/"+path, asJSON, consumerTokens("k")...)
	}
	strict := posts("PUT", "/channel/{channel}/consumer/strict", asJSON)
	const event = `{"specversion":"1.0","type":"t","source":"/s",`
	return map[string]door{
		"a line of a batch":        {`{%s}`, "Payload", "x", postsLine, true},
		"the headers of a line":    {`{"Payload":"x","Headers":{%s}}`, "x-a", "x", postsLine, true},
		"an ID of a line":          {`{"Payload":"x",%s}`, "MessageID", "x", postsLine, true},
		"a structured event":       {event + `%s}`, "id", "1", broadcast, true},
		"an extension of an event": {event + `"id":"2",%s}`, "x", "x", broadcast, true},
		"an event of a batch":      {event + `%s}`, "id", "3", postsEvents, true},
		"a row":                    {`{%s}`, "Payload", "x", postsRow(), true},
		"a row of a template":      {`{"b":"x",%s}`, "a", "x", postsRow("X-Broker-Bulk-Template", `{"Payload":"{{b}}"}`), true},
		"a bulk of a file":         {`{"FileURL":"http://x.example/","Format":"csv",%s}`, "Rate", "1/1s", file, false},
		"the template of a bulk": {`{"FileURL":"http://x.example/","Format":"csv","Template":{%s}}`, "Payload", "x", file,
			false},
		"the options of a form":    {formOf(`{%s}`, people), "Format", "csv", form, false},
		"the headers of a form":    {formOf(`{"Template":{"Headers":{%s}}}`, people), "x-a", "x", form, true},
		"a claim":                  {`{%s}`, "Wait", "0s", pull("claim"), true},
		"an update":                {`{"Updates":[{%s}]}`, "Lease", "x", pull("jobs"), true},
		"a job":                    {`{"NextState":"DEAD",%s}`, "Lease", "x", pull("job/{job}"), true},
		"a replay":                 {`{"From":"2020-01-01T00:00:00Z",%s}`, "Filter", "true", pull("replay"), true},
		"a redrive":                {`{%s}`, "requeue", "k-token", pull("dlq"), true},
		"a producer":               {`{%s}`, "Token", "x", posts("PUT", "/producer/{channel}-strict", asJSON), true},
		"a channel":                {`{%s}`, "Name", "x", posts("PUT", "/channel/{channel}-strict", asJSON), true},
		"a consumer":               {`{"Type":"pull",%s}`, "Name", "x", strict, true},
		"a policy":                 {`{"Type":"pull","Policy":{%s}}`, "Timeout", "5s", strict, true},
		"a member that is ignored": {`{"Type":"pull",%s}`, "HeldUntil", "x", strict, true},
	}
}

// inOtherCase returns a name whose letters have another case.
func inOtherCase(name string) string {
	if upper := strings.ToUpper(name); upper != name {
		return upper
	}
	return strings.ToLower(name)
}

// What two readers of the same text may read differently is refused at each door, for that reason, and
// nothing of it takes effect.
func TestJSONThatReadersReadDifferentlyIsRefusedAtEachDoor(t *testing.T) {
	p := embeddedWorld(t).start()
	reasons := []string{"invalid_line", "invalid_payload", "invalid_cloudevent", "invalid_json", "invalid_body",
		"duplicate_field", "invalid_metadata_headers"}
	for name, d := range doors() {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			s := p.stage(t, "k")
			job := s.newJob("k")
			open := func(members string) string { return strings.Replace(d.text, "%s", members, 1) }
			for what, members := range map[string]string{
				"a name twice":             fmt.Sprintf(`%q:%q,%[1]q:%[2]q`, d.member, d.value),
				"an escaped name twice":    fmt.Sprintf(`%q:%q,"\u%04x%s":%[2]q`, d.member, d.value, d.member[0], d.member[1:]),
				"in capitals, too":         fmt.Sprintf(`%q:%q,%q:%[2]q`, d.member, d.value, inOtherCase(d.member)),
				"bytes that are no UTF-8":  fmt.Sprintf("%q:\"%s\xff\"", d.member, d.value),
				"a name that is no UTF-8":  fmt.Sprintf("\"%s\xc3\":%q", d.member, d.value),
				"half of a surrogate pair": fmt.Sprintf(`%q:"%s\ud800"`, d.member, d.value),
				"the other half":           fmt.Sprintf(`%q:"%s\udc00\ud800"`, d.member, d.value),
				"half a pair in a name":    fmt.Sprintf(`"%s\ud83d":%q`, d.member, d.value),
				"a control character":      fmt.Sprintf("%q:\"%s\t\"", d.member, d.value),
				"deep nesting": fmt.Sprintf(`%q:%s`, d.member, strings.Repeat("[", 10_001)+
					strings.Repeat("]", 10_001)),
			} {
				if what == "in capitals, too" && name == "a row of a template" {
					continue // its columns are two
				}
				status, code := d.post(s, open(members))
				require.Equal(t, 400, status, what)
				require.Contains(t, reasons, code, what)
			}
			jobs := s.queued("k", "limit=2")
			require.Len(t, jobs, 1, "nothing was stored or claimed")
			require.Equal(t, job, jobs[0].ID)
			for _, path := range []string{"/producer/" + s.channel + "-strict", s.path("-strict"), s.path("/consumer/strict")} {
				require.Equal(t, 404, s.do("GET", path, "").status, path)
			}
			if d.once {
				status, code := d.post(s, open(fmt.Sprintf(`%q:%q`, d.member, d.value)))
				require.NotEqual(t, 400, status, code)
			}
		})
	}
}
