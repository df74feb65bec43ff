package api

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/jobs"
)

// maxAttempts is the number of attempts that one GET of a job shows. Each has up to a KiB of
// error and a KiB of answer, so the response stays far below a MiB.
const maxAttempts = 100

// An attemptView is an attempt as JSON. Answer is base64 when the bytes are not UTF-8;
// AnswerEncoding is set then.
type attemptView struct {
	Attempt        int
	At             stamp  // of its end
	StatusCode     int    `json:",omitempty"` // absent without an answer, and for a report of a pull consumer
	DurationMs     *int64 `json:",omitempty"` // unknown for a success
	Error          string `json:",omitempty"`
	Answer         string `json:",omitempty"` // the first KiB
	AnswerEncoding string `json:",omitempty"`
}

// A history contains the stored attempts of a job: the failed ones and the successful one.
type history struct {
	AttemptHistory          []attemptView // in order of time
	AttemptHistoryTruncated bool          `json:",omitempty"` // older attempts are not shown
}

// history returns the newest ended attempts of a job.
func (a *API) history(ctx context.Context, j located) (history, error) {
	stored, err := a.o.Store.Attempts(ctx, j.consumer.No, j.state.ID, maxAttempts+1)
	if err != nil {
		return history{}, err
	}
	h := history{AttemptHistory: make([]attemptView, 0, len(stored)+1)}
	for i := range stored {
		h.AttemptHistory = append(h.AttemptHistory, viewAttempt(&stored[i]))
	}
	if j.state.Status == jobs.Delivered {
		h.AttemptHistory = append(h.AttemptHistory, attemptView{Attempt: j.state.Attempts, At: stamp(j.state.ChangedAt), StatusCode: j.state.StatusCode})
		// A success that is reported late ends the job, but is not its last attempt.
		slices.SortStableFunc(h.AttemptHistory, func(a, b attemptView) int { return time.Time(a.At).Compare(time.Time(b.At)) })
	}
	if over := len(h.AttemptHistory) - maxAttempts; over > 0 {
		h.AttemptHistory, h.AttemptHistoryTruncated = h.AttemptHistory[over:], true
	}
	return h, nil
}

// last returns when the newest attempt ended, zero when there is none.
func (h history) last() time.Time {
	if len(h.AttemptHistory) == 0 {
		return time.Time{}
	}
	return time.Time(h.AttemptHistory[len(h.AttemptHistory)-1].At)
}

// hideConsumer removes the answers of the consumer, and errors, which may name its callback.
func (h history) hideConsumer() {
	for i := range h.AttemptHistory {
		v := &h.AttemptHistory[i]
		v.Error, v.Answer, v.AnswerEncoding = "", "", ""
	}
}

func viewAttempt(a *durable.Attempt) attemptView {
	v := attemptView{
		Attempt: a.No, At: stamp(time.UnixMilli(a.AtMs)), StatusCode: a.StatusCode, DurationMs: &a.DurationMs,
		Error: strings.ToValidUTF8(a.Error, "\uFFFD"),
	}
	answer := a.Answer
	if !utf8.Valid(answer) {
		answer = wholeRunes(answer)
	}
	v.Answer = string(answer)
	if !utf8.Valid(answer) {
		v.Answer, v.AnswerEncoding = base64.StdEncoding.EncodeToString(a.Answer), "base64"
	}
	return v
}

// wholeRunes returns b, which is the beginning of a longer text, without an incomplete
// character at its end.
func wholeRunes(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-n]
			}
			break
		}
	}
	return b
}
