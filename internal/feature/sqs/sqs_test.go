package sqs

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

func ptr[T any](v T) *T { return &v }

// stored is headers as a message has them.
func stored(t *testing.T, headers map[string]string) []byte {
	t.Helper()
	b, err := metadata.Merge(nil, headers, "X-Token")
	require.NoError(t, err)
	return b
}

func TestAttributesComeBackAsTheyWereSent(t *testing.T) {
	sent := map[string]attribute{
		"plain":                   {DataType: "String", StringValue: ptr("grüße <&>")},
		"number":                  {DataType: "Number", StringValue: ptr("-12.5e3")},
		"binary":                  {DataType: "Binary.png", BinaryValue: []byte{0, 10, 255}},
		"typed":                   {DataType: "String.json", StringValue: ptr(`{"a":1}`)},
		"lines":                   {DataType: "String", StringValue: ptr("a\r\nX-Evil: 1")},
		"blanks":                  {DataType: "String", StringValue: ptr(" around ")},
		"a-b":                     {DataType: "String", StringValue: ptr("1")},
		"a_b":                     {DataType: "String", StringValue: ptr("2")},
		"A-B":                     {DataType: "String", StringValue: ptr("3")},
		"Host":                    {DataType: "String", StringValue: ptr("evil")},
		"X-Broker-Consumer-Token": {DataType: "String", StringValue: ptr("forged")},
		"X-Token":                 {DataType: "String", StringValue: ptr("forged")},
		"x-sqs-attributes":        {DataType: "String", StringValue: ptr(`{"plain":{"Type":"Number"}}`)},
		"X-Amzn-Trace-Id":         {DataType: "String", StringValue: ptr("not the trace")},
	}
	for name, a := range sent {
		require.NoError(t, checkAttribute(name, a), name)
	}
	headers, err := headersOf(sent, "Root=1-a-b", "X-Token")
	require.NoError(t, err)
	require.Equal(t, "grüße <&>", headers["plain"])
	require.Equal(t, "-12.5e3", headers["number"])
	require.Equal(t, "AAr/", headers["binary"])
	for _, name := range []string{"Host", "X-Broker-Consumer-Token", "X-Token", "lines", "a_b"} {
		require.NotContains(t, headers, name)
	}
	got, trace := attributesOf(stored(t, headers))
	require.Equal(t, sent, got)
	require.Equal(t, "Root=1-a-b", trace)
}

func FuzzAttributesComeBackAsTheyWereSent(f *testing.F) {
	f.Add("kind", "String", "express", []byte{})
	f.Add("Host", "Number", "1", []byte{1})
	f.Add("x", "Binary", "", []byte("\x00\n"))
	f.Add("..", "String", "\x7f\r\n", []byte{})
	f.Fuzz(func(t *testing.T, name, kind, value string, bytes []byte) {
		a := attribute{DataType: kind, StringValue: &value}
		if (attribute{DataType: kind}).binary() {
			a = attribute{DataType: kind, BinaryValue: bytes}
		}
		if len(name)+len(value)+2*len(bytes) > 2000 || checkAttribute(name, a) != nil {
			return
		}
		headers, err := headersOf(map[string]attribute{name: a}, "", "X-Token")
		require.NoError(t, err)
		got, _ := attributesOf(stored(t, headers))
		require.Equal(t, map[string]attribute{name: a}, got)
	})
}

// What a producer of the other routes writes into the header is no reason to fail.
func FuzzForeignHeadersAreRead(f *testing.F) {
	f.Add([]byte("X-SQS-Attributes:{\"a\":{\"Type\":\"Binary\"}}\na:no base64\n"))
	f.Add([]byte("X-SQS-Attributes:null\nb:\xff\n"))
	f.Fuzz(func(t *testing.T, headers []byte) {
		got, _ := attributesOf(headers)
		for name, a := range got {
			require.NoError(t, checkAttribute(name, a))
		}
		md5OfAttributes(got)
	})
}

