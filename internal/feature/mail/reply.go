package mail

import (
	"context"
	"errors"
	"net"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	gomail "github.com/wneessen/go-mail"

	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// mostWords bounds what is kept of the words of a mail server, bytes.
const mostWords = 512

// aboutCredentials are the codes of answers that concern the settings of the broker and not the mail: RFC 4954.
var aboutCredentials = []int{530, 534, 535, 538}

// took is the end of an attempt whose mail the server took.
func took(said string) egress.Result {
	return egress.Result{Status: 250, RetryAfter: -1, Answer: []byte(line(said)), Sent: true}
}

// failed is the end of an attempt whose mail the server did not take, or may not have taken. ctx is that of
// the attempt, life that of the broker.
func failed(life, ctx context.Context, err error) egress.Result {
	res := egress.Result{RetryAfter: -1}
	var refusal *gomail.SendError
	if errors.As(err, &refusal) {
		// Once the text is on its way the server may have the whole of it, and only its answer is missing.
		res.Sent = refusal.Reason == gomail.ErrSMTPDataClose || refusal.Reason == gomail.ErrWriteContent
		if code := refusal.ErrorCode(); code >= 400 && code <= 599 {
			res.Status, res.Words = code, "the mail server answered: "+words(refusal)
			res.Reply = egress.Deferred
			if code >= 500 && !slices.Contains(aboutCredentials, code) {
				res.Reply = egress.Refused
			}
			return res
		}
	}
	if life.Err() != nil {
		return egress.Result{RetryAfter: -1, Err: egress.ErrClosed, Sent: res.Sent}
	}
	res.Err = errors.New(unanswered(ctx, err))
	return res
}

// words is the answer of a server, without what the library adds around it: the receivers, who are in the
// callback URL.
func words(refusal *gomail.SendError) string {
	text := strings.TrimPrefix(refusal.Error(), refusal.Reason.String()+": ")
	for _, added := range []string{", affected recipient(s): ", ", affected message ID: "} {
		text, _, _ = strings.Cut(text, added)
	}
	return line(unquoted(text))
}

// unquoted is a text without the quotes that the library puts around what a server said.
func unquoted(text string) string {
	var b strings.Builder
	for text != "" {
		quoted, err := strconv.QuotedPrefix(text)
		said, unquote := strconv.Unquote(quoted)
		if text[0] != '"' || err != nil || unquote != nil {
			b.WriteByte(text[0])
			text = text[1:]
			continue
		}
		b.WriteString(said)
		text = text[len(quoted):]
	}
	return b.String()
}

// unanswered says why there is no answer to a mail.
func unanswered(ctx context.Context, err error) string {
	var said *textproto.Error
	var slow net.Error
	var dns *net.DNSError
	switch {
	case errors.Is(err, errSaysTooMuch):
		return errSaysTooMuch.Error()
	case errors.As(err, &said):
		return line("the mail server refused the connection: " + unquoted(said.Error()))
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return "timeout: the mail server did not take the mail in time"
	case errors.As(err, &dns):
		return "the host name of the mail server could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the mail server refused the connection"
	}
	return "the connection to the mail server failed"
}

// line makes one bounded line of a text.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), mostWords)], "")
}
