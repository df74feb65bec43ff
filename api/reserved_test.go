package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Names that begin with ~ belong to the broker: nobody makes, changes or publishes to what has
// one, and any consumer can be attached to the channel of alerts.
func TestReservedNames(t *testing.T) {
	w := newWorld(t, nil)
	_, _, err := w.store.PutChannel(context.Background(), durable.Put{ID: ident.AlertsChannel, NewToken: "a-token"})
	require.NoError(t, err)
	w.channel()
	before := w.get("/channel/~alerts").is(200)
	for _, path := range []string{"/channel/~alerts", "/channel/%7Ealerts", "/channel/~", "/channel/~mine", "/producer/~p",
		"/channel/c/consumer/~k", "/channel/~alerts/consumer/~k"} {
		w.put(path, "name=mine").problem(400, "reserved_name")
	}
	w.do("POST", "/channel/~alerts/pause", "").problem(400, "reserved_name")
	w.do("DELETE", "/channel/~alerts", "").problem(400, "reserved_name")
	w.do("DELETE", "/producer/~penstock", "").problem(400, "reserved_name")
	w.do("POST", "/channel/~alerts/resume", "").problem(400, "reserved_name")
	w.do("DELETE", "/channel/~alerts/consumer/~webhook", "").problem(400, "reserved_name")
	require.Equal(t, before.Body, w.get("/channel/~alerts").is(200).Body)
	require.Contains(t, w.get("/channels").is(200).Body, `"/channel/~alerts"`)
	w.get("/channel/~mine").problem(404, "channel_not_found")
	w.get("/producer/~p").problem(404, "producer_not_found")

	w.put("/channel/~alerts/consumer/k", "type=pull").is(201)
	require.Contains(t, w.get("/channel/~alerts/consumers").is(200).Body, "/channel/~alerts/consumer/k")
	w.put("/channel/c/consumer/k", "type=pull&dlq=forward:~alerts").problem(400, "invalid_policy")
	w.put("/channel/c/consumer/a~", "type=pull").is(201)
}
