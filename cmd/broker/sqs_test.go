package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// sqs is an action of an SQS client of a queue, without credentials.
func (p *process) sqs(action, queue string, fields ...any) reply {
	p.t.Helper()
	in := map[string]any{}
	if queue != "" {
		in["QueueUrl"] = "http://elsewhere/sqs/" + queue + "/" + queue
	}
	for i := 0; i < len(fields); i += 2 {
		in[fields[i].(string)] = fields[i+1]
	}
	body, err := json.Marshal(in)
	require.NoError(p.t, err)
	return p.do("POST", "/", string(body), "X-Amz-Target", "AmazonSQS."+action, "Content-Type",
		"application/x-amz-json-1.0")
}

// signed is an action of an SQS client that signs with an access key, by version 4 of the signatures of AWS:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
func (p *process) signed(key apitype.SQSKey, action, in string) reply {
	p.t.Helper()
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	at, target, headers := time.Now().UTC().Format("20060102T150405Z"), "AmazonSQS."+action, "host;x-amz-date;x-amz-target"
	canonical := "POST\n/\n\nhost:" + strings.TrimPrefix(p.base, "http://") + "\nx-amz-date:" + at + "\nx-amz-target:" +
		target + "\n\n" + headers + "\n" + digest(in)
	scope, of := at[:8]+"/us-east-1/sqs/aws4_request", []byte("AWS4"+key.SecretAccessKey)
	for part := range strings.SplitSeq(scope, "/") {
		of = sum(of, part)
	}
	signature := sum(of, "AWS4-HMAC-SHA256\n"+at+"\n"+scope+"\n"+digest(canonical))
	return p.do("POST", "/", in, "Content-Type", "application/x-amz-json-1.0", "X-Amz-Target", target, "X-Amz-Date", at,
		"Authorization", "AWS4-HMAC-SHA256 Credential="+key.AccessKeyID+"/"+scope+", SignedHeaders="+headers+", Signature="+
			hex.EncodeToString(signature))
}

// An sqsMessage is a message that an SQS client received.
type sqsMessage struct {
	MessageId, ReceiptHandle, Body string
	Attributes                     map[string]string
}

func (p *process) receive(queue string, fields ...any) []sqsMessage {
	p.t.Helper()
	r := p.sqs("ReceiveMessage", queue, append([]any{"AttributeNames", []string{"All"}}, fields...)...)
	require.Equal(p.t, 200, r.status, r.body)
	var out struct{ Messages []sqsMessage }
	require.NoError(p.t, json.Unmarshal([]byte(r.body), &out), r.body)
	return out.Messages
}

func TestQueuesOfSQSClientsOutliveAKill(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) { queuesOutliveAKill(t, w) })
}

func TestRealQueuesOfSQSClientsOutliveALostRedis(t *testing.T) {
	parallel(t)
	queuesOutliveAKill(t, ownMySQLWorld(t))
}

// queuesOutliveAKill requires that what an SQS client sent comes out after a kill of the broker, and after a lost
// Redis where the world has one of its own: each message until it is deleted and no longer.
func queuesOutliveAKill(t *testing.T, w *world) {
	p := w.with(quick...).start()
	require.Equal(t, 200, p.sqs("CreateQueue", "", "QueueName", "q").status)
	for _, body := range []string{"a", "b", "c"} {
		require.Equal(t, 200, p.sqs("SendMessage", "q", "MessageBody", body, "MessageAttributes", map[string]any{
			"n": map[string]any{"DataType": "Number", "StringValue": "7"}}).status)
	}
	require.Equal(t, 200, p.sqs("SendMessage", "q", "MessageBody", "later", "DelaySeconds", 1).status)
	var done []string
	eventually(t, "the first message", func() bool {
		got := p.receive("q", "WaitTimeSeconds", 5, "VisibilityTimeout", 60)
		if len(got) == 0 {
			return false
		}
		require.Equal(t, "1", got[0].Attributes["ApproximateReceiveCount"])
		done = append(done, got[0].Body)
		return p.sqs("DeleteMessage", "q", "ReceiptHandle", got[0].ReceiptHandle).status == 200
	})
	var lost []sqsMessage
	eventually(t, "the second message", func() bool {
		lost = p.receive("q", "WaitTimeSeconds", 5, "VisibilityTimeout", 2)
		return len(lost) == 1
	})
	p.kill()
	if w.redis != nil {
		w.flushall()
	}
	p = w.with(quick...).start()
	eventually(t, "all messages", func() bool {
		for _, m := range p.receive("q", "WaitTimeSeconds", 5, "VisibilityTimeout", 60, "MaxNumberOfMessages", 10) {
			if m.MessageId == lost[0].MessageId {
				require.NotEqual(t, "0", m.Attributes["ApproximateReceiveCount"])
			}
			done = append(done, m.Body)
			require.Equal(t, 200, p.sqs("DeleteMessage", "q", "ReceiptHandle", m.ReceiptHandle).status)
		}
		return len(done) >= 4
	})
	require.ElementsMatch(t, []string{"a", "b", "c", "later"}, done)
	require.Equal(t, 200, p.sqs("DeleteMessage", "q", "ReceiptHandle", lost[0].ReceiptHandle).status)
	require.Empty(t, p.receive("q"))
}