func TestAttributesThatSQSRefusesAreRefused(t *testing.T) {
	value := attribute{DataType: "String", StringValue: ptr("v")}
	for _, name := range []string{"", ".a", "a.", "a..b", "AWS.a", "amazon.a", "a b", "ä", strings.Repeat("a", 257)} {
		require.Error(t, checkAttribute(name, value), name)
	}
	for _, a := range []attribute{{}, {DataType: "String"}, {DataType: "String", StringValue: ptr("")},
		{DataType: "Text", StringValue: ptr("v")}, {DataType: "Number", StringValue: ptr("0x1")},
		{DataType: "Binary", StringValue: ptr("v")}, {DataType: "Binary"}, {DataType: "String", StringValue: ptr("\x00")},
		{DataType: "String", BinaryValue: []byte("v")}, {DataType: "String", StringValue: ptr("v"),
			StringListValues: []string{"v"}}} {
		require.Error(t, checkAttribute("a", a), a)
	}
}

// The digest of the documentation of AWS's own clients.
func TestTheDigestOfAttributesIsThatOfSQS(t *testing.T) {
	require.Equal(t, "235c5c510d26fb653d073faed50ae77c", md5OfAttributes(map[string]attribute{
		"timestamp": {DataType: "Number", StringValue: ptr("1493147359900")}}))
	require.Empty(t, md5OfAttributes(nil))
}

func TestAttributesAreAskedForByNameAndPrefix(t *testing.T) {
	all := map[string]attribute{"a": {}, "a.b": {}, "ab": {}, "c": {}}
	for pattern, want := range map[string][]string{"All": {"a", "a.b", "ab", "c"}, ".*": {"a", "a.b", "ab", "c"},
		"a.*": {"a", "a.b"}, "a": {"a"}, "": nil} {
		require.Equal(t, want, slices.Sorted(maps.Keys(wanted(all, []string{pattern}))), pattern)
	}
}

// The two protocols read the same request.
func TestAFormAndJSONAreTheSameRequest(t *testing.T) {
	for form, text := range map[string]string{
		"Action=SendMessage&Version=2012-11-05&QueueUrl=u&MessageBody=a%26b&DelaySeconds=5&MessageAttribute.1.Name=n&" +
			"MessageAttribute.1.Value.DataType=Binary&MessageAttribute.1.Value.BinaryValue=AAE%3D": `{"QueueUrl":"u",` +
			`"MessageBody":"a&b","DelaySeconds":5,"MessageAttributes":{"n":{"DataType":"Binary","BinaryValue":"AAE="}}}`,
	} {
		var a, b sendMessage
		require.NoError(t, queryProtocol{}.decode([]byte(form), &a))
		require.NoError(t, jsonProtocol{}.decode([]byte(text), &b))
		require.Equal(t, b, a)
	}
	var batch sendBatch
	require.NoError(t, queryProtocol{}.decode([]byte("SendMessageBatchRequestEntry.1.Id=a&"+
		"SendMessageBatchRequestEntry.1.MessageBody=x&SendMessageBatchRequestEntry.2.Id=b"), &batch))
	require.Equal(t, []sending{{Id: "a", MessageBody: ptr("x")}, {Id: "b"}}, batch.Entries)
}

func TestWhatNoRequestHasIsRefused(t *testing.T) {
	for _, body := range []string{`[]`, `{"QueueUrl":1}`, `{"QueueUrl":"a","QueueUrl":"b"}`, `{"Colour":"red"}`, `{`, `null`,
		`{"MessageBody":"\ud800"}`, "{\"MessageBody\":\"\xff\"}", `{} {}`, `{"DelaySeconds":"5"}`} {
		var in sendMessage
		require.Error(t, jsonProtocol{}.decode([]byte(body), &in), body)
	}
	for _, body := range []string{"MessageBody=%ff", "%ff=x",
		"Colour=red", "QueueUrl=a&QueueUrl=b", "%zz", "DelaySeconds=five", "QueueUrl.1=x",
		"MessageAttribute.1.Name=a&MessageAttribute.2.Name=a", "MessageAttribute.1.Name=a&" +
			"MessageAttribute.1.Value.BinaryValue=%21", strings.Repeat("a=1&", mostParameters)} {
		var in sendMessage
		require.Error(t, queryProtocol{}.decode([]byte(body), &in), body)
	}
}

