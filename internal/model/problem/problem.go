// Package problem turns errors into HTTP answers: application/problem+json of RFC 9457,
// with a stable code that clients may compare.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/redisq"
)

// ContentType is the media type of every error body.
const ContentType = apitype.MediaProblem

// A Problem is an answer other than success. It implements error, so that packages below
// the handler can choose the answer.
type Problem struct {
	Status     int    // HTTP status
	Code       string // stable, snake_case
	Detail     string // a sentence for people, without tokens, SQL and DSNs
	RetryAfter int    // seconds, 0 = no header
	cause      error
	wrongToken bool
}

// New returns a problem.
func New(status int, code, detail string) *Problem {
	return &Problem{Status: status, Code: code, Detail: detail}
}

// Newf is New with a format. It shows errors as package sentence does.
func Newf(status int, code, format string, args ...any) *Problem {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = sentence.Of(err)
		}
	}
	return New(status, code, fmt.Sprintf(format, args...))
}

// Because returns a copy of p that keeps err for the log. The client never gets err.
func (p *Problem) Because(err error) *Problem {
	q := *p
	q.cause = err
	return &q
}

// OfToken makes p the refusal of a wrong token, and returns it: the answer is counted as a failure of its address.
func (p *Problem) OfToken() *Problem {
	p.wrongToken = true
	return p
}

// wrongTokenKey is the user value of a request that was refused because of a wrong token.
const wrongTokenKey = "wrong token"

// NoteWrongToken notes that the answer refuses a wrong token.
func NoteWrongToken(ctx *fasthttp.RequestCtx) { ctx.SetUserValue(wrongTokenKey, true) }

// OfWrongToken reports whether the answer does.
func OfWrongToken(ctx *fasthttp.RequestCtx) bool { return ctx.UserValue(wrongTokenKey) != nil }

// TooManyFailures refuses an address that has sent too many wrong tokens, for that many seconds.
func TooManyFailures(seconds int) *Problem {
	return &Problem{Status: fasthttp.StatusTooManyRequests, Code: "too_many_failures", RetryAfter: max(seconds, 1),
		Detail: "This address has sent too many wrong tokens. The broker looks at its tokens again after Retry-After seconds."}
}

func (p *Problem) Error() string {
	if p.cause != nil {
		return p.Code + ": " + p.cause.Error()
	}
	return p.Code + ": " + p.Detail
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.cause }

// The problems that more than one package returns.
var (
	ErrUnavailable = &Problem{Status: 503, Code: "unavailable", RetryAfter: 1,
		Detail: "A store cannot be reached, or takes no writes, right now. Nothing is known to have changed; send the request again."}
	ErrOutcomeUnknown = &Problem{Status: 503, Code: "outcome_unknown", RetryAfter: 1,
		Detail: "The message may or may not be stored. Post it again with the same X-Broker-Message-ID or Idempotency-Key: it is stored once."}
	errChangeUnknown = &Problem{Status: 503, Code: "outcome_unknown", RetryAfter: 1,
		Detail: "The request may or may not have had its effect: the store did not answer to the end. Read what it is about, or send it again."}
	errRejected       = New(400, "rejected", "The store refuses the content of this message.")
	errChangeRejected = New(400, "rejected", "The store refuses a value of this request. Nothing was changed.")
	ErrOverloaded     = &Problem{Status: 503, Code: "overloaded", RetryAfter: 1,
		Detail: "Too many requests are waiting for the store. Nothing was stored; try again."}
	ErrDraining = &Problem{Status: 503, Code: "draining", RetryAfter: 1,
		Detail: "This broker is stopping. Nothing was stored; try again."}
	ErrChannelPaused = &Problem{Status: 503, Code: "channel_paused", RetryAfter: 5,
		Detail: "The channel accepts no messages until it is resumed. Nothing was stored."}
	ErrGroupPaused = &Problem{Status: 503, Code: "group_paused", RetryAfter: 5,
		Detail: "The channels of this group accept no messages until the group is resumed. Nothing was stored."}
	ErrNotReplicated = &Problem{Status: 503, Code: "not_replicated", RetryAfter: 1,
		Detail: "The store does not confirm that a second server has the message, which this channel requires. The message may be stored: post it again with the same X-Broker-Message-ID or Idempotency-Key."}
	ErrJournalFull = &Problem{Status: 503, Code: "journal_full", RetryAfter: 5,
		Detail: "The store does not answer in time, and the journal of this broker takes no more messages. Nothing was stored; try again."}
	ErrJournalFailed = &Problem{Status: 503, Code: "journal_failed", RetryAfter: 5,
		Detail: "The store does not take the message in time, and the journal of this broker cannot be written. Nothing was stored; try again."}
	ErrInternal = &Problem{Status: 500, Code: "internal", Detail: "The broker failed to handle this request. Its log has the request ID."}
)

