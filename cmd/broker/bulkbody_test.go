package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// A body of rows comes with a template and a rate, in a form or with headers, and may be compressed.
func TestBulkBodies(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(fetchInside, "BROKER_BULK_MAX_SIZE=4MiB", "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=1")
		for name, story := range map[string]func(*testing.T, *process){
			"forms":                          bulkForms,
			"options in headers":             bulkHeaderOptions,
			"what cannot be a form":          badForms,
			"compressed bodies":              codedBulks,
			"bodies that are not as coded":   badlyCodedBulks,
			"compressed files":               codedFiles,
			"the rate of a body":             bulkBodyRate,
			"a form that is cut at a byte":   cutForms,
			"the largest body, and one more": largestBulks,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

const uploadType = "multipart/form-data; boundary=----x"

// formPart is a part of a form of uploadType as curl sends it.
func formPart(disposition, headers, content string) string {
	return "------x\r\nContent-Disposition: form-data; " + disposition + "\r\n" + headers + "\r\n" + content + "\r\n"
}

// formOf is a form with options, unless they are "", and a CSV file.
func formOf(options, file string) string {
	form := ""
	if options != "" {
		form = formPart(`name="options"`, "", options)
	}
	return form + formPart(`name="file"; filename="people.csv"`, "Content-Type: application/octet-stream\r\n", file) +
		"------x--\r\n"
}

// requireNoBulk requires that nothing was stored that anybody sees.
func (s *stage) requireNoBulk() {
	s.t.Helper()
	require.Contains(s.t, s.do("GET", s.path("/bulks"), "").body, `"Result":[]`)
	require.Zero(s.t, s.counts().Counts.Dispatched.Count)
}

// patientBulk is tryBulk where the store may be too busy for a while.
func (s *stage) patientBulk(contentType, body string, headers ...string) reply {
	s.t.Helper()
	return patiently(func() reply { return s.tryBulk(contentType, body, headers...) })
}

// patiently repeats what a store refuses that is too busy.
func patiently(ask func() reply) reply {
	r := ask()
	for try := 0; try < 5 && r.status == 503; try++ {
		time.Sleep(time.Second)
		r = ask()
	}
	return r
}

const people = "id,name\n1,Ann\n2,\"Bob, the second\"\n"

func bulkForms(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	const options = `{"Template":{"Payload":"{{id}}: {{json name}}","Headers":{"X-Name":"n-{{id}}"},"MessageID":"m-{{id}}"},"Rate":"1000/1s"}`
	b := s.awaitBulk(s.bulk(uploadType, formOf(options, people)), "DONE")
	require.Equal(t, [4]int64{2, 2, 0, 0}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates}, "%+v", b.BadRows)
	require.Equal(t, "csv", b.Format)
	require.Equal(t, "1000/1s", b.Rate)
	require.Equal(t, "{{id}}: {{json name}}", b.Template.Payload)
	require.Empty(t, b.FileURL)
	require.EqualValues(t, len(people), b.Bytes)
	requireOnce(t, sink, `1: "Ann"`, `2: "Bob, the second"`)
	require.Equal(t, "n-2", s.message(s.path("/message/m-2")).Headers["X-Name"])

	file := func(disposition, headers, content string) string {
		return formPart(disposition, headers, content) + "------x--"
	}
	typed := formPart(`name="options"`, "Content-Type: application/json\r\n", `{"Template":{"Payload":"{{n}}"}}`)
	for name, c := range map[string]struct {
		form, format string
		headers      []string
	}{
		"a typed part, NDJSON by its name":    {typed + file(`name="file"; filename="a.jsonl"`, "", `{"n":"x"}`), "ndjson", nil},
		"a file of options":                   {strings.Replace(typed, `"options"`, `"options"; filename="o.json"`, 1) + file(`name="file"; filename="a.csv"`, "", "n\nx"), "csv", nil},
		"the file alone, by its type":         {file(`name="file"`, "Content-Type: text/csv\r\n", "Payload\nx"), "csv", nil},
		"the format in the options":           {formPart(`name="options"`, "", `{"Format":"ndjson"}`) + file(`name="file"; filename="x.csv"`, "", `{"Payload":"x"}`), "ndjson", nil},
		"options in headers beside the file":  {file(`name="file"; filename="a.csv"`, "", "n\nx"), "csv", []string{"X-Broker-Bulk-Template", `{"Payload":"{{n}}"}`}},
		"a file that is compressed in a form": {typed + file(`name="file"; filename="a.csv.gz"`, "Content-Encoding: gzip\r\n", packed("n\nx")), "csv", nil},
		"a form that is compressed":           {packed(typed + file(`name="file"; filename="a.csv"`, "", "n\nx")), "csv", []string{"Content-Encoding", "gzip"}},
	} {
		before := sink.count()
		b := s.awaitBulk(s.bulk(uploadType, c.form, c.headers...), "DONE")
		require.Equal(t, [2]int64{1, 1}, [2]int64{b.Total, b.Published}, "%s: %+v", name, b.BadRows)
		require.Equal(t, c.format, b.Format, name)
		eventually(t, name, func() bool { return sink.count() == before+1 })
		require.Equal(t, "x", sink.all()[before].body, name)
	}

	// Many chunks, in a request of unknown length.
	var rows strings.Builder
	rows.WriteString("n\n")
	for i := range 100_000 {
		fmt.Fprintf(&rows, "%08d\n", i)
	}
	r := patiently(func() reply {
		unknown := struct{ io.Reader }{strings.NewReader(formOf(`{"Template":{"Payload":"{{n}}"},"Rate":"200/1s"}`, rows.String()))}
		r, err := http.NewRequest("POST", p.base+s.path("/bulk"), unknown)
		require.NoError(t, err)
		r.Header = headerOf(append([]string{"Content-Type", uploadType}, producerTokens...))
		answer, err := client.Do(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		return reply{status: answer.StatusCode, header: answer.Header}
	})
	require.Equal(t, 202, r.status)
	at := r.header.Get("Location")
	eventually(t, "the first rows", func() bool { b = s.bulkAt(at); return b.Published > 0 })
	require.EqualValues(t, 100_000, b.Total)
	require.EqualValues(t, rows.Len(), b.Bytes)
	require.Equal(t, 200, s.do("POST", at+"/cancel", "").status)
}

func bulkHeaderOptions(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	b := s.awaitBulk(s.bulk("text/csv", people, "X-Broker-Bulk-Template", `{"Payload":"{{name}}","Priority":"{{id}}","ContentType":"text/plain"}`, "X-Broker-Bulk-Rate", "100/1s"), "DONE")
	require.EqualValues(t, 2, b.Published, "%+v", b.BadRows)
	require.Equal(t, "100/1s", b.Rate)
	require.Equal(t, apitype.Text("{{id}}"), b.Template.Priority)
	b = s.awaitBulk(s.bulk("application/x-ndjson", `{"a":{"b":1}}`+"\n"+`{"c":1}`, "X-Broker-Bulk-Template", `{"Payload":"{{a}}"}`), "DONE")
	require.Equal(t, [2]int64{1, 1}, [2]int64{b.Published, b.Rejected})
	require.Contains(t, b.BadRows[0].Reason, `"a"`)
	b = s.awaitBulk(s.bulk("text/csv", "Payload\nplain", "X-Broker-Bulk-Rate", "5/1s", "X-Broker-Bulk-Template", ""), "DONE")
	require.Equal(t, "5/1s", b.Rate)
	require.Nil(t, b.Template)
	requireOnce(t, sink, "Ann", "Bob, the second", `{"b":1}`, "plain")

	n := len(s.bulks())
	for name, c := range map[string]struct {
		contentType, body, header, value string
		code                             string
	}{
		"an unknown column":          {"text/csv", people, "X-Broker-Bulk-Template", `{"Payload":"{{nobody}}"}`, "invalid_template"},
		"a bad template":             {"text/csv", people, "X-Broker-Bulk-Template", `{"Payload":"{{id"}`, "invalid_template"},
		"columns of a batch line":    {"text/csv", people, "X-Broker-Bulk-Rate", "1/1s", "invalid_columns"},
		"no JSON":                    {"text/csv", people, "X-Broker-Bulk-Template", `{"Payload"`, "invalid_json"},
		"no object":                  {"text/csv", people, "X-Broker-Bulk-Template", `null`, "invalid_json"},
		"two objects":                {"text/csv", people, "X-Broker-Bulk-Template", `{} {}`, "invalid_json"},
		"an unknown member":          {"text/csv", people, "X-Broker-Bulk-Template", `{"Body":"x"}`, "invalid_json"},
		"not UTF-8":                  {"text/csv", people, "X-Broker-Bulk-Template", "{\"Payload\":\"\xe4\"}", "invalid_json"},
		"a bad priority":             {"text/csv", people, "X-Broker-Bulk-Template", `{"Payload":"x","Priority":5000}`, "invalid_priority"},
		"a bad rate":                 {"text/csv", people, "X-Broker-Bulk-Rate", "fast", "invalid_rate"},
		"the rate of a file's JSON":  {"application/json", `{"FileURL":"http://x.example/","Format":"csv"}`, "X-Broker-Bulk-Rate", "1/1s", "duplicate_field"},
		"options that come twice":    {uploadType, formOf(`{}`, people), "X-Broker-Bulk-Rate", "1/1s", "duplicate_field"},
		"a name that is almost that": {"text/csv", people, "X-Broker-Bulk-Rates", "1/1s", "unknown_header"},
	} {
		r := s.patientBulk(c.contentType, c.body, c.header, c.value)
		require.Equal(t, 400, r.status, "%s: %s", name, r.body)
		requireProblem(t, r, 400, c.code)
	}
	require.Contains(t, s.patientBulk("text/csv", people, "X-Broker-Bulk-Temlate", "{}").body, "Did you mean X-Broker-Bulk-Template?")
	requireProblem(t, s.post("x", "X-Broker-Bulk-Rate", "1/1s"), 400, "unknown_header")
	require.Len(t, s.bulks(), n, "nothing was stored")
}

// bulks are the links of the bulks of the channel.
func (s *stage) bulks() []string {
	s.t.Helper()
	var list apitype.List
	require.NoError(s.t, json.Unmarshal([]byte(s.do("GET", s.path("/bulks"), "").body), &list))
	return list.Result
}

func badForms(t *testing.T, p *process) {
	s := p.stage(t)
	file := formPart(`name="file"; filename="a.csv"`, "", "Payload\nx")
	const end = "------x--\r\n"
	for name, c := range map[string]struct {
		form   string
		status int
		code   string
	}{
		"nothing":                    {"", 400, "invalid_form"},
		"no form":                    {"Payload\nx", 400, "invalid_form"},
		"no file":                    {formPart(`name="options"`, "", "{}") + end, 400, "invalid_form"},
		"no end":                     {file, 400, "invalid_form"},
		"two files":                  {file + file + end, 400, "duplicate_field"},
		"two options":                {formPart(`name="options"`, "", "{}") + formPart(`name="options"`, "", "{}") + file + end, 400, "duplicate_field"},
		"options behind the file":    {file + formPart(`name="options"`, "", "{}") + end, 400, "invalid_form"},
		"an unknown part":            {formPart(`name="option"`, "", "{}") + file + end, 400, "unknown_field"},
		"a part behind the file":     {file + formPart(`name="submit"`, "", "Send") + end, 400, "unknown_field"},
		"a file elsewhere":           {formOf(`{"FileURL":"http://x.example/a.csv"}`, people), 400, "invalid_file_url"},
		"options that are none":      {formOf(`Rate=1`, people), 400, "invalid_json"},
		"empty options":              {formPart(`name="options"`, "", "") + file + end, 400, "invalid_json"},
		"an unknown option":          {formOf(`{"Rates":"1/1s"}`, people), 400, "invalid_json"},
		"a bad rate":                 {formOf(`{"Rate":"1"}`, people), 400, "invalid_rate"},
		"a bad format":               {formOf(`{"Format":"xlsx"}`, people), 400, "invalid_format"},
		"an unknown format":          {formPart(`name="file"; filename="a.txt"`, "", "x") + end, 400, "invalid_format"},
		"an unknown column":          {formOf(`{"Template":{"Payload":"{{nobody}}"}}`, people), 400, "invalid_template"},
		"columns of no message":      {formOf(`{"Rate":"1/1s"}`, people), 400, "invalid_columns"},
		"an empty file":              {formOf("", ""), 400, "invalid_columns"},
		"a part in base64":           {formPart(`name="file"; filename="a.csv"`, "Content-Transfer-Encoding: base64\r\n", "eA==") + end, 415, "unsupported_media_type"},
		"a file in Latin-1":          {formPart(`name="file"`, "Content-Type: text/csv; charset=iso-8859-1\r\n", "Payload\nx") + end, 415, "unsupported_media_type"},
		"a part with another coding": {formPart(`name="file"; filename="a.csv"`, "Content-Encoding: zstd\r\n", "x") + end, 415, "unsupported_media_type"},
		"options that are too long":  {formOf(strings.Repeat(" ", 1<<20)+"{}", people), 413, "body_too_large"},
	} {
		r := s.patientBulk(uploadType, c.form)
		require.Equal(t, c.status, r.status, "%s: %s", name, r.body)
		requireProblem(t, r, c.status, c.code)
	}
	requireProblem(t, s.patientBulk("multipart/form-data", formOf("", people)), 400, "invalid_form")
	requireProblem(t, s.patientBulk("multipart/form-data; boundary="+strings.Repeat("x", 71), formOf("", people)), 400, "invalid_form")
	requireProblem(t, s.patientBulk("multipart/mixed; boundary=x", formOf("", people)), 415, "unsupported_media_type")

	// Much is read before the form turns out to be none.
	rows := "Payload\n" + strings.Repeat("x\n", 500_000)
	requireProblem(t, s.patientBulk(uploadType, strings.Replace(formOf("", rows), "------x--", "------x\r\n", 1)), 400, "invalid_form")
	s.requireNoBulk()
}

func codedBulks(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	for name, c := range map[string][3]string{
		"CSV":          {"text/csv", packed("Payload\ncsv"), "gzip"},
		"NDJSON":       {"application/x-ndjson", packed(`{"Payload":"ndjson"}`), "GZIP"},
		"two members":  {"text/csv", packed("Payload\nmem") + packed("bers"), "x-gzip"},
		"no coding":    {"text/csv", "Payload\nplain", "identity"},
		"a first BOM":  {"text/csv", packed("\xEF\xBB\xBFPayload\nbom"), "gzip"},
		"with headers": {"text/csv", packed("n\nheaders"), "gzip"},
	} {
		headers := []string{"Content-Encoding", c[2]}
		if name == "with headers" {
			headers = append(headers, "X-Broker-Bulk-Template", `{"Payload":"{{n}}"}`)
		}
		b := s.awaitBulk(s.bulk(c[0], c[1], headers...), "DONE")
		require.Equal(t, [2]int64{1, 1}, [2]int64{b.Total, b.Published}, "%s: %+v", name, b.BadRows)
	}
	requireOnce(t, sink, "csv", "ndjson", "members", "plain", "bom", "headers")
	for _, m := range sink.all() {
		require.Empty(t, m.header.Get("Content-Encoding"), "the coding was that of the body")
	}
	url := file(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Payload\nfetched") })
	s.awaitBulk(s.bulk("application/json", packed(`{"FileURL":"`+url+`","Format":"csv"}`), "Content-Encoding", "gzip"), "DONE")

	rows := "Payload,MessageID\n" + strings.Repeat("some text that gets small,\n", 100_000)
	b := s.bulkAt(s.bulk("text/csv", packed(rows), "Content-Encoding", "gzip", "X-Broker-Bulk-Rate", "100/1s"))
	require.EqualValues(t, len(rows), b.Bytes)
	require.EqualValues(t, 100_000, b.Total)
	require.Equal(t, 200, s.do("POST", s.path("/bulk/"+b.ID+"/cancel"), "").status)
}

func badlyCodedBulks(t *testing.T, p *process) {
	s := p.stage(t)
	rows := packed("Payload\n" + strings.Repeat("x\n", 1000))
	long := packed("Payload\n" + numbered(200_000)[len("Payload,MessageID\n"):])
	for name, c := range map[string]struct {
		body, coding string
		status       int
		code         string
	}{
		"not coded":                {"Payload\nx", "gzip", 400, "invalid_content_encoding"},
		"nothing":                  {"", "gzip", 400, "invalid_content_encoding"},
		"cut":                      {rows[:len(rows)-1], "gzip", 400, "invalid_content_encoding"},
		"a wrong sum":              {rows[:len(rows)-8] + "xxxx" + rows[len(rows)-4:], "gzip", 400, "invalid_content_encoding"},
		"something behind it":      {rows + "Payload", "gzip", 400, "invalid_content_encoding"},
		"deflate behind it":        {rows + "x", "deflate", 400, "invalid_content_encoding"},
		"cut behind many chunks":   {long[:len(long)-1], "gzip", 400, "invalid_content_encoding"},
		"behind many chunks":       {long + "\x00", "gzip", 400, "invalid_content_encoding"},
		"no list of codings":       {rows, "gzip;q=1", 400, "invalid_content_encoding"},
		"a coding of large memory": {rows, "br", 415, "unsupported_media_type"},
		"an unknown coding":        {rows, "compress", 415, "unsupported_media_type"},
		"too many codings":         {rows, "gzip, deflate", 415, "unsupported_media_type"},
		"a bomb of one row":        {packed(strings.Repeat("x", 32<<20)), "gzip", 400, "invalid_columns"},
		"a bomb of rows":           {packed("Payload\n" + strings.Repeat("x\n", 16<<20)), "gzip", 413, "body_too_large"},
		"a bomb of bombs":          {packed(packed("Payload\n" + strings.Repeat("\n", 64<<20))), "gzip, gzip", 415, "unsupported_media_type"},
	} {
		r := s.patientBulk("text/csv", c.body, "Content-Encoding", c.coding)
		require.Equal(t, c.status, r.status, "%s: %s", name, r.body)
		requireProblem(t, r, c.status, c.code)
	}
	twice := formPart(`name="file"; filename="a.csv"`, "Content-Encoding: gzip\r\n", packed("Payload\nx")) + "------x--"
	requireProblem(t, s.patientBulk(uploadType, packed(twice), "Content-Encoding", "gzip"), 415, "unsupported_media_type")
	requireProblem(t, s.patientBulk("text/csv", packed("Payload\nx")), 400, "invalid_content_encoding")
	requireProblem(t, s.patientBulk("application/x-ndjson", packed("{}")), 400, "invalid_content_encoding")
	requireProblem(t, s.patientBulk(uploadType, strings.Replace(twice, "Content-Encoding", "Content-Type", 1)), 400, "invalid_content_encoding")
	requireProblem(t, s.patientBulk("application/x-ndjson", packed(strings.Repeat("x", 32<<20)), "Content-Encoding", "gzip"), 413, "body_too_large")
	requireProblem(t, s.patientBulk(uploadType, packed(formOf("", "Payload\n"+strings.Repeat("x\n", 16<<20))), "Content-Encoding", "gzip"), 413, "body_too_large")
	requireProblem(t, s.patientBulk("application/json", packed(`{"FileURL":"`+strings.Repeat("x", 16<<20)), "Content-Encoding", "gzip"), 413, "body_too_large")
	s.requireNoBulk()
}

func codedFiles(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	coded := func(coding, body string) string {
		return file(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", coding)
			_, _ = io.WriteString(w, body)
		})
	}
	url := coded("gzip", packed(people))
	s.awaitBulk(s.bulk("application/json", `{"FileURL":"`+url+`","Format":"csv","Template":{"Payload":"{{name}}"}}`), "DONE")
	requireOnce(t, sink, "Ann", "Bob, the second")
	requireProblem(t, s.patientBulk("application/json", `{"FileURL":"`+url+`","Format":"csv","Template":{"Payload":"{{nobody}}"}}`), 400, "invalid_template")
	long := packed("Payload\n" + numbered(200_000)[len("Payload,MessageID\n"):])
	for name, c := range map[string][3]string{
		"not coded":   {"gzip", "Payload\nx", "not coded"},
		"cut":         {"gzip", long[:len(long)-1], "not coded"},
		"behind it":   {"gzip", long + "x", "not coded"},
		"another one": {"br", "x", "Content-Encoding br"},
		"a bomb":      {"gzip", packed("Payload\n" + strings.Repeat("x\n", 16<<20)), "larger than 4194304 bytes"},
	} {
		b := s.awaitBulk(s.bulk("application/json", `{"FileURL":"`+coded(c[0], c[1])+`","Format":"csv"}`), "FAILED")
		require.Contains(t, b.Reason, c[2], name)
		require.NotContains(t, b.Reason, "Tried", name)
	}
	require.Equal(t, 2, s.counts().Counts.Dispatched.Count)
}

func bulkBodyRate(t *testing.T, p *process) {
	s := p.stage(t)
	at := s.bulk(uploadType, formOf(`{"Rate":"50/1s","Template":{"Payload":"{{n}}"}}`, "n\n"+strings.Repeat("x\n", 200)))
	eventually(t, "the first rows", func() bool { return s.bulkAt(at).Published > 0 })
	began := time.Now()
	require.Equal(t, 200, s.do("POST", at+"/pause", "").status)
	first := s.bulkAt(at)
	require.Equal(t, "PAUSED", first.State)
	require.Less(t, first.Published, int64(200))
	require.Equal(t, 200, s.do("POST", at+"/resume", "").status)
	b := s.awaitBulk(at, "DONE")
	require.EqualValues(t, 200, b.Published)
	left := time.Duration(200-first.Published-50) * time.Second / 50
	require.Greater(t, time.Since(began), left)
}

// A form whose connection ends at any byte stores nothing, and one more byte makes it a bulk.
func cutForms(t *testing.T, p *process) {
	s := p.stage(t)
	form := formOf(`{"Rate":"9/1s"}`, "Payload\nx\n")
	const coded = "Content-Encoding: gzip\r\n"
	for name, c := range map[string][2]string{
		"known length":   {fmt.Sprintf("Content-Length: %d\r\n", len(form)), form},
		"chunks":         {"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(form), form)},
		"coded":          {coded + fmt.Sprintf("Content-Length: %d\r\n", len(packed(form))), packed(form)},
		"coded, chunked": {coded + "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(packed(form)), packed(form))},
	} {
		head := "POST " + s.path("/bulk") + " HTTP/1.1\r\nHost: b\r\nConnection: close\r\nContent-Type: " + uploadType +
			"\r\nX-Broker-Channel-Token: c-token\r\nX-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: p-token\r\n" + c[0] + "\r\n"
		before := len(s.bulks())
		for n := range len(c[1]) {
			require.Equal(t, 400, p.in(t).half(head+c[1][:n]), "%s, %d of %d bytes", name, n, len(c[1]))
		}
		require.Len(t, s.bulks(), before, name)
		require.Equal(t, 202, patiently(func() reply { return reply{status: p.in(t).half(head + c[1])} }).status, name)
		require.Len(t, s.bulks(), before+1, name)
	}
}

// half sends a text over a connection of its own, ends what it sends, and returns the status of the
// answer, 0 for none.
func (p *process) half(text string) int {
	conn := p.dial()
	defer conn.Close()
	_, err := io.WriteString(conn, text)
	require.NoError(p.t, err)
	require.NoError(p.t, conn.CloseWrite())
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func largestBulks(t *testing.T, p *process) {
	s := p.stage(t)
	const most = 4 << 20
	rows := "Payload\n" + strings.Repeat("x\n", (most-8)/2)
	require.Len(t, rows, most)
	for name, body := range map[string]string{"plain": rows, "gzip": packed(rows)} {
		var headers []string
		if name == "gzip" {
			headers = []string{"Content-Encoding", "gzip"}
		}
		at := s.bulk("text/csv", body, append(headers, "X-Broker-Bulk-Rate", "1/1s")...)
		require.EqualValues(t, most, s.bulkAt(at).Bytes, name)
		require.Equal(t, 200, s.do("POST", at+"/cancel", "").status)
	}
	requireProblem(t, s.patientBulk("text/csv", rows+"x"), 413, "body_too_large") // while it is written
	requireProblem(t, s.patientBulk("text/csv", packed(rows+"x"), "Content-Encoding", "gzip"), 413, "body_too_large")
	require.Len(t, s.bulks(), 2)
}

// A broker that is killed in the middle of a body with a template is replaced by one that goes on with
// the template.
func TestFaultKillOfABulkWithATemplate(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		const n = 1000
		p := w.with(quick...).start(envKill + "=" + failpoint.AfterBulkStep + ":3")
		p.sample("k")
		s := &stage{process: p, channel: "c"}
		var rows strings.Builder
		rows.WriteString("n,none\n")
		for i := range n {
			fmt.Fprintf(&rows, "%d,\n", i)
		}
		at := s.bulk(uploadType, packed(formOf(`{"Template":{"Payload":"m-{{n}}"},"Rate":"2000/1s"}`, rows.String())), "Content-Encoding", "gzip")
		p.awaitEnd()
		q := w.start()
		b := s.on(q).awaitBulk(at, "DONE")
		require.Equal(t, [4]int64{n, n, 0, 0}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates})
		require.Equal(t, "m-{{n}}", b.Template.Payload)
		q.requireEach(n)
	})
}
