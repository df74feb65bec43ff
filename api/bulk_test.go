package api

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Accept and Wake make the data plane of the tests a Bulks.
func (d *dataPlane) Accept(rc *fasthttp.RequestCtx) error {
	d.note(rc, "bulk")
	return nil
}

func (d *dataPlane) Wake() {}

// bulk stores a bulk of a file, of which two rows are expanded, one of them badly.
func (w *world) bulk() *durable.Bulk {
	w.t.Helper()
	ctx := context.Background()
	ch, p := w.cat.Channel("c"), w.cat.Producer("p")
	template := &apitype.BulkTemplate{Payload: "p", PayloadBase64: "p", ContentType: "t", ContentEncoding: "gzip",
		Headers:  map[string]string{"X-A": "a"},
		Priority: "1", MessageID: "m", TTL: "1h", OrderingKey: "k", Task: "t", ScheduledFor: "s", Delay: "d", Recurrence: "r"}
	spec, err := json.Marshal(apitype.BulkRequest{FileURL: "http://127.0.0.1/file?token=" + secret, Format: "csv",
		Rate: "5/1s", Template: template})
	require.NoError(w.t, err)
	b := &durable.Bulk{ChannelNo: ch.No, ProducerNo: p.No, State: durable.BulkRunning, Spec: spec, Total: 9}
	b.ID = w.ids.Next()
	require.NoError(w.t, w.store.CreateBulk(ctx, b, []byte("Payload\nx\ny\n")))
	held, err := w.store.ClaimBulk(ctx, [16]byte{1}, durable.BulkQueue{State: durable.BulkRunning, ProducerNo: p.No})
	require.NoError(w.t, err)
	require.Equal(w.t, b.ID, held.ID)
	m := &durable.Message{ID: w.ids.Next(), ChannelNo: ch.No, ProducerNo: p.No, Audience: len(ch.Consumers),
		Shape: ch.Shape, ContentType: "text/plain", Payload: []byte("x")}
	step := &durable.BulkStep{By: held.BulkOwner, To: durable.BulkPosition{Row: 2, Byte: 12},
		Messages: []*durable.Message{m}, Rows: []int64{1},
		Bad: []durable.BadRow{{Row: 2, Reason: `a "bad" <row>`}}, Speed: 3, Audience: len(ch.Consumers)}
	require.NoError(w.t, w.store.StepBulk(ctx, w.node, step))
	require.NoError(w.t, step.Results[0])
	return b
}

// bulkExchanges are the answers about bulks.
func bulkExchanges(w *world) (all []wired) {
	b := w.bulk()
	const route, of = "/channel/{channel}/bulk/{bulk}", "/channel/c/bulk/"
	for _, e := range [][3]string{{"GET", route, of + b.ID.String()}, {"GET", route + "/bad-rows", of + b.ID.String() +
		"/bad-rows"}, {"GET", "/channel/{channel}/bulks", "/channel/c/bulks"},
		{"POST", route + "/pause", of + b.ID.String() + "/pause"}, {"POST", route + "/resume", of + b.ID.String() +
			"/resume"}, {"POST", route + "/cancel", of + b.ID.String() + "/cancel"}} {
		all = append(all, wired{e[0] + " " + e[1], e[0] + " " + e[2], w.do(e[0], e[2], "").is(200)})
	}
	return all
}

func TestABulkCountsItsJobs(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k, dead := w.consumer("k", "push"), w.consumer("dead", "push")
	b := w.bulk()
	path := "/channel/c/bulk/" + b.ID.String()
	show := func() (v apitype.Bulk) {
		require.NoError(t, json.Unmarshal([]byte(w.get(path).is(200).Body), &v))
		return v
	}
	v := show()
	require.Equal(t, [3]int64{0, 2, 0}, [3]int64{v.Delivered, v.Open, v.Dead})
	require.Equal(t, "http://127.0.0.1/file", v.FileURL)
	require.Equal(t, apitype.Text("1"), v.Template.Priority)
	require.WithinDuration(t, v.ChangedAt.Add(7*time.Second/3), v.EstimatedEnd.Time, 2*time.Millisecond)
	list, err := w.store.ListMessages(context.Background(), b.ChannelNo, b.ID, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	w.kill(dead, list[0])
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: list[0].ID, Attempts: 1,
		AtMs: time.Now().UnixMilli()})
	v = show()
	require.Equal(t, [3]int64{1, 0, 1}, [3]int64{v.Delivered, v.Open, v.Dead})
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: dead.No, ID: list[0].ID, Attempts: 1,
		AtMs: time.Now().UnixMilli(), Tracked: true})
	for range 2 { // counted, then stored
		v = show()
		require.Equal(t, [3]int64{2, 0, 0}, [3]int64{v.Delivered, v.Open, v.Dead})
	}
	w.do("POST", path+"/cancel", "").is(200)
	w.do("POST", path+"/pause", "").problem(409, "bulk_over")
	w.get("/channel/c/bulks?first=x").problem(400, "unknown_first")
}