// No body makes a decoder fail in another way than with a fault of the sender.
func FuzzBodiesAreReadOrRefused(f *testing.F) {
	f.Add("SendMessageBatch", `{"QueueUrl":"u","Entries":[{"Id":"a","MessageBody":"b"}]}`)
	f.Add("SendMessageBatch", "SendMessageBatchRequestEntry.1.Id=a&SendMessageBatchRequestEntry.1.MessageBody=x")
	f.Add("ReceiveMessage", `{"MaxNumberOfMessages":1e99}`)
	f.Add("CreateQueue", "Attribute.1.Name=a&Attribute.1.Value=b&Tag.1.Key=c&Tag.1.Value=d")
	f.Fuzz(func(t *testing.T, name, body string) {
		a, ok := actions[name]
		if !ok || len(body) > 100_000 {
			return
		}
		for _, p := range []protocol{jsonProtocol{}, queryProtocol{}} {
			in := a.input()
			err := p.decode([]byte(body), in)
			if err != nil {
				require.Equal(t, 400, faultOf(err).Status)
				continue
			}
			if batch, ok := in.(*sendBatch); ok {
				for i := range batch.Entries {
					_ = batch.Entries[i].size()
				}
			}
		}
	})
}

func FuzzHandlesAreReadOrRefused(f *testing.F) {
	f.Add("06gvk862do000000000g.1-7.dhq3u6jc1is07cbb.1")
	f.Add("06gvk862do000000000g.1.dhq3u6jc1is07cbb.1")
	f.Add("06gvk862do000000000g.0-1.x")
	f.Add("..")
	f.Fuzz(func(t *testing.T, handle string) {
		r, _, err := parseHandle(handle)
		if err != nil {
			require.Equal(t, 400, faultOf(err).Status)
			return
		}
		require.NotEmpty(t, r.ID)
		require.NotEmpty(t, r.Lease)
		require.Positive(t, r.Attempt)
	})
}

// A handle is of the queue that gave it: another one with a job of the same place in its channel does not take it.
func TestAHandleIsOfTheQueueThatGaveIt(t *testing.T) {
	id := ident.AtMillis(1_800_000_000_000).Job(0).String()
	handle := handleOf(&pull.ReceivedJob{ID: id, Lease: "token.1", Attempt: 3}, 7)
	r, of, err := parseHandle(handle)
	require.NoError(t, err)
	require.Equal(t, pull.Report{ID: id, Lease: "token.1", Attempt: 3}, r)
	require.EqualValues(t, 7, of)
	for _, done := range []bool{true, false} {
		s := settling{ReceiptHandle: handle, VisibilityTimeout: ptr(0)}
		_, err = s.report(queue{k: &durable.Consumer{No: 8}}, done)
		require.Equal(t, badHandle.code, faultOf(err).Code)
		_, err = s.report(queue{k: &durable.Consumer{No: 7}}, done)
		require.NoError(t, err)
	}
}

func TestVisibilityHasTheBoundsOfSQS(t *testing.T) {
	id := ident.AtMillis(1_800_000_000_000).Job(0).String()
	for n, ok := range map[int]bool{-1: false, 0: true, 43200: true, 43201: false} {
		handle := handleOf(&pull.ReceivedJob{ID: id, Lease: "l", Attempt: 1}, 7)
		s := settling{ReceiptHandle: handle, VisibilityTimeout: &n}
		r, err := s.report(queue{k: &durable.Consumer{No: 7}}, false)
		require.Equal(t, ok, err == nil, n)
		if ok {
			require.Equal(t, time.Duration(n)*time.Second, r.Keep)
		}
	}
}

func TestOnlyThePathOfAQueueURLCounts(t *testing.T) {
	c := &call{rc: &fasthttp.RequestCtx{}}
	c.rc.Request.SetRequestURI("/sqs/own/path")
	for url, want := range map[string]Name{
		"http://host/sqs/orders/billing":         {"orders", "billing"},
		"https://other.example:1/sqs/a%3Ab/c@d?": {"a:b", "c@d"},
		"/sqs/orders/orders":                     {"orders", "orders"},
		"":                                       {"own", "path"},
	} {
		got, err := c.nameIn(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got)
	}
	for _, url := range []string{"http://host", "http://host/", "http://host/123456789012/orders", "/sqs/a", "/sqs/a/b/c",
		"/sqs/a/%zz", "/sqs//b", "orders"} {
		_, err := c.nameIn(url)
		require.Equal(t, noQueue.code, faultOf(err).Code, url)
	}
}

