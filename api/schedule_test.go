package api

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// scheduledExchanges are the answers about scheduled messages.
func scheduledExchanges(w *world) (all []wired) {
	defer func(n int) { mostCounted = n }(mostCounted)
	mostCounted = 2
	w.plan(durable.Scheduled{Message: durable.Message{Key: "s", Payload: []byte("\"<s>\""), ContentType: "text/plain",
		Headers: []byte("x-a:b\n"), Priority: 3}})
	recurs := w.plan(durable.Scheduled{Message: durable.Message{Payload: []byte{0xff}}, Recurrence: "cron:* * * * *"})
	m := recurs.Message
	m.ID, m.Audience, m.Shape = w.ids.Next(), len(w.cat.Channel("c").Consumers), w.cat.Channel("c").Shape
	m.Occurrence = &durable.Occurrence{Of: recurs.ID, NextNo: 1, NextMs: recurs.DueMs + 1}
	require.NoError(w.t, w.store.Insert(context.Background(), w.node, []*durable.Message{&m})[0])
	for _, e := range [][2]string{{"/scheduled-message/{scheduled}", "/scheduled-message/s"},
		{"/scheduled-message/{scheduled}", "/scheduled-message/" + recurs.ID.String()},
		{"/scheduled-messages", "/scheduled-messages?size=1&status=101"}, {"/messages-status", "/messages-status"}} {
		r := w.get("/channel/c" + e[1]).is(200)
		all = append(all, wired{"GET /channel/{channel}" + e[0], "GET /channel/c" + e[1], r})
	}
	all = append(all, wired{"PUT /channel/{channel}/scheduled-message/{scheduled}", "PUT /channel/c/scheduled-message/s",
		w.do("PUT", "/channel/c/scheduled-message/s", "").is(200)})
	all = append(all, wired{"DELETE /channel/{channel}/scheduled-message/{scheduled}",
		"DELETE /channel/c/scheduled-message/s",
		w.do("DELETE", "/channel/c/scheduled-message/s", "").is(204)})
	return all
}

// A producer sees and deletes its own scheduled messages only, and deletion needs no option.
func TestScheduledMessagesAreOfTheirProducer(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.AllowDelete = false })
	w.channel()
	w.put("/producer/other", "token="+secret+"-other").is(201)
	w.plan(durable.Scheduled{Message: durable.Message{Key: "s"}})
	w.api.o.OpenManagement = false
	const path = "/channel/c/scheduled-message/s"
	other := producerTokens("other")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		w.do(method, path, "").problem(401, "token_missing")
		w.do(method, path, "", other...).problem(404, "scheduled_message_not_found")
	}
	w.get("/channel/c/scheduled-messages", producerTokens("p")...).problem(401, "token_missing")
	w.get(path, producerTokens("p")...).is(200)
	w.do("DELETE", path, "", producerTokens("p")...).is(204)
	w.do("DELETE", path, "", adminHeader).problem(404, "scheduled_message_not_found")
}

// A change counts where the schedule is as the request has seen it.
func TestAScheduledMessageIsChangedAsItWasSeen(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.plan(durable.Scheduled{Message: durable.Message{Key: "s", Payload: []byte("x")}})
	const path = "/channel/c/scheduled-message/s"
	before := w.get(path).is(200)
	w.do("PUT", path, "", "If-Match: \"other\"").problem(412, "precondition_failed")
	w.do("PUT", path, "", "If-None-Match: *").problem(412, "precondition_failed")
	w.do("PUT", path, "", "If-None-Match: "+before.Header("ETag")).problem(412, "precondition_failed")
	w.do("PUT", path, "", "If-Match: W/"+before.Header("ETag")).problem(412, "precondition_failed")
	w.do("PUT", path, "", "If-Match: x").problem(400, "invalid_etag")
	w.do("PUT", path, "", "If-Unmodified-Since: soon").problem(400, "invalid_date")
	changed := w.do("PUT", path, "", "If-Match: "+before.Header("ETag")).is(200)
	require.NotEqual(t, before.Header("ETag"), changed.Header("ETag"))
	after := w.get(path).is(200)
	require.Equal(t, after.Body, changed.Body, "the answer is what GET shows")
	require.Equal(t, after.Header("ETag"), changed.Header("ETag"))
	require.Equal(t, after.Header("Last-Modified"), changed.Header("Last-Modified"))
	w.do("PUT", path, "", "If-Match: "+before.Header("ETag")).problem(412, "precondition_failed")
	w.do("PUT", path, "", "If-Unmodified-Since: "+before.Header("Last-Modified")).problem(412, "precondition_failed")
	w.do("PUT", path, "", "If-Unmodified-Since: "+changed.Header("Last-Modified")).is(200)
	w.do("PUT", path, "", "If-Unmodified-Since: "+changed.Header("Last-Modified")).problem(412, "precondition_failed")
	w.do("PUT", path, "", "If-Match: *").is(200)
	w.do("PUT", path+"-none", "", "If-Match: *").problem(404, "scheduled_message_not_found")
}

// What is due is not deleted, and the filter of the list is checked.
func TestScheduledMessagesThatAreDueStay(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	s := durable.Scheduled{Message: durable.Message{ID: w.ids.Next(), ChannelNo: w.cat.Channel("c").No,
		ProducerNo: w.cat.Producer("p").No}, DueMs: time.Now().UnixMilli()}
	w.node.Known = w.cat.Version()
	require.NoError(t, w.store.Schedule(context.Background(), w.node, []*durable.Scheduled{&s})[0])
	path := "/channel/c/scheduled-message/" + s.ID.String()
	w.do("DELETE", path, "").problem(409, "already_dispatched")
	w.do("PUT", path, "").problem(409, "already_dispatched")
	w.get(path).is(200)
	w.get("/channel/c/scheduled-messages?status=100").problem(400, "invalid_status")
	w.get("/channel/c/scheduled-messages?first=x").problem(400, "unknown_first")
	w.get("/channel/none/scheduled-messages").problem(404, "channel_not_found")
	w.get("/channel/none/messages-status").problem(404, "channel_not_found")
}
