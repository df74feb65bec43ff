package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// ofAlerts is the channel of alerts.
func (p *process) ofAlerts(t testing.TB) *stage { return &stage{process: p.in(t), channel: "~alerts"} }

const ownWebhook, ownMail = "/channel/~alerts/consumer/~webhook", "/channel/~alerts/consumer/~mail"

// raise makes n alerts about consumers of a channel of their own, which are gone.
func (p *process) raise(t *testing.T, n int) *stage {
	t.Helper()
	gone := newSink(t, func(int, received) int { return 410 })
	s := p.stage(t)
	for i := range n {
		s.join(fmt.Sprintf("k%d=%s", i, gone.URL))
	}
	s.publish("body")
	eventually(t, "the alerts", func() bool { return s.alerted() == n })
	return s
}

// alerted counts the alerts about the channel of a stage.
func (s *stage) alerted() int {
	s.t.Helper()
	found := map[string]bool{}
	next := "/channel/~alerts/messages?size=100&contains=" + s.channel
	for next != "" {
		r := s.do("GET", next, "")
		require.Equal(s.t, 200, r.status, r.body)
		for _, link := range alertLink.FindAllString(r.body, -1) {
			found[link] = true
		}
		next, _ = r.json(s.t)["Pages"].(map[string]any)["next"].(string)
	}
	return len(found)
}

var alertLink = regexp.MustCompile(`/channel/~alerts/message/alert-[^"]*`)

// exhaust makes the retries of a consumer due until it has so many dead letters.
func (s *stage) exhaust(consumer string, n int) []apitype.Job {
	s.t.Helper()
	eventually(s.t, "dead letters of "+consumer, func() bool {
		require.Equal(s.t, 200, s.do("POST", s.path("/consumer/", consumer, "/retry"), "").status)
		return len(s.dead(consumer, 100)) == n
	})
	return s.dead(consumer, 100)
}

// The webhook is a consumer like others: it is paused, resumed and tested, has retries, dead letters and their redrive,
// and the same webhook-id in each repetition. What it is, the setting decides alone.
func TestTheAlertWebhookIsAConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		var status atomic.Int32
		status.Store(204)
		hook := newSink(t, func(int, received) int { return int(status.Load()) })
		p := w.with(quick...).start("BROKER_ALLOW_DELETE=true", "BROKER_ALERT_WEBHOOK_URL="+hook.URL+"/in",
			"BROKER_ALERT_WEBHOOK_SECRET="+alertSecret)
		own := p.ofAlerts(t)
		require.Equal(t, 200, p.do("POST", ownWebhook+"/pause", "").status)
		s := p.raise(t, 3)
		eventually(t, "the jobs to wait", func() bool {
			r := p.do("GET", ownWebhook+"/why", "")
			return r.status == 200 && strings.Contains(r.body, `"Code":"paused"`) && strings.Contains(r.body, `"Jobs":3`)
		})
		require.Zero(t, hook.count())
		require.Equal(t, 200, p.do("POST", ownWebhook+"/resume", "").status)
		eventually(t, "the alerts", func() bool { got, _ := alertsAt(t, hook, s.channel); return len(got) == 3 })

		status.Store(500)
		s = p.raise(t, 1)
		eventually(t, "a failed attempt", func() bool {
			return strings.Contains(p.do("GET", ownWebhook+"/why", "").body, "change the setting that its callbackUrl names")
		})
		dead := own.exhaust("~webhook", 1)[0]
		require.Equal(t, 12, dead.Attempts)
		require.Equal(t, "attempt 12 of 12 failed: status 500", dead.Reason)
		status.Store(200)
		own.redrive("~webhook", "")
		eventually(t, "the redrive", func() bool { got, _ := alertsAt(t, hook, s.channel); return len(got) == 13 })
		_, requests := alertsAt(t, hook, s.channel)
		for _, r := range requests {
			require.Equal(t, requests[0].header.Get("webhook-id"), r.header.Get("webhook-id"))
			require.Regexp(t, "^alert-gone-", r.header.Get("webhook-id"))
			for name := range r.header {
				require.False(t, strings.HasPrefix(name, "X-Broker-") && name != "X-Broker-Made-By" || name == "X-Request-Id", name)
			}
		}
		eventually(t, "no dead letter", func() bool { return len(own.dead("~webhook", 10)) == 0 })
		r := p.do("POST", ownWebhook+"/test", "")
		require.Equal(t, 200, r.status, r.body)
		require.Contains(t, r.body, `"Status":200`)

		requireProblem(t, p.do("PUT", ownWebhook, "name=mine", "Content-Type", "application/x-www-form-urlencoded"), 400,
			"reserved_name")
		r = p.do("DELETE", ownWebhook, "")
		requireProblem(t, r, 400, "reserved_name")
		require.Contains(t, r.body, "a setting decides")
		for _, scheme := range []string{"alert-webhook:BROKER_ALERT_WEBHOOK_URL", "alert-mail:BROKER_ALERT_TO"} {
			r := s.tryCallback(scheme)
			requireProblem(t, r, 400, "invalid_callback")
			require.Equal(t, r.json(t)["Detail"], s.tryCallback("unknown:x").json(t)["Detail"])
		}
	})
}

