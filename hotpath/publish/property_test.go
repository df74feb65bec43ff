package publish

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// Each property has the same value, however it comes.
func TestEachPropertyIsTheSameAsHeaderAsMemberAndAsColumn(t *testing.T) {
	samples := map[string]string{"MessageID": "m-1", "Priority": "7", "TTL": "90s", "ContentType": "text/x",
		"ContentEncoding": "GZIP,identity",
		"OrderingKey":     "key 1", "ScheduledFor": "2099-12-01T09:00:00Z", "Delay": "1d", "Recurrence": "R/PT1H",
		"Consumers": "a, b", "Task": "invoice 1"}
	asJSON := map[string]string{"Priority": `7`, "Consumers": `["a","b"]`}
	for i := range properties {
		p := &properties[i]
		if p.parse == nil || p.kind == payload { // they differ
			continue
		}
		text, ok := samples[p.member]
		require.True(t, ok, "a sample of %s", p.member)
		var byHeader, byMember, byColumn Draft
		h := &fasthttp.RequestHeader{}
		h.Set(p.header, text)
		require.NoError(t, byHeader.fill(h, ofMessage), p.header)
		value := asJSON[p.member]
		if value == "" {
			value = `"` + text + `"`
		}
		require.NoError(t, byMember.line([]byte(`{"Payload":"","`+p.member+`":`+value+`}`)))
		require.NoError(t, byColumn.Set(p.member, text))
		require.NotEqual(t, Draft{}, byColumn, p.member)
		byHeader.request, byMember.hasPayload, byMember.payload = false, false, nil
		require.Equal(t, byColumn, byHeader, p.member)
		require.Equal(t, byColumn, byMember, p.member)
	}
}

// A template sets what a line sets, but its consumers are those of the request.
func TestATemplateTakesTheMembersOfALine(t *testing.T) {
	require.ElementsMatch(t, append(strictjson.Names(apitype.BulkTemplate{}), "Consumers"), namesOf(func(*property) bool {
		return true
	}))
}

// The defaults of a bulk are stored: a broker of another version reads them.
func TestStoredDefaultsAreTheseBytes(t *testing.T) {
	text :=
		`{"Priority":7,"TTLMs":90000,"Headers":"YTpiCg==","Addressed":"AQ==","ScheduledFor":"2099-12-01T09:00:00Z","Recurrence":"R/PT1H","DelayMs":1500}`
	d := Defaults{Priority: 7, TTLMs: 90_000, Headers: []byte("a:b\n"), Addressed: []byte{1},
		times: times{"2099-12-01T09:00:00Z", "R/PT1H", 1500}}
	got, err := json.Marshal(d)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
	var again Defaults
	require.NoError(t, json.Unmarshal(got, &again))
	require.Equal(t, d, again)
}

// A way in without HTTP reads drafts and writes what became of them: messages, schedules and refusals.
func TestAWayInWithoutHTTPFillsDraftsAndSubmitsThem(t *testing.T) {
	store := &memstore.Store{}
	p := publisherOn(t, store)
	from := sender{ch: p.catalogue.Channel("c"), producer: p.catalogue.Producer("p")}
	w := p.drafter(from)
	var all []*Draft
	for _, said := range []map[string]string{
		{"Payload": "a", "MessageID": "m-1", "Priority": "7"},
		{"Payload": "b", "Priority": "-7"},
		{"Payload": "c", "Delay": "1h"},
		{"Payload": "d", "Colour": "red"},
	} {
		d := w.draft()
		for column, cell := range said {
			if err := d.Set(column, cell); err != nil {
				d.err = err
			}
		}
		if d.err == nil {
			d.err = w.complete(t.Context(), d)
		}
		all = append(all, d)
	}
	sent := w.Submit(t.Context(), accept.Terms{Patience: time.Minute}, all)
	sent.Wait()
	require.NoError(t, all[0].err)
	require.Equal(t, errPriority, all[1].err)
	require.ErrorIs(t, all[2].err, durable.ErrFailed, "the fake store has no schedules")
	require.ErrorContains(t, all[3].err, `"Colour"`)
	require.Equal(t, 1, store.Inserted())
	require.Equal(t, "m-1", all[0].message().Key)
	require.Equal(t, 7, all[0].message().Priority)
	require.False(t, all[2].later.ID.IsZero())
	require.EqualValues(t, time.Hour.Milliseconds(), all[2].later.DelayMs)
	require.Equal(t, 1.0, testutil.ToFloat64(p.metrics.Published), "the commit loop counts")
}
