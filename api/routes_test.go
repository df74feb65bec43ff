package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// seedRoutes are the routes that the two specifications name, in their order.
const seedRoutes = `
PUT /producer/{producer}
GET /producers
GET /producer/{producer}
PUT /channel/{channel}
GET /channels
GET /channel/{channel}
PUT /channel/{channel}/consumer/{consumer}
GET /channel/{channel}/consumers
GET /channel/{channel}/consumer/{consumer}
GET /channel/{channel}/consumer/{consumer}/dlq
POST /channel/{channel}/broadcast
GET /channel/{channel}/messages
GET /channel/{channel}/message/{message}
POST /channel/{channel}/message/{message}/re-trigger
POST /channel/{channel}/message/{message}/job/{job}/re-trigger
GET /channel/{channel}/consumer/{consumer}/queued-jobs
POST /channel/{channel}/consumer/{consumer}/job/{job}`

func TestTheTableHoldsEveryRouteOfTheSpecifications(t *testing.T) {
	var have []string
	for _, r := range Routes() {
		line := r.Method + " " + r.Path
		require.NotContains(t, have, line, "a route is listed twice")
		require.NotEmpty(t, r.Summary)
		have = append(have, line)
	}
	require.Subset(t, have, strings.Split(strings.TrimSpace(seedRoutes), "\n"))
}

// A HEAD is answered as the GET is, without the body.
func TestHEADIsWhereverGETIs(t *testing.T) {
	now := time.Now().UnixMilli() // some answers tell the time
	w := newWorld(t, func(o *Options) { o.NowMs = func() int64 { return now } })
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{Key: "m", Payload: []byte("payload")})
	w.kill(k, m)
	addr := startServer(t, w.api.Handler, nil)
	gets := 0
	for _, r := range Routes() {
		if r.Method != "GET" {
			continue
		}
		gets++
		path := strings.Replace(example(r.Path), "/job/j", "/job/"+m.ID.Job(k.Position).String(), 1)
		for _, path := range []string{path, path + "?size=x", strings.Replace(path, "/c/", "/%20/", 1)} {
			full := raw(
				t, addr, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: same\r\nConnection: close\r\n\r\n")[0]
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			_, err = io.WriteString(c, "HEAD "+path+" HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: same\r\nConnection: "+
				"close\r\n\r\n")
			require.NoError(t, err)
			all, err := io.ReadAll(c)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			text, body, ok := strings.Cut(string(all), "\r\n\r\n")
			require.True(t, ok)
			require.Empty(t, body, "HEAD %s has a body", path)
			bare, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text+"\r\n\r\n")), &http.Request{Method: "HEAD"})
			require.NoError(t, err)
			require.Equal(t, full.StatusCode, bare.StatusCode, path)
			require.Equal(t, full.ContentLength, bare.ContentLength, "%s\n%s", path, text)
			for _, h := range []http.Header{full.Header, bare.Header} {
				h.Del("Date")
				policy := h.Get("Content-Security-Policy") // a page has another nonce each time
				if at := strings.Index(policy, "'nonce-"); at > 0 {
					h.Set("Content-Security-Policy", policy[:at])
				}
			}
			require.Equal(t, full.Header, bare.Header, path)
			if etag := full.Header.Get("ETag"); etag != "" {
				r := w.do("HEAD", path, "", "If-None-Match: "+etag).is(304)
				require.Equal(t, etag, r.Header("ETag"))
			}
		}
	}
	require.Greater(t, gets, 10)
}

// example fills the parameters of a path.
func example(path string) string {
	return strings.NewReplacer("{producer}", "p", "{channel}", "c", "{group}", "g", "{consumer}", "k", "{message}", "m",
		"{scheduled}", "s", "{bulk}", "06gvk862do0000000010", "{replay}", "7", "{redrive}",
		"7", "{receipt}", "r", "{key}", "K", "{job}", "j", "{link}", "l",
		"{action}", "pause").Replace(path)
}

func TestOtherMethodsGet405WithTheAllowedOnes(t *testing.T) {
	w := newWorld(t, nil)
	allowed := map[string][]string{}
	for _, r := range Routes() {
		allowed[r.Path] = append(allowed[r.Path], r.Method)
		if r.Method == "GET" {
			allowed[r.Path] = append(allowed[r.Path], "HEAD")
		}
	}
	for path, methods := range allowed {
		allow := append(slices.Clone(methods), "OPTIONS")
		slices.Sort(allow)
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"} {
			if slices.Contains(methods, method) {
				continue
			}
			r := w.do(method, example(path), "")
			if strings.HasPrefix(path, "/sqs/") {
				r.sqsFault(405, "MethodNotAllowed")
			} else {
				r.problem(405, "method_not_allowed")
			}
			require.Equal(t, strings.Join(allow, ", "), r.Header("Allow"), "%s %s", method, path)
		}
		if !slices.Contains(methods, "HEAD") {
			require.Equal(t, strings.Join(allow, ", "), w.do("HEAD", example(path), "").is(405).Header("Allow"), "HEAD %s", path)
		}
		require.Equal(t, strings.Join(allow, ", "), w.do("OPTIONS", example(path), "").is(200).Header("Allow"))
	}
}

