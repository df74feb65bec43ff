package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// SIGTERM with deliveries under way: not ready any more, nothing is cut off,
// exit code 0, and what was not sent is sent once after the restart.
func TestRestartDrainsWithoutADuplicate(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_RATIONAL_DELAY=500ms", "BROKER_CONSUMER_CONCURRENCY=4", "BROKER_DELIVERY_TIMEOUT=30s")
		sink, free := newHeldSink(t, 204)
		p := w.start()
		s := p.stage(t, "k="+sink.URL, "pull")
		const n = 30
		for i := range n {
			s.publish(fmt.Sprintf("m-%d", i))
		}
		eventually(t, "deliveries under way", func() bool { return sink.count() == 4 })
		held := s.queued("pull", "limit=1")[0].ID
		s.claim("pull", held)
		ended := make(chan int, 1)
		go func() { ended <- p.stop() }()
		eventually(t, "readiness to be off", func() bool {
			res, err := http.Get(p.base + "/readyz")
			if err != nil {
				return true // the listener is closed
			}
			defer res.Body.Close()
			return res.StatusCode == 503
		})
		select {
		case <-p.done:
			t.Fatal("it left its deliveries alone")
		default:
		}
		free()
		require.Equal(t, 0, <-ended, p.log.String())
		require.Contains(t, p.log.String(), `"msg":"stopped"`)
		p = w.start()
		s = s.on(p)
		eventually(t, "all deliveries", func() bool { return sink.distinct() == n })
		s.awaitRest(sink)
		require.Equal(t, n, sink.count(), "each once")
		eventually(t, "the report of the worker to be taken", func() bool {
			return s.move("pull", held, to("DELIVERED")).status == 202
		})
		s.awaitQueued("pull", n-1)
		require.Equal(t, 0, p.stop())
	})
}

func TestRestartADataFolderBelongsToOneBroker(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start()
	s := p.stage(t, "k")
	second := w.launch()
	second.awaitEnd()
	require.Contains(t, []int{exitStore, exitStart}, second.cmd.ProcessState.ExitCode())
	require.Contains(t, second.log.String(), "in use")
	s.publish("the first one goes on")
	s.awaitQueued("k", 1)
	require.Equal(t, 0, p.stop())
	s.on(w.start()).awaitQueued("k", 1)
}

const seedText = `
[initial-channels]
orders=All orders
[initial-producers]
shop=The shop
[initial-channel-tokens]
orders=orders-secret
[initial-producer-tokens]
shop=shop-secret
[initial-consumers]
billing=%s/billing
audit=
odd=%[1]s/odd
[billing]
token=billing-secret
channel=orders
[audit]
token=audit-secret
channel=orders
type=pull
[odd]
token=odd-secret
channel=orders
type=stream
`

func TestRestartWithTheSameSeedFileChangesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		sink := newSink(t, nil)
		file := filepath.Join(t.TempDir(), "seed.ini")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, seedText, sink.URL), 0o600))
		w.with("BROKER_SEED_FILE=" + file)
		paths := []string{"/channel/orders", "/producer/shop", "/channel/orders/consumer/billing",
			"/channel/orders/consumer/audit"}
		look := func(p *process) (all []string) {
			for _, path := range paths {
				r := p.do("GET", path, "")
				require.Equal(t, 200, r.status, path)
				require.NotEmpty(t, r.header.Get("Last-Modified"))
				all = append(all, r.header.Get("Last-Modified")+r.body)
			}
			return all
		}
		p := w.start()
		first := look(p)
		require.Contains(t, first[0], "All orders")
		require.Contains(t, first[1], "The shop")
		require.Contains(t, first[2], `"Type":"push"`)
		require.Contains(t, first[3], `"Type":"pull"`)
		require.Equal(t, 404, p.do("GET", "/channel/orders/consumer/odd", "").status)
		require.Equal(t, 404, p.do("GET", "/channel/sample-channel", "").status,
			"nothing is made that the file does not name")
		require.Contains(t, p.log.String(), "odd")
		require.Contains(t, p.log.String(), "stream")
		require.NotContains(t, p.log.String(), "-secret")
		r := p.do("POST", "/channel/orders/broadcast", "body", "X-Broker-Channel-Token", "orders-secret",
			"X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token", "shop-secret")
		require.Equal(t, 201, r.status)
		eventually(t, "the delivery", func() bool { return sink.count() == 1 })
		require.Equal(t, "billing-secret", sink.all()[0].header.Get("X-Broker-Consumer-Token"))
		p.put("/channel/orders", "name", "Changed since")
		eventually(t, "the end of its lease", func() bool {
			return strings.Contains(p.do("GET", paths[2], "").body, `"InFlight":0`)
		})
		first = look(p)
		require.Contains(t, first[0], "Changed since")
		require.Equal(t, 0, p.stop())
		changed := time.Now().Unix() // a change from the next second on would have another Last-Modified
		eventually(t, "the next second", func() bool { return time.Now().Unix() > changed })
		p = w.start()
		require.Equal(t, first, look(p))
		require.Equal(t, 0, p.stop())
		// Another file is another wish.
		require.NoError(t, os.WriteFile(file, []byte("[initial-channels]\norders=Renamed\n"), 0o600))
		p = w.start()
		require.Equal(t, "Renamed", p.do("GET", "/channel/orders", "").json(t)["Name"])
		require.Equal(t, first[1:], look(p)[1:])
	})
}

