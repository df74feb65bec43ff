package pull

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

func TestTransitionBodiesAreReadAsTheirTableSays(t *testing.T) {
	ok := map[string]update{
		`{"NextState":"INFLIGHT"}`:                         {NextState: "INFLIGHT"},
		`{"NextState":"INFLIGHT","IncrementalTimeout":10}`: {NextState: "INFLIGHT", IncrementalTimeout: 10},
		`{"NextState":"INFLIGHT","IncrementalTimeout":0}`:  {NextState: "INFLIGHT"},
		`{"NextState":"DELIVERED","IncrementalTimeout":0}`: {NextState: "DELIVERED"},
		`{"NextState":"DELIVERED"}`:                        {NextState: "DELIVERED"},
		`{"NextState":"DEAD","IncrementalTimeout":null}`:   {NextState: "DEAD"},
		` {"nextState":"DEAD"} `:                           {NextState: "DEAD"},
		`{"NextState":"QUEUED","Lease":"t.1","Delay":5}`:   {NextState: "QUEUED", Lease: "t.1", Delay: 5},
		`{"NextState":"QUEUED"}`:                           {NextState: "QUEUED"},
	}
	for body, want := range ok {
		got, err := parseTransition([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, want, got, body)
	}
	bad := []string{
		`{"NextState":"DEAD", "Why":"unknown is ignored"}`, `{"NextState":"DEAD","Delay":1}`,
		`{"NextState":"QUEUED","Delay":-1}`, `{"NextState":"QUEUED","Delay":"1"}`, `{"NextState":"DEAD","NextState":"DEAD"}`,
		``, `{}`, `null`, `[]`, `"INFLIGHT"`, `{"NextState":"inflight"}`, `{"NextState":""}`, `{"NextState":1}`,
		`{"NextState":null}`,
		`{"NextState":"DELIVERED"/"DEAD",}`, `{"NextState":"DELIVERED",}`, `{"NextState":"INFLIGHT"} {"NextState":"DEAD"}`,
		`{"NextState":"INFLIGHT"`,
		`{"NextState":"DELIVERED","IncrementalTimeout":10}`, `{"NextState":"DEAD","IncrementalTimeout":1}`,
		`{"NextState":"INFLIGHT","IncrementalTimeout":-1}`, `{"NextState":"INFLIGHT","IncrementalTimeout":1.5}`,
		`{"NextState":"INFLIGHT","IncrementalTimeout":"10"}`, `{"NextState":"INFLIGHT","IncrementalTimeout":1e3}`,
		`{"NextState":"INFLIGHT","IncrementalTimeout":99999999999999999999}`,
		`{"NextState":"INFLIGHT","IncrementalTimeout":604801}`,
		`{"NextState":"INFLIGHT","IncrementalTimeout":true}`,
	}
	for _, body := range bad {
		_, err := parseTransition([]byte(body))
		require.Error(t, err, body)
		require.Equal(t, 400, problem.From(err).Status, body)
	}
}

func FuzzTransition(f *testing.F) {
	f.Add([]byte(`{"NextState":"INFLIGHT","IncrementalTimeout":10}`))
	f.Add([]byte(`{"NextState":"DEAD"}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		tr, err := parseTransition(body)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, json.Valid(body), "only real JSON is accepted")
		require.Contains(t, []string{"INFLIGHT", "DELIVERED", "DEAD", "QUEUED"}, tr.NextState)
		require.GreaterOrEqual(t, tr.IncrementalTimeout, int64(0))
		require.True(t, tr.IncrementalTimeout == 0 || tr.NextState == "INFLIGHT")
	})
}

func TestCursorsComeBackAsTheyWent(t *testing.T) {
	c := redisq.Cursor{Score: 1023 << 42, ID: ident.AtMillis(5)}
	got, err := parseCursor([]byte(formatCursor(c)))
	require.NoError(t, err)
	require.Equal(t, c, *got)
	for _, text := range []string{"x", ".", "1.2", "-1.00000000000000000000", "zzzzzzzzzzzzzzz.00000000000000000000",
		"1.00000000000000000000.1"} {
		_, err := parseCursor([]byte(text))
		require.Equal(t, 400, problem.From(err).Status, text)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("0.00000000000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor([]byte(text))
		if err == nil && c != nil {
			require.GreaterOrEqual(t, c.Score, int64(0))
			require.Less(t, c.Score, int64(1)<<53)
		}
	})
}

func TestLimitDefaultsTo25AndIsClippedTo100(t *testing.T) {
	for query, want := range map[string]int{"": 25, "limit=1": 1, "limit=100": 100, "limit=101": 100,
		"limit=99999999999999999999999": 100, "limit=0": 0} {
		var args fasthttp.Args
		args.Parse(query)
		got, err := parseLimit(&args)
		require.NoError(t, err, query)
		require.Equal(t, want, got, query)
	}
	for _, query := range []string{"limit=", "limit=-1", "limit=abc", "limit=1.5", "limit=-99999999999999999999",
		"limit=%2B5"} {
		var args fasthttp.Args
		args.Parse(query)
		_, err := parseLimit(&args)
		require.Equal(t, 400, problem.From(err).Status, query)
	}
}

func TestBytesThatAreNotTextAreShownInBase64(t *testing.T) {
	var m struct{ Payload, PayloadEncoding, ContentType, MessageID string }
	require.NoError(t, json.Unmarshal(textOf(&durable.Message{Payload: []byte("grü\"ße\n\x01"), ContentType: "a/b"}), &m))
	require.Equal(t, "grü\"ße\n\x01", m.Payload)
	require.Empty(t, m.PayloadEncoding)
	require.NoError(t, json.Unmarshal(textOf(&durable.Message{Payload: []byte{0xff, 0x00}, Key: "k"}), &m))
	require.Equal(t, "/wA=", m.Payload)
	require.Equal(t, "base64", m.PayloadEncoding)
	require.Equal(t, "k", m.MessageID)
}

func FuzzMessageJSON(f *testing.F) {
	f.Add([]byte("plain"), "text/plain")
	f.Add([]byte("\x00\"\\\n\u2028<&>"), "a/b; c=\"d\"")
	f.Add([]byte{0xff}, "\xff")
	f.Fuzz(func(t *testing.T, payload []byte, contentType string) {
		var m struct{ Payload, PayloadEncoding, ContentType string }
		require.NoError(t, json.Unmarshal(textOf(&durable.Message{Payload: payload, ContentType: contentType}), &m))
		got := []byte(m.Payload)
		if m.PayloadEncoding == "base64" {
			var err error
			got, err = base64.StdEncoding.DecodeString(m.Payload)
			require.NoError(t, err)
		}
		require.Equal(t, string(payload), string(got), "every byte comes back")
	})
}