// signed is a request that is signed with a secret, as signer says.
func signed(t *testing.T, change func(h *fasthttp.RequestHeader)) (*fasthttp.RequestHeader, signature, error) {
	t.Helper()
	h := &fasthttp.RequestHeader{}
	h.SetMethod("POST")
	h.SetRequestURI("/sqs/a%3Ab/c")
	h.SetHost("broker:8080")
	now := time.Now().UTC()
	h.Set("X-Amz-Date", now.Format(amzDate))
	h.Set("X-Amz-Target", "AmazonSQS.SendMessage")
	h.Set("X-Amz-Meta", "  two   blanks ")
	h.Set("Authorization", "AWS4-HMAC-SHA256 Credential=PSTKAAAAAAAAAAAAAAAA/"+now.Format("20060102")+
		"/eu-west-1/sqs/aws4_request, SignedHeaders=host;x-amz-date;x-amz-meta;x-amz-target, Signature=")
	if change != nil {
		change(h)
	}
	s, err := readSignature(h)
	return h, s, err
}

func TestASignatureCoversWhatItSays(t *testing.T) {
	h, s, err := signed(t, nil)
	require.NoError(t, err)
	require.NoError(t, s.checkTime())
	canonical := s.canonical(h, []byte("body"))
	require.True(t, strings.HasPrefix(canonical, "POST\n/sqs/a%253Ab/c\n\nhost:broker:8080\nx-amz-date:"), canonical)
	require.Contains(t, canonical, "\nx-amz-meta:two blanks\nx-amz-target:AmazonSQS.SendMessage\n\nhost;x-amz-date;")
	require.Error(t, s.check(h, []byte("body"), "secret"))
	for name, change := range map[string]func(h *fasthttp.RequestHeader){
		"no header":       func(h *fasthttp.RequestHeader) { h.Del("Authorization") },
		"two headers":     func(h *fasthttp.RequestHeader) { h.Add("Authorization", "Bearer x") },
		"another scheme":  func(h *fasthttp.RequestHeader) { h.Set("Authorization", "Bearer x") },
		"another service": replaced("/sqs/", "/s3/"),
		"no date":         func(h *fasthttp.RequestHeader) { h.Del("X-Amz-Date") },
		"another day":     func(h *fasthttp.RequestHeader) { h.Set("X-Amz-Date", "20200101T000000Z") },
		"host unsigned":   replaced("host;", ""),
		"target unsigned": replaced(";x-amz-target", ""),
		"unsorted":        replaced("host;x-amz-date", "x-amz-date;host"),
	} {
		_, _, err := signed(t, change)
		require.Equal(t, 403, faultOf(err).Status, name)
	}
}

func replaced(from, to string) func(h *fasthttp.RequestHeader) {
	return func(h *fasthttp.RequestHeader) {
		h.Set("Authorization", strings.ReplaceAll(string(h.Peek("Authorization")), from, to))
	}
}

func FuzzSignaturesAreReadOrRefused(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=a/20260101/r/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=00", "/a%b")
	f.Add("AWS4-HMAC-SHA256 ,,=", "")
	f.Fuzz(func(t *testing.T, authorization, path string) {
		h, s, err := signed(t, func(h *fasthttp.RequestHeader) {
			h.Set("Authorization", authorization)
			h.SetRequestURI(path)
		})
		if err != nil {
			require.Equal(t, 403, faultOf(err).Status)
			return
		}
		require.Error(t, s.check(h, nil, "another secret"))
	})
}

func TestKeysAreOursAndNoTwoAreEqual(t *testing.T) {
	a, b := NewKey(), NewKey()
	require.True(t, ours(a.ID))
	require.NotEqual(t, a.ID, b.ID)
	require.NotEqual(t, a.Secret, b.Secret)
	require.Len(t, a.Secret, 40)
	require.False(t, ours("any"))
}

