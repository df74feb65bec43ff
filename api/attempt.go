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

// maxAttempts is how many attempts one GET of a job shows: with a KiB of error
// and one of answer each, the answer stays far below a MiB.
const maxAttempts = 100

// An attemptView is an attempt as JSON. Answer holds base64 when the bytes are
// not UTF-8, and AnswerEncoding then says so.
type attemptView struct {
	Attempt        int
	At             stamp  // of its end
	StatusCode     int    `json:",omitempty"` // none: no answer came, or a pull consumer reported
	DurationMs     *int64 `json:",omitempty"` // not known of a success
	Error          string `json:",omitempty"`
	Answer         string `json:",omitempty"` // the first KiB
	AnswerEncoding string `json:",omitempty"`
}

// A history is what is stored of the attempts of a job: those that failed, and
// the one that succeeded.
type history struct {
	AttemptHistory          []attemptView // in order of time
	AttemptHistoryTruncated bool          `json:",omitempty"` // there are older ones
}

// history returns the newest attempts of a job that has ended them.
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
		// A success that is reported late is the end of the job all the same, but
		// not its last attempt.
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

// hideConsumer takes out what the consumer answered, and errors, which may name
// its callback.
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

// wholeRunes returns b without the beginning of a character at its end, where a
// text was cut.
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