// A receive that waits goes by the queue as it is now, and a broker that stops lets it go.
func TestAReceiveThatWaitsObeysWhatChanges(t *testing.T) {
	p := embeddedWorld(t).start()
	require.Equal(t, 200, p.sqs("CreateQueue", "", "QueueName", "q").status)
	require.Equal(t, 200, p.do("POST", "/channel/q/consumer/q/pause", "").status)
	require.Equal(t, 200, p.sqs("SendMessage", "q", "MessageBody", "held").status)
	require.Empty(t, p.receive("q", "WaitTimeSeconds", 1))
	waiting := make(chan reply, 1)
	go func() { waiting <- p.sqs("ReceiveMessage", "q", "WaitTimeSeconds", 20) }()
	require.Equal(t, 200, p.do("POST", "/channel/q/consumer/q/resume", "").status)
	require.Contains(t, (<-waiting).body, `"held"`)

	go func() { waiting <- p.sqs("ReceiveMessage", "q", "WaitTimeSeconds", 20) }()
	eventually(t, "the receive that waits", func() bool {
		r := p.do("GET", "/metrics", "")
		return strings.Contains(r.body, `penstock_share_held{bound="waiters"} 1`)
	})
	require.Equal(t, 0, p.stop())
	r := <-waiting
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, "{}", r.body)
}

// BROKER_SQS=off closes the door. Open, it answers what it does not know.
func TestTheSQSDoorIsOpenOrClosed(t *testing.T) {
	w := embeddedWorld(t)
	p := w.start("BROKER_SQS=off")
	require.Equal(t, 405, p.sqs("ListQueues", "").status)
	require.Equal(t, 404, p.do("POST", "/sqs/q/q", "{}", "X-Amz-Target", "AmazonSQS.ListQueues").status)
	require.Equal(t, 0, p.stop())
	p = w.start()
	for _, c := range []struct{ target, code string }{{"AmazonSQS.Nothing", "InvalidAction"}, {"", "InvalidAction"},
		{"DynamoDB_20120810.ListTables", "InvalidAction"},
		{"AmazonSQS.TagQueue", "AWS.SimpleQueueService.UnsupportedOperation"},
		{"AmazonSQS.SendMessage", "MissingParameter"}} {
		r := p.do("POST", "/", "{}", "X-Amz-Target", c.target)
		require.Equal(t, 400, r.status, c.target)
		require.Equal(t, c.code+";Sender", r.header.Get("x-amzn-query-error"), r.body)
		require.NotEmpty(t, r.header.Get("x-amzn-RequestId"))
		require.Contains(t, r.body, `"__type":"com.amazonaws.sqs#`)
	}
	r := p.do("POST", "/", "Action=Nothing&Version=2012-11-05", "Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, 400, r.status)
	require.Contains(t, r.body, "<Code>InvalidAction</Code>")
	r = p.sqs("PurgeQueue", "none")
	require.Contains(t, r.body, "QueueDoesNotExist")
	require.Equal(t, 200, p.sqs("CreateQueue", "", "QueueName", "q").status)
	r = p.do("POST", "/sqs/q/q", `{"MessageBody":"x"}`, "X-Amz-Target", "AmazonSQS.SendMessage")
	require.Equal(t, 200, r.status, "the path is the QueueUrl: %s", r.body)
	require.Len(t, p.receive("q", "WaitTimeSeconds", 20), 1)
	require.Contains(t, p.sqs("DeleteQueue", "q").body, "UnsupportedOperation", "deleting is not allowed")
	require.Contains(t, p.sqs("PurgeQueue", "q").body, "BROKER_ALLOW_DELETE")
	page := p.do("POST", "/", "Action=ListQueues", "Content-Type", "application/x-www-form-urlencoded", "Origin",
		"https://evil.example")
	require.Equal(t, 403, page.status, "a page of another site is nobody")
}

// signedBy returns the code with which a request is refused that an access key has not signed.
func (s *life) signedBy(key string) string {
	now := time.Now().UTC()
	r := s.do("POST", "/", "{}", "X-Amz-Target", "AmazonSQS.ListQueues", "X-Amz-Date", now.Format("20060102T150405Z"),
		"Authorization", "AWS4-HMAC-SHA256 Credential="+key+"/"+now.Format("20060102")+"/us-east-1/sqs/aws4_request, "+
			"SignedHeaders=host;x-amz-date;x-amz-target, Signature=00")
	return r.header.Get("x-amzn-query-error")
}