// Each answer of the query protocol names the elements that its SDKs look for.
func TestAnswersAreXMLToo(t *testing.T) {
	for want, out := range map[string]any{
		"<Message><MessageId>m</MessageId><ReceiptHandle>r</ReceiptHandle><MD5OfBody>d</MD5OfBody><Body>&lt;b&gt;</Body>" +
			"<MessageAttribute><Name>n</Name><Value><DataType>Binary</DataType><BinaryValue>AA==</BinaryValue></Value>" +
			"</MessageAttribute></Message>": &received{Messages: []message{{MessageId: "m", ReceiptHandle: "r", MD5OfBody: "d",
			Body: "<b>", MessageAttributes: map[string]attribute{"n": {DataType: "Binary", BinaryValue: []byte{0}}}}}},
		"<QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl>": &queueURLs{QueueUrls: []string{"a", "b"}},
		"<BatchResultErrorEntry><Id>a</Id><SenderFault>true</SenderFault><Code>C</Code><Message>m</Message>" +
			"</BatchResultErrorEntry>": &deletedBatch{Failed: []failure{{"a", true, "C", "m"}}},
	} {
		require.Equal(t, want, string(xmlOf(reflect.ValueOf(out).Elem())))
	}
}

func TestErrorsOfTheBrokerHaveTheirPlaceInSQS(t *testing.T) {
	gone := faultOf(problem.New(401, "consumer_not_found", "x"))
	require.Equal(t, 400, gone.Status)
	require.Equal(t, noQueue.code, gone.Code)
	require.Equal(t, 403, faultOf(problem.New(403, "system_channel", "x")).Status)
	require.Equal(t, 503, faultOf(problem.ErrUnavailable).Status)
	require.Equal(t, "RequestThrottled", faultOf(problem.New(429, "producer_full", "x")).Code)
	require.Equal(t, "InternalFailure", faultOf(problem.ErrInternal).Code)
}

