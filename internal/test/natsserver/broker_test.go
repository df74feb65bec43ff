package natsserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what must happen at some time.
const patience = 5 * time.Minute

// A text is a log that several goroutines write and read.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// A broker is a process with the build that has the sender, on the embedded stores.
type broker struct {
	t   *testing.T
	url string
	log text
}

func startBroker(t *testing.T) *broker {
	t.Helper()
	program := filepath.Join(t.TempDir(), "broker")
	build := exec.Command("go", "build", "-tags", "nats", "-o", program, "./cmd/broker")
	build.Dir = "../../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	addr := freeAddress(t)
	b := &broker{t: t, url: "http://" + addr}
	cmd := exec.Command(program, "serve")
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "BROKER_") {
			cmd.Env = append(cmd.Env, line)
		}
	}
	cmd.Env = append(cmd.Env, "BROKER_LISTEN="+addr, "BROKER_DATA_DIR="+t.TempDir(), "BROKER_OPEN_MANAGEMENT=true",
		"BROKER_RATIONAL_DELAY=2s")
	cmd.Stdout, cmd.Stderr = &b.log, &b.log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), "the broker does not stop well")
	})
	b.until("the broker is ready", func() bool {
		res, err := http.Get(b.url + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == 200
	})
	return b
}

func (b *broker) until(what string, is func() bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		require.True(b.t, time.Now().Before(end), what)
	}
}

// do sends a request with a form, and headers as pairs, and returns the answer.
func (b *broker) do(method, path, body string, headers ...string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return res.StatusCode, string(text)
}

// put creates or changes a resource with those fields.
func (b *broker) put(path string, fields ...string) (int, string) {
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return b.do("PUT", path, form.Encode())
}

func (b *broker) publish(id, payload string) {
	b.t.Helper()
	status, body := b.do("POST", "/channel/orders/broadcast", payload, "Content-Type", "application/json",
		"X-Broker-Channel-Token", "ct", "X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token", "pt",
		"X-Broker-Message-ID", id, "X-Broker-Metadata-Headers", "X-Kind,Nats-Rollup", "X-Kind", "order",
		"Nats-Rollup", "all")
	require.Equal(b.t, 201, status, body)
}

func (b *broker) why() string {
	_, body := b.do("GET", "/channel/orders/consumer/k/why", "")
	return body
}

// A consumer with a nats callback is a push consumer as others are: attempts, retries, dead letters, tests, why. It
// gets through a restart of its server, and through one without a stream.
func TestAConsumerGetsItsJobsByNATS(t *testing.T) {
	s := startServer(t, `authorization { user: ann, password: "secret-of-ann" }`, "max_payload: 65536")
	js := s.connect(natsgo.UserInfo("ann", "secret-of-ann"))
	b := startBroker(t)
	for _, path := range []string{"/channel/orders", "/producer/shop"} {
		status, body := b.put(path, "token", map[string]string{"/channel/orders": "ct", "/producer/shop": "pt"}[path])
		require.Equal(t, 201, status, body)
	}
	status, body := b.put("/channel/orders/consumer/k", "callbackUrl", s.url("orders.new"), "token", "secret-token",
		"authorization", "basic ann:secret-of-ann", "backoff", "constant:200ms", "maxRetries", "1000", "timeout", "20s",
		"headers", "Nats-Expected-Stream: ORDERS")
	require.Equal(t, 201, status, body)
	require.NotContains(t, body, "secret-of-ann")
	for _, bad := range [][2]string{{"callbackUrl", "nats://ann:secret@127.0.0.1/x"}, {"callbackUrl", "nats://127.0.0.1"},
		{"callbackUrl", "nats://169.254.169.254/x"}, {"authorization", "oauth2 http://127.0.0.1/ a b"},
		{"retryOn", "5xx"}} {
		status, body := b.put("/channel/orders/consumer/k", bad[0], bad[1])
		require.Equal(t, 400, status, body)
		require.NotContains(t, body, "secret")
	}

	b.publish("m-1", `{"id":1}`)
	b.until("the reason is in the why", func() bool { return strings.Contains(b.why(), "no stream has the subject") })
	stream(t, js, natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowRollup: true})
	b.until("the message is in the stream", func() bool { return len(stored(t, js, "ORDERS")) == 1 })
	m := stored(t, js, "ORDERS")[0]
	require.Equal(t, `{"id":1}`, string(m.Data))
	require.NotEqual(t, "1", m.Header.Get("X-Broker-Attempt"))
	require.Equal(t, []string{"m-1", "orders", "shop", "order", "application/json", "X-Kind"}, []string{
		m.Header.Get("X-Broker-Message-ID"), m.Header.Get("X-Broker-Channel-ID"), m.Header.Get("X-Broker-Producer-ID"),
		m.Header.Get("X-Kind"), m.Header.Get("Content-Type"), m.Header.Get("X-Broker-Metadata-Headers")})
	require.Equal(t, m.Header.Get("X-Broker-Job-ID"), m.Header.Get("Nats-Msg-Id"))
	require.NotContains(t, fmt.Sprint(m.Header), "secret")
	require.Empty(t, m.Header.Get("Nats-Rollup"))

	b.restarts(s)
	var test struct {
		Status int
		Error  string
	}
	status, body = b.do("POST", "/channel/orders/consumer/k/test", "")
	require.Equal(t, 200, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &test))
	require.Equal(t, 200, test.Status, body)

	b.publish("large", strings.Repeat("x", 70_000))
	b.until("the large one is a dead letter", func() bool {
		_, body := b.do("GET", "/channel/orders/consumer/k/dlq", "")
		return strings.Contains(body, "max_payload") && strings.Contains(body, "rejected")
	})
	require.NotContains(t, b.log.String(), "secret-of-ann")
	_, metrics := b.do("GET", "/metrics", "")
	require.Contains(t, metrics, "nats_connections")
}

// restarts kills the server while messages go to it, and requires that each is there once.
func (b *broker) restarts(s *natsServer) {
	const n = 200
	for i := range n {
		if i == n/2 {
			s.kill()
		}
		b.publish(fmt.Sprint("r-", i), fmt.Sprintf(`{"r":%d}`, i))
	}
	s.start()
	js := s.connect(natsgo.UserInfo("ann", "secret-of-ann"))
	b.until("each message is in the stream", func() bool { return len(stored(b.t, js, "ORDERS")) >= n+1 })
	seen := map[string]bool{}
	for _, m := range stored(b.t, js, "ORDERS") {
		require.False(b.t, seen[string(m.Data)], "%s is there twice", m.Data)
		seen[string(m.Data)] = true
	}
	require.Len(b.t, seen, n+1)
}
