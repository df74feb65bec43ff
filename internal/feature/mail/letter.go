package mail

import (
	"context"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// A Letter is one mail of plain text.
type Letter struct {
	ID      string // of the Message-ID, before the @; the same in repetitions
	To      []string
	Subject string // one line
	Text    string
	Headers [][2]string // further ones: name and value, one line each
}

// Send hands a mail in. It ends with ctx, and each of its steps within a time. said is what the server
// answered to a mail that it took. After an error the mail server may have the mail nevertheless.
func (s *Server) Send(ctx context.Context, within time.Duration, l *Letter) (said string, err error) {
	msg := gomail.NewMsg()
	if err := msg.From(s.from); err != nil {
		return "", err
	}
	if err := msg.To(l.To...); err != nil {
		return "", err
	}
	msg.SetMessageIDWithValue(l.ID + "@" + s.domain)
	msg.SetDate()
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no answers by machines
	for _, h := range l.Headers {
		msg.SetGenHeader(gomail.Header(h[0]), h[1])
	}
	msg.Subject(l.Subject)
	msg.SetBodyString(gomail.TypeTextPlain, l.Text)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection, also where the client has left it open
	client, err := s.at.client(ctx, max(within, time.Millisecond))
	if err != nil {
		return "", err
	}
	err = client.DialAndSendWithContext(ctx, msg)
	if msg.IsDelivered() { // what came after that does not matter
		return msg.ServerResponse(), nil
	}
	return "", err
}
