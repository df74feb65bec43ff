package bulk

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// The formats of a body.
const (
	CSV    = "csv"
	NDJSON = "ndjson"
)

// A Spec is what a bulk needs to be expanded. It is stored with the bulk.
type Spec struct {
	apitype.BulkRequest // of a body without its FileURL
	Defaults            publish.Defaults
	ChunkSize           int // bytes of each chunk but the last
}

// chunkSize is the size of the chunks of new bulks, bytes. Its insert fits the smallest usual
// max_allowed_packet.
const chunkSize = 256 << 10

// maxRequest bounds the JSON of a request, bytes.
const maxRequest = 1 << 20

// rateOf returns the parsed rate.
func rateOf(r *apitype.BulkRequest) (policy.Rate, error) {
	rate, err := policy.ParseRate(r.Rate)
	if err != nil {
		return rate, problem.New(400, "invalid_rate", "Rate must be N/duration, such as 2000/1s, with N from 1 to 1000000 "+
			"and a duration from 100ms to 24h.")
	}
	return rate, nil
}

// A jsonText is a JSON object of a request, as refusals call it.
type jsonText struct{ name, members, example string }

var templateMembers = strings.Join(templateNames[:len(templateNames)-1], ", ") + " and " +
	templateNames[len(templateNames)-1]

var (
	requestText = jsonText{"The body", "FileURL, Format, Template and Rate, and in Template " + templateMembers,
		`{"FileURL":"https://files.example/people.csv","Format":"csv"}`}
	optionsText = jsonText{"The part options", "Format, Template and Rate, and in Template " + templateMembers,
		`{"Format":"csv","Rate":"100/1s"}`}
	templateText = jsonText{"The header " + templateHeader, templateMembers, `{"Payload":"Hello {{name}}"}`}
)

// read reads a JSON object into a pointer, strictly.
func (j *jsonText) read(text []byte, into any) error {
	if err := jsonread.Check(text); err != nil {
		if reason := jsonread.Reason(err); reason != "" {
			return problem.New(400, "invalid_json", j.name+" "+reason+".")
		}
		return j.bad(err)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte{'{'}) { // null is no error to Decode
		return j.bad(errors.New("no object"))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return j.bad(err)
	}
	return nil
}

// bad says what is wrong with the JSON.
func (j *jsonText) bad(err error) error {
	var kind *json.UnmarshalTypeError
	const unknown = "json: unknown field "
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return problem.Newf(400, "invalid_json", "The member %s has the wrong type.", kind.Field)
	case strings.HasPrefix(err.Error(), unknown):
		return problem.Newf(400, "invalid_json", "There is no member %s; the members are %s.",
			cut(strings.TrimPrefix(err.Error(), unknown)), j.members)
	}
	return problem.Newf(400, "invalid_json", "%s must be a JSON object such as %s.", j.name, j.example)
}

// parseRequest reads the JSON of a request. checkURL is the rule for addresses.
func parseRequest(body []byte, checkURL func(string) error) (*apitype.BulkRequest, error) {
	var r apitype.BulkRequest
	if err := requestText.read(body, &r); err != nil {
		return nil, err
	}
	if r.FileURL == "" {
		return nil, problem.New(400, "invalid_file_url", "FileURL is missing.")
	}
	if checkURL != nil {
		if err := checkURL(r.FileURL); err != nil {
			return nil, problem.New(400, "invalid_file_url", "FileURL: "+strings.ReplaceAll(sentence.Of(err), "callback ", "")+
				".")
		}
	}
	if r.Format != CSV && r.Format != NDJSON {
		return nil, errFormat
	}
	return &r, checkOptions(&r)
}

var errFormat = problem.New(400, "invalid_format", `Format must be "csv" or "ndjson".`)

// checkOptions refuses a rate and a template that no bulk can have.
func checkOptions(r *apitype.BulkRequest) error {
	if _, err := rateOf(r); err != nil {
		return err
	}
	return checkTemplate(r)
}

// parseOptions reads the options of a body that comes with them.
func parseOptions(text []byte) (*apitype.BulkRequest, error) {
	var r apitype.BulkRequest
	if err := optionsText.read(text, &r); err != nil {
		return nil, err
	}
	switch {
	case r.FileURL != "":
		return nil, problem.New(400, "invalid_file_url", "The rows are in the part file, so the part options has no FileURL.")
	case r.Format != "" && r.Format != CSV && r.Format != NDJSON:
		return nil, errFormat
	}
	return &r, checkOptions(&r)
}

// The headers with the options of a body that is rows.
const templateHeader, rateHeader = "X-Broker-Bulk-Template", "X-Broker-Bulk-Rate"

var errOptionsTwice = problem.New(400, "duplicate_field", "Template and Rate stand in the JSON of the body or in "+
	templateHeader+" and "+rateHeader+", not in both.")

// headerOptions returns the options in the headers of a request, nil if there are none.
func headerOptions(h *fasthttp.RequestHeader) (*apitype.BulkRequest, error) {
	template, rate := h.Peek(templateHeader), h.Peek(rateHeader)
	if len(template) == 0 && len(rate) == 0 {
		return nil, nil
	}
	r := apitype.BulkRequest{Rate: string(rate)}
	if len(template) > 0 {
		r.Template = &apitype.BulkTemplate{}
		if err := templateText.read(template, r.Template); err != nil {
			return nil, err
		}
	}
	return &r, checkOptions(&r)
}

func cut(s string) string { return s[:min(len(s), 64)] }

// checkTemplate refuses a template that no row could fill.
func checkTemplate(r *apitype.BulkRequest) error {
	if r.Template == nil {
		return nil
	}
	if r.Template.Payload != "" && r.Template.PayloadBase64 != "" {
		return problem.New(400, "invalid_template", "Template has a Payload and a PayloadBase64.")
	}
	c, err := compile(r.Template)
	if err != nil {
		return err
	}
	for _, tag := range c.tags {
		if strings.TrimSpace(tag) == "" {
			return unknownColumn(tag)
		}
	}
	return publish.CheckConstant(c.names, c.constants())
}

// constants returns the texts without columns, "" for the others.
func (c *compiled) constants() []string {
	out := make([]string, len(c.texts))
	for i, text := range c.texts {
		if text == nil {
			out[i] = c.plain[i]
		}
	}
	return out
}

// perStep returns how many rows of a bulk one step has, and how long after it the next one begins.
func perStep(r policy.Rate, most int) (rows int, wait func(rows int) time.Duration) {
	if r == (policy.Rate{}) {
		return most, func(int) time.Duration { return 0 }
	}
	quarter := int(int64(r.N) * int64(250*time.Millisecond) / int64(r.Per))
	return max(1, min(most, quarter)), func(rows int) time.Duration {
		return time.Duration(float64(r.Per) * float64(rows) / float64(r.N))
	}
}
