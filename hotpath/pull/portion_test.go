package pull

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

// A shelf is a store of messages that notes how many bytes it hands out at once.
type shelf struct {
	verify.Store
	pullStore
	messages map[ident.ID]durable.Message
	most     int // bytes of payload of one read
	looked   int // IDs of all reads
}

func (s *shelf) MessagesUpTo(_ context.Context, _ uint32, ids []ident.ID, budget int) (msgs []durable.Message, read int,
	err error) {
	s.looked += len(ids)
	total := 0
	for ; read < len(ids); read++ {
		m, exists := s.messages[ids[read]]
		if !exists {
			continue
		}
		if len(msgs) > 0 && total+len(m.Payload) > budget {
			break
		}
		total += len(m.Payload)
		msgs = append(msgs, m)
	}
	s.most = max(s.most, total)
	return msgs, read, nil
}

func (s *shelf) JobStates(context.Context, uint32, []ident.ID) (map[ident.ID]durable.JobState, error) {
	return nil, nil
}

// pullerOf returns a door for the messages, of which the first is due first, and
// whether they are in the cache.
func pullerOf(t *testing.T, cached bool, msgs ...durable.Message) (*Puller, *shelf) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	queue := redisq.New(client, redisq.Options{Logger: slog.New(slog.DiscardHandler)})
	store := &shelf{messages: map[ident.ID]durable.Message{}}
	p := New(Options{Policies: policy.NewBook(policy.Policy{}), Queue: queue, Store: store, Catalogue: catalogue.New(nil,
		nil), Verifier: verifierOf(store, 1<<30), Visible: time.Minute, NowMs: func() int64 { return 0 },
		Touched: func(uint32) {}, Refill: func(uint32) {}, Metrics: metrics.New(prometheus.NewRegistry())})
	jobs := make([]redisq.Job, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		m.ID, m.ChannelNo, m.Audience, m.Priority = ident.AtMillis(int64(i+1)), 1, 1, 1000-i
		jobs[i] = redisq.Job{ID: m.ID, Priority: m.Priority}
		store.messages[m.ID] = *m
		if cached {
			p.verifier.Cache.Put(m)
		}
	}
	_, err := queue.Enqueue(t.Context(), 1, jobs, redisq.Fresh)
	require.NoError(t, err)
	require.NoError(t, queue.Complete(t.Context(), 1, queue.Epoch(1)))
	return p, store
}

var portionChannel, portionConsumer = &catalogue.Channel{Channel: durable.Channel{No: 1,
	ID: "c"}}, &durable.Consumer{No: 1, ChannelNo: 1, ID: "k", Type: durable.Pull}

type shown struct {
	Result []struct {
		ID      string
		Attempt int
	}
	Pages struct{ Next string }
}

func filled(n, size int, with string) []durable.Message {
	msgs := make([]durable.Message, n)
	for i := range msgs {
		msgs[i].Payload = bytes.Repeat([]byte(with), size/len(with))
	}
	return msgs
}

// answerSets are sets of messages, and how many of them at least make up an answer.
var answerSets = map[string]struct {
	msgs  []durable.Message
	first int
}{

	"small ones":                     {filled(300, 200, "x"), 300},
	"plain text":                     {filled(5, 3<<20, "x"), 2},
	"text that grows with escaping":  {filled(4, 1<<20, "\x01"), 1},
	"bytes, in base64":               {filled(5, 2<<20, "\xff"), 2},
	"each too large":                 {filled(2, 2<<20, "\x00"), 1},
	"a large one before small ones":  {append(filled(1, 9<<20, "x"), filled(20, 100, "x")...), 1},
	"a large one behind small ones":  {append(filled(20, 100, "x"), filled(2, 9<<20, "x")...), 20},
	"as much as fits, to the end":    {filled(8, answerBytes/8-1000, "x"), 8},
	"one byte too much for the last": {filled(8, answerBytes/8, "x"), 7},
}

// requireBounded checks that an answer is no larger than it may be, or shows one job.
func requireBounded(t *testing.T, rc *fasthttp.RequestCtx, jobs int) {
	t.Helper()
	if jobs > 1 {
		require.LessOrEqual(t, len(rc.Response.Body()), answerBytes+4<<10)
	}
}

