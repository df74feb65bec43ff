package bench

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"github.com/valyala/fastjson"
)

// Answers of the pull routes and batch routes are mostly payload. fastjson parses them in one pass;
// with encoding/json this process used more CPU than the broker under test.

// errAnswer means that an answer does not have the form that the API promises.
var errAnswer = errors.New("bench: answer of another shape")

// A pulledJob is a job as the pull routes show it.
type pulledJob struct {
	id, lease string
	message   pulledMessage
}

// A pulledMessage is the message of a pulledJob. Its slices are as valid as the
// parser that they came from.
type pulledMessage struct {
	id       string
	identity []byte // of the run, if the payload does not contain one
	body     []byte
	job      *fastjson.Value
}

// details returns the fields that an audit compares. A list and a claim both show the number of
// attempts before this one.
func (m *pulledMessage) details() details {
	message := m.job.Get("Message")
	return details{
		messageID: m.id, contentType: string(message.GetStringBytes("ContentType")),
		name: string(message.GetStringBytes("Headers", nameHeader)), attempt: strconv.Itoa(m.job.GetInt("Attempts") + 1),
	}
}

// parseJobs reads the answer of queued-jobs or of a batch claim.
func parseJobs(p *fastjson.Parser, body []byte) ([]pulledJob, error) {
	list, err := resultOf(p, body)
	if err != nil {
		return nil, err
	}
	jobs := make([]pulledJob, len(list))
	for i, v := range list {
		m := v.Get("Message")
		if m == nil {
			return nil, fmt.Errorf("%w: a job without its message", errAnswer)
		}
		j := pulledJob{id: string(v.GetStringBytes("ID")), lease: string(v.GetStringBytes("Lease"))}
		j.message = pulledMessage{
			id: string(m.GetStringBytes("MessageID")), identity: m.GetStringBytes("Headers",
				identityHeader), body: m.GetStringBytes("Payload"), job: v,
		}
		if string(m.GetStringBytes("PayloadEncoding")) == "base64" {
			if j.message.body, err = base64.StdEncoding.AppendDecode(nil, j.message.body); err != nil {
				j.message.body = nil // unreadable, so it counts as corrupted
			}
		}
		jobs[i] = j
	}
	return jobs, nil
}

// parseStatuses reads the answer of a batch update.
func parseStatuses(p *fastjson.Parser, body []byte) ([]int, error) {
	list, err := resultOf(p, body)
	if err != nil {
		return nil, err
	}
	statuses := make([]int, len(list))
	for i, v := range list {
		statuses[i] = v.GetInt("Status")
	}
	return statuses, nil
}

func resultOf(p *fastjson.Parser, body []byte) ([]*fastjson.Value, error) {
	v, err := p.ParseBytes(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	result := v.Get("Result")
	if result == nil || result.Type() != fastjson.TypeArray {
		return nil, fmt.Errorf("%w: no Result", errAnswer)
	}
	return result.GetArray(), nil
}

// A batchAnswer is a line of the answer of a batch publish.
type batchAnswer struct {
	status   int // 0: not a line
	location []byte
	code     string // of an error
}

func parseBatchAnswer(p *fastjson.Parser, line []byte) batchAnswer {
	v, err := p.ParseBytes(line)
	if err != nil {
		return batchAnswer{}
	}
	a := batchAnswer{status: v.GetInt("Status"), location: v.GetStringBytes("Location")}
	if a.status >= 400 { // nearly all are acknowledged
		a.code = string(v.GetStringBytes("code"))
	}
	return a
}

// codeOf returns the code of an error, empty if the body has none.
func codeOf(body []byte) string { return fastjson.GetString(body, "code") }
