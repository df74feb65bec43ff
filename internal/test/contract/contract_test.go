package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/traffic"
)

const sample = `{
 "openapi": "3.1.0", "info": {"title": "T", "version": "1"},
 "paths": {
  "/channels": {
   "get": {
    "operationId": "a",
    "parameters": [{"name": "first", "in": "query", "schema": {"type": "string"}},
     {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}],
    "responses": {
     "200": {"description": "done", "headers": {"ETag": {"schema": {"type": "string"}}},
      "content": {"application/json": {"schema": {"$ref": "#/components/schemas/List"}}}},
     "304": {"description": "same"},
     "404": {"$ref": "#/components/responses/404"}, "400": {"$ref": "#/components/responses/400"}},
    "x-codes": ["404 channel_not_found"]}},
  "/channel/{channel}/batch": {
   "post": {
    "operationId": "b",
    "parameters": [{"name": "channel", "in": "path", "required": true, "schema": {"type": "string"}}],
    "requestBody": {"content": {"application/x-ndjson": {"schema": {}, "x-lines": {"$ref": "#/components/schemas/Line"}},
     "application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Form"}}}},
    "responses": {"200": {"description": "done",
     "content": {"application/x-ndjson": {"schema": {}, "x-lines": {"$ref": "#/components/schemas/Result"}}}}},
    "x-codes": []}}},
 "components": {
  "schemas": {
   "List": {"type": "object", "properties": {"Result": {"type": "array", "items": {"$ref": "#/components/schemas/Entry"}},
     "Pages": {"type": "object", "additionalProperties": {"type": "string"}}}, "required": ["Result"]},
   "Entry": {"type": "object", "properties": {"ID": {"type": "string"}}},
   "Line": {"type": "object", "properties": {"Payload": {"type": "string"}}},
   "Form": {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": false},
   "Result": {"type": "object", "properties": {"Status": {"type": "integer"}, "code": {"type": "string"}}},
   "Problem": {"type": "object", "properties": {"code": {"type": "string"}, "status": {"type": "integer"}}}},
  "responses": {
   "400": {"description": "wrong", "content": {"application/problem+json": {"schema":
    {"allOf": [{"$ref": "#/components/schemas/Problem"}], "properties": {"code": {"enum": ["bad"]}}}}}},
   "404": {"description": "none", "content": {"application/problem+json": {"schema":
    {"allOf": [{"$ref": "#/components/schemas/Problem"}], "properties": {"code": {"enum": ["channel_not_found"]}}}}}}}},
 "x-codes": [{"status": 400, "code": "bad"}, {"status": 404, "code": "channel_not_found"}],
 "x-common-headers": ["X-Broker-Admin-Token"]
}`

// exchanges are traffic with everything that sample has.
func exchanges() []traffic.Exchange {
	list := exchange("GET", "/channels?first=1", 200, "application/json", `{"Result":[{"ID":"a"}],"Pages":{"next":"/"}}`)
	list.Headers.Set("If-None-Match", `"x"`)
	list.Headers.Set("X-Broker-Admin-Token", "x")
	list.Headers.Set("User-Agent", "x")
	list.Answer.Set("Etag", `"y"`)
	list.Answer.Set("Date", "today")
	problem := func(status int, code string) traffic.Exchange {
		e := exchange("GET", "/channels?unknown=1", status, "application/problem+json", `{"code":"`+code+`","status":1}`)
		e.Headers.Set("X-Broker-Odd", "refused")
		return e
	}
	batch := exchange("POST", "/channel/c/batch", 200, "application/x-ndjson", "{\"Status\":400,\"code\":\"bad\"}\n")
	batch.Headers.Set("Content-Type", "application/x-ndjson")
	batch.Body = []byte("{\"Payload\":\"a\"}\n{\"payload\":\"b\"}\n")
	form := exchange("POST", "/channel/c/batch", 200, "application/x-ndjson", "{\"Status\":201}\n")
	form.Headers.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	form.Body = []byte("name=a")
	return []traffic.Exchange{list, exchange("GET", "/channels", 304, "", ""), problem(400, "bad"),
		problem(404, "channel_not_found"), batch, form}
}

func exchange(method, path string, status int, media, text string) traffic.Exchange {
	e := traffic.Exchange{Method: method, Path: path, Headers: http.Header{}, Status: status, Answer: http.Header{},
		Text: []byte(text)}
	e.Route = method + " " + strings.Replace(strings.Split(path, "?")[0], "/c/", "/{channel}/", 1)
	if media != "" {
		e.Answer.Set("Content-Type", media)
	}
	return e
}

