package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// A stage is a channel of its own on a shared broker, so that many stories run
// side by side on one process. Producer p and all tokens are those of sample.
type stage struct {
	*process
	channel string
	release func() // of a story whose endpoint stands still: it answers from now on
}

var stages atomic.Int64

// in is the same broker for another test.
func (p *process) in(t testing.TB) *process {
	q := *p
	q.t = t
	return &q
}

// stage makes a channel with the consumers, given as for sample.
func (p *process) stage(t *testing.T, consumers ...string) *stage {
	t.Helper()
	s := &stage{process: p.in(t), channel: fmt.Sprintf("stage-%d", stages.Add(1))}
	s.put("/producer/p", "token", "p-token")
	s.put(s.path(), "token", "c-token")
	for _, k := range consumers {
		s.join(k)
	}
	return s
}

// on is the same stage seen through another broker.
func (s *stage) on(p *process) *stage { return &stage{process: p.in(s.t), channel: s.channel} }

func (s *stage) path(parts ...string) string {
	return "/channel/" + s.channel + strings.Join(parts, "")
}

// join adds a consumer: "id=callback" (push) or "id" (pull).
func (s *stage) join(consumer string) {
	s.t.Helper()
	id, callback, push := strings.Cut(consumer, "=")
	if push {
		s.put(s.path("/consumer/", id), "token", id+"-token", "callbackUrl", callback)
	} else {
		s.put(s.path("/consumer/", id), "token", id+"-token", "type", "pull")
	}
}

// post sends a broadcast.
func (s *stage) post(body string, headers ...string) reply {
	s.t.Helper()
	return s.do("POST", s.path("/broadcast"), body, append(append([]string{}, producerTokens...), headers...)...)
}

// publish posts a message and requires 201; it returns its path.
func (s *stage) publish(body string, headers ...string) string {
	s.t.Helper()
	r := certain(s.t, func() reply { return s.post(body, headers...) }, headers)
	require.Equal(s.t, 201, r.status, r.body)
	return r.header.Get("Location")
}

// page gets a page of queued jobs by its path.
func (s *stage) page(consumer, path string) apitype.QueuedJobs {
	s.t.Helper()
	r := s.do("GET", path, "", consumerTokens(consumer)...)
	require.Equal(s.t, 200, r.status, r.body)
	var l apitype.QueuedJobs
	strictjson.Decode(s.t, []byte(r.body), &l)
	require.NotNil(s.t, l.Result, "an empty list is an array")
	return l
}

func (s *stage) queued(consumer, query string) []apitype.QueuedJob {
	s.t.Helper()
	return s.page(consumer, s.path("/consumer/", consumer, "/queued-jobs?", query)).Result
}

// awaitQueued waits until n jobs are listed.
func (s *stage) awaitQueued(consumer string, n int) []apitype.QueuedJob {
	s.t.Helper()
	var jobs []apitype.QueuedJob
	eventually(s.t, fmt.Sprintf("%d queued jobs of %s", n, consumer), func() bool {
		jobs = s.queued(consumer, "limit=100")
		return len(jobs) == n
	})
	return jobs
}

// newJob publishes a message and returns the job that consumer, which has no
// other queued one, gets from it.
func (s *stage) newJob(consumer string) string {
	s.t.Helper()
	s.publish("work")
	return s.awaitQueued(consumer, 1)[0].ID
}

func (s *stage) move(consumer, job, body string, headers ...string) reply {
	s.t.Helper()
	return s.do("POST", s.path("/consumer/", consumer, "/job/", job), body,
		append(consumerTokens(consumer), append([]string{"Content-Type", "application/json"}, headers...)...)...)
}

// to is the body that asks for a state.
func to(state string) string { return `{"NextState":"` + state + `"}` }

// claim takes a job that nobody holds and returns its lease.
func (s *stage) claim(consumer, job string) string {
	s.t.Helper()
	r := s.move(consumer, job, to("INFLIGHT"))
	require.Equal(s.t, 202, r.status, r.body)
	require.NotEmpty(s.t, r.header.Get("X-Broker-Lease"), "we claimed it")
	return r.header.Get("X-Broker-Lease")
}

func (s *stage) job(consumer, id string) apitype.JobDetail {
	s.t.Helper()
	r := s.do("GET", s.path("/consumer/", consumer, "/job/", id), "")
	require.Equal(s.t, 200, r.status, r.body)
	var j apitype.JobDetail
	strictjson.Decode(s.t, []byte(r.body), &j)
	return j
}

func (s *stage) message(location string) apitype.Message {
	s.t.Helper()
	r := s.do("GET", location, "")
	require.Equal(s.t, 200, r.status, r.body)
	var m apitype.Message
	strictjson.Decode(s.t, []byte(r.body), &m)
	return m
}

// awaitStatus waits until every job of the message has the status.
func (s *stage) awaitStatus(location, status string) apitype.Message {
	s.t.Helper()
	var m apitype.Message
	eventually(s.t, "the jobs of "+location+" to be "+status, func() bool {
		m = s.message(location)
		for _, j := range m.Jobs {
			if j.Status != status {
				return false
			}
		}
		return len(m.Jobs) > 0
	})
	return m
}

// dead is the whole DLQ of a consumer, read in pages of size.
func (s *stage) dead(consumer string, size int) []apitype.Job {
	s.t.Helper()
	var all []apitype.Job
	next := s.path("/consumer/", consumer, "/dlq?size=", fmt.Sprint(size))
	for next != "" {
		r := s.do("GET", next, "")
		require.Equal(s.t, 200, r.status, r.body)
		var l apitype.DeadLetters
		strictjson.Decode(s.t, []byte(r.body), &l)
		require.LessOrEqual(s.t, len(l.DeadJobs), size)
		all = append(all, l.DeadJobs...)
		next = l.Pages.Next
	}
	return all
}

// redriveAll posts the DLQ form.
func (s *stage) redriveAll(consumer, token string) reply {
	s.t.Helper()
	return s.do("POST", s.path("/consumer/", consumer, "/dlq"), "requeue="+url.QueryEscape(token), "Content-Type",
		"application/x-www-form-urlencoded")
}

// requireProblem checks an error answer: status, media type and stable code.
func requireProblem(t testing.TB, r reply, status int, code string) {
	t.Helper()
	require.Equal(t, status, r.status, r.body)
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), r.body)
	var p apitype.Problem
	strictjson.Decode(t, []byte(r.body), &p)
	require.Equal(t, status, p.Status)
	require.Equal(t, code, p.Code, p.Detail)
	require.NotEmpty(t, p.Detail)
}

// serveHTTP runs a consumer whose handler the test wrote itself. Handlers that
// wait should wait for the returned channel as well: it closes with the test.
func serveHTTP(t *testing.T, handler func(w http.ResponseWriter, r *http.Request, over <-chan struct{})) string {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r, over) }))
	t.Cleanup(func() {
		close(over)
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
