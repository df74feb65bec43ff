package main

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tokenKey is a key of tokens, in base64.
var tokenKey = base64.StdEncoding.EncodeToString([]byte("0123456789abcdefghijklmnopqrstuv"))

// makeToken makes an API token and returns it with its ID.
func (p *process) makeToken(scopes string, headers ...string) (token, id string) {
	p.t.Helper()
	r := p.do("POST", "/tokens", `{"Name":"t","Scopes":[`+scopes+`],"Expires":"1h"}`, headers...)
	require.Equal(p.t, 201, r.status, r.body)
	made := r.json(p.t)
	return made["Token"].(string), made["ID"].(string)
}

// An API token publishes beside the token of a producer, claims alone, and ends on every broker at once.
func TestAnAPITokenWorksOnEachBrokerUntilItEnds(t *testing.T) {
	onEachStoreWithTwo(t, func(t *testing.T, _ *world, brokers []*process) {
		p, q := brokers[0], brokers[len(brokers)-1]
		eventually(t, "each other", func() bool { return p.gauge(t, "penstock_brokers") == float64(len(brokers)) })
		admin := []string{"X-Broker-Admin-Token", adminToken}
		form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, admin...)
		require.Equal(t, 201, p.do("PUT", "/producer/p", "token=p-token", form...).status)
		require.Equal(t, 201, p.do("PUT", "/channel/c", "token=c-token", form...).status)
		require.Equal(t, 201, p.do("PUT", "/channel/c/consumer/k", "type=pull&token=k-token", form...).status)
		channel, channelID := p.makeToken(`"channel:c"`, admin...)
		own, ownID := p.makeToken(`"consumer:c/k"`, admin...)

		publish := []string{"Authorization", "Bearer " + channel, "X-Broker-Producer-ID", "p", "X-Broker-Producer-Token",
			"p-token"}
		for _, at := range []*process{p, q} {
			r := at.do("POST", "/channel/c/broadcast", "a", publish...)
			require.Equal(t, 201, r.status, r.body)
			require.Equal(t, 403, at.do("POST", "/channel/c/broadcast", "a", publish[:4]...).status, "whose is it?")
			require.Equal(t, 200, at.do("GET", "/channel/c/consumer/k/queued-jobs", "", "Authorization", "Bearer "+own).status)
			require.Equal(t, 403, at.do("POST", "/channel/c/broadcast", "a", append(publish[2:], "X-Broker-Channel-Token",
				own)...).status, "a consumer does not publish")
			require.Equal(t, 403, at.do("GET", "/channels", "", "Authorization", "Bearer "+own).status)
		}
		for _, id := range []string{channelID, ownID} {
			require.Equal(t, 204, p.do("DELETE", "/tokens/"+id, "", admin...).status)
		}
		for _, at := range []*process{p, q} {
			require.Equal(t, 403, at.do("POST", "/channel/c/broadcast", "a", publish...).status)
			require.Equal(t, 403, at.do("GET", "/channel/c/consumer/k/queued-jobs", "", "Authorization", "Bearer "+own).status)
		}
		require.NotContains(t, p.log.String(), own)
	}, "BROKER_OPEN_MANAGEMENT=false", "BROKER_TOKEN_KEY="+tokenKey)
}

// A key may be changed while the one before it is known, and tokens outlive a restart.
func TestAPITokensOutliveARestartAndAChangeOfTheKey(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start("BROKER_OPEN_MANAGEMENT=false")
	admin := []string{"X-Broker-Admin-Token", adminToken}
	plain, _ := p.makeToken(`"management:read"`, admin...)
	p.stop()
	p = w.start("BROKER_OPEN_MANAGEMENT=false", "BROKER_TOKEN_KEY="+tokenKey)
	first, _ := p.makeToken(`"management:read"`, admin...)
	p.stop()
	other := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("ab", 16)))
	p = w.start("BROKER_OPEN_MANAGEMENT=false", "BROKER_TOKEN_KEY="+other, "BROKER_TOKEN_KEY_PREVIOUS="+tokenKey)
	second, _ := p.makeToken(`"management:read"`, admin...)
	status := func(token string) int {
		return p.do("GET", "/channels", "", "Authorization", "Bearer "+token).status
	}
	for _, token := range []string{plain, first, second} {
		require.Equal(t, 200, status(token))
	}
	p.stop()
	p = w.start("BROKER_OPEN_MANAGEMENT=false", "BROKER_TOKEN_KEY="+other)
	require.Equal(t, 200, status(plain))
	require.Equal(t, 403, status(first))
	require.Equal(t, 200, status(second))
	require.Contains(t, p.do("GET", "/tokens", "", admin...).body, "another BROKER_TOKEN_KEY")
}

