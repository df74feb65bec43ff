package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// historyNow is the time of these tests: five seconds after a full ten minutes.
var historyNow = time.Date(2026, 11, 26, 12, 10, 5, 0, time.UTC)

// A historyWorld has a channel c with the consumers k and other, at historyNow.
func newHistoryWorld(t *testing.T, change func(*Options)) (w *world, k *durable.Consumer) {
	w = newWorld(t, func(o *Options) {
		o.NowMs = historyNow.UnixMilli
		if change != nil {
			change(o)
		}
	})
	w.channel()
	w.consumer("other", "pull")
	return w, w.consumer("k", "push")
}

// counted stores what a broker counted in a slot that began some time ago.
func (w *world) counted(scope durable.HistoryScope, no uint32, step int, ago time.Duration, writer uint32,
	delivered int64) {
	w.t.Helper()
	require.NoError(w.t, w.store.KeepHistory(context.Background(), []durable.HistoryRow{{Scope: scope, No: no, Step: step,
		AtMs: historyNow.Add(-ago).UnixMilli(), Writer: writer, Accepted: 2 * delivered, Delivered: delivered, Failed: 3,
		Dead: 1, OldestMs: 100 * delivered}}))
}

func (w *world) history(query string) (h apitype.HistoryRange) {
	w.t.Helper()
	r := w.get("/history" + query).is(200)
	require.NoError(w.t, json.Unmarshal([]byte(r.Body), &h))
	return h
}

func TestTheHistoryHasEachSlotOfTheLastHour(t *testing.T) {
	w, _ := newHistoryWorld(t, nil)
	w.counted(durable.HistoryOfAll, 0, 10, 15*time.Second, 1, 5)
	w.counted(durable.HistoryOfAll, 0, 10, 15*time.Second, 2, 7)
	w.counted(durable.HistoryOfAll, 0, 60, 5*time.Second, 1, 70)
	h := w.history("")
	require.Equal(t, "10s", h.Step)
	require.Len(t, h.Result, 361)
	for i, s := range h.Result {
		require.Equal(t, historyNow.Add(-time.Hour-5*time.Second+time.Duration(i)*10*time.Second), s.At.UTC())
	}
	last := h.Result[359]
	at := apitype.Time{Time: last.At.Time}
	require.Equal(t, apitype.HistorySlot{At: at, Accepted: 24, Delivered: 12, Failed: 6, Dead: 2, OldestSeconds: 0.7},
		last)
	require.Zero(t, h.Result[358].Accepted)
	require.Empty(t, h.Marks)
	body := w.get("/history?from=2026-11-26T12:10:00Z").is(200).Body
	require.Equal(t, `{"Step":"10s","Result":[{"At":"2026-11-26T12:10:00.000Z","Accepted":0,"Delivered":0,"Failed":0,`+
		`"Dead":0,"OldestSeconds":0,"AckP50":0,"AckP99":0,"DeliveryP50":0,"DeliveryP99":0}],"Marks":[]}`+"\n", body)
}

func TestTheStepOfAHistoryFollowsFromItsRange(t *testing.T) {
	w, _ := newHistoryWorld(t, nil)
	from := func(ago time.Duration) string {
		return "?from=" + url.QueryEscape(historyNow.Add(-ago).Format(time.RFC3339))
	}
	for query, want := range map[string]struct {
		step  string
		slots int
		first time.Duration // before historyNow
	}{
		"":                                   {"10s", 361, time.Hour + 5*time.Second},
		from(time.Hour):                      {"10s", 361, time.Hour + 5*time.Second},
		from(time.Hour + time.Second):        {"1m", 61, time.Hour + 5*time.Second},
		from(48 * time.Hour):                 {"1m", 2881, 48*time.Hour + 5*time.Second},
		from(49 * time.Hour):                 {"10m", 295, 49*time.Hour + 5*time.Second},
		from(30 * 24 * time.Hour):            {"10m", 4321, 30*24*time.Hour + 5*time.Second},
		from(300 * 24 * time.Hour):           {"10m", 4321, 30*24*time.Hour + 5*time.Second},
		"?step=1m":                           {"1m", 61, time.Hour + 5*time.Second},
		"?step=10M":                          {"10m", 7, time.Hour + 5*time.Second},
		from(3*time.Hour) + "&step=10s":      {"10s", 361, time.Hour + 5*time.Second},
		"?to=2026-11-26T11:40:05Z":           {"1m", 61, 90*time.Minute + 5*time.Second},
		"?to=2999-01-01T00:00:00Z":           {"10s", 0, 0},
		from(90*time.Second) + "&step=1m":    {"1m", 3, 2*time.Minute + 5*time.Second},
		"?from=0001-01-01T00:00:00Z":         {"10m", 4321, 30*24*time.Hour + 5*time.Second},
		"?from=2026-11-26T12%3A10%3A05Z":     {"10s", 1, 5 * time.Second},
		"?from=2026-11-26T13:10:05%2B01:00&": {"10s", 1, 5 * time.Second},
	} {
		h := w.history(query)
		require.Equal(t, want.step, h.Step, query)
		require.Len(t, h.Result, want.slots, query)
		if want.slots > 0 {
			require.Equal(t, historyNow.Add(-want.first), h.Result[0].At.UTC(), query)
		}
	}
}

