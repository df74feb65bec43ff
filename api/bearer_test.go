package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func bearer(token string) string { return "Authorization: Bearer " + token }

// closedWorld has a channel c whose token is that of consumer k too, and a producer p.
func closedWorld(t *testing.T) (*world, durable.Message) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	m := w.insert(durable.Message{Key: "m"})
	w.api.o.OpenManagement = false
	return w, m
}

func TestABearerTokenIsTheAdminsWhereItEqualsIt(t *testing.T) {
	w, m := closedWorld(t)
	for _, path := range []string{"/producers", "/channel/c/messages", "/channel/c/message/m", "/channel/c/consumer/k/dlq",
		jobPath(w.cat.Consumer("c", "k"), m)} {
		w.get(path, bearer(adminToken)).is(200)
		w.get(path, "authorization: bEARER "+adminToken).is(200)
		w.get(path, bearer(secret+"x"), adminHeader).is(200)
		w.get(path, bearer(adminToken), "X-Broker-Admin-Token: x").problem(403, "admin_token_mismatch")
		require.Equal(t, `Bearer realm="broker"`, w.get(path).problem(401, "token_missing").Header("WWW-Authenticate"))
		w.get(path, "Authorization: Basic "+adminToken).problem(401, "token_missing")
		for _, bad := range []string{"Bearer", "Bearer a b", "Bearer " + adminToken + ", Bearer x"} {
			w.get(path, "Authorization: "+bad).problem(401, "token_missing")
		}
		w.get(path, bearer(adminToken), bearer(adminToken)).problem(401, "token_missing")
	}
	w.get("/producers", bearer(secret+"-k")).problem(403, "admin_token_mismatch")
	w.do("PUT", "/producer/q", "", formHeader, bearer(adminToken)).is(201)
	w.post("/channel/c/message/m/re-trigger", bearer(adminToken)).is(202)
	w.post(retriggerPath(m, m.ID.Job(0)), bearer(adminToken)).is(202)
	w.post(retriggerPath(m, m.ID.Job(0)), bearer(secret+"-k")).problem(400, "job_not_dead") // its consumer may call it
	w.post(retriggerPath(m, m.ID.Job(0)), bearer(adminToken), tokens("x")[1]).problem(403, "consumer_token_mismatch")
}

func TestABearerTokenIsTheOwnersWhereTheRouteTakesOne(t *testing.T) {
	w, m := closedWorld(t)
	channel, id := tokens("k")[0], "X-Broker-Producer-ID: p"
	job := jobPath(w.cat.Consumer("c", "k"), m)
	for _, path := range []string{"/channel/c/consumer/k/dlq", job} {
		w.get(path, channel, bearer(secret+"-k")).is(200)
		w.get(path, channel, bearer(secret+"-x")).problem(403, "consumer_token_mismatch")
		w.get(path, bearer(secret+"-k")).problem(403, "channel_token_mismatch")
		w.get(path, tokens("k")[1], bearer(secret+"-c")).is(200)
		w.get(path, append(tokens("x"), bearer(secret+"-k"))...).problem(403, "consumer_token_mismatch")
		w.get(path, append(tokens("x"), bearer(adminToken))...).problem(403, "consumer_token_mismatch")
	}
	for _, path := range []string{"/channel/c/message/m", job} {
		w.get(path, channel, id, bearer(secret+"-p")).is(200)
		w.get(path, channel, id, bearer(secret+"-k")).problem(403, "producer_token_mismatch")
		w.get(path, id, "X-Broker-Producer-Token: "+secret+"-p", bearer(secret+"-c")).is(200)
	}
	w.get("/producer/p/dlq", bearer(secret+"-p")).is(200)
	w.get("/producer/p/dlq", bearer(secret+"-k")).problem(403, "producer_token_mismatch")
	w.post(job+"/requeue-dead-job", channel, bearer(secret+"-k")).problem(400, "job_not_dead")
	w.post("/channel/c/message/m/response", channel, bearer(secret+"-k")).problem(409, "responses_off")
}

func TestOneTokenForChannelAndOwnerNeedsOneHeader(t *testing.T) {
	w, m := closedWorld(t)
	for _, path := range []string{"/producer/p", "/channel/c", "/channel/c/consumer/k"} {
		w.put(path, "token="+secret+"-team", bearer(adminToken)).is(200)
	}
	team := bearer(secret + "-team")
	w.get("/channel/c/consumer/k/dlq", team).is(200)
	w.get("/channel/c/message/m", team, "X-Broker-Producer-ID: p").is(200)
	w.post(jobPath(w.cat.Consumer("c", "k"), m)+"/requeue-dead-job", team).problem(400, "job_not_dead")
	w.get("/channel/c/message/m", team).problem(401, "producer_not_found")
}

// Open management asks for no token, so that one in Authorization changes nothing. With the ID of a
// producer it makes the request that producer's, as the producer's token in its header does.
func TestOpenManagementTakesABearerTokenOfAProducerForWhatItIs(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.insert(durable.Message{Key: "m"})
	for _, header := range []string{bearer("any"), "Authorization: Bearer", bearer(adminToken)} {
		require.Contains(t, w.get("/channel/c/message/m", header).is(200).Body, "ConsumerURL")
	}
	own := w.get("/channel/c/message/m", bearer(secret+"-p"), "X-Broker-Producer-ID: p").is(200).Body
	require.Equal(t, w.get("/channel/c/message/m", "X-Broker-Producer-Token: "+secret+"-p",
		"X-Broker-Producer-ID: p").is(200).Body, own)
	w.get("/producers", bearer("any"), "Origin: http://evil.example").problem(403, "admin_token_mismatch")
	w.get("/producers", "Authorization: Basic x", "Origin: http://evil.example").problem(403, "origin_not_allowed")
}
