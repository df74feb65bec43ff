package main

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// why is GET of the reasons at a path. What each answer must have is checked here.
func (s *stage) why(path string) apitype.Why {
	s.t.Helper()
	r := s.do("GET", path+"/why", "")
	require.Equal(s.t, 200, r.status, r.body)
	var w apitype.Why
	strictjson.Decode(s.t, []byte(r.body), &w)
	require.NotNil(s.t, w.Reasons, "an empty list is an array")
	require.NotEmpty(s.t, w.Summary)
	require.False(s.t, w.At.IsZero())
	place := -1
	for _, one := range w.Reasons {
		require.True(s.t, why.Known(one.Code), one.Code)
		require.GreaterOrEqual(s.t, slices.Index(why.Codes(), why.Code(one.Code)), place,
			"the most important first: %s", r.body)
		place = slices.Index(why.Codes(), why.Code(one.Code))
		require.NotEmpty(s.t, one.Action, r.body)
		require.NotEmpty(s.t, one.Detail, r.body)
	}
	return w
}

// whyOf is why of a consumer.
func (s *stage) whyOf(consumer string) apitype.Why {
	s.t.Helper()
	return s.why(s.path("/consumer/", consumer))
}

// awaitReason waits until a code is among the reasons at a path, and returns its reason.
func (s *stage) awaitReason(path string, code why.Code) (found apitype.WhyReason) {
	s.t.Helper()
	var last apitype.Why
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s: %+v", path, last)
		}
	}()
	eventually(s.t, string(code)+" of "+path, func() bool {
		last = s.why(path)
		i := slices.IndexFunc(last.Reasons, func(r apitype.WhyReason) bool { return r.Code == string(code) })
		if i >= 0 {
			found = last.Reasons[i]
		}
		return i >= 0
	})
	return found
}

// neverAnswering is a push consumer that answers nothing until the test is over.
func neverAnswering(t *testing.T) string {
	return serveHTTP(t, func(_ http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
}

// answering is a push consumer that always gives the same answer.
func answering(t *testing.T, status int, headers ...string) string {
	return serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
	})
}

// jobAt returns the path of the job that a consumer has of a message.
func (s *stage) jobAt(location, consumer string) string {
	s.t.Helper()
	for _, j := range s.message(location).Jobs {
		if j.ConsumerID == consumer {
			return j.JobURL
		}
	}
	s.t.Fatalf("%s has no job of %s", location, consumer)
	return ""
}

// A story makes a code happen, on a stage with channel and producer, and returns the path whose reasons
// have it.
type story func(t *testing.T, s *stage) (path string)

// joined makes a consumer with more fields and returns its path.
func (s *stage) joined(id string, fields ...string) string {
	s.t.Helper()
	path := s.path("/consumer/", id)
	s.put(path, append([]string{"token", id + "-token"}, fields...)...)
	return path
}

func (s *stage) accepted(path string) {
	s.t.Helper()
	r := s.do("POST", path, "")
	require.Contains(s.t, []int{200, 202}, r.status, r.body)
}