func TestARedrivePolicyIsARetryLess(t *testing.T) {
	for text, want := range map[string]string{`{"maxReceiveCount":5,"deadLetterTargetArn":"a"}`: "4",
		`{"maxReceiveCount":"1"}`: "0", "": ""} {
		got, err := retriesOf(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"x", "{}", `{"maxReceiveCount":0}`, `{"maxReceiveCount":1001}`, `{"maxReceiveCount":1.5}`,
		"null"} {
		_, err := retriesOf(text)
		require.Error(t, err, text)
	}
}

func TestTextIsWhatXMLCanHave(t *testing.T) {
	for _, s := range []string{"", "a\t\r\n\U0001f600", "\ufffd"} {
		require.True(t, text(s), "%q", s)
	}
	for _, s := range []string{"\x00", "\x1f", "\ufffe", "\uffff", "\xff", "\xed\xa0\x80"} {
		require.False(t, text(s), "%q", s)
	}
}

// ids are the messages of a channel by their keys.
type ids map[string]ident.ID

func (s ids) MessageByKey(_ context.Context, _ uint32, key string) (ident.ID, error) {
	if id, ok := s[key]; ok {
		return id, nil
	}
	return ident.ID{}, durable.ErrNotFound
}

func (ids) SQSKey(context.Context, string) (durable.SQSKey, error) {
	return durable.SQSKey{}, durable.ErrNotFound
}

// A deduplication ID names one message for five minutes, and then another one, whatever the slots of time are.
func TestADeduplicationIDNamesOneMessageForFiveMinutes(t *testing.T) {
	known := ids{}
	now := int64(1_800_000_000_000) // the begin of a slot
	door := &Door{o: Options{Store: known, NowMs: func() int64 { return now }, Policies: policy.NewBook(policy.Policy{})}}
	b := &batch{call: &call{Door: door, ctx: t.Context()}, q: queue{
		ch: &catalogue.Channel{Channel: durable.Channel{ID: "q.fifo"}}, k: &durable.Consumer{ID: "q.fifo"}}}
	send := func(s sending) (id string, repeats bool) {
		t.Helper()
		id, repeated, err := b.identify(&s)
		require.NoError(t, err)
		if repeated != nil {
			return repeated.id, true
		}
		known[id] = ident.AtMillis(now)
		return id, false
	}
	named := sending{MessageBody: ptr("x"), MessageDeduplicationId: ptr("order-1")}
	first, repeats := send(named)
	require.Equal(t, "order-1", first)
	require.False(t, repeats)
	last := first
	for range 50 {
		now += 70_000 // 70 s, 140 s, 210 s, 280 s repeat; 350 s is another message
		for n := 1; n <= 4; n++ {
			id, repeats := send(named)
			require.True(t, repeats)
			require.Equal(t, last, id)
			now += 70_000
		}
		id, repeats := send(named)
		require.False(t, repeats)
		require.True(t, ident.ValidName(id), id)
		require.NotEqual(t, last, id)
		last = id
	}
	a, _ := send(sending{MessageBody: ptr("same")})
	again, repeats := send(sending{MessageBody: ptr("same"), MessageGroupId: ptr("other")})
	require.True(t, repeats, "the content counts where there is no ID")
	require.Equal(t, a, again)
	odd, _ := send(sending{MessageBody: ptr("x"), MessageDeduplicationId: ptr("06gvk862do000000000g")})
	require.True(t, strings.HasPrefix(odd, "sha256-"), "an ID of the broker is none of a client")

	b.q.k = &durable.Consumer{ID: "other.fifo"}
	for _, s := range []sending{{MessageBody: ptr("same")}, named} {
		_, repeats = send(s)
		require.False(t, repeats, "another queue of the channel takes its own message")
		_, repeats = send(s)
		require.True(t, repeats)
	}
}

// A small body must not become a large request: each of its members takes many times its bytes.
func TestABodyHasNoMoreMembersThanARequestNeeds(t *testing.T) {
	var in sendBatch
	require.Equal(t, malformed.code, faultOf(jsonProtocol{}.decode(
		[]byte(`{"Entries":[`+strings.Repeat("{},", mostParameters)+`{}]}`), &in)).Code)
	require.Empty(t, in.Entries)
	text := strings.Repeat(`,\"\\,`, mostParameters)
	body := []byte(`{"Entries":[{"MessageBody":"` + text + `"}]}`)
	require.NoError(t, jsonProtocol{}.decode(body, &in), "those in texts are none")
	entries := make([]sending, mostEntries)
	for i := range entries {
		a := map[string]attribute{}
		for n := range mostAttributes {
			a[strconv.Itoa(n)] = attribute{DataType: "String", StringValue: ptr("v"), BinaryValue: []byte("x")}
		}
		entries[i] = sending{Id: "i", MessageBody: ptr("b"), DelaySeconds: ptr(1), MessageAttributes: a,
			MessageSystemAttributes: a, MessageDeduplicationId: ptr("d"), MessageGroupId: ptr("g")}
	}
	body, err := json.Marshal(map[string]any{"QueueUrl": "u", "Entries": entries})
	require.NoError(t, err)
	require.NoError(t, jsonProtocol{}.decode(body, &in), "the largest request is taken")
}

// Requests that no Door gets are refused with the codes and in the forms that SDKs read.
func TestRefusalsBeforeTheDoorAreThoseOfSQS(t *testing.T) {
	noPlace := &problem.Problem{Status: 503, Code: "overloaded", RetryAfter: 1}
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"too slow":      {problem.New(408, "request_timeout", "x"), 400, "RequestTimeout;Sender"},
		"no place":      {noPlace, 503, "ServiceUnavailable;Receiver"},
		"shutting down": {problem.ErrDraining, 503, "ServiceUnavailable;Receiver"},
		"rate":          {problem.New(429, "rate_limited", "x"), 400, "RequestThrottled;Sender"},
		"too large":     {problem.New(413, "body_too_large", "x"), 400, "InvalidParameterValue;Sender"},
		"panic":         {problem.ErrInternal, 500, "InternalFailure;Receiver"},
	} {
		rc := &fasthttp.RequestCtx{}
		rc.Request.Header.Set(target, "AmazonSQS.SendMessage")
		require.True(t, Asks(rc))
		Refuse(rc, c.err)
		require.Equal(t, c.status, rc.Response.StatusCode(), name)
		require.Equal(t, c.code, string(rc.Response.Header.Peek("x-amzn-query-error")), name)
		require.Contains(t, string(rc.Response.Body()), `"__type":"com.amazonaws.sqs#`, name)
		retry := len(rc.Response.Header.Peek("Retry-After")) > 0
		require.Equal(t, c.status == 503, retry, name)
	}
	for path, asks := range map[string]bool{"/sqs": true, "/sqs/": true, "/sqs/a/b": true, "/sqsx": false,
		"/": false} {
		rc := &fasthttp.RequestCtx{}
		rc.Request.SetRequestURI(path)
		require.Equal(t, asks, Asks(rc), path)
	}
}

