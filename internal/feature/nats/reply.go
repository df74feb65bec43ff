package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// mostWords bounds what is kept of the words of a server, bytes; mostAnswer what is kept of an acknowledgement.
const mostWords, mostAnswer = 256, 1 << 10

// The ends of an attempt that have no words of a server, for people.
var (
	errPlaces      = errors.New("all connections to NATS servers are in use")
	errIdle        = errors.New("the connection to the NATS server was not used")
	errEnded       = errors.New("the connection to the NATS server ended before a stream had acknowledged the message")
	errSilent      = errors.New("the NATS server says nothing any more")
	errUnread      = errors.New("timeout: the NATS server did not read the message in time")
	errStrange     = errors.New("a program that is no stream answered, and no stream acknowledged the message in time")
	errUnconfirmed = errors.New("timeout: no stream acknowledged the message in time")
	errUnreached   = errors.New("timeout: there was no connection to the NATS server in time")
	errNotNATS     = errors.New("the server does not speak the protocol of NATS")
	errNoTLS       = errors.New("the NATS server has no TLS, and a tls:// callbackUrl asks for it")
	errOld         = errors.New("the NATS server knows no headers: it is older than 2.2, or has them turned off")
	errSaysTooMuch = errors.New("the NATS server says more than an acknowledgement has")
)

// A connectError says that there is no connection, with the reason of the egress client.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

// A refusal is what a server says before it ends a connection.
type refusal struct{ words string }

func (r *refusal) Error() string { return "the NATS server ended the connection: " + line(r.words) }

// An answer is what a stream, or the server in its place, says to a message.
type answer struct {
	status int    // 200: the stream has the message
	full   bool   // it is about the room of the account, not about the message
	words  string // of an error
	kept   []byte // the acknowledgement
}

// result is the end of the attempt.
func (a *answer) result() egress.Result {
	res := egress.Result{Status: a.status, RetryAfter: -1, Sent: true}
	switch {
	case a.status == 200:
		res.Answer = a.kept
	case a.status == 400 && !a.full: // about the message: it gets the same answer each time
		res.Reply, res.Words = egress.Refused, "the stream refused the message: "+line(a.words)
	default:
		res.Reply, res.Words = egress.Deferred, "the message was not stored: "+line(a.words)
	}
	return res
}

// What a server calls an account without room, a limit of which is reached or that has none for the stream. Its
// status is 400, as that of a message that no stream takes. Source: the errors of JetStream in nats-server.
const accountFull, noTier = 10002, 10120

// noResponders is the answer to a message that no stream and no subscriber takes.
const noResponders = "no stream has the subject (no responders)"

// answerOf reads an answer. ok is false where it is neither the acknowledgement of a stream nor an error.
func answerOf(f frame) (a answer, ok bool) {
	if status, _, _ := bytes.Cut(f.head, []byte("\r\n")); bytes.HasPrefix(status, []byte("NATS/1.0 503")) &&
		len(f.payload) == 0 {
		return answer{status: 503, words: noResponders}, true
	}
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Error  *struct {
			Code        int    `json:"code"`
			Number      int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if json.Unmarshal(f.payload, &ack) != nil {
		return answer{}, false
	}
	switch {
	case ack.Error != nil && ack.Error.Code >= 400 && ack.Error.Code <= 599 && (ack.Stream != "" || ack.Error.Number > 0):
		return answer{status: ack.Error.Code, words: ack.Error.Description,
			full: ack.Error.Number == accountFull || ack.Error.Number == noTier}, true
	case ack.Error == nil && ack.Stream != "" && ack.Seq > 0:
		return answer{status: 200, kept: f.payload[:min(len(f.payload), mostAnswer)]}, true
	}
	return answer{}, false
}

// tooLarge is the end of an attempt whose message no repetition makes smaller.
func tooLarge(size, most int64) egress.Result {
	return egress.Result{Status: 413, RetryAfter: -1, Reply: egress.Refused, Words: fmt.Sprintf("the message has %d "+
		"bytes with its headers, and the NATS server takes %d (max_payload)", size, most)}
}

// deniedPublish returns the subject that an error of a server says the user may not publish to.
func deniedPublish(text string) (subject string, ok bool) {
	const begin = `permissions violation for publish to "`
	if len(text) < len(begin) || !strings.EqualFold(text[:len(begin)], begin) {
		return "", false
	}
	subject, _, ok = strings.Cut(text[len(begin):], `"`)
	return subject, ok
}

// unconnected is the end of an attempt for which there was no connection.
func unconnected(ctx context.Context, err error) egress.Result {
	var failed *connectError
	var said *refusal
	var login *policy.FieldError
	res := egress.Result{RetryAfter: -1}
	switch {
	case errors.Is(err, errPlaces):
		return push.Unsent(err)
	case errors.As(err, &failed):
		return egress.Unconnected(failed.error)
	case errors.As(err, &said):
		res.Status, res.Reply = 401, egress.Deferred
		res.Words = "the NATS server refused the connection: " + line(said.words)
	case errors.As(err, &login):
		res.Err = errors.New("the field authorization " + login.Problem)
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded):
		res.Err = errUnreached
	default:
		res.Err = told(err)
	}
	return res
}

// unanswered is the end of an attempt whose message was not acknowledged, but may have been stored.
func unanswered(ctx context.Context, err error, sent bool) egress.Result {
	if !sent && errors.Is(err, errIdle) { // it made room for others before it was used
		return push.Unsent(err)
	}
	if err == ctx.Err() && err != nil {
		err = errUnconfirmed
	}
	return egress.Result{RetryAfter: -1, Sent: sent, Err: told(err)}
}

// told returns an error whose text is for people.
func told(err error) error {
	var net interface{ Timeout() bool }
	if errors.As(err, &net) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEnded
	}
	return err
}

// line makes one bounded line of a text of a server.
func line(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	return strings.ToValidUTF8(text[:min(len(text), mostWords)], "")
}