// stories make each code happen that needs no fault and no broker of its own.
var stories = map[why.Code]story{
	why.Due: func(t *testing.T, s *stage) string {
		at := s.joined("k", "type", "pull")
		s.publish("m")
		return at
	},
	why.NoWorker: func(t *testing.T, s *stage) string {
		at := s.joined("k", "type", "pull")
		for range 3 {
			s.publish("m")
		}
		return at
	},
	why.WorkersBusy: func(t *testing.T, s *stage) string {
		at := s.joined("k", "type", "pull")
		s.publish("m")
		job := s.awaitQueued("k", 1)[0].ID
		s.claim("k", job)
		s.publish("m")
		return at
	},
	why.Paused: func(t *testing.T, s *stage) string {
		at := s.joined("k", "type", "pull")
		s.accepted(at + "/pause")
		s.publish("m")
		return at
	},
	why.Gone: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 410))
		s.publish("m")
		return at
	},
	why.Tombstoned: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 500), "backoff", "constant:10ms", "maxRetries", "20",
			"tombstoneAfter", "2")
		s.publish("m")
		return at
	},
	why.Probing: func(t *testing.T, s *stage) string {
		var hangs atomic.Bool
		url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
			if hangs.Load() {
				select {
				case <-over:
				case <-r.Context().Done():
				}
			}
			w.WriteHeader(500)
		})
		at := s.joined("k", "callbackUrl", url, "backoff", "constant:10ms", "maxRetries", "20", "tombstoneAfter", "2",
			"timeout", "1h")
		s.publish("m")
		s.awaitReason(at, why.Tombstoned)
		s.publish("m")
		hangs.Store(true)
		s.accepted(at + "/revive")
		return at
	},
	why.RetryAfter: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 503, "Retry-After", "600"))
		s.publish("m")
		return at
	},
	why.Backoff: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 500), "backoff", "constant:1h")
		s.publish("m")
		return at
	},
	why.EndpointFailing: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 502), "backoff", "constant:1h")
		s.publish("m")
		return at
	},
	why.EndpointSlow: func(t *testing.T, s *stage) string {
		answers := make(chan struct{})
		s.release = sync.OnceFunc(func() { close(answers) })
		url := serveHTTP(t, func(_ http.ResponseWriter, _ *http.Request, over <-chan struct{}) {
			select {
			case <-answers:
			case <-over:
			}
		})
		at := s.joined("k", "callbackUrl", url, "timeout", "1h")
		for range 12 {
			s.publish("m")
		}
		return at
	},
	why.RateLimited: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 204), "rateLimit", "1/1h")
		s.publish("m")
		s.publish("m")
		return at
	},
	why.ConcurrencyFull: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", neverAnswering(t), "timeout", "1h", "concurrency", "1")
		s.publish("m")
		s.publish("m")
		return at
	},
	why.AdaptiveSlow: func(t *testing.T, s *stage) string {
		answers := make(chan int) // each ends one request; the others hang
		at := s.joined("k", "callbackUrl", serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
			select {
			case status := <-answers:
				w.WriteHeader(status)
			case <-over:
			case <-r.Context().Done():
			}
		}), "backoff", "constant:10ms", "maxRetries", "1000", "adaptive", "true", "timeout", "1h")
		for range 20 {
			s.publish("m")
		}
		var since time.Time
		eventually(t, "the pace to be slow, and to stay so", func() bool {
			status := 500
			switch s.consumer("k").Rate {
			case "SLOW":
				if since.IsZero() {
					since = time.Now()
				}
				return time.Since(since) > 2*time.Second // what was answered before is counted
			case "HEARTBEAT": // it was slow before anybody looked, and is again after a success
				status = 204
			}
			since = time.Time{}
			select {
			case answers <- status:
			case <-time.After(time.Second):
			}
			return false
		})
		return at
	},
	why.AdaptiveHeartbeat: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 500), "backoff", "constant:10ms", "maxRetries", "1000", "adaptive",
			"true")
		for range 20 {
			s.publish("m")
		}
		return at
	},
	why.OrderingKeyBlocked: func(t *testing.T, s *stage) string {
		at := s.joined("k", "callbackUrl", answering(t, 500), "ordered", "true", "backoff", "constant:1h")
		for range 3 {
			s.publish("m", "X-Broker-Ordering-Key", "one")
		}
		return at
	},
	why.BehindPriority: func(t *testing.T, s *stage) string {
		s.joined("k", "type", "pull")
		low := s.publish("m")
		s.publish("m", "X-Broker-Message-Priority", "9")
		return s.jobAt(low, "k")
	},
	why.Delayed: func(t *testing.T, s *stage) string {
		at := s.joined("k", "type", "pull")
		s.publish("m")
		job := s.awaitQueued("k", 1)[0].ID
		lease := s.claim("k", job)
		r := s.do("POST", at+"/jobs", fmt.Sprintf(`{"Updates":[{"ID":%q,"Lease":%q,"NextState":"QUEUED","Delay":600}]}`, job,
			lease), append(consumerTokens("k"), "Content-Type", "application/json")...)
		require.Contains(t, r.body, "202")
		return at
	},
	why.Scheduled: func(t *testing.T, s *stage) string {
		r := s.post("m", "X-Broker-Delay", "1h")
		require.Contains(t, []int{201, 202}, r.status, r.body)
		return r.header.Get("Location")
	},
	why.ChannelPaused: func(t *testing.T, s *stage) string {
		at := s.joined("k", "type", "pull")
		s.accepted(s.path("/pause"))
		return at
	},
	why.Delivered: func(t *testing.T, s *stage) string {
		s.joined("k", "callbackUrl", answering(t, 204))
		return s.publish("m")
	},
	why.Dead: func(t *testing.T, s *stage) string {
		s.joined("k", "callbackUrl", answering(t, 500), "maxRetries", "0")
		return s.publish("m")
	},
	why.Expired: func(t *testing.T, s *stage) string {
		s.joined("k", "type", "pull", "ttl", "1s")
		return s.publish("m")
	},
	why.Filtered: func(t *testing.T, s *stage) string {
		s.joined("k", "type", "pull", "filter", "priority > 5")
		return s.publish("m")
	},
	why.NotAddressed: func(t *testing.T, s *stage) string {
		s.joined("k", "type", "pull")
		s.joined("other", "type", "pull")
		return s.publish("m", "X-Broker-Consumers", "other")
	},
	why.ConsumerNewer: func(t *testing.T, s *stage) string {
		s.joined("other", "type", "pull")
		at := s.publish("m")
		s.joined("k", "type", "pull")
		return at
	},
}