func TestAHistoryIsOfTheWholeOfAChannelOrOfAConsumer(t *testing.T) {
	w, k := newHistoryWorld(t, nil)
	w.counted(durable.HistoryOfAll, 0, 10, 15*time.Second, 1, 50)
	w.counted(durable.HistoryOfChannel, k.ChannelNo, 10, 15*time.Second, 1, 20)
	w.counted(durable.HistoryOfConsumer, k.No, 10, 15*time.Second, 1, 5)
	for query, want := range map[string]int64{"": 50, "?channel=c": 20, "?channel=c&consumer=k": 5,
		"?consumer=other&channel=c": 0} {
		sum := int64(0)
		for _, s := range w.history(query).Result {
			sum += s.Delivered
		}
		require.Equal(t, want, sum, query)
	}
}

func TestAQuestionForHistoryIsCheckedWhole(t *testing.T) {
	w, _ := newHistoryWorld(t, nil)
	for query, want := range map[string]struct {
		status     int
		code, says string
	}{
		"?step=5m":                         {400, "invalid_query", "10s, 1m, 10m"},
		"?step=10sec":                      {400, "invalid_query", "Did you mean 10s?"},
		"?step=":                           {400, "invalid_query", "step"},
		"?from=soon":                       {400, "invalid_date", "from"},
		"?to=1":                            {400, "invalid_date", "to"},
		"?consumer=k":                      {400, "invalid_query", "channel"},
		"?chanel=c":                        {400, "unknown_parameter", "channel"},
		"?channel=x":                       {404, "channel_not_found", "channel"},
		"?channel=":                        {404, "channel_not_found", "channel"},
		"?channel=%00":                     {404, "channel_not_found", "channel"},
		"?channel=c&consumer=x":            {404, "consumer_not_found", "consumer"},
		"?channel=c&channel=c":             {400, "invalid_query", "more than once"},
		"?channel=c&consumer=k&consumer=k": {400, "invalid_query", "more than once"},
		"?from=2026-11-26T12:00:00Z&to=2026-11-26T11:00:00Z":         {400, "invalid_date", "later than to"},
		"?from=2027-01-01T00:00:00Z":                                 {400, "invalid_date", "later than to"},
		"?from=2026-11-01T00:00:00Z&step=10s":                        {400, "invalid_query", "at most 5000"},
		"?from=0001-01-01T00:00:00Z&step=10m":                        {400, "invalid_query", "at most 5000"},
		"?to=9999-12-31T00:00:00Z&step=1m&from=2026-11-26T12:00:00Z": {400, "invalid_query", "at most 5000"},
		"?from=2026-11-01T00:00:00Z&from=2026-11-01T00:00:00Z":       {400, "invalid_query", "more than once"},
	} {
		require.Contains(t, w.get("/history"+query).problem(want.status, want.code).Body, want.says, query)
	}
	w.api.o.OpenManagement = false
	w.get("/history").problem(401, "token_missing")
	w.get("/history", tokens("k")...).problem(401, "token_missing")
	w.get("/history", adminHeader).is(200)
	w.get("/history", "X-Broker-Admin-Token: x").problem(403, "admin_token_mismatch")
}

