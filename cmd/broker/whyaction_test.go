package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// follow does what the Action of a reason says, word for word: the request of the method that it names. Fields
// are those of a form; PUT needs the one that the Action names.
func (s *stage) follow(r apitype.WhyReason, method string, fields ...string) {
	s.t.Helper()
	found := regexp.MustCompile(method + ` (/[^ ,;:]+)`).FindStringSubmatch(r.Action)
	require.NotNil(s.t, found, "%s names no %s: %s", r.Code, method, r.Action)
	path := found[1]
	require.NotContains(s.t, path, "{", "a request that can be sent as it is")
	switch {
	case method == "PUT":
		require.Contains(s.t, r.Action, fields[0])
		s.put(path, fields...)
	case strings.HasSuffix(path, "/claim"):
		got := s.do("POST", path+"?limit=100", "", consumerTokens("k")...)
		require.Equal(s.t, 200, got.status, got.body)
	case strings.HasSuffix(path, "/requeue-dead-job"):
		got := s.do("POST", path, "", consumerTokens("k")...)
		require.Equal(s.t, 202, got.status, got.body)
	case strings.HasSuffix(path, "/broadcast"):
		header := regexp.MustCompile(`with (X-Broker-Consumers): (\S+)`).FindStringSubmatch(r.Action)
		require.NotNil(s.t, header, r.Action)
		s.publish("m", header[1:]...)
	default:
		got := s.do("POST", path, "", "X-Broker-Admin-Token", adminToken)
		require.Contains(s.t, []int{200, 201, 202}, got.status, got.body)
	}
}

// mend makes the endpoint of k answer 204.
func (s *stage) mend() { s.put(s.path("/consumer/k"), "callbackUrl", answering(s.t.(*testing.T), 204)) }

// helps does for each code what its Action says.
var helps = map[why.Code]func(s *stage, r apitype.WhyReason){
	why.Due:         func(s *stage, r apitype.WhyReason) { s.claim("k", s.awaitQueued("k", 1)[0].ID) },
	why.NoWorker:    func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
	why.WorkersBusy: func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
	why.Paused:      func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
	why.Gone: func(s *stage, r apitype.WhyReason) {
		s.follow(r, "PUT", "callbackUrl", answering(s.t.(*testing.T), 204))
		s.follow(r, "POST")
	},
	why.Tombstoned: func(s *stage, r apitype.WhyReason) { s.mend(); s.follow(r, "POST") },
	why.Probing:    func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
	why.RetryAfter: func(s *stage, r apitype.WhyReason) { s.mend(); s.follow(r, "POST") },
	why.Backoff:    func(s *stage, r apitype.WhyReason) { s.mend(); s.follow(r, "POST") },
	why.EndpointFailing: func(s *stage, r apitype.WhyReason) {
		s.follow(r, "PUT", "callbackUrl", answering(s.t.(*testing.T), 204))
	},
	why.EndpointSlow: func(s *stage, r apitype.WhyReason) { s.release() },
	why.RateLimited:  func(s *stage, r apitype.WhyReason) { s.follow(r, "PUT", "rateLimit", "1000/1s") },
	why.ConcurrencyFull: func(s *stage, r apitype.WhyReason) {
		s.follow(r, "PUT", "concurrency", "2")
	},
	why.AdaptiveSlow:      func(s *stage, r apitype.WhyReason) { s.follow(r, "PUT", "adaptive", "false") },
	why.AdaptiveHeartbeat: func(s *stage, r apitype.WhyReason) { s.follow(r, "PUT", "adaptive", "false") },
	why.OrderingKeyBlocked: func(s *stage, r apitype.WhyReason) {
		s.mend()
		eventually(s.t, "the reason of the job that blocks", func() bool {
			r = s.awaitReason(s.path("/consumer/k"), why.OrderingKeyBlocked)
			return r.Because != nil && r.Because.Code == string(why.Backoff)
		})
		s.follow(*r.Because, "POST")
	},
	why.BehindPriority: func(s *stage, _ apitype.WhyReason) {
		got := s.do("POST", s.path("/consumer/k/claim?limit=2"), "", consumerTokens("k")...)
		require.Equal(s.t, 200, got.status, got.body)
	},
	why.Delayed:       func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
	why.ChannelPaused: func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
	why.Scheduled: func(s *stage, r apitype.WhyReason) {
		path := regexp.MustCompile(`DELETE (/\S+)`).FindStringSubmatch(r.Action)
		require.NotNil(s.t, path, r.Action)
		require.Equal(s.t, 204, s.do("DELETE", path[1], "").status)
	},
	why.Dead: func(s *stage, r apitype.WhyReason) { s.mend(); s.follow(r, "POST") },
	why.Expired: func(s *stage, r apitype.WhyReason) {
		s.follow(r, "PUT", "ttl", "1h")
		s.follow(r, "POST")
	},
	why.Filtered: func(s *stage, r apitype.WhyReason) {
		s.follow(r, "PUT", "filter", "priority >= 0")
		s.follow(r, "POST")
	},
	why.NotAddressed:  func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
	why.ConsumerNewer: func(s *stage, r apitype.WhyReason) { s.follow(r, "POST") },
}

// brought are the codes whose Action publishes the message once more; what is told of the first one stays.
var brought = []why.Code{why.Filtered, why.NotAddressed, why.ConsumerNewer}

// Whoever does what an Action says, and nothing else but mending the endpoint, is rid of the reason.
func TestTheActionOfEachReasonHelps(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_NO_WORKER_AFTER=3s", "BROKER_ADAPTIVE_PERIOD=300ms", "BROKER_CONSUMER_CONCURRENCY=2",
			"BROKER_DELIVERY_TIMEOUT=20s", "BROKER_RATIONAL_DELAY=1s")
		for code, tell := range stories {
			if code == why.Delivered {
				continue // all is well
			}
			t.Run(string(code), func(t *testing.T) {
				parallel(t)
				s := p.stage(t)
				path := tell(t, s)
				helps[code](s, s.awaitReason(path, code))
				if slices.Contains(brought, code) {
					eventually(t, "the consumer has the message", func() bool { return len(s.queued("k", "limit=10")) == 1 })
					return
				}
				var last string
				eventually(t, fmt.Sprintf("%s is over", code), func() bool {
					got := s.do("GET", path+"/why", "")
					last = got.body
					return got.status == 404 || !strings.Contains(last, fmt.Sprintf(`"Code":%q`, code))
				})
			})
		}
	})
}