func compared(t *testing.T, all []traffic.Exchange) *comparison {
	t.Helper()
	d, err := parse([]byte(sample))
	require.NoError(t, err)
	c, err := compare(d, all)
	require.NoError(t, err)
	return c
}

func TestWhatIsAlikeHasNoDifferences(t *testing.T) {
	c := compared(t, exchanges())
	require.Empty(t, c.forward())
	require.Empty(t, c.backward(""))
	require.Empty(t, c.saidCodes.without(c.seenCodes))
}

// Each difference is planted in an exchange of its own.
func TestWhatTheDocumentLacksIsFound(t *testing.T) {
	with := func(i int, change func(e *traffic.Exchange)) traffic.Exchange {
		e := exchanges()[i]
		change(&e)
		return e
	}
	for want, e := range map[string]traffic.Exchange{
		"GET /producers":                 exchange("GET", "/producers", 200, "application/json", `{}`),
		"GET /channels takes query size": with(0, func(e *traffic.Exchange) { e.Path += "&size=1" }),
		"GET /channels takes header X-Broker-Task": with(0, func(e *traffic.Exchange) {
			e.Headers.Set("X-Broker-Task", "x")
		}),
		"POST /channel/{channel}/batch takes text/csv": with(4, func(e *traffic.Exchange) {
			e.Headers.Set("Content-Type", "text/csv")
		}),
		"POST /channel/{channel}/batch takes header If-None-Match": with(4, func(e *traffic.Exchange) {
			e.Headers.Set("If-None-Match", "x") // a header of another route
		}),
		"member Line.Priority":      with(4, func(e *traffic.Exchange) { e.Body = []byte(`{"Priority":1}`) }),
		"member Form.token":         with(5, func(e *traffic.Exchange) { e.Body = []byte("token=1") }),
		"member Result.detail":      with(4, func(e *traffic.Exchange) { e.Text = []byte(`{"detail":""}`) }),
		"member Entry.Name":         with(0, func(e *traffic.Exchange) { e.Text = []byte(`{"Result":[{"Name":"a"}]}`) }),
		"GET /channels answers 201": with(0, func(e *traffic.Exchange) { e.Status = 201 }),
		"GET /channels answers 503": with(2, func(e *traffic.Exchange) { e.Status = 503 }),
		"GET /channels answers 200 as text/html": with(0, func(e *traffic.Exchange) {
			e.Answer.Set("Content-Type", "text/html; charset=utf-8")
		}),
		"GET /channels answers 200 with Vary": with(0, func(e *traffic.Exchange) { e.Answer.Set("Vary", "Accept") }),
		"a problem 400 with Retry-After":      with(2, func(e *traffic.Exchange) { e.Answer.Set("Retry-After", "1") }),
		"code 400 worse":                      with(2, func(e *traffic.Exchange) { e.Text = []byte(`{"code":"worse"}`) }),
		"GET /channels answers 400 worse":     with(2, func(e *traffic.Exchange) { e.Text = []byte(`{"code":"worse"}`) }),
		"code 409 taken":                      with(4, func(e *traffic.Exchange) { e.Text = []byte(`{"Status":409,"code":"taken"}`) }),
		"not valid: GET /channels 200, the answer": with(0, func(e *traffic.Exchange) {
			e.Text = []byte(`{"Result":"none"}`)
		}),
	} {
		found := strings.Join(compared(t, append(exchanges(), e)).forward(), "\n") + "\n"
		require.Contains(t, found, want)
		require.Less(t, strings.Count(found, "\n"), 6, found)
	}
}

// What was cut, or has no body, is compared as far as it goes.
func TestACutBodyIsNotRead(t *testing.T) {
	e := exchanges()[0]
	e.Text, e.TextCut = []byte(`{"Result":[{"Nam`), true
	head := exchanges()[0]
	head.Method, head.Text = "HEAD", nil
	batch := exchanges()[4]
	batch.Body, batch.Cut = []byte(`{"Other":1}`), true
	packed := exchanges()[0]
	packed.Answer.Set("Content-Encoding", "gzip")
	packed.Text = []byte("\x1f\x8b")
	require.Empty(t, compared(t, append(exchanges(), e, head, batch, packed)).forward())
}