func TestRestartExitCodesTellWhatIsWrong(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("[broken"), 0o600))
	orphan := filepath.Join(t.TempDir(), "orphan")
	require.NoError(
		t, os.WriteFile(orphan, []byte("[initial-consumers]\nk=http://h/\n[k]\nchannel=nowhere\ntoken=file-secret\n"), 0o600))
	name := filepath.Join(t.TempDir(), "name")
	require.NoError(t, os.WriteFile(name, []byte("[initial-channels]\nc="+strings.Repeat("n", 256)+"\n"), 0o600))
	taken := w.start()
	nobody := freeAddr(t)
	for name, tc := range map[string]struct {
		env  []string
		code int
		says string
	}{
		"an unknown setting":        {[]string{"BROKER_MAX_RETRY=3"}, 1, "BROKER_MAX_RETRY is no setting"},
		"a value of the wrong form": {[]string{"BROKER_DELIVERY_TIMEOUT=30"}, 1, "BROKER_DELIVERY_TIMEOUT"},
		"a value out of range":      {[]string{"BROKER_MAX_RETRIES=-1"}, 1, "BROKER_MAX_RETRIES"},
		"no admin token for all":    {[]string{"BROKER_LISTEN=0.0.0.0:0", "BROKER_ADMIN_TOKEN="}, 1, "BROKER_ADMIN_TOKEN"},
		"a broken seed file":        {[]string{"BROKER_SEED_FILE=" + file}, 1, "seed"},
		"no seed file":              {[]string{"BROKER_SEED_FILE=" + file + ".none"}, 1, "seed"},
		"a seed of no channel":      {[]string{"BROKER_SEED_FILE=" + orphan}, 1, "nowhere"},
		"a seed's name too long":    {[]string{"BROKER_SEED_FILE=" + name}, 1, "name has at most 255"},
		"no MySQL": {[]string{"BROKER_MYSQL_DSN=user:dsn-secret@tcp(" + nobody + ")/penstock"}, 3,
			"refused"},
		"no DSN":               {[]string{"BROKER_MYSQL_DSN=::dsn-secret::"}, 3, "DSN"},
		"no folder":            {[]string{"BROKER_DATA_DIR=" + file + "/data"}, 3, "not a directory"},
		"the address is taken": {[]string{"BROKER_LISTEN=" + taken.base[len("http://"):]}, 4, "address already in use"},
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			p := embeddedWorld(t).launch(tc.env...)
			p.awaitEnd()
			require.Equal(t, tc.code, p.cmd.ProcessState.ExitCode(), p.log.String())
			require.Contains(t, p.log.String(), tc.says)
			require.NotContains(t, p.log.String(), "-secret")
			require.NotContains(t, p.log.String(), adminToken)
		})
	}
}

func TestASeedMakesNoConsumerThatCannotBeCalled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "seed")
	require.NoError(t, os.WriteFile(file, []byte(`[initial-channels]
c=C
[initial-consumers]
good=http://127.0.0.1:9/
text=call-secret me
user=http://name:pass-secret@127.0.0.1:9/
meta=http://169.254.169.254/latest
[good]
channel=c
[text]
channel=c
[user]
channel=c
[meta]
channel=c
`), 0o600))
	p := embeddedWorld(t).start("BROKER_SEED_FILE=" + file)
	require.Equal(t, 200, p.do("GET", "/channel/c/consumer/good", "", "X-Broker-Admin-Token", adminToken).status)
	for _, k := range []string{"text", "user", "meta"} {
		require.Equal(t, 404, p.do("GET", "/channel/c/consumer/"+k, "", "X-Broker-Admin-Token", adminToken).status, k)
		require.Contains(t, p.log.String(), "consumer "+k+": the broker may not post")
	}
	require.NotContains(t, p.log.String(), "-secret")
}

