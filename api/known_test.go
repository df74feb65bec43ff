package api

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestEveryRouteRefusesHeadersAndParametersThatItDoesNotKnow(t *testing.T) {
	w := newWorld(t, nil)
	for _, r := range Routes() {
		path := example(r.Path)
		w.data = nil
		refused := func(got reply, code, fault string) {
			if strings.HasPrefix(path, "/sqs/") {
				got.sqsFault(400, fault)
			} else {
				got.problem(400, code)
			}
		}
		got := w.do(r.Method, path, "", "x-broker-Surprise: "+secret)
		refused(got, "unknown_header", "InvalidParameterValue")
		require.Contains(t, got.Body, "X-Broker-Surprise")
		require.NotContains(t, got.Body, secret)
		got = w.do(r.Method, path+"?surprise="+secret, "")
		refused(got, "unknown_parameter", "InvalidQueryParameter")
		require.Contains(t, got.Body, "surprise")
		require.NotContains(t, got.Body, secret)
		for _, name := range special {
			known := slices.Contains(r.Headers, name)
			got := w.do(r.Method, path, "", name+": "+secret)
			require.Equal(t, !known, strings.Contains(got.Body, "which this route does not take"), "%s %s: %s %s", r.Method,
				path, name, got.Body)
		}
		if !slices.ContainsFunc(r.Headers, func(name string) bool { return slices.Contains(special, name) }) {
			require.Empty(t, w.data)
		}
		for _, name := range r.Query {
			require.NotContains(t, w.do(r.Method, path+"?"+name+"=", "").Body, "unknown_parameter")
			upper := strings.ToUpper(name[:1]) + name[1:]
			require.Contains(t, w.do(r.Method, path+"?"+upper+"=1", "").problem(400, "unknown_parameter").Body,
				"Did you mean "+name+"?")
		}
	}
	w.get("/nowhere?x=1", "X-Broker-Surprise: 1").problem(404, "no_such_path")
}

func TestARefusedHeaderLeadsToTheNearestOne(t *testing.T) {
	w := newWorld(t, nil)
	for name, meant := range map[string]string{
		"X-Broker-Schedule-For": "X-Broker-Scheduled-For", "X-Broker-Consumer": "X-Broker-Consumers",
		"X-Broker-Priority": "X-Broker-Message-Priority",
		"X-Broker-TTL":      "X-Broker-Message-TTL", "X-Broker-Idempotency-Key": "Idempotency-Key",
		"x-broker-orderingkey":  "X-Broker-Ordering-Key",
		"X-Broker-Chanel-Token": "X-Broker-Channel-Token", "X-Broker-Recurence": "X-Broker-Recurrence",
		"X-Broker-Message-Scheduled-For": "X-Broker-Scheduled-For", "X-Broker-Delay-Seconds": "X-Broker-Delay",
		"X-BROKER-METADATA": "X-Broker-Metadata-Headers",
	} {
		for _, path := range []string{"/channel/c/broadcast", "/channel/c/request"} {
			detail := w.do("POST", path, "payload", name+": 1").problem(400, "unknown_header").Body
			require.Contains(t, strings.ToLower(detail), strings.ToLower(name))
			require.Contains(t, detail, "Did you mean "+meant+"?")
		}
	}
	require.Contains(t, w.do("POST", "/channel/c/consumer/k/job/j", "{}", "X-Broker-Leases: x").problem(400,
		"unknown_header").Body, "Did you mean X-Broker-Lease?")
	long := "X-Broker-" + strings.Repeat("a", 4000)
	require.Less(t, len(w.do("POST", "/channel/c/broadcast", "", long+": x").is(400).Body), 1000)
	require.Empty(t, w.data)
}

// A relay sends the headers of a delivery back, and a client sets its tokens on all its requests.
func TestTheHeadersOfDeliveriesAndTokensAreKnownEverywhere(t *testing.T) {
	w := newWorld(t, nil)
	var all []string
	for _, name := range commonHeaders {
		if name != headerAdminToken {
			all = append(all, strings.ToLower(name)+": 1")
		}
	}
	for _, r := range Routes() {
		require.NotContains(t, w.do(r.Method, example(r.Path), "", all...).Body, `"code":"unknown_header"`)
	}
}

// answerHeaders are those that only answers have.
var answerHeaders = []string{"X-Broker-Ack", "X-Broker-Backlog", "X-Broker-Claimed", "X-Broker-Recipients",
	"X-Broker-Why"}

// Each header that the sources name is known, so no part of the broker reads one that is refused.
func TestEachHeaderThatTheSourcesNameIsKnown(t *testing.T) {
	text := regexp.MustCompile(`"(X-Broker-[A-Za-z-]+)"`)
	n := 0
	for _, dir := range []string{"../api", "../hotpath", "../internal", "../durable", "../reaper"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "test" {
				return fs.SkipDir
			}
			if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			source, err := os.ReadFile(path)
			for _, m := range text.FindAllSubmatch(source, -1) {
				n++
				if _, ok := headerNamed(m[1]); string(m[1]) != brokerPrefix && !slices.Contains(answerHeaders, string(m[1])) {
					require.True(t, ok, "%s names %s", path, m[1])
				}
			}
			return err
		}))
	}
	require.Greater(t, n, 30)
	require.LessOrEqual(t, len(special), 32, "bits of a headerSet")
}

func TestMessagesAreListedByStatus(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.insert(durable.Message{Key: "m"})
	w.insert(durable.Message{Key: "m2"})
	for query, n := range map[string]int{"status=102": 2, "status=DISPATCHED": 2, "status=101": 0,
		"status=101&status=102": 2} {
		require.Len(t, w.get("/channel/c/messages?" + query).is(200).json()["Result"], n, query)
	}
	require.Contains(t, w.get("/channel/c/messages?status=102&size=1").json()["Pages"].(map[string]any)["next"],
		"status=102")
	w.get("/channel/c/messages?status=103").problem(400, "invalid_status")
}