// NothingStored reports whether an answer to a publish promises that the request stored no
// message. For 409 duplicate_message_id it returns true although the message is stored:
// an earlier request stored it.
func NothingStored(status int, code string) bool {
	switch {
	case status >= 400 && status < 500:
		return true
	case status == 503:
		return code == ErrOverloaded.Code || code == ErrDraining.Code || code == ErrChannelPaused.Code || code == ErrGroupPaused.Code || code == ErrUnavailable.Code || code == ErrJournalFull.Code || code == ErrJournalFailed.Code
	}
	return false
}

// Paused reports whether an error says that the channel or its group is paused.
func Paused(err error) bool {
	return errors.Is(err, ErrChannelPaused) || errors.Is(err, ErrGroupPaused)
}

// From turns any error into the problem that the client gets. The failure of a store or a
// queue is 503, and promises that no change is known. An error that From does not know is
// 500, and promises nothing. Both keep their cause for the log.
func From(err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, durable.ErrNotReplicated):
		return ErrNotReplicated.Because(err)
	case errors.Is(err, durable.ErrOutcomeUnknown):
		return ErrOutcomeUnknown.Because(err)
	case errors.Is(err, durable.ErrDuplicate):
		return New(409, "duplicate_message_id", "A message with this X-Broker-Message-ID is already stored in the channel.")
	case errors.Is(err, durable.ErrConflict):
		return New(409, "message_id_conflict", "Another message has this ID in the channel: of another producer, or with other content, content type, priority, metadata headers, consumers, time to live or ordering key. This one is not stored.")
	case errors.Is(err, durable.ErrReused):
		return New(422, "idempotency_key_reused", "Another message of this producer, with another body or other times, consumers, time to live or ordering key, has this Idempotency-Key. This one is not stored.")
	case errors.Is(err, durable.ErrNotFound):
		return New(404, "not_found", "There is no such resource.")
	case errors.Is(err, durable.ErrPrecondition):
		return New(412, "precondition_failed", "The resource does not meet the condition in If-Match, If-None-Match or If-Unmodified-Since.")
	case errors.Is(err, durable.ErrFull):
		return New(409, "channel_full", "The channel has the maximum number of consumers.")
	case errors.Is(err, durable.ErrRejected):
		return errRejected.Because(err)
	case errors.Is(err, durable.ErrFailed), errors.Is(err, redisq.ErrFailed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ErrUnavailable.Because(err)
	default:
		return ErrInternal.Because(err)
	}
}

// FromChange is From for a request that stores no message: it speaks of none.
func FromChange(err error) *Problem {
	p := From(err)
	switch p.Code {
	case ErrOutcomeUnknown.Code:
		return errChangeUnknown.Because(err)
	case errRejected.Code:
		return errChangeRejected.Because(err)
	}
	return p
}

// Write answers err. Write also logs the cause of a problem that has one, with the request
// ID: a 5xx, or a message that the store rejects. The client gets code and detail only.
func Write(ctx *fasthttp.RequestCtx, err error) {
	p := From(err)
	requestID := ctx.Response.Header.Peek("X-Request-ID")
	if p.cause != nil {
		slog.Warn("request failed", "status", p.Status, "code", p.Code, "error", p.cause, "request_id", string(requestID))
	}
	if p.wrongToken {
		NoteWrongToken(ctx)
	}
	ctx.Response.ResetBody()
	ctx.SetStatusCode(p.Status)
	ctx.SetContentType(ContentType)
	if p.Status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer realm="broker"`) // RFC 9110, 11.6.1; RFC 6750, 3, wants a parameter
	}
	if p.RetryAfter > 0 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	ctx.Response.SetBodyRaw(p.JSON(string(requestID)))
}

// explained is the page of all errors of a broker, which has an anchor for each code.
const explained = "/docs/errors#"

// JSON returns the body of p, ending in a newline.
func (p *Problem) JSON(requestID string) []byte {
	b, err := json.Marshal(apitype.Problem{
		Type: explained + p.Code, Title: fasthttp.StatusMessage(p.Status), Status: p.Status,
		Detail: p.Detail, Code: p.Code, RequestID: requestID,
	})
	if err != nil { // impossible: the struct has strings and an int only
		return []byte("{}\n")
	}
	return append(b, '\n')
}
