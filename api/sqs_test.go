package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// sqsFault checks that the answer is a refusal as clients of SQS read them.
func (r reply) sqsFault(status int, kind string) reply {
	r.t.Helper()
	require.Equal(r.t, status, r.Status, r.Body)
	require.Equal(r.t, "application/x-amz-json-1.0", r.Header("Content-Type"))
	var body map[string]string
	require.NoError(r.t, json.Unmarshal([]byte(r.Body), &body), r.Body)
	require.Equal(r.t, "com.amazonaws.sqs#"+kind, body["__type"])
	require.NotEmpty(r.t, body["message"])
	require.Equal(r.t, kind+";Sender", r.Header("x-amzn-query-error"))
	require.Equal(r.t, r.Header("X-Request-ID"), r.Header("x-amzn-RequestId"))
	return r
}

// A request of an SQS client that does not get to the door is refused in a form that an SDK reads.
func TestSQSClientsAreRefusedInTheirForm(t *testing.T) {
	const target = "X-Amz-Target: AmazonSQS.SendMessage"
	w := newWorld(t, nil)
	require.NotEmpty(t, w.get("/sqs/c/k").sqsFault(405, "MethodNotAllowed").Header("Allow"))
	w.post("/sqs").sqsFault(404, "InvalidAddress")
	w.post("/sqs/c").sqsFault(404, "InvalidAddress")
	w.post("/sqs/c/k/more").sqsFault(404, "InvalidAddress")
	w.post("/sqs/c/%zz").sqsFault(404, "InvalidAddress")
	w.post("/123456789012/orders", target).sqsFault(404, "InvalidAddress")
	w.post("/sqs/c/k?Action=SendMessage").sqsFault(400, "InvalidQueryParameter")
	w.post("/", target, "X-Broker-Delay: 5").sqsFault(400, "InvalidParameterValue")
	w.post("/", target, "X-Broker-Lease: a", "X-Broker-Lease: b").sqsFault(400, "InvalidParameterValue")
	r := w.post("/sqs/c", "Content-Type: application/x-www-form-urlencoded")
	require.Equal(t, 404, r.Status)
	require.Contains(t, r.Body, "<Type>Sender</Type><Code>InvalidAddress</Code>")

	w.post("/nothing").problem(404, "no_such_path")
	w.post("/sqsx/c/k").problem(404, "no_such_path")
	w.get("/channel/c/consumer/k/claim").problem(405, "method_not_allowed")

	closed := newWorld(t, func(o *Options) { o.SQS = nil })
	require.Contains(t, closed.post("/", target).sqsFault(405, "MethodNotAllowed").Body, "BROKER_SQS is off")
	require.Contains(t, closed.post("/sqs/c/k").sqsFault(404, "InvalidAddress").Body, "BROKER_SQS is off")
}