// Each code happens where its reason is, and says since when, until when and what to do.
func TestEachReasonIsTold(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_NO_WORKER_AFTER=3s", "BROKER_ADAPTIVE_PERIOD=300ms", "BROKER_CONSUMER_CONCURRENCY=2",
			"BROKER_DELIVERY_TIMEOUT=20s", "BROKER_RATIONAL_DELAY=1s")
		for code, tell := range stories {
			t.Run(string(code), func(t *testing.T) {
				parallel(t)
				s := p.stage(t)
				path := tell(t, s)
				r := s.awaitReason(path, code)
				checks[code](t, s, r)
			})
		}
	})
}

// checks are what a reason must say besides its code.
var checks = map[why.Code]func(t *testing.T, s *stage, r apitype.WhyReason){}

func init() {
	for code := range stories {
		checks[code] = func(t *testing.T, s *stage, r apitype.WhyReason) {
			if code != why.ChannelPaused && !code.Over() && code != why.AdaptiveSlow && code != why.AdaptiveHeartbeat {
				require.NotNil(t, r.Since, "%+v", r)
				require.Positive(t, r.Jobs)
			}
			if code != why.Scheduled && code != why.NotAddressed {
				require.Equal(t, "k", r.ConsumerID)
			}
		}
	}
	until := func(least, most time.Duration) func(*testing.T, *stage, apitype.WhyReason) {
		return func(t *testing.T, _ *stage, r apitype.WhyReason) {
			require.NotNil(t, r.Until, "%+v", r)
			require.Greater(t, time.Until(r.Until.Time), least)
			require.Less(t, time.Until(r.Until.Time), most)
		}
	}
	for code, d := range map[why.Code][2]time.Duration{
		why.RetryAfter: {8 * time.Minute, 10*time.Minute + 5*time.Second}, why.Backoff: {55 * time.Minute, 70 * time.Minute},
		why.RateLimited: {55 * time.Minute, 65 * time.Minute}, why.Delayed: {8 * time.Minute, 10*time.Minute + 5*time.Second},
		why.Scheduled: {55 * time.Minute, time.Hour + 5*time.Second},
	} {
		also := checks[code]
		checks[code] = func(t *testing.T, s *stage, r apitype.WhyReason) {
			also(t, s, r)
			until(d[0], d[1])(t, s, r)
		}
	}
	checks[why.NoWorker] = func(t *testing.T, s *stage, r apitype.WhyReason) {
		require.Equal(t, 3, r.Jobs)
		require.False(t, r.Approximate)
		require.Regexp(t, `^3 jobs wait: no worker has claimed since \d\d:\d\d:\d\dZ\.$`, s.whyOf("k").Summary)
	}
	checks[why.EndpointFailing] = func(t *testing.T, s *stage, r apitype.WhyReason) {
		require.Contains(t, r.Detail, "502")
	}
	checks[why.OrderingKeyBlocked] = func(t *testing.T, s *stage, r apitype.WhyReason) {
		eventually(t, "both jobs behind the first", func() bool {
			r = s.awaitReason(s.path("/consumer/k"), why.OrderingKeyBlocked)
			return r.Jobs == 2 && r.Because != nil && r.Because.Code == string(why.Backoff)
		})
		require.NotEmpty(t, r.By)
		require.Equal(t, string(why.Backoff), r.Because.Code)
		require.NotNil(t, r.Because.Until)
	}
	checks[why.ChannelPaused] = func(t *testing.T, s *stage, r apitype.WhyReason) { require.Zero(t, r.Jobs) }
}

// A consumer without open jobs has no reason, and so has one whose jobs are in flight.
func TestNothingIsHeldBackWhereNothingWaits(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		s := w.start().stage(t)
		at := s.joined("k", "type", "pull")
		require.Empty(t, s.whyOf("k").Reasons)
		require.Equal(t, "The consumer has no open jobs.", s.whyOf("k").Summary)
		s.accepted(at + "/pause")
		require.Empty(t, s.whyOf("k").Reasons)
		require.Contains(t, s.whyOf("k").Summary, "paused")
		s.accepted(at + "/resume")
		first := s.publish("m")
		job := s.awaitQueued("k", 1)[0].ID
		s.claim("k", job)
		require.Empty(t, s.whyOf("k").Reasons)
		require.Contains(t, s.why(s.jobAt(first, "k")).Summary, "in flight")
		require.Empty(t, s.why(s.jobAt(first, "k")).Reasons)
		require.Empty(t, s.why(first).Reasons)
		for _, path := range []string{"/consumer/none", "/consumer/k/job/none", "/message/none", "/scheduled-message/none"} {
			require.Equal(t, 404, s.do("GET", s.path(path)+"/why", "").status, path)
		}
	})
}

func hasCode(w apitype.Why, code why.Code) bool {
	return slices.ContainsFunc(w.Reasons, func(r apitype.WhyReason) bool { return r.Code == string(code) })
}
