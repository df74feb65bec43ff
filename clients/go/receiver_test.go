package penstock

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// sign signs a delivery as Standard Webhooks says.
func sign(t *testing.T, req *http.Request, id string, at time.Time, body string) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + seconds + "." + body))
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", seconds)
	req.Header.Set("webhook-signature", "v1a,xyz v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

func receiver(t *testing.T, o ReceiverOptions) *Receiver {
	t.Helper()
	r, err := NewReceiver(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deliver sends a signed delivery to a receiver, after change has changed it.
func deliver(t *testing.T, r *Receiver, id, body string, change func(*http.Request)) *http.Response {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
	req.Header.Set("X-Broker-Channel-ID", "orders")
	req.Header.Set("X-Broker-Message-ID", id)
	sign(t, req, id, time.Now(), body)
	if change != nil {
		change(req)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Result()
}

func TestOnlySignedDeliveriesOfTheTimeReachTheHandler(t *testing.T) {
	newer := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	r := receiver(t, ReceiverOptions{Secrets: []string{newer, secret}, Token: "k-token", MaxBody: 100})
	var calls atomic.Int32
	r.On("orders", func(context.Context, *Received) error { calls.Add(1); return nil })
	good := func(req *http.Request) { req.Header.Set("X-Broker-Consumer-Token", "k-token") }
	signed := func(id string, age time.Duration, body string) func(*http.Request) {
		return func(req *http.Request) { good(req); sign(t, req, id, time.Now().Add(-age), body) }
	}
	for name, c := range map[string]struct {
		want   int
		change func(*http.Request)
	}{
		"as it should be": {204, good},
		"another token":   {401, func(req *http.Request) { req.Header.Set("X-Broker-Consumer-Token", "k-toker") }},
		"no token":        {401, func(*http.Request) {}},
		"no signature":    {401, func(req *http.Request) { good(req); req.Header.Del("webhook-signature") }},
		"no time":         {401, func(req *http.Request) { good(req); req.Header.Del("webhook-timestamp") }},
		"another ID":      {401, func(req *http.Request) { good(req); req.Header.Set("webhook-id", "other") }},
		"ten minutes old": {401, signed("as-old", 10*time.Minute, "x")},
		"from the future": {401, signed("as-new", -10*time.Minute, "x")},
		"of another body": {401, signed("other-body", 0, "y")},
		"garbage": {401, func(req *http.Request) {
			good(req)
			req.Header.Set("webhook-signature", "v1,%%% v1 ,v1,")
		}},
		"a GET":           {405, func(req *http.Request) { good(req); req.Method = http.MethodGet }},
		"another channel": {404, func(req *http.Request) { good(req); req.Header.Set("X-Broker-Channel-ID", "refunds") }},
		"a minimal one":   {204, func(req *http.Request) { good(req); req.Header.Del("X-Broker-Channel-ID") }},
	} {
		before := calls.Load()
		res := deliver(t, r, strings.ReplaceAll(name, " ", "-"), "x", c.change)
		if res.StatusCode != c.want || calls.Load()-before != map[bool]int32{true: 1}[c.want == 204] {
			t.Errorf("%s: %d, %d calls", name, res.StatusCode, calls.Load()-before)
		}
	}
	if res := deliver(t, r, "large", strings.Repeat("x", 101), good); res.StatusCode != 413 {
		t.Error(res.StatusCode)
	}
	for _, o := range []ReceiverOptions{{}, {Secrets: []string{"secret"}}, {Secrets: []string{"whsec_YQ=="}}} {
		if _, err := NewReceiver(o); err == nil {
			t.Error(o)
		}
	}
}

func TestWhatAHandlerReturnsIsTheAnswer(t *testing.T) {
	r := receiver(t, ReceiverOptions{Secrets: []string{secret}})
	var result error
	r.On("", func(_ context.Context, m *Received) error {
		if result == nil {
			m.Respond("text/plain", []byte("thanks"))
		}
		return result
	})
	for want, err := range map[string]error{"200 ": nil, "500 ": errors.New("card declined"),
		"410 ":  fmt.Errorf("no: %w", Gone),
		"429 7": TooManyRequests(6500 * time.Millisecond)} {
		result = err
		res := deliver(t, r, newID(), "x", nil)
		if got := fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get("Retry-After")); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
	r.On("", func(context.Context, *Received) error { panic("boom") })
	if res := deliver(t, r, newID(), "x", nil); res.StatusCode != 500 {
		t.Error(res.StatusCode)
	}
}

// A repeated delivery is acknowledged without being done again; one that failed is done again, and so is one
// of a replay. While the first is under way the repeated one is told to come later.
func TestADeliveryIsDoneOnce(t *testing.T) {
	r := receiver(t, ReceiverOptions{Secrets: []string{secret}})
	var calls atomic.Int32
	var fail atomic.Bool
	r.On("orders", func(context.Context, *Received) error {
		calls.Add(1)
		if fail.Load() {
			return errors.New("not now")
		}
		return nil
	})
	fail.Store(true)
	if res := deliver(t, r, "m-1", "x", nil); res.StatusCode != 500 {
		t.Fatal(res.StatusCode)
	}
	fail.Store(false)
	for range 3 {
		if res := deliver(t, r, "m-1", "x", nil); res.StatusCode != 204 {
			t.Fatal(res.StatusCode)
		}
	}
	deliver(t, r, "m-1", "x", func(req *http.Request) { req.Header.Set("X-Broker-Replay", "3") })
	if calls.Load() != 3 {
		t.Fatal(calls.Load())
	}
	begun, end := make(chan struct{}), make(chan struct{})
	r.On("orders", func(context.Context, *Received) error { close(begun); <-end; return nil })
	var first sync.WaitGroup
	first.Add(1)
	go func() { defer first.Done(); deliver(t, r, "m-2", "x", nil) }()
	<-begun
	if res := deliver(t, r, "m-2", "x", nil); res.StatusCode != http.StatusTooEarly {
		t.Error(res.StatusCode)
	}
	close(end)
	first.Wait()
}

type brokenStore struct{ memory }

func (*brokenStore) Seen(context.Context, string) (bool, error) {
	return false, errors.New("the store is away")
}

func TestWithoutItsStoreADeliveryIsNotDone(t *testing.T) {
	r := receiver(t, ReceiverOptions{Secrets: []string{secret}, Seen: &brokenStore{}})
	r.On("orders", func(context.Context, *Received) error { t.Error("done"); return nil })
	if res := deliver(t, r, "m-1", "x", nil); res.StatusCode != 500 {
		t.Fatal(res.StatusCode)
	}
}

func TestTheMemoryOfARealisticCrowdIsBounded(t *testing.T) {
	m := &memory{}
	for i := range 3 * remembered {
		_ = m.Done(t.Context(), strconv.Itoa(i))
	}
	newest, _ := m.Seen(t.Context(), strconv.Itoa(3*remembered-1))
	oldest, _ := m.Seen(t.Context(), "0")
	if !newest || oldest || len(m.young)+len(m.aged) > 2*remembered {
		t.Fatal(newest, oldest, len(m.young)+len(m.aged))
	}
}

// A real broker signs, repeats what failed, and keeps what the handler has responded.
func TestARealBrokerDeliversToAReceiver(t *testing.T) {
	c, q := real(t)
	m := c.Manage()
	var tries atomic.Int32
	var hook http.Handler = http.NotFoundHandler()
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		h := hook
		mu.Unlock()
		h.ServeHTTP(w, req)
	}))
	defer s.Close()
	if _, created, err := m.Put(t.Context(), ChannelPath(q), nil); err != nil || !created {
		t.Fatal(created, err)
	}
	k, _, err := m.Put(t.Context(), ConsumerPath(q, "hook"), Fields{"callbackUrl": s.URL, "signingSecret": "generate",
		"backoff": "constant:100ms", "responses": "store"})
	if err != nil {
		t.Fatal(err)
	}
	r := receiver(t, ReceiverOptions{Secrets: []string{k.Policy["SigningSecret"]}, Token: k.Token})
	r.On(q, func(_ context.Context, d *Received) error {
		var order struct{ Order int }
		if err := d.JSON(&order); err != nil || order.Order != 7 || d.Task != "ship" || d.ProducerID != "penstock" {
			t.Errorf("%+v %v", d, err)
		}
		if tries.Add(1) == 1 {
			return errors.New("not yet")
		}
		d.Respond("text/plain", []byte("attempt "+strconv.Itoa(d.Attempt)))
		return nil
	})
	mu.Lock()
	hook = r
	mu.Unlock()
	got, err := c.Request(t.Context(), q, Message{Payload: []byte(`{"Order":7}`), Task: "ship"}, time.Minute)
	if err != nil || string(got.Body) != "attempt 2" || tries.Load() != 2 {
		t.Fatal(got, err, tries.Load())
	}
	var test struct {
		Status int
		Error  string
	}
	if err := m.Post(t.Context(), ConsumerPath(q, "hook")+"/test", nil, &test); err != nil || test.Status != 204 ||
		test.Error != "" || tries.Load() != 2 {
		t.Fatal(test, err)
	}
}
