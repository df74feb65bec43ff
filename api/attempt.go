package api

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/jobs"
)

// maxAttempts is the number of attempts that one GET of a job shows. Each has up to a KiB of
// error and a KiB of answer, so the response stays far below a MiB.
const maxAttempts = 100

// history returns the newest ended attempts of a job. It tells the view how often the job was given back,
// and how many of its leases were lost.
func (a *API) history(ctx context.Context, j located, v *apitype.Job) (apitype.History, error) {
	stored, err := a.o.Store.Attempts(ctx, j.consumer.No, j.state.ID, maxAttempts+1)
	if err != nil {
		return apitype.History{}, err
	}
	givenBack, lost := 0, 0
	h := apitype.History{AttemptHistory: make([]apitype.Attempt, 0, len(stored)+1)}
	if slices.ContainsFunc(stored, func(a durable.Attempt) bool { return a.Phase >= durable.PhaseLeaseEnded }) ||
		len(stored) > maxAttempts {
		if givenBack, lost, err = a.o.Store.LeaseCounts(ctx, j.consumer.No, j.state.ID); err != nil {
			return apitype.History{}, err
		}
	}
	if j.state.Status == jobs.Dead { // its attempts may be gone
		givenBack, lost = max(givenBack, j.state.GivenBack), max(lost, j.state.LeasesLost)
	}
	v.GivenBack, v.LeasesLost = &givenBack, &lost
	for i := range stored {
		h.AttemptHistory = append(h.AttemptHistory, viewAttempt(&stored[i]))
	}
	noted := slices.ContainsFunc(stored, func(a durable.Attempt) bool { // what the status URL said is stored with it
		return a.No == j.state.Attempts && a.AtMs == j.state.ChangedAt.UnixMilli() && a.StatusCode/100 == 2
	})
	if j.state.Status == jobs.Delivered && !noted {
		h.AttemptHistory = append(h.AttemptHistory, apitype.Attempt{Attempt: j.state.Attempts,
			At: apitype.Time{Time: j.state.ChangedAt}, StatusCode: j.state.StatusCode})
		// A success that is reported late ends the job, but is not its last attempt.
		slices.SortStableFunc(h.AttemptHistory, func(a, b apitype.Attempt) int { return a.At.Compare(b.At.Time) })
	}
	if h.AttemptsRemovedBefore, err = a.attemptsRemoved(ctx, j, len(h.AttemptHistory)); err != nil {
		return apitype.History{}, err
	}
	if over := len(h.AttemptHistory) - maxAttempts; over > 0 {
		h.AttemptHistory, h.AttemptHistoryTruncated = h.AttemptHistory[over:], true
	}
	return h, nil
}

// attemptsRemoved returns the time before which attempts were removed, where fewer are there than the job had, and than
// are shown.
func (a *API) attemptsRemoved(ctx context.Context, j located, there int) (*apitype.Time, error) {
	over, had := j.state.Status == jobs.Delivered || j.state.Status == jobs.Dead, min(j.state.Attempts, maxAttempts)
	if !over || there >= had { // the usual job: no statement
		return nil, nil
	}
	ms, err := a.o.Store.AttemptsRemovedMs(ctx, j.consumer.ChannelNo)
	if err != nil {
		return nil, err
	}
	if ms = durable.RemovedAttempts(j.state.ID, over, had, there, ms); ms == 0 {
		return nil, nil
	}
	return &apitype.Time{Time: time.UnixMilli(ms)}, nil
}

// lastAttempt returns when the newest attempt ended, zero when there is none.
func lastAttempt(h apitype.History) time.Time {
	if len(h.AttemptHistory) == 0 {
		return time.Time{}
	}
	return h.AttemptHistory[len(h.AttemptHistory)-1].At.Time
}

// hideAnswers removes the answers of the consumer, and errors, which may name its callback.
func hideAnswers(h apitype.History) {
	for i := range h.AttemptHistory {
		v := &h.AttemptHistory[i]
		v.Error, v.Answer, v.AnswerEncoding, v.Worker, v.WorkerVersion = "", "", "", "", ""
	}
}

func viewAttempt(a *durable.Attempt) apitype.Attempt {
	v := apitype.Attempt{
		Attempt: a.No, At: apitype.Time{Time: time.UnixMilli(a.AtMs)}, StatusCode: a.StatusCode, DurationMs: &a.DurationMs,
		Error: strings.ToValidUTF8(a.Error, "\uFFFD"),
	}
	v.Phase = a.Phase.String()
	v.Worker, v.WorkerVersion = presence.Held(a.Worker)
	answer := a.Answer
	if !utf8.Valid(answer) {
		answer = wholeRunes(answer)
	}
	v.Answer = string(answer)
	if !utf8.Valid(answer) {
		v.Answer, v.AnswerEncoding = base64.StdEncoding.EncodeToString(a.Answer), apitype.Base64
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