// A key that no broker has made costs no query.
func TestKeysOfAnotherFormAreNotLookedFor(t *testing.T) {
	d := &Door{} // without a store
	for _, id := range []string{"", "AKIAIOSFODNN7EXAMPLE", "PSTK", strings.Repeat("PSTK", 100)} {
		_, err := d.lookUp(t.Context(), share.Broker, id)
		require.Equal(t, noKey.code, faultOf(err).Code)
	}
}

// The ID of an access key is no secret: whoever knows one takes no part of its channel with a body that is not
// signed with its secret.
func TestABodyIsThatOfItsClientUntilItsSignatureIsChecked(t *testing.T) {
	bodies := share.New(share.Options{Name: "bodies", Most: 1 << 20})
	client := share.Address(netip.MustParseAddr("192.0.2.1"))
	text := strings.NewReader(strings.Repeat(" ", 50_000))
	looked := 0
	body := readerFunc(func(p []byte) (int, error) {
		looked++
		require.Positive(t, bodies.Held(client))
		require.Zero(t, bodies.Held(share.Channel(7)))
		return text.Read(p)
	})
	rc := &fasthttp.RequestCtx{}
	rc.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, nil)
	rc.Request.Header.SetMethod("POST")
	rc.Request.SetBodyStream(body, text.Len())
	c := &call{Door: New(Options{Bodies: bodies}), rc: rc, ctx: t.Context(), action: "SendMessage",
		who: identity{key: &durable.SQSKey{ID: "known", ChannelNo: 7}, channel: "c"}}
	_, err := c.run(protocolOf(rc))
	require.Equal(t, noKey.code, faultOf(err).Code)
	require.Greater(t, looked, 1)
	require.Zero(t, bodies.Taken())
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The clients of one channel do not use the share of those of another one, though all are one producer.
func TestSendersUseTheShareOfTheirChannel(t *testing.T) {
	c := &call{rc: &fasthttp.RequestCtx{}, who: identity{key: &durable.SQSKey{ChannelNo: 7}}}
	require.Equal(t, share.Channel(7), c.terms().Account)
}

// slowKeys is a store that knows no key, and says so when it is told to.
type slowKeys struct {
	Store
	asked, answer chan struct{}
}

func (s slowKeys) SQSKey(ctx context.Context, _ string) (durable.SQSKey, error) {
	s.asked <- struct{}{}
	<-s.answer
	return durable.SQSKey{}, durable.ErrNotFound
}

// Somebody who sends keys that are none keeps the store from nobody else.
func TestLookUpsOfKeysOfOneAddressLeavePlacesToOthers(t *testing.T) {
	s := slowKeys{asked: make(chan struct{}, 100), answer: make(chan struct{})}
	d := New(Options{Store: s, Catalogue: catalogue.New(nil, slog.New(slog.DiscardHandler))})
	many, other := share.Address(netip.MustParseAddr("192.0.2.1")), share.Address(netip.MustParseAddr("192.0.2.2"))
	var all sync.WaitGroup
	ask := func(of share.Key) {
		all.Go(func() {
			_, err := d.lookUp(context.WithoutCancel(t.Context()), of, NewKey().ID)
			if err != problem.ErrOverloaded {
				assert.Equal(t, noKey.code, faultOf(err).Code)
			}
		})
	}
	for range 30 {
		ask(many)
	}
	for range mostLookUps / 2 {
		<-s.asked
	}
	require.EqualValues(t, mostLookUps/2, d.lookUps.Held(many))
	ask(other)
	<-s.asked
	require.EqualValues(t, 1, d.lookUps.Held(other))
	close(s.answer)
	all.Wait()
	require.Zero(t, d.lookUps.Taken())
}