func TestTheChangeOfAPolicyIsMarkedByTheNamesOfItsFields(t *testing.T) {
	w, k := newHistoryWorld(t, nil)
	require.Empty(t, w.history("").Marks, "a new resource is no change of a policy")
	w.put("/channel/c/consumer/k", "name=another").is(200)
	w.put("/channel/c/consumer/k", "").is(200)
	for _, path := range []string{"/channel/c/consumer/k", "/channel/c"} { // what GET shows is put again
		w.do("PUT", path, w.get(path).is(200).Body, jsonHeader).is(200)
	}
	require.Empty(t, w.history("").Marks)
	w.put("/channel/c/consumer/k", "maxRetries=3&signingSecret=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=").is(200)
	w.put("/channel/c/consumer/k", "maxRetries=3").is(200)
	w.put("/channel/c/consumer/other", "timeout=7s").is(200)
	w.put("/channel/c", "duplicates=acknowledge").is(200)
	w.put("/channel/c/consumer/k", "maxRetries=").is(200)
	texts := func(query string) (out []string) {
		for _, m := range w.history(query).Marks {
			require.Equal(t, "policy", m.Kind)
			require.Equal(t, historyNow, m.At.UTC())
			require.NotContains(t, m.Text, "whsec")
			out = append(out, m.Text)
		}
		return out
	}
	const ofK = "The policy of the consumer k of the channel c changed: "
	first, last := ofK+"maxRetries, signingSecret.", ofK+"maxRetries."
	other := "The policy of the consumer other of the channel c changed: timeout."
	channel := "The policy of the channel c changed: duplicates."
	require.ElementsMatch(t, []string{first, other, channel, last}, texts(""))
	require.ElementsMatch(t, []string{first, other, channel, last}, texts("?channel=c"))
	require.ElementsMatch(t, []string{first, channel, last}, texts("?channel=c&consumer=k"))
	require.Empty(t, texts("?to=2026-11-26T12:10:00Z"))
	w.put("/channel/d", "").is(201)
	require.Empty(t, texts("?channel=d"))
	require.NotZero(t, k.No)
}

func TestAPutThatCannotBeMarkedIsDoneAllTheSame(t *testing.T) {
	w, _ := newHistoryWorld(t, func(o *Options) { o.Store = unmarked{o.Store.(*durable.Store)} })
	w.put("/channel/c/consumer/k", "maxRetries=3").is(200)
	require.Contains(t, w.get("/channel/c/consumer/k").is(200).Body, `"MaxRetries":"3"`)
	require.Empty(t, w.history("").Marks)
}

// unmarked is a store that takes no marks.
type unmarked struct{ *durable.Store }

func (unmarked) KeepMark(context.Context, durable.HistoryMark) error { return context.DeadlineExceeded }

// statementCounter counts the statements that the history costs.
type statementCounter struct {
	*durable.Store
	n *[]string
}

func (c statementCounter) History(ctx context.Context, scope durable.HistoryScope, no uint32, step int, from,
	to int64) ([]durable.HistoryRow, error) {
	*c.n = append(*c.n, fmt.Sprint("rows of ", scope))
	return c.Store.History(ctx, scope, no, step, from, to)
}

func (c statementCounter) Marks(ctx context.Context, channelNo, consumerNo uint32, from, to int64,
	limit int) ([]durable.HistoryMark, error) {
	*c.n = append(*c.n, "marks")
	return c.Store.Marks(ctx, channelNo, consumerNo, from, to, limit)
}

// Each method that is counted sends one statement; the version of the catalogue, which a request for a
// resource asks for, comes on top.
func TestARangeOfTheHistoryTakesTwoStatements(t *testing.T) {
	var sent []string
	w, _ := newHistoryWorld(t, func(o *Options) { o.Store = statementCounter{o.Store.(*durable.Store), &sent} })
	for query, want := range map[string]string{"": "rows of 0 marks", "?channel=c": "rows of 1 marks",
		"?channel=c&consumer=k": "rows of 2 marks", "?from=2026-10-26T12:00:00Z": "rows of 0 marks"} {
		sent = nil
		w.history(query)
		require.Equal(t, want, strings.Join(sent, " "), query)
	}
}