func TestPathsThatNameNothingGet404AndNeverARedirect(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for _, path := range []string{
		"/nothing", "/producer", "/producer/", "/producers/", "/producer/p/", "/channel/c/", "/channel/c/consumers/",
		"/channel/c/nothing",
		"/channels/c", "/PRODUCERS", "/Producer/p", "//producers", "/producers//", "/./producers", "/x/../producers",
		"/channel//consumers",
		"/channel/c/../c", "/channel/c//consumers", "/%70roducers", "/producers%2F", "/channel/c/consumer/k/job",
		"/.git/config", "/debug/pprof/",
		"/channel/c/message", "/metrics/", "/readyz/x",
	} {
		r := w.get(path, adminHeader)
		require.Contains(t, []int{400, 404}, r.Status, path)
		require.Empty(t, r.Header("Location"), path)
		if r.Status == 404 {
			r.problem(404, "no_such_path")
		}
	}
}

func TestIDsInPathsAreCheckedAfterDecoding(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	bad := []string{
		"%2F", "a%2Fb", "..", "%2e%2e", "%2E", "%00", "a%00b", "%", "%2", "%zz", "%25", "%27%20OR%201=1", "'", "a'b", `%22`,
		"a+b", "%20", "a%0Ab",
		"%C3%A4", "%EF%BC%8F", "*", "a;b", "a,b", "(", "$", "%5C", strings.Repeat("x", 256), strings.Repeat("%78", 256),
	}
	for _, r := range Routes() {
		for _, name := range r.params() {
			for _, id := range bad {
				path := example(strings.Replace(r.Path, "{"+name+"}", id, 1))
				if r.Access == AccessSQS {
					w.do(r.Method, path, "", adminHeader).sqsFault(404, "InvalidAddress")
					continue
				}
				w.do(r.Method, path, "", adminHeader, formHeader).problem(400, "invalid_id")
			}
		}
	}
	require.Empty(t, w.data, "the data plane never sees a bad ID")

	w.put("/producer/%61%2d%62", "").is(201)
	require.Equal(t, "a-b", w.get("/producer/a-b").is(200).json()["ID"])
	w.put("/producer/"+strings.Repeat("x", 255), "").is(201)
	w.put("/producer/...", "").is(201)
}

func TestPatternsOfSQLAreOrdinaryIDs(t *testing.T) {
	w := newWorld(t, nil)
	w.put("/producer/ab", "").is(201)
	w.put("/producer/AB", "").is(201)
	require.Equal(t, "AB", w.get("/producer/AB").json()["ID"])
	w.get("/producer/Ab").problem(404, "producer_not_found")
	w.get("/producer/a_").problem(404, "producer_not_found")
	w.get("/producer/_b").problem(404, "producer_not_found")
	w.get("/producer/%25").problem(400, "invalid_id")
}

func TestTheDataPlaneGetsItsRequestsWithDecodedParameters(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	w.post("/channel/%63/broadcast").is(202)
	w.get("/channel/c/consumer/k%7E/queued-jobs?limit=5").is(202)
	w.post("/channel/c/consumer/k/job/j").is(202)
	require.Equal(t, []string{"broadcast c <nil> <nil>", "queued-jobs c k~ <nil>", "move c k j"}, w.data)
}

// admitted requires that a request got past the tokens: to what exists, or to a bulk, replay or redrive
// that does not exist, or without the body that a route asks for.
func (r reply) admitted(path string) {
	r.t.Helper()
	if strings.Contains(path, "{bulk}") || strings.Contains(path, "/replay") || strings.Contains(path, "/redrive") ||
		strings.HasSuffix(path, "/dlq/delete") {
		require.Contains(r.t, []int{200, 400, 404, 415}, r.Status, r.Body)
		return
	}
	if strings.HasSuffix(path, "/sqs-key") && r.Status == 201 {
		return
	}
	if strings.HasSuffix(path, "/test") && r.Status == 409 { // of a pull consumer
		return
	}
	r.is(200)
}
