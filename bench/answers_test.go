package bench

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fastjson"
)

func TestAnswersOfThePullDoorsAreRead(t *testing.T) {
	body := string([]byte{0, 1, 0xff})
	answer, err := json.Marshal(map[string]any{"Result": []any{
		map[string]any{"ID": "j1", "Lease": "e.1", "Attempts": 1, "Message": map[string]any{"MessageID": "m1",
			"ContentType": "text/plain", "Payload": "a \"quoted\" line\n", "Headers": map[string]any{identityHeader: "me",
				nameHeader: "a"}}},
		map[string]any{"ID": "j2", "Message": map[string]any{"MessageID": "m2",
			"Payload": base64.StdEncoding.EncodeToString([]byte(body)), "PayloadEncoding": "base64"}},
		map[string]any{"ID": "j3", "Message": map[string]any{"MessageID": "m3", "Payload": "%%",
			"PayloadEncoding": "base64"}},
	}})
	require.NoError(t, err)
	jobs, err := parseJobs(&fastjson.Parser{}, answer)
	require.NoError(t, err)
	require.Equal(t, details{messageID: "m1", contentType: "text/plain", name: "a", attempt: "2"},
		jobs[0].message.details())
	for i := range jobs {
		jobs[i].message.job = nil
	}
	require.Equal(t, []pulledJob{
		{id: "j1", lease: "e.1", message: pulledMessage{id: "m1", identity: []byte("me"),
			body: []byte("a \"quoted\" line\n")}},
		{id: "j2", message: pulledMessage{id: "m2", body: []byte(body)}},
		{id: "j3", message: pulledMessage{id: "m3"}},
	}, jobs)

	statuses, err := parseStatuses(&fastjson.Parser{},
		[]byte(`{"Result":[{"ID":"j1","Status":202},{"ID":"j2","Status":409,"code":"lease_lost"}]}`))
	require.NoError(t, err)
	require.Equal(t, []int{202, 409}, statuses)
}

func TestAnswersOfAnotherShapeAreErrorsNotEmpty(t *testing.T) {
	for _, answer := range []string{``, `nonsense`, `{}`, `[]`, `{"Result":{}}`, `{"Result":"x"}`,
		`{"Result":[{"ID":"j1"}]}`, `{"Result":[`} {
		_, err := parseJobs(&fastjson.Parser{}, []byte(answer))
		require.ErrorIs(t, err, errAnswer, answer)
	}
	require.Zero(t, parseBatchAnswer(&fastjson.Parser{}, nil).status)
	require.Zero(t, parseBatchAnswer(&fastjson.Parser{}, []byte(`{"Status":`)).status)
	a := parseBatchAnswer(&fastjson.Parser{}, []byte(`{"Status":201,"Location":"/x"}`))
	require.Equal(t, batchAnswer{status: 201, location: []byte("/x")}, a)
}