// The setting decides which consumers there are: a start without it deletes the consumer, and a start with it revives
// one that is gone.
func TestTheAlertConsumersFollowTheirSettings(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		var status atomic.Int32
		status.Store(410)
		hook := newSink(t, func(int, received) int { return int(status.Load()) })
		w.with(quick...)
		with := "BROKER_ALERT_WEBHOOK_URL=" + hook.URL
		p := w.start(with)
		p.raise(t, 1)
		state := func() string { return p.do("GET", ownWebhook, "").json(t)["State"].(string) }
		eventually(t, "GONE", func() bool { return state() == "GONE" })
		require.Equal(t, 1, hook.count())
		status.Store(204)
		require.Equal(t, 0, p.stop())
		p = w.start(with)
		eventually(t, "the alert, that about the webhook, and that of its return", func() bool { return hook.count() == 4 })
		require.Equal(t, "ACTIVE", state())
		require.Equal(t, 404, p.do("GET", ownMail, "").status)
		require.Equal(t, 200, p.do("POST", ownWebhook+"/pause", "").status)
		require.Equal(t, 0, p.stop())
		p = w.start(with)
		require.Equal(t, "PAUSED", state())
		p.raise(t, 1)

		require.Equal(t, 0, p.stop())
		p = w.start()
		require.Equal(t, 404, p.do("GET", ownWebhook, "").status)
		require.Contains(t, p.log.String(), "a consumer of alerts is deleted")
		require.Equal(t, 0, p.stop())
		p = w.start(with)
		s := p.raise(t, 1)
		eventually(t, "the new alert", func() bool { got, _ := alertsAt(t, hook, s.channel); return len(got) == 1 })
		require.Equal(t, 5, hook.count(), "what waited is gone with the consumer")
	})
}

// Nothing that a person or a program may read has the URL of the webhook, which may contain a secret: nor where the
// webhook refuses the connection, redirects, or quotes the URL in its answer.
func TestNothingShowsTheURLOfTheAlertWebhook(t *testing.T) {
	parallel(t)
	for _, status := range []int{0, 302, 500} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", r.URL.String())
			w.WriteHeader(status)
			fmt.Fprint(w, "no ", r.URL)
		}))
		if status == 0 {
			server.Close()
		}
		audits := newSink(t, nil)
		p := embeddedWorld(t).with(quick...).start("BROKER_ALERT_WEBHOOK_URL=" + server.URL + "/s3cret?key=s3cret")
		p.put("/channel/~audit/consumer/k", "token", "t", "callbackUrl", audits.URL)
		s := p.ofAlerts(t)
		p.raise(t, 2)
		s.exhaust("~webhook", 2)
		p.raise(t, 1)
		job := s.dead("~webhook", 1)[0].ID
		r := p.do("POST", ownWebhook+"/test", "")
		require.Equal(t, 200, r.status, r.body)
		all := map[string]string{"log": p.log.String(), "test": r.body}
		for _, path := range []string{ownWebhook, "/channel/~alerts/consumers", ownWebhook + "/why", ownWebhook + "/dlq",
			ownWebhook + "/queued-jobs", ownWebhook + "/job/" + job, ownWebhook + "/job/" + job + "/timeline", "/metrics",
			"/status"} {
			r := p.do("GET", path, "")
			all[path] = r.body
			require.Less(t, r.status, 500, path)
		}
		require.Contains(t, all[ownWebhook], `"CallbackURL":"alert-webhook:BROKER_ALERT_WEBHOOK_URL"`)
		for path, page := range p.walkPages("/ui/channel/~alerts/consumer/~webhook") {
			all[path] = page
		}
		for _, r := range audits.all() {
			all["audit"] += r.body
		}
		for where, text := range all {
			require.NotContains(t, text, "s3cret", "%s with status %d", where, status)
		}
		server.Close()
		require.Equal(t, 0, p.stop())
	}
}