func TestAClaimHandsOutWhatFitsIntoAnAnswer(t *testing.T) {
	for name, c := range answerSets {
		for _, cached := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, cached %v", name, cached), func(t *testing.T) {
				p, store := pullerOf(t, cached, slices.Clone(c.msgs)...)
				var got []string
				for claims := 0; len(got) < len(c.msgs); claims++ {
					require.Less(t, claims, len(c.msgs)+1)
					var rc fasthttp.RequestCtx
					require.NoError(t, p.claimJobs(&rc, &catalogue.Standing{Channel: portionChannel, Consumer: portionConsumer},
						claimRequest{limit: 500, timeout: time.Minute}))
					var a shown
					require.NoError(t, json.Unmarshal(rc.Response.Body(), &a))
					require.NotEmpty(t, a.Result)
					requireBounded(t, &rc, len(a.Result))
					if claims == 0 {
						require.Equal(t, c.first, len(a.Result))
					}
					for _, j := range a.Result {
						require.Equal(t, 1, j.Attempt, "what was given back is not charged")
						got = append(got, j.ID)
					}
					require.Equal(t, strconv.Itoa(len(c.msgs)-len(got)), string(rc.Response.Header.Peek("X-Broker-Backlog")))
				}
				for i := range c.msgs {
					require.Equal(t, ident.AtMillis(int64(i+1)).Job(0).String(), got[i], "each once, in order")
				}
				require.LessOrEqual(t, store.most, max(answerBytes, len(c.msgs[0].Payload), len(c.msgs[len(c.msgs)-1].Payload)))
				require.LessOrEqual(t, store.looked, 3*len(c.msgs), "large ones are not looked at again and again")
			})
		}
	}
}

func TestAPageOfQueuedJobsEndsWhereItIsFullAndTheNextGoesOnThere(t *testing.T) {
	for name, c := range answerSets {
		t.Run(name, func(t *testing.T) {
			p, _ := pullerOf(t, false, slices.Clone(c.msgs)...)
			var got []string
			next := "/?limit=100"
			for pages := 0; next != ""; pages++ {
				require.LessOrEqual(t, pages, len(c.msgs)+1)
				var rc fasthttp.RequestCtx
				rc.Request.SetRequestURI(next)
				page, err := p.queuedJobs(&rc, portionChannel, portionConsumer)
				require.NoError(t, err)
				writeJSON(&rc, nil, page.size.bytes, page.appendJSON)
				var a shown
				require.NoError(t, json.Unmarshal(rc.Response.Body(), &a))
				requireBounded(t, &rc, len(a.Result))
				if pages == 0 {
					require.Equal(t, min(c.first, 100), len(a.Result))
				}
				for _, j := range a.Result {
					got = append(got, j.ID)
				}
				next = a.Pages.Next
			}
			require.Len(t, got, len(c.msgs))
			for i := range got {
				require.Equal(t, ident.AtMillis(int64(i+1)).Job(0).String(), got[i], "each once, in order")
			}
		})
	}
}

// A wake-up is passed on with what a claim gives back.
func TestWhatAClaimGivesBackWakesTheNextWorker(t *testing.T) {
	p, _ := pullerOf(t, true, filled(2, answerBytes, "x")...)
	waiting := p.waiters.join(1, nil)
	defer waiting.leave()
	_, jobs, err := p.claimOnce(t.Context(), portionConsumer, claimRequest{limit: 10, timeout: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Len(t, waiting.wake, 1)
}

// The buffer of a large answer does not stay with its connection.
func TestALargeAnswerLeavesNoBuffer(t *testing.T) {
	p, _ := pullerOf(t, true)
	for _, size := range []int{100, answer.Small, answer.Small + 1, 8 << 20} {
		var rc fasthttp.RequestCtx
		held, err := answer.Open(p.answers, share.Consumer(1), size)
		require.NoError(t, err)
		writeJSON(&rc, held, size, func(t *answer.Text) { t.B = append(t.B, make([]byte, size)...) })
		require.Equal(t, size > answer.Small, rc.Response.IsBodyStream())
		if size <= answer.Small {
			require.Len(t, rc.Response.Body(), size)
		}
		rc.Response.Reset()
		require.LessOrEqual(t, cap(rc.Response.SwapBody(nil)), 2*answer.Small)
		require.Zero(t, p.answers.Taken())
	}
}

// textOf returns a message as pull consumers get it.
func textOf(m *durable.Message) []byte {
	t := answer.Text{Whole: true}
	appendMessage(&t, m, "")
	return t.B
}

// verifierOf returns a verifier for which every message is stored.
func verifierOf(store verify.Store, cacheBytes int) *verify.Verifier {
	return &verify.Verifier{Store: store, Cache: verify.NewCache(cacheBytes), NowMs: func() int64 {
		return 0
	}, Kept: 1 << 62, Policies: policy.NewBook(policy.Policy{})}
}

// pullStore is Store beside verify.Store in one struct.
type pullStore = Store
