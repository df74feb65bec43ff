package problem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// capture collects what is logged during a test.
func capture(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &b
}

func TestEveryErrorOfTheStoreHasItsStatusAndCode(t *testing.T) {
	for code, c := range map[string]struct {
		err    error
		status int
	}{
		"outcome_unknown":      {durable.ErrOutcomeUnknown, 503},
		"duplicate_message_id": {&durable.DuplicateError{ID: ident.AtMillis(1)}, 409},
		"message_id_conflict":  {durable.ErrConflict, 409},
		"not_found":            {durable.ErrNotFound, 404},
		"precondition_failed":  {durable.ErrPrecondition, 412},
		"channel_full":         {durable.ErrFull, 409},
		"rejected":             {durable.ErrRejected, 400},
		"unavailable":          {durable.ErrFailed, 503},
		"internal":             {errors.New("dial tcp: refused"), 500},
	} {
		for _, err := range []error{c.err, fmt.Errorf("durable: insert: %w", c.err)} {
			p := From(err)
			require.Equal(t, code, p.Code)
			require.Equal(t, c.status, p.Status)
			require.NotEmpty(t, p.Detail)
		}
	}
	require.Equal(t, 503, From(context.DeadlineExceeded).Status)
	require.Equal(t, "unavailable", From(redisq.ErrFailed).Code)
}

// Of an error that nothing is known about, nobody is told that nothing was stored.
func TestAnUnknownErrorPromisesNothing(t *testing.T) {
	p := From(errors.New("a mistake of ours"))
	require.Equal(t, 500, p.Status)
	require.False(t, NothingStored(p.Status, p.Code))
	lost := From(errors.Join(durable.ErrFailed, durable.ErrOutcomeUnknown))
	require.Equal(t, "outcome_unknown", lost.Code)
	require.False(t, NothingStored(lost.Status, lost.Code))
}

// A request that stores no message is not told of one.
func TestAnUnknownOutcomeOfAChangeSpeaksOfNoMessage(t *testing.T) {
	lost := errors.Join(durable.ErrFailed, durable.ErrOutcomeUnknown)
	require.Contains(t, From(lost).Detail, "message")
	p := FromChange(lost)
	require.Equal(t, "outcome_unknown", p.Code)
	require.NotContains(t, p.Detail, "message")
	require.ErrorIs(t, p, durable.ErrOutcomeUnknown)
	require.Equal(t, "not_found", FromChange(durable.ErrNotFound).Code)
	require.Contains(t, From(durable.ErrRejected).Detail, "message")
	refused := FromChange(durable.ErrRejected)
	require.Equal(t, "rejected", refused.Code)
	require.NotContains(t, refused.Detail, "message")
	require.ErrorIs(t, refused, durable.ErrRejected)
}

func TestAProblemStaysItselfInsideOtherErrors(t *testing.T) {
	p := New(418, "teapot", "Short and stout.")
	require.Same(t, p, From(fmt.Errorf("deeper: %w", p)))
}

func TestACauseIsKeptForTheLogOnly(t *testing.T) {
	cause := errors.New("dial tcp 10.0.0.1: refused")
	p := ErrUnavailable.Because(cause)
	require.ErrorIs(t, p, cause)
	require.Contains(t, p.Error(), "10.0.0.1")
	require.NotContains(t, string(p.JSON("r")), "10.0.0.1")
	require.NoError(t, ErrUnavailable.Unwrap(), "the shared problem is not changed")
	require.Contains(t, Newf(400, "x", "%d jobs", 3).Error(), "x: 3 jobs")
}

func TestWriteAnswersAndLogsAHiddenCauseOnce(t *testing.T) {
	logged := capture(t)
	rc := &fasthttp.RequestCtx{}
	rc.Response.Header.Set("X-Request-ID", "r-1")
	rc.SetBodyString("half an answer")
	Write(rc, fmt.Errorf("%w: put: dial tcp 10.0.0.1: refused", durable.ErrFailed))

	require.Equal(t, 503, rc.Response.StatusCode())
	require.Equal(t, ContentType, string(rc.Response.Header.ContentType()))
	require.Equal(t, "1", string(rc.Response.Header.Peek("Retry-After")))
	var body map[string]any
	require.NoError(t, json.Unmarshal(rc.Response.Body(), &body))
	require.Equal(t, map[string]any{
		"type": "/docs/errors#unavailable", "title": "Service Unavailable", "status": 503.0,
		"code": "unavailable", "request_id": "r-1",
		"detail": ErrUnavailable.Detail,
	}, body)
	require.True(t, bytes.HasSuffix(rc.Response.Body(), []byte("\n")))
	require.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("\n")))
	require.Contains(t, logged.String(), "10.0.0.1")
	require.Contains(t, logged.String(), "request_id=r-1")
}

func TestTheReasonOfARejectionIsLoggedOnce(t *testing.T) {
	logged := capture(t)
	rc := &fasthttp.RequestCtx{}
	rc.Response.Header.Set("X-Request-ID", "r-2")
	Write(rc, fmt.Errorf("%w: CONSTRAINT `strict` failed", durable.ErrRejected))
	require.Equal(t, 400, rc.Response.StatusCode())
	require.NotContains(t, string(rc.Response.Body()), "strict")
	require.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("\n")))
	require.Contains(t, logged.String(), "level=WARN")
	require.Contains(t, logged.String(), "strict")
	require.Contains(t, logged.String(), "request_id=r-2")
}

func TestWhatTheCallerDidWrongIsNotLogged(t *testing.T) {
	logged := capture(t)
	rc := &fasthttp.RequestCtx{}
	Write(rc, New(400, "bad", "No."))
	Write(rc, durable.ErrNotFound)
	Write(rc, ErrOverloaded)
	require.Empty(t, logged.String())
	require.Empty(t, string((&fasthttp.RequestCtx{}).Response.Header.Peek("Retry-After")))
}

func TestCodesAreSnakeCaseAndDetailsAreSentences(t *testing.T) {
	for _, p := range []*Problem{ErrUnavailable, ErrOutcomeUnknown, ErrOverloaded, ErrDraining, ErrInternal} {
		require.Regexp(t, regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`), p.Code)
		require.Regexp(t, regexp.MustCompile(`^[A-Z].*\.$`), p.Detail)
		if p.Status == 503 {
			require.Positive(t, p.RetryAfter)
		}
	}
}

func TestAClientCanTellWhatIsNotStored(t *testing.T) {
	for _, p := range []*Problem{ErrUnavailable, ErrOverloaded, ErrDraining, ErrJournalFull, ErrJournalFailed,
		New(400, "bad", "No."), New(429, "rate", "No.")} {
		require.True(t, NothingStored(p.Status, p.Code), p.Code)
	}
	for _, p := range []*Problem{ErrOutcomeUnknown, ErrInternal, New(503, "", ""), New(502, ErrOverloaded.Code, ""),
		New(201, "", "")} {
		require.False(t, NothingStored(p.Status, p.Code), "%d %s", p.Status, p.Code)
	}
}