func TestWhatNoTrafficHasIsFound(t *testing.T) {
	for i, want := range []string{
		"GET /channels takes query first", "GET /channels answers 304", "code 400 bad", "code 404 channel_not_found",
		"member Line.Payload", "member Form.name",
	} {
		all := exchanges()
		all = append(all[:i], all[i+1:]...)
		if want == "code 400 bad" { // a line of a batch has it, too
			all = append(all[:3], all[4:]...)
		}
		missing := compared(t, all).backward("")
		require.Contains(t, missing, "in the document and never in traffic: "+want)
	}
}

func TestExcusesAreHeldTo(t *testing.T) {
	all := exchanges()[1:]
	missing := compared(t, all).backward("")
	var text strings.Builder
	text.WriteString("# why\n\n")
	for _, line := range missing {
		text.WriteString(strings.TrimPrefix(line, "in the document and never in traffic: ") + "\n")
	}
	require.NotEmpty(t, missing)
	require.Empty(t, compared(t, all).backward(text.String()))
	require.Equal(t, []string{"unseen.txt names it, and it is in traffic: GET /channels answers 304",
		"unseen.txt names it, and the document does not: GET /nowhere"},
		compared(t, all).backward(text.String()+"GET /nowhere\nGET /channels answers 304\n? code 400 bad\n"))
}

// The document has all that the list excuses: what is gone from it has no place there.
func TestTheListNamesWhatTheDocumentHas(t *testing.T) {
	d, err := readDocument(documentFile)
	require.NoError(t, err)
	said, _ := d.said()
	require.Greater(t, len(said), 1000)
	excuses, _ := excused(unseenText)
	require.Empty(t, excuses.without(said))
}

func TestACommandNeedsARecord(t *testing.T) {
	var out strings.Builder
	_, err := run([]string{t.TempDir()}, &out)
	require.ErrorContains(t, err, "has no records")
	_, err = run(nil, &out)
	require.ErrorContains(t, err, "one folder")
	folder := t.TempDir()
	line, err := json.Marshal(exchange("GET", "/elsewhere", 404, "application/problem+json", `{"code":"odd"}`))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "x.test-1-2.ndjson"), line, 0o600))
	ok, err := run([]string{"-forward", folder}, &out)
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, out.String(), "in traffic and not in the document: code 404 odd")
	ok, err = run([]string{folder}, &out)
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, out.String(), "in the document and never in traffic: GET /channels")
}

// What a test malforms on purpose is no difference, and anything else is one.
func TestWhatIsMalformedOnPurposeIsNoDifference(t *testing.T) {
	const text = "# why\nin traffic and not in the document: member Line.Odd\n"
	odd := exchanges()[4]
	odd.Body = []byte(`{"Odd":1}`)
	differences := compared(t, append(exchanges(), odd)).forward()
	require.NotEmpty(t, differences)
	require.Empty(t, unmeant(slices.Clone(differences), text))
	require.Equal(t, differences, unmeant(slices.Clone(differences), "# why\nmember Line.Odd\n"))
}

// The parts of a form have names, which are members; a preference and a body without a coding ask nothing.
func TestFormsOfPartsAndHeadersThatAskNothing(t *testing.T) {
	e := exchange("POST", "/channel/c/batch", 200, "application/x-ndjson", "{\"Status\":201}\n")
	e.Headers.Set("Content-Type", "multipart/form-data; boundary=b")
	e.Headers.Set("Prefer", "wait=0")
	e.Headers.Set("Content-Encoding", "identity")
	e.Body = []byte("--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n")
	require.Equal(t, []string{"file"}, partsOf(e))
	require.True(t, ignored(e, "Prefer"))
	require.True(t, ignored(e, "Content-Encoding"))
	e.Headers.Set("Content-Encoding", "gzip")
	require.False(t, ignored(e, "Content-Encoding"))
}

// Each test that the list names is one of cmd/broker: go test passes over a name of nothing.
func TestTheListNamesTests(t *testing.T) {
	text, err := os.ReadFile("tests.txt")
	require.NoError(t, err)
	files, err := filepath.Glob("../../../cmd/broker/*_test.go")
	require.NoError(t, err)
	var source strings.Builder
	for _, name := range files {
		one, err := os.ReadFile(name)
		require.NoError(t, err)
		source.Write(one)
	}
	n := 0
	for name := range strings.Lines(string(text)) {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "#") {
			continue
		}
		n++
		require.Contains(t, source.String(), "\nfunc "+name+"(t *testing.T) {")
	}
	require.Greater(t, n, 30)
}