// An address that sends wrong tokens is limited, and who publishes with right ones goes on.
func TestWrongTokensAreLimitedOnEveryWayIn(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false", "BROKER_AUTH_FAILURES=20",
		"BROKER_TRUSTED_PROXIES=127.0.0.0/8,::1")
	admin := []string{"X-Broker-Admin-Token", adminToken}
	form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, admin...)
	require.Equal(t, 201, p.do("PUT", "/producer/p", "token=p-token", form...).status)
	require.Equal(t, 201, p.do("PUT", "/channel/c", "token=c-token", form...).status)
	require.Equal(t, 201, p.do("PUT", "/channel/c/consumer/k", "type=pull&token=k-token", form...).status)
	ways := map[string]func(from string) reply{
		"management": func(from string) reply {
			return p.do("GET", "/channels", "", "X-Broker-Admin-Token", "guess", "X-Forwarded-For", from)
		},
		"a publish": func(from string) reply {
			return p.do("POST", "/channel/c/broadcast", "a", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "p",
				"X-Broker-Producer-Token", "guess", "X-Forwarded-For", from)
		},
		"an event": func(from string) reply {
			return p.do("POST", "/channel/c/broadcast", `{"specversion":"1.0","id":"1","source":"s","type":"t"}`, "Content-Type",
				"application/cloudevents+json", "X-Broker-Channel-Token", "guess", "X-Broker-Producer-ID", "p", "X-Forwarded-For",
				from)
		},
		"a claim": func(from string) reply {
			return p.do("POST", "/channel/c/consumer/k/claim", "", "Authorization", "Bearer guess", "X-Forwarded-For", from)
		},
		"an SQS client": func(from string) reply {
			now := time.Now().UTC()
			return p.do("POST", "/", `{}`, "X-Amz-Target", "AmazonSQS.ListQueues", "Content-Type", "application/x-amz-json-1.0",
				"Authorization", "AWS4-HMAC-SHA256 Credential=PSTKNONE/"+now.Format("20060102")+"/r/sqs/aws4_request, "+
					"SignedHeaders=host;x-amz-date;x-amz-target, Signature="+strings.Repeat("0", 64), "X-Amz-Date",
				now.Format("20060102T150405Z"), "X-Forwarded-For", from)
		},
	}
	n := 0
	for name, way := range ways {
		n++
		from := "192.0.2." + string(rune('0'+n))
		if name == "an SQS client" {
			from = "2001:db8::" + string(rune('0'+n))
		}
		for range 20 {
			r := way(from)
			require.Equal(t, 403, r.status, "%s: %s", name, r.body)
		}
		r := way(from)
		require.Equal(t, http.StatusTooManyRequests, r.status, "%s: %s", name, r.body)
		require.NotEmpty(t, r.header.Get("Retry-After"), name)
		require.Equal(t, 429, p.do("GET", "/channels", "", append(admin, "X-Forwarded-For", from)...).status, name)
		require.Equal(t, 201, p.do("POST", "/channel/c/broadcast", "a", "X-Broker-Channel-Token", "c-token",
			"X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", "p-token", "X-Forwarded-For", from).status, name)
		require.Equal(t, 200, p.do("GET", "/channels", "", append(admin, "X-Forwarded-For", "198.51.100.1, 192.0.2.99")...).
			status)
	}
}

// broker ctl makes, lists and ends API tokens, and takes one.
func TestCtlMakesAndEndsAPITokens(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	w := newTerminal(t, p)
	token := strings.TrimSpace(w.ok("broker ctl token create ci --scope channel:orders --scope management:read " +
		"--expires 1h"))
	require.Regexp(t, `^pst_[a-z2-7]{10}_[a-z2-7]{59}$`, token)
	list := w.ok("broker ctl token ls")
	require.Contains(t, list, "channel:orders management:read")
	require.NotContains(t, list, token)
	require.Contains(t, w.ok("broker ctl token create other --scope dlq --json"), `"Token":"pst_`)
	w.ok("broker ctl channel ls --token " + token)
	require.Equal(t, 2, w.run("broker ctl producer set p --token "+token).code)
	require.Equal(t, 1, w.run("broker ctl token create x").code)
	require.Equal(t, 2, w.run("broker ctl token create x --scope chanel:c").code)
	require.Equal(t, "the API token ci is ended\n", w.ok("broker ctl token rm ci"))
	require.Equal(t, 2, w.run("broker ctl channel ls --token "+token).code)
	require.Equal(t, 2, w.run("broker ctl token rm ci").code)
	w.ok("broker ctl token create other --scope dlq")
	require.Equal(t, 1, w.run("broker ctl token rm other").code, "two have that name")
}