// Alerts of a moment share a mail. A mail server that is away when the broker starts gets them later, each once.
func TestAlertsShareAMail(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		mails := newMailServer(t)
		mails.away(true)
		p := w.with(quick...).start("BROKER_ALERT_SMTP_URL=smtp://penstock:p%40ss@"+mails.addr+"?tls=none",
			"BROKER_ALERT_FROM=broker@example.com", "BROKER_ALERT_TO=Ops <ops@example.com>,boss@example.com",
			"BROKER_MAIL_DOMAINS=example.org")
		const n = 30
		s := p.raise(t, n)
		eventually(t, "a failed attempt", func() bool {
			return strings.Contains(p.do("GET", ownMail+"/why", "").body, "the mail server answered: 451")
		})
		mails.away(false)
		eventually(t, "all mails", func() bool {
			p.do("POST", ownMail+"/retry", "")
			texts, _ := mails.about(s.channel)
			return strings.Count(strings.Join(texts, ""), "Channel:  "+s.channel+"\r\n") >= n
		})
		texts, _ := mails.about(s.channel)
		require.LessOrEqual(t, len(texts), 6)
		for i := range n {
			require.Equal(t, 1, strings.Count(strings.Join(texts, ""), fmt.Sprintf("Consumer: k%d\r\n", i)), "k%d", i)
		}
		require.Contains(t, texts[0], "ops@example.com,boss@example.com\n[Penstock] consumer.gone: "+s.channel+"/k")
		require.Regexp(t, `\(and \d+ more\)`, texts[0])
	})
}

// away makes a server refuse mails, or take them.
func (m *mailServer) away(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.says = nil; is {
		m.says = &smtp.SMTPError{Code: 451, Message: "later"}
	}
}

// That alerts cannot be handed on is an alert, which makes no further ones: neither about the webhook nor about a
// consumer whose dead letters are immediate.
func TestDeadLettersOfAlertsAreNoAlertsWithoutEnd(t *testing.T) {
	parallel(t)
	failing := newSink(t, func(int, received) int { return 500 })
	p := embeddedWorld(t).with(quick...).start("BROKER_ALERT_WEBHOOK_URL="+failing.URL, "BROKER_ALERT_DLQ_GROWTH=1",
		"BROKER_ALERT_DLQ_WINDOW=2s", "BROKER_MAX_RETRIES=0")
	s := p.ofAlerts(t)
	grown := func(consumer string) int {
		r := p.do("GET", "/channel/~alerts/messages?size=100&contains="+url.QueryEscape(`"ConsumerID":"`+consumer+`"`), "")
		require.Equal(t, 200, r.status, r.body)
		return strings.Count(r.body, `"/channel/~alerts/message/alert-growing`)
	}
	stays := func(consumer string, dead int) {
		t.Helper()
		eventually(t, "the growth and its end", func() bool { return grown(consumer) == 2 })
		time.Sleep(5 * time.Second) // windows in which the next one would come
		require.Equal(t, 2, grown(consumer))
		require.Len(t, s.dead(consumer, 100), dead)
	}
	p.raise(t, 20)
	s.exhaust("~webhook", 20)
	stays("~webhook", 20)
	p.attach("ops", failing)
	p.raise(t, 20)
	stays("ops", 20)
}

// What an older release had not handed on yet goes to the consumers that are in its place, once, and to no other one.
func TestAlertsOfAnOlderReleaseAreHandedOnOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		hook, ops := newSink(t, nil), newSink(t, nil)
		w.with(quick...).with("BROKER_ALERT_WEBHOOK_URL=" + hook.URL)
		p := w.start()
		p.stage(t, "k")
		require.Equal(t, 0, p.stop())
		driver, at := "sqlite", filepath.Join(w.env[0][len("BROKER_DATA_DIR="):], "penstock.db")
		if w.redis != nil {
			driver, at = "mysql", strings.TrimPrefix(w.env[0], "BROKER_MYSQL_DSN=")
		}
		db, err := sql.Open(driver, at)
		require.NoError(t, err)
		now := time.Now().UnixMilli()
		for i := range 5 {
			_, err = db.Exec("INSERT INTO alerts (sink, at_ms, consumer_no, event, channel_id, consumer_id, reason, tries, "+
				"next_ms) VALUES (2, ?, 1, 1, 'old', 'k', 'why', ?, 0)", now-int64(i), i)
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
		p = w.start()
		p.attach("ops", ops)
		if w.redis != nil {
			w.start()
		}
		eventually(t, "the alerts", func() bool { got, _ := alertsAt(t, hook, "old"); return len(got) >= 5 })
		time.Sleep(2 * time.Second)
		got, requests := alertsAt(t, hook, "old")
		require.Len(t, got, 5)
		require.Regexp(t, "^alert-dead-1-.*-webhook$", requests[0].header.Get("webhook-id"))
		require.Zero(t, ops.count())
	})
}
