package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A balancer is the least that a load balancer does: it asks each broker every
// 50 ms whether it is ready, hands each request to the next one that is, over
// connections that it keeps, and never sends a request twice.
type balancer struct {
	*httptest.Server
	transport *http.Transport
	next      atomic.Int64
	repeated  atomic.Int64 // requests that the transport sent twice after all

	mu       sync.Mutex
	backends map[string]*atomic.Bool // base URL -> ready
	ready    []string
	stop     chan struct{}
	wg       sync.WaitGroup
}

func startBalancer(t *testing.T) *balancer {
	b := &balancer{transport: &http.Transport{MaxIdleConnsPerHost: 64}, backends: map[string]*atomic.Bool{},
		stop: make(chan struct{})}
	b.Server = httptest.NewServer(b)
	b.wg.Go(func() {
		for {
			select {
			case <-b.stop:
				return
			case <-time.After(50 * time.Millisecond):
				b.look()
			}
		}
	})
	t.Cleanup(func() {
		close(b.stop)
		b.wg.Wait()
		b.Close()
		b.transport.CloseIdleConnections()
	})
	return b
}

// add makes a broker known.
func (b *balancer) add(base string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[base] = &atomic.Bool{}
}

// forget drops a broker that has ended.
func (b *balancer) forget(base string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.backends, base)
}

// look asks all brokers at once whether they are ready.
func (b *balancer) look() {
	b.mu.Lock()
	known := map[string]*atomic.Bool{}
	for base, ready := range b.backends {
		known[base] = ready
	}
	b.mu.Unlock()
	var wg sync.WaitGroup
	for base, ready := range known {
		wg.Go(func() {
			res, err := b.probe(base)
			ready.Store(err == nil && res == http.StatusOK)
		})
	}
	wg.Wait()
	var all []string
	for base, ready := range known {
		if ready.Load() {
			all = append(all, base)
		}
	}
	b.mu.Lock()
	b.ready = all
	b.mu.Unlock()
}

func (b *balancer) probe(base string) (int, error) {
	probe := http.Client{Timeout: 2 * time.Second, Transport: b.transport}
	res, err := probe.Get(base + "/readyz")
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// choose returns the broker whose turn it is, "" when none is ready.
func (b *balancer) choose() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return ""
	}
	return b.ready[int(b.next.Add(1))%len(b.ready)]
}

func (b *balancer) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ready)
}

// ServeHTTP forwards a request once.
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	base := b.choose()
	if base == "" {
		http.Error(w, "no broker is ready", http.StatusBadGateway)
		return
	}
	connections := 0
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if connections++; connections > 1 {
			b.repeated.Add(1)
		}
	}})
	out, err := http.NewRequestWithContext(ctx, r.Method, base+r.URL.RequestURI(), r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header, out.ContentLength = r.Header.Clone(), r.ContentLength
	res, err := b.transport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	for name, values := range res.Header {
		if name != "Connection" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// Brokers are replaced one after the other under load: no publish fails, nothing
// is lost, nothing is delivered twice.
func TestRollingRestartFailsNoPublishOnRealServers(t *testing.T) {
	parallel(t)
	const drain = 8 * time.Second // on a busy machine the balancer notices late
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DRAIN_DELAY="+drain.String())
	b := startBalancer(t)
	brokers := trio(t, w)
	for _, p := range brokers {
		b.add(p.base)
	}
	eventually(t, "three ready brokers", func() bool { return b.count() == 3 })
	sink := newSink(t, nil)
	s := brokers[0].stage(t, "k="+sink.URL)
	through := s.on(&process{t: t, world: w, base: b.URL})
	l := startSteady(through, 6, func(int) *process { return through.process })
	const rounds = 2
	for range rounds {
		for i := range brokers {
			l.progress(40)
			stopped := time.Now()
			require.Equal(t, 0, brokers[i].stop(), brokers[i].log.String())
			require.Greater(t, time.Since(stopped), drain, "it waited for the balancer")
			b.forget(brokers[i].base)
			brokers[i] = w.start()
			b.add(brokers[i].base)
			eventually(t, "three ready brokers", func() bool { return b.count() == 3 })
		}
	}
	l.progress(40)
	sum := l.finish()
	for _, a := range l.answers {
		require.Equal(t, 201, a.status, "no publish failed, however briefly")
		require.Equal(t, 1, a.try)
	}
	require.Zero(t, b.repeated.Load(), "nor did the balancer help")
	l.requireAllOf(w.dsn(), sink, 0)
	t.Logf("%d restarts, %d acknowledged, none refused, slowest answer %v", rounds*len(brokers), sum.acked,
		sum.slowest.Round(time.Millisecond))
}

// What one broker is told about a consumer counts for the next attempt of another.
func TestRollingChangeOfAConsumerCountsForTheNextAttemptOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...).with("BROKER_RETRY_BACKOFF=2s", "BROKER_RETRY_MAX_DELAY=2s")
	told, other := w.start(), w.start()
	moved := newSink(t, nil)
	s := told.stage(t)
	changed := make(chan struct{})
	old := atFirstAttempt(t, func() {
		s.put(s.path("/consumer/k"), "callbackUrl", moved.URL, "token", "rotated")
		close(changed)
	})
	s.join("k=" + old.URL)
	at := s.publish("body")
	<-changed
	told.kill() // so that the other one makes the next attempt
	m := s.on(other).awaitStatus(at, "DELIVERED")
	require.Equal(t, 1, old.count())
	require.Equal(t, 1, moved.count())
	require.Equal(t, "rotated", moved.all()[0].header.Get("X-Broker-Consumer-Token"))
	require.GreaterOrEqual(t, m.Jobs[0].Attempts, 2)
}

func TestTheDrainDelayIsForThoseWhoMayHaveABalancer(t *testing.T) {
	for _, tc := range []struct {
		env  []string
		want time.Duration
	}{
		{nil, 0},
		{[]string{"BROKER_LISTEN=0.0.0.0:8080", "BROKER_ADMIN_TOKEN=t"}, 3 * time.Second},
		{[]string{"BROKER_LISTEN=0.0.0.0:8080", "BROKER_ADMIN_TOKEN=t", "BROKER_DRAIN_DELAY=0s"}, 0},
		{[]string{"BROKER_DRAIN_DELAY=10s"}, 10 * time.Second},
	} {
		c, err := readConfig(tc.env)
		require.NoError(t, err)
		require.Equal(t, tc.want, c.drainDelay(), tc.env)
	}
	for value, says := range map[string]string{"-1s": "BROKER_DRAIN_DELAY must be from 0s to 1h", "3": "not a duration"} {
		_, err := readConfig([]string{"BROKER_DRAIN_DELAY=" + value})
		require.ErrorContains(t, err, says)
	}
}

// While it drains a broker still serves, says that it is not ready, and asks for
// connections to be closed; a second signal does not wait.
func TestRollingRestartADrainingBrokerServesUntilTheDelayIsOver(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with("BROKER_DRAIN_DELAY=1h")
	p := w.start()
	s := p.stage(t, "k")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	eventually(t, "readiness to be off", func() bool { return p.do("GET", "/readyz", "").status == 503 })
	require.Equal(t, 201, s.post("while draining").status)
	s.awaitQueued("k", 1)
	res, err := client.Get(p.base + "/livez")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode)
	require.True(t, res.Close, "it closes the connection after its answer")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	p.awaitEnd()
	require.Equal(t, exitSignal+int(syscall.SIGINT), p.cmd.ProcessState.ExitCode())
}
