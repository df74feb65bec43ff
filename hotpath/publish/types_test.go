package publish

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/apitest"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

func TestBatchAnswersAreOfTheirType(t *testing.T) {
	require.IsType(t, apitype.BatchResult{}, apitest.AnswerType(t, "POST", "/channel/{channel}/batch"))
	members := strictjson.Of(apitype.BatchResult{})
	channel := strings.Repeat("c", 255)
	a := newAnswers(channel)
	a.permit = answer.NewBound(1<<30).Permit(share.Producer(1), nil)
	var want []apitype.BatchResult
	add := func(m *durable.Message, err error, r apitype.BatchResult) {
		if r.MessageID != "" {
			r.Location = "/channel/" + channel + "/message/" + r.MessageID
		}
		a.add(m, err, policy.Intake{}, 0)
		want = append(want, r)
	}
	for i, text := range apitest.HostileTexts {
		keyed := &durable.Message{ID: ident.AtMillis(int64(i)), Key: strings.Repeat("k", 1+i*25)}
		internal := &durable.Message{ID: ident.AtMillis(int64(i))}
		add(keyed, nil, apitype.BatchResult{Status: 201, MessageID: keyed.Key})
		add(internal, nil, apitype.BatchResult{Status: 201, MessageID: internal.ID.String()})
		for _, err := range []error{durable.ErrDuplicate, durable.ErrConflict, durable.ErrOutcomeUnknown,
			errors.New("secret"), errLine} {
			p := problem.From(err)
			r := apitype.BatchResult{Status: p.Status, Code: p.Code, Detail: p.Detail}
			if errors.Is(err, durable.ErrDuplicate) {
				r.MessageID = keyed.Key
			}
			add(keyed, err, r)
			add(keyed, problem.New(400+i, "code", "detail "+text), apitype.BatchResult{Status: 400 + i, Code: "code",
				Detail: "detail " + text})
		}
	}
	receipt := journal.Receipt{1, 2, 3}
	for _, m := range []*durable.Message{{Key: "~k"}, {Key: durable.ProducerKey(1, "~k")}, {}} {
		a.addReceipt(m, receipt)
		r := apitype.BatchResult{Status: 202, Ack: "journal", Location: "/receipt/" + receipt.String()}
		if m.Key != "" {
			r.MessageID = "~k"
		}
		want = append(want, r)
	}
	taken := int64(len(want))
	add(nil, batchEnd{errAnswersUnread}, apitype.BatchResult{Status: 413, Code: "answers_unread",
		Detail: errAnswersUnread.Detail, Taken: &taken})
	a.end()
	var text []byte
	for buf := make([]byte, 0, 1<<20); ; {
		if buf = a.next(buf[:0]); len(buf) == 0 {
			break
		}
		text = append(text, buf...)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	require.Len(t, lines, len(want))
	for i, line := range lines {
		var got apitype.BatchResult
		members.Decode(t, line, &got)
		require.Equal(t, want[i], got)
	}
	require.Empty(t, members.Missing())
}

func TestABatchLineTakesTheMembersOfItsType(t *testing.T) {
	require.ElementsMatch(t, strictjson.Names(apitype.BatchLine{}), namesOf(func(*property) bool { return true }))
	x, priority, zero := "x", 1023, 0
	for _, c := range []struct {
		line apitype.BatchLine
		want Draft
	}{
		{apitype.BatchLine{Payload: &x}, Draft{payload: []byte(x)}},
		{apitype.BatchLine{Payload: &x, Priority: &zero}, Draft{payload: []byte(x)}},
		{apitype.BatchLine{Payload: &x, Priority: &priority}, Draft{payload: []byte(x), Defaults: Defaults{Priority: 1023}}},
		{apitype.BatchLine{Payload: &x, MessageID: "~m"}, Draft{payload: []byte(x), messageID: "~m"}},
		{apitype.BatchLine{Payload: &x, ContentType: "a/<b>"}, Draft{payload: []byte(x), contentType: "a/<b>"}},
		{apitype.BatchLine{Payload: &x, Headers: map[string]string{"a": "\u2028\"", "b": ""}}, Draft{payload: []byte(x),
			headers: map[string]string{"a": "\u2028\"", "b": ""}}},
		{apitype.BatchLine{Payload: &x, Delay: "90s"}, Draft{payload: []byte(x), ownDelay: true,
			Defaults: Defaults{times: times{DelayMs: 90_000}}}},
		{apitype.BatchLine{PayloadBase64: []byte{0xff, 0}}, Draft{payload: []byte{0xff, 0}}},
	} {
		var got Draft
		require.NoError(t, got.line([]byte(apitest.Encoded(t, c.line))))
		c.want.hasPayload = true
		require.Equal(t, c.want, got)
	}
	for _, text := range append(slices.Clone(apitest.HostileTexts), apitest.HostileBytes...) {
		for _, line := range []apitype.BatchLine{{Payload: &text}, {PayloadBase64: []byte(text)}} {
			if line.Payload != nil && strings.ToValidUTF8(text, "") != text || line.Payload == nil && text == "" {
				continue // base64 is for the first, and the empty payload is a text
			}
			var got Draft
			require.NoError(t, got.line([]byte(apitest.Encoded(t, line))))
			require.Equal(t, text, string(got.payload))
		}
	}
	apitest.RequireOnlyKnown(t, apitype.BatchLine{}, "invalid_line", func(a, b string) bool {
		return a == b
	}, func(member string) string {
		switch member {
		case "Payload", "PayloadBase64":
			return fmt.Sprintf(`{%q:%q}`, member, base64.StdEncoding.EncodeToString([]byte(x)))
		}
		return fmt.Sprintf(`{"Payload":"x",%q:null}`, member)
	}, func(line string) error { return new(Draft).line([]byte(line)) })
}

// The answers that this package writes are the same bytes as ever.
func TestWrittenAnswersAreTheseBytes(t *testing.T) {
	m := &durable.Message{ID: ident.AtMillis(1), Key: "m"}
	a := newAnswers("c")
	a.permit = answer.NewBound(1<<30).Permit(share.Producer(1), nil)
	a.add(m, nil, policy.Intake{}, 0)
	a.add(nil, problem.New(400, "code", "a \"b\""), policy.Intake{}, 0)
	a.add(m, durable.ErrDuplicate, policy.Intake{}, 0)
	a.add(nil, batchEnd{problem.New(413, errAnswersUnread.Code, "d")}, policy.Intake{}, 0)
	require.Equal(t, `{"Status":201,"MessageID":"m","Location":"/channel/c/message/m"}
{"Status":400,"code":"code","detail":"a \"b\""}
{"Status":409,"code":"duplicate_message_id","detail":"`+problem.From(durable.ErrDuplicate).Detail+`","MessageID":"m","Location":"/channel/c/message/m"}
{"Status":413,"code":"answers_unread","detail":"d","Taken":3}
`, string(a.next(make([]byte, 0, 32<<10))))
}
