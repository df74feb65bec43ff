package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// responseExchanges calls the routes of responses.
func responseExchanges(w *world) (all []wired) {
	do := func(status int, method, route, path, body string, headers ...string) {
		w.t.Helper()
		r := w.do(method, path, body, headers...).is(status)
		all = append(all, wired{method + " " + route, method + " " + path, r})
	}
	const message = "/channel/{channel}/message/{message}"
	do(201, "PUT", "/producer/{producer}", "/producer/sends", "token="+secret+
		"&replyUrl=http://127.0.0.1:1/replies&signingSecret=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE%3D", formHeader)
	do(200, "PUT", "/producer/{producer}", "/producer/sends", "name=Sends", formHeader)
	w.put("/channel/asks", "token="+secret+"-c").is(201)
	w.put("/channel/asks/consumer/one", "type=pull&responses=store&responseMaxBytes=4&token="+secret+"-one").is(201)
	w.put("/channel/asks/consumer/two", "type=pull&responses=store&token="+secret+"-two").is(201)
	k, p := w.cat.Consumer("asks", "one"), w.cat.Producer("sends")
	m := w.insertInto("asks", durable.Message{Key: "asked", ProducerNo: p.No})
	require.NotNil(w.t, k)
	own := []string{"X-Broker-Channel-Token: " + secret + "-c", "X-Broker-Consumer-Token: " + secret + "-one"}
	do(202, "POST", message+"/response", "/channel/asks/message/asked/response", "\xff\x00 is cut",
		append(own, "Content-Type: application/x-a", "X-Result: 1", "Cookie: a=b")...)
	do(409, "POST", message+"/response", "/channel/asks/message/"+m.ID.String()+"/response", "again",
		append(own, "X-Broker-Consumer-ID: one")...)
	do(200, "GET", message+"/responses", "/channel/asks/message/asked/responses", "")
	do(200, "GET", message+"/responses", "/channel/asks/message/asked/responses?first=two", "")
	do(200, "GET", "/producer/{producer}/dlq", "/producer/sends/dlq", "")
	do(202, "POST", "/producer/{producer}/dlq", "/producer/sends/dlq", "requeue="+secret, formHeader)
	return all
}

func TestResponsesAreThoseOfTheProducerOfTheMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.put("/producer/p", "token="+secret+"-p").is(201)
	w.put("/producer/q", "token="+secret+"-q").is(201)
	responseExchanges(w)
	as := func(id, token string) []string {
		return []string{"X-Broker-Channel-Token: " + secret + "-c", "X-Broker-Producer-ID: " + id,
			"X-Broker-Producer-Token: " + token}
	}
	const path = "/channel/asks/message/asked/responses"
	w.do("GET", path, "", as("sends", secret)...).is(200)
	w.do("GET", path, "", as("q", secret+"-q")...).is(404)
	w.do("GET", path, "", as("sends", secret+"-q")...).is(403)
	w.do("GET", path+"?wait=61s", "").is(400)
	w.do("GET", path+"?until=some", "").is(400)
	w.do("GET", path+"?first=nobody", "").is(400)
	w.do("GET", "/channel/asks/message/other/responses", "").is(404)
	w.do("GET", "/producer/sends/dlq", "", "X-Broker-Producer-Token: "+secret).is(200)

	post := func(status int, headers ...string) {
		t.Helper()
		w.do("POST", "/channel/asks/message/asked/response", "x", append(headers, "X-Broker-Channel-Token: "+secret+
			"-c")...).is(status)
	}
	post(401)
	post(403, "X-Broker-Consumer-Token: wrong")
	post(403, "X-Broker-Consumer-Token: "+secret+"-one", "X-Broker-Consumer-ID: two")
	w.put("/channel/asks/consumer/one", "token="+secret+"-two").is(200)
	post(400, "X-Broker-Consumer-Token: "+secret+"-two")
	w.put("/channel/asks/consumer/two", "responses=off").is(200)
	post(409, "X-Broker-Consumer-Token: "+secret+"-two", "X-Broker-Consumer-ID: two")
}
