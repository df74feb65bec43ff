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
	require.Len(t, values, len(ofPush))
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
		if _, push := values[name]; !push {
			require.NotContains(t, ofPush, name)
		}
	}
	w.put("/channel/c/consumer/pull", "timeout=5s&backoff=1s&maxRetries=3&ttl=1h&ordered=true").is(200)
	w.put("/channel/c/consumer/push", "type=pull").is(200)
	w.put("/channel/c/consumer/pull", "type=push&callbackUrl=http://localhost/&retryOn=5xx").is(200)
}
