package alerts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	netmail "net/mail"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Mail sends alerts through a mail server.
type Mail struct {
	from   string
	to     []string
	domain string // of Message-IDs
	server mailServer
}

// The errors never show the URL, which contains a password.
var (
	errServer  = errors.New("must be smtp://user:password@host:port?tls=starttls, with tls=starttls, implicit or none")
	errPlain   = errors.New("has a password and tls=none, which only a server on this machine may have")
	errFrom    = errors.New("must be a mail address")
	errTo      = errors.New("must be a list of at most 50 mail addresses, separated by commas")
	errMailbox = errors.New("a mail server refused the mail")
)

const maxRecipients = 50

// A MailError says what is wrong with one of the three settings of mail.
type MailError struct {
	Setting string // "SMTP_URL", "FROM" or "TO"
	Err     error
}

func (e *MailError) Error() string { return e.Setting + " " + e.Err.Error() }

// MailErrors are the mistakes of all three settings.
type MailErrors []*MailError

// Unwrap returns each of them, for errors.As.
func (e MailErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

func (e MailErrors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// NewMail returns a sender of mails through the server of a URL. config is that of TLS, nil: the
// roots of the system. The error is a MailErrors.
func NewMail(server, from string, to []string, config *tls.Config) (*Mail, error) {
	m := &Mail{from: from}
	var wrong MailErrors
	var err error
	if m.server, err = parseServer(server); err != nil {
		wrong = append(wrong, &MailError{"SMTP_URL", err})
	}
	if sender, err := netmail.ParseAddress(from); err != nil {
		wrong = append(wrong, &MailError{"FROM", errFrom})
	} else {
		_, m.domain, _ = strings.Cut(sender.Address, "@")
	}
	if m.to, err = recipients(to); err != nil {
		wrong = append(wrong, &MailError{"TO", err})
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	m.server.tls = config
	if _, err := m.server.client(context.Background()); err != nil {
		return nil, MailErrors{{"SMTP_URL", errServer}}
	}
	return m, nil
}

// recipients returns the addresses without blanks around them.
func recipients(to []string) (out []string, err error) {
	for _, address := range to {
		address = strings.TrimSpace(address)
		if _, err := netmail.ParseAddress(address); err != nil {
			return nil, errTo
		}
		out = append(out, address)
	}
	if len(out) == 0 || len(out) > maxRecipients {
		return nil, errTo
	}
	return out, nil
}

// Send sends one mail to all recipients.
func (m *Mail) Send(ctx context.Context, id string, alerts []apitype.Alert) error {
	msg := mail.NewMsg()
	if err := msg.From(m.from); err != nil {
		return err
	}
	if err := msg.To(m.to...); err != nil {
		return err
	}
	msg.SetMessageIDWithValue(id + "@" + m.domain)
	msg.SetDate()
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no answers by machines
	msg.Subject(subject(alerts))
	msg.SetBodyString(mail.TypeTextPlain, text(alerts))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection, also where the client has left it open
	client, err := m.server.client(ctx)
	if err != nil {
		return err
	}
	err = client.DialAndSendWithContext(ctx, msg)
	if msg.IsDelivered() { // what came after that does not matter
		return nil
	}
	if err != nil && msg.HasSendError() { // it quotes the recipients
		return fmt.Errorf("%w: %w", errMailbox, err)
	}
	return err
}

func subject(alerts []apitype.Alert) string {
	if len(alerts) > 1 {
		return fmt.Sprintf("[Penstock] %d alerts", len(alerts))
	}
	a := alerts[0]
	return fmt.Sprintf("[Penstock] %s: %s", a.Event, strings.TrimSuffix(a.ChannelID+"/"+a.ConsumerID, "/"))
}

func text(alerts []apitype.Alert) string {
	var b strings.Builder
	for i, a := range alerts {
		if i > 0 {
			b.WriteString("\n\n")
		}
		at, _ := a.At.MarshalJSON() // never fails
		fmt.Fprintf(&b, "Event:    %s\nChannel:  %s\nConsumer: %s\nAt:       %s\nReason:   %s\n", a.Event, a.ChannelID,
			a.ConsumerID,
			strings.Trim(string(at), `"`), oneLine(a.Reason))
		if a.ReviveURL != "" {
			fmt.Fprintf(&b, "Revive:   %s\n", a.ReviveURL)
		}
	}
	return b.String()
}

// oneLine keeps a reason, which may quote a consumer, on its line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
