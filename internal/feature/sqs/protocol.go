package sqs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// A protocol reads requests and writes answers.
type protocol interface {
	// action returns the action that the head of a request names, "" if its body does.
	action(rc *fasthttp.RequestCtx) (string, error)
	actionIn(body []byte) (string, error)
	decode(body []byte, into any) error
	answer(rc *fasthttp.RequestCtx, c *call, out any) error
	fail(rc *fasthttp.RequestCtx, action string, f *Fault)
}

// target is the header that names the action of the JSON protocol.
const target, targetPrefix = "X-Amz-Target", "AmazonSQS."

// protocolOf returns the protocol of a request: the query protocol sends forms and no target.
func protocolOf(rc *fasthttp.RequestCtx) protocol {
	h := &rc.Request.Header
	if len(h.Peek(target)) == 0 && bytes.HasPrefix(bytes.ToLower(h.ContentType()), []byte(mediaForm)) {
		return queryProtocol{}
	}
	return jsonProtocol{}
}

// jsonProtocol is AWS JSON 1.0.
type jsonProtocol struct{}

const mediaJSON = "application/x-amz-json-1.0"

func (jsonProtocol) action(rc *fasthttp.RequestCtx) (string, error) {
	name := string(rc.Request.Header.Peek(target))
	if name == "" {
		return "", badAction.New("The request has no action: %s must be %s and its name.", target, targetPrefix)
	}
	action, ok := strings.CutPrefix(name, targetPrefix)
	if !ok || action == "" {
		return "", badAction.New("The action %.64q is not valid for this web service: %s must be %s and a name.", name,
			target, targetPrefix)
	}
	return action, nil
}

func (jsonProtocol) actionIn([]byte) (string, error) {
	return "", badAction.New("The request has no action.")
}

func (jsonProtocol) decode(body []byte, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	if !utf8.Valid(body) {
		return malformed.New("The body is not UTF-8.")
	}
	if crowded(body) {
		return malformed.New("The body has more than %d members and elements.", mostParameters)
	}
	if err := jsonread.Check(body); err != nil {
		if reason := jsonread.Reason(err); reason != "" {
			return malformed.New("The body %s.", reason)
		}
		return malformed.New("The body is not a JSON object.")
	}
	if body = bytes.TrimSpace(body); body[0] != '{' {
		return malformed.New("The body is not a JSON object.")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var typ *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typ):
		return malformed.New("The member %.128s has a JSON %s, which is no value of it.", typ.Field, typ.Value)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name, _ := strconv.Unquote(strings.TrimPrefix(err.Error(), "json: unknown field "))
		return unsupported.New("The parameter %.64q is not supported here.", name)
	}
	return malformed.New("The body cannot be read as the input of the action.")
}

// crowded reports whether a body has more members and elements than any request needs. Decoded, each takes many
// times the bytes that it has in the body.
func crowded(body []byte) bool {
	n, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			n++
		}
	}
	return n >= mostParameters
}

func (jsonProtocol) answer(_ *fasthttp.RequestCtx, c *call, out any) error {
	body := []byte("{}")
	if out != nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(out); err != nil {
			return fmt.Errorf("sqs: encode an answer: %w", err)
		}
		body = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	return c.respond(mediaJSON, body)
}

func (jsonProtocol) fail(rc *fasthttp.RequestCtx, _ string, f *Fault) {
	body, _ := json.Marshal(struct { // strings alone: it does not fail
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{"com.amazonaws.sqs#" + f.Type, f.Message})
	whose := "Sender"
	if !f.sender() {
		whose = "Receiver"
	}
	failHead(rc, f, mediaJSON)
	rc.Response.Header.Set("x-amzn-query-error", f.Code+";"+whose)
	rc.Response.SetBodyRaw(body)
}

// failHead writes the head of a refusal.
func failHead(rc *fasthttp.RequestCtx, f *Fault, mediaType string) {
	if f.Code == noKey.code || f.Code == otherSignature.code {
		problem.NoteWrongToken(rc)
	}
	rc.Response.ResetBody()
	rc.SetStatusCode(f.Status)
	rc.SetContentType(mediaType)
	stamp(rc)
	if f.RetryAfter > 0 {
		rc.Response.Header.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(f.RetryAfter))
	}
}
