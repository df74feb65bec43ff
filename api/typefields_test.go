package api

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/policy"
)

func TestFieldsThatMeanNothingToAPullConsumerAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.put("/channel/c/consumer/pull", "type=pull").is(201)
	w.put("/channel/c/consumer/push", "callbackUrl=http://localhost/").is(201)
	values := map[string]string{
		"protocol": "h2", "retryOn": "5xx", "retryShare": "50", "adaptive": "true", "tombstoneAfter": "5",
		"tombstoneWindow": "1h", "statusUrl": "http://localhost/{messageID}",
		"signingSecret": "generate", "signingSecretPrevious": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"signingOverlap": "1h", "headers": "X-A: 1", "authorization": "bearer x", "identity": "minimal",
		"async": "true", "asyncStatus": "201", "resultUrl": "http://localhost/{messageID}",
	}
	ofMail := map[string]string{"subject": "x", "body": "y", "collect": "2/1s"}
	require.Len(t, values, len(foreign(policy.ByPull))-len(ofMail))
	for name, value := range ofMail {
		field := name + "=" + value
		require.Contains(t, w.put("/channel/c/consumer/pull", field).problem(400, "unknown_field").Body, name)
		require.Contains(t, w.put("/channel/c/consumer/push", field).problem(400, "unknown_field").Body, "http or https")
	}
	for name, value := range values {
		field := name + "=" + url.QueryEscape(value)
		before := w.get("/channel/c/consumer/pull").Body
		require.Contains(t, w.put("/channel/c/consumer/pull", field).problem(400, "unknown_field").Body, name)
		require.Contains(t, w.put("/channel/c/consumer/new", "type=pull&"+field).problem(400, "unknown_field").Body, name)
		w.put("/channel/c/consumer/push", "type=pull&"+field).problem(400, "unknown_field")
		require.Equal(t, before, w.get("/channel/c/consumer/pull").Body)
		w.get("/channel/c/consumer/new").is(404)
		w.put("/channel/c/consumer/pull", name+"=").is(200)
		w.put("/channel/c/consumer/push", field).is(200)
	}
	w.put("/channel/c/consumer/pull", "retryOn=all&adaptive=false").is(200) // as GET shows them
	for _, name := range policy.Names() {
		if values[name] == "" && ofMail[name] == "" {
			require.NotContains(t, foreign(policy.ByPull), name)
		}
	}
	w.put("/channel/c/consumer/pull", "timeout=5s&backoff=1s&maxRetries=3&ttl=1h&ordered=true").is(200)
	w.put("/channel/c/consumer/push", "type=pull").is(200)
	w.put("/channel/c/consumer/pull", "type=push&callbackUrl=http://localhost/&retryOn=5xx").is(200)
}

func TestAConsumerOfMailsHasTheFieldsOfMailsAlone(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Senders = mailToo{} })
	w.channel()
	w.put("/channel/c/consumer/k", "callbackUrl=mailto:a@example.com&subject=x&body=y&rateLimit=1/1m&retryShare=50").
		is(201)
	for _, field := range []string{"headers=A:1", "authorization=bearer x", "protocol=h2", "responses=store",
		"statusUrl=http://localhost/{messageID}", "signingSecret=generate", "retryOn=5xx"} {
		r := w.put("/channel/c/consumer/k", field).problem(400, "unknown_field")
		require.Contains(t, r.Body, "a mailto: callbackUrl")
		w.put("/channel/c/consumer/new", "callbackUrl=mailto:a@example.com&"+field).problem(400, "unknown_field")
		w.put("/channel/c/consumer/k", field+"&callbackUrl=http://localhost/").is(200)
		w.put("/channel/c/consumer/k", "callbackUrl=mailto:a@example.com").is(200)
	}
	w.put("/channel/c/consumer/k", "callbackUrl=http://localhost/&subject=z").problem(400, "unknown_field")
	w.put("/channel/c/consumer/k", "callbackUrl=http://localhost/&subject=x").is(200) // as GET shows it
	for _, other := range []string{"amqp://localhost/x", "ftp://a/b", "FTP:x"} {
		r := w.put("/channel/c/consumer/k", "callbackUrl="+other).problem(400, "invalid_callback")
		require.Contains(t, r.Body, "no sender")
	}
	w.put("/channel/c/consumer/k", "callbackUrl=/x").problem(400, "invalid_callback")
}

// A policy that the sender cannot send with is refused whichever way the consumer would come to it.
func TestAConsumerOfNATSHasTheFieldsOfNATSAlone(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Senders = mailToo{} })
	w.channel()
	w.put("/channel/c/consumer/k", "callbackUrl=nats://localhost/x&authorization=basic+a:b&identity=minimal&"+
		"headers=Nats-TTL:1h&signingSecret=generate&adaptive=true").is(201)
	for _, field := range []string{"protocol=h2", "responses=store", "retryOn=5xx", "async=true", "subject=x"} {
		r := w.put("/channel/c/consumer/k", field).problem(400, "unknown_field")
		require.Contains(t, r.Body, "a nats: or tls: callbackUrl")
	}
	const oauth2 = "authorization=oauth2+http://localhost/token+id+secret"
	before := w.get("/channel/c/consumer/k").Body
	for _, path := range []string{"/channel/c/consumer/k", "/channel/c/consumer/new"} {
		r := w.put(path, oauth2+"&callbackUrl=nats://localhost/x").problem(400, "invalid_policy")
		require.Contains(t, r.Body, "The field authorization must be another one.")
	}
	w.put("/channel/c/consumer/k", oauth2).problem(400, "invalid_policy")
	require.Equal(t, before, w.get("/channel/c/consumer/k").Body)
	w.put("/channel/c/consumer/k", oauth2+"&callbackUrl=http://localhost/").is(200)
	w.put("/channel/c/consumer/k", "callbackUrl=nats://localhost/x").problem(400, "invalid_policy") // it keeps oauth2
	w.put("/channel/c/consumer/k", "callbackUrl=nats://localhost/x&authorization=").is(200)
}