func TestRestartKeepsEverything(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_RATIONAL_DELAY=500ms", "BROKER_STOP_TIMEOUT=1h", "BROKER_MAX_RETRIES=1", "BROKER_RETRY_BACKOFF=1h",
			"BROKER_RETRY_MAX_DELAY=2h")
		sink := newSwitchSink(t)
		p := w.start()
		s := p.stage(t, "k")
		jobs := map[string]string{}
		for _, state := range []string{"DELIVERED", "DEAD"} {
			jobs[state] = s.inState("k", state)
		}
		reopened := s.inState("k", "DEAD")
		require.Equal(t, 202, s.do("POST", s.job("k", reopened).JobRequeueURL, "", consumerTokens("k")...).status)
		for i := range 5 {
			s.publish(fmt.Sprint(i), "X-Broker-Message-Priority", fmt.Sprint(i%2))
		}
		pushed := p.stage(t, "push="+sink.URL)
		at := pushed.publish("waits an hour")
		eventually(t, "the failure", func() bool {
			j := pushed.message(at).Jobs[0]
			return j.Status == "QUEUED" &&
				j.Attempts == 1
		})
		due := pushed.message(at).Jobs[0].NextAttemptAt.Time
		look := func() (out []any) {
			for _, state := range []string{"DELIVERED", "DEAD"} {
				out = append(out, s.job("k", jobs[state]))
			}
			for _, j := range s.awaitQueued("k", 6) {
				out = append(out, j.ID, j.Message.Payload, j.Attempts)
			}
			out = append(out, s.dead("k", 10), s.do("GET", s.path(), "").body,
				s.do("GET", s.path("/messages?size=100"), "").body,
				s.do("GET", s.path("/consumer/k"), "").body, s.do("GET", "/producer/p", "").body)
			return out
		}
		before := look()
		for _, end := range []func(){func() { require.Equal(t, 0, p.stop()) }, func() { p.kill() }} {
			end()
			p = w.start()
			s, pushed = s.on(p), pushed.on(p)
			require.Equal(t, before, look())
			j := pushed.message(at).Jobs[0]
			require.Equal(t, []any{"QUEUED", 1}, []any{j.Status, j.Attempts})
			require.WithinDuration(t, due, j.NextAttemptAt.Time, time.Second)
		}
		require.Equal(t, 1, sink.count(), "it still waits")
	})
}

// With a re-trigger URL the fail-safe repairs through the load balancer, as
// its documentation says. Only what it has to bring back by priority, after a start or
// a loss of Redis, it puts into the queue itself: hence more than one try.
func TestRestartTheFailSafeRepairsThroughTheRetriggerURLOnRealServers(t *testing.T) {
	parallel(t)
	var target atomic.Pointer[url.URL]
	var calls atomic.Int32
	balancer := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		if r.In.Method == "POST" && r.In.Header.Get("X-Broker-Admin-Token") == adminToken {
			calls.Add(1)
		}
		r.SetURL(target.Load())
	}})
	defer balancer.Close()
	w := realWorld(t).with(quick...)
	sink := newSink(t, nil)
	p := w.launch("BROKER_RETRIGGER_URL=" + balancer.URL + "/")
	u, err := url.Parse(p.base)
	require.NoError(t, err)
	target.Store(u)
	p.awaitReady()
	s := p.stage(t, "k="+sink.URL)
	for try := 1; calls.Load() == 0; try++ {
		require.LessOrEqual(t, try, 5, "no repair came through the balancer")
		id := fmt.Sprintf("lost-%d", try)
		dying := w.start("BROKER_REAPER=false", envKill+"="+failpoint.BeforeFanout+":1")
		_, _ = dying.try("POST", s.path("/broadcast"), id, append(append([]string{}, producerTokens...),
			"X-Broker-Message-ID", id)...)
		dying.awaitEnd()
		s.awaitStatus(s.path("/message/", id), "DELIVERED")
		require.Equal(t, try, sink.count())
	}
}
