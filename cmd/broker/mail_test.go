package main

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// answers makes the server answer each mail with that; code 0: it takes them.
func (m *mailServer) answers(code int, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says = nil
	if code > 0 {
		m.says = &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 2, 0}, Message: text}
	}
}

func (m *mailServer) refusals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

// settings are the settings of a broker that hands mails in there.
func (m *mailServer) settings() []string {
	return []string{"BROKER_ALERT_SMTP_URL=smtp://penstock:p%40ss@" + m.addr + "?tls=none",
		"BROKER_ALERT_FROM=Penstock <broker@example.com>"}
}

// tryCallback is the answer to a PUT of a consumer with that callback.
func (s *stage) tryCallback(callback string) reply {
	return s.do("PUT", s.path("/consumer/other"), url.Values{"callbackUrl": {callback}}.Encode(), "Content-Type",
		"application/x-www-form-urlencoded")
}

// Jobs that wait for a consumer with collect share a mail, and each of them is delivered by it.
func TestJobsOfAConsumerShareAMail(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		mails := newMailServer(t)
		p := w.start(append(mails.settings(), "BROKER_DELIVERY_TIMEOUT=20s")...)
		s := p.stage(t)
		consumer := []string{"token", "k-token", "callbackUrl", "mailto:one@example.com", "subject", "News {{payload.id}}",
			"body", "No {{payload.id}}.", "collect"}
		refused := func(fields ...string) string {
			form := url.Values{}
			for i := 0; i < len(fields); i += 2 {
				form.Set(fields[i], fields[i+1])
			}
			r := s.do("PUT", s.path("/consumer/k"), form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
			require.Equal(t, 400, r.status, r.body)
			return r.body
		}
		require.Contains(t, refused(append(consumer, "5/6s")...), "set timeout to 24s or more")
		refused(append(consumer, "1/5s")...)
		require.Equal(t, 201, s.put(s.path("/consumer/k"), append(consumer, "5/15m", "timeout", "1h")...).status)
		require.Equal(t, "5/15m", s.consumer("k").Policy.Collect)

		s.change("k", "pause")
		var at []string
		for id := range 5 {
			at = append(at, s.publish(fmt.Sprintf(`{"id":%d}`, id)))
		}
		s.change("k", "resume")
		for _, location := range at {
			s.awaitStatus(location, "DELIVERED")
		}
		got, _ := mails.about("News")
		require.Len(t, got, 1)
		require.Contains(t, got[0], "(and 4 more)")
		for id := range 5 {
			require.Contains(t, got[0], fmt.Sprintf("No %d.", id))
		}
		for _, timeout := range []string{"20s", ""} { // a change that no longer fits
			refused("timeout", timeout)
		}
	})
}

// A consumer with a mailto callback is a push consumer as others are: attempts, dead letters, pauses, tests.
func TestAConsumerGetsItsJobsByMail(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		mails := newMailServer(t)
		p := w.start(append(mails.settings(), "BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=20s",
			"BROKER_MAIL_DOMAINS=example.com, example.org")...)
		s := p.stage(t)
		require.Equal(t, 201, s.put(s.path("/consumer/k"), "token", "k-token", "callbackUrl",
			"mailto:one@example.com,two@example.org", "subject", "Order {{payload.id}}", "body",
			"Dear {{payload.name}},\nit is {{payload.state}}.", "backoff", "constant:100ms", "maxRetries", "100").status)
		require.Equal(t, "Order {{payload.id}}", s.consumer("k").Policy.Subject)

		at := s.publish(`{"id":17,"name":"Zoë","state":"sent"}`)
		s.awaitStatus(at, "DELIVERED")
		got, ids := mails.about("Zoë")
		require.Len(t, got, 1)
		require.Equal(t, "one@example.com,two@example.org\nOrder 17\nDear Zoë,\nit is sent.",
			strings.TrimSpace(strings.ReplaceAll(got[0], "\r", "")))
		_, job, _ := strings.Cut(s.jobAt(at, "k"), "/job/")
		require.Equal(t, "<"+job+"@example.com>", ids[0])

		mails.answers(451, "come again later")
		at = s.publish(`{"id":18,"name":"Ann"}`)
		eventually(t, "a retry", func() bool { return mails.refusals() >= 2 })
		_, job, _ = strings.Cut(s.jobAt(at, "k"), "/job/")
		eventually(t, "the words of the server", func() bool {
			h := s.job("k", job).AttemptHistory
			return len(h) > 0 && h[0].StatusCode == 451 && strings.Contains(h[0].Error, "451 4.2.0 come again later")
		})
		eventually(t, "the words of the server in the why", func() bool { // not while an attempt is under way
			return strings.Contains(s.do("GET", s.path("/consumer/k/why"), "").body, "come again later")
		})
		s.change("k", "pause")
		mails.answers(0, "")
		s.change("k", "resume")
		s.awaitStatus(at, "DELIVERED")
		_, ids = mails.about("Ann")
		require.Len(t, ids, 1)

		mails.answers(550, "no such box")
		s.publish(`{"id":19}`)
		var dead []apitype.Job
		eventually(t, "the dead letter", func() bool { dead = s.dead("k", 10); return len(dead) == 1 })
		require.Equal(t, []any{1, 550}, []any{dead[0].Attempts, dead[0].StatusCode})
		require.Contains(t, dead[0].Reason, "550 5.2.0 no such box")
		require.Equal(t, "rejected", dead[0].ReasonCode)
		mails.answers(0, "")
		require.Equal(t, 202, s.redriveAll("k", "k-token").status)
		eventually(t, "the mail of the dead letter", func() bool { got, _ := mails.about("Order 19"); return len(got) == 1 })

		test := answered[apitype.ConsumerTest](t, p, "POST", s.path("/consumer/k/test"), consumerTokens("k")...)
		require.Equal(t, 250, test.Status)
		require.Empty(t, test.Error)
		mails.answers(450, "busy")
		test = answered[apitype.ConsumerTest](t, p, "POST", s.path("/consumer/k/test"), consumerTokens("k")...)
		require.Contains(t, test.Error, "450 4.2.0 busy")
		require.NotContains(t, p.log.String(), "p@ss")

		for callback, code := range map[string]string{
			"mailto:a@example.net": "callback_refused", "mailto:a": "invalid_callback",
			"mailto:a@example.com%0d%0aBcc:b@example.com": "invalid_callback", "amqp://localhost:5672/x": "invalid_callback",
			"mailto:a@example.com?subject=x": "invalid_callback"} {
			requireProblem(t, s.tryCallback(callback), 400, code)
		}
	})
}

func TestWithoutAMailServerMailCallbacksAreRefused(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	seed := t.TempDir() + "/seed.ini"
	require.NoError(t, os.WriteFile(seed, []byte("[initial-consumers]\nseeded=mailto:a@example.com\n[seeded]\ntoken=t\n"+
		"channel=sample-channel\n[initial-channels]\nsample-channel=Sample\n"), 0o600))
	p := w.start("BROKER_SEED_FILE=" + seed)
	s := p.stage(t)
	r := s.tryCallback("mailto:a@example.com")
	requireProblem(t, r, 400, "callback_refused")
	require.Contains(t, r.body, "BROKER_ALERT_SMTP_URL is missing")
	r = s.tryCallback("amqp://localhost:5672/x")
	requireProblem(t, r, 400, "invalid_callback")
	require.Contains(t, r.body, "http, https, mailto")
	require.Contains(t, p.log.String(), "BROKER_ALERT_SMTP_URL is missing")
}
